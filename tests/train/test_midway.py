"""A run that ends inside a phase goes on from a checkpoint inside it, with the trust of that epoch's pass."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_helpers import make_job

from pairsift.train.checkpoint import read_tensors
from pairsift.train.loop import CHECKPOINT, Trainer

pytestmark = pytest.mark.slow

BATCH, EPOCH = ({"captions": {"search": search}} for search in ("batch", "epoch"))

META = {**BATCH, "meta": {"groups": 4, "hidden": 8}}


class CutShortError(Exception):
    pass


class Mortal(Trainer):
    """Dies in the step that it is told, before the gradients; its last checkpoint lacks one more step."""

    def __init__(self, folder: Path, name: str, options: dict, dies_at: int | None = None) -> None:
        job = make_job(folder, name, n_images=100, epochs={"all": 1}, **options)
        super().__init__(replace(job, options=job.options.replaced(batch_size=16)))
        self.taken, self.dies_at = [], dies_at

    def _take(self, step):
        if len(self.taken) == self.dies_at:
            raise CutShortError
        super()._take(step)
        self.taken.append((self.position.epoch, step.k))
        self._saved = float("-inf") if len(self.taken) + 1 == self.dies_at else self._saved


@pytest.mark.parametrize(("name", "options"), [("ncr", {}), ("pc2", BATCH), ("pc2", EPOCH), ("pc2_mscn", META)])
def test_a_run_cut_short_inside_a_phase_ends_with_the_same_weights_and_trust(tmp_path, name, options):
    straight = Mortal(tmp_path / "straight", name, options)
    straight.run()
    end = load_file(tmp_path / "straight" / CHECKPOINT)
    for epoch, k, phase in ((1, 1, "clean"), (2, 0, "all")):
        folder = tmp_path / phase
        assert straight.phases[epoch].name == phase
        within = [at for at, place in enumerate(straight.taken) if place == (epoch, k)]
        with pytest.raises(CutShortError):
            Mortal(folder, name, options, within[-1]).run()
        _, facts = read_tensors(folder / CHECKPOINT)
        position = facts["position"]
        assert (position["epoch"], position["network"], position["step"]) == (epoch, k, len(within) - 2)
        assert len(within) > 2

        resumed = Mortal(folder, name, options)
        resumed.run(resume=True)
        assert resumed.taken == straight.taken[within[-2] :]
        again = load_file(folder / CHECKPOINT)
        assert end.keys() == again.keys() and "state/division.clean_probability" in end
        assert [key for key in end if not torch.equal(end[key], again[key])] == []
