"""GSC in the loop: estimates from the second epoch on, labels exchanged, and a run that was cut short ends the same."""

import numpy as np
import torch
from pydantic import PrivateAttr
from train_helpers import SIZES, make_pairs

from pairsift.loss.ranking import InfoNCE
from pairsift.match.two_tower import TwoTower
from pairsift.methods import GSC
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions


def job(folder, method):
    pairs, features = make_pairs()
    (folder / "model").mkdir(parents=True, exist_ok=True)
    options = TrainOptions(batch_size=32, lr=3e-3, seed=5, device="cpu", threads=1)
    return Job(
        pairs,
        features,
        lambda: TwoTower(20, 16, SIZES),
        method,
        InfoNCE(base=1.0),
        options,
        folder,
        progress=False,
    )


class Watched(GSC):
    """Notes what happens in which order, and the labels of every step."""

    _told: list = PrivateAttr(default_factory=list)

    def observe(self, network, k, batch):
        self._told.append("observe")
        return super().observe(network, k, batch)

    def update(self, seen, epoch):
        before = {name: array.copy() for name, array in self.state.items()}
        super().update(seen, epoch)
        self._told.append(("update", epoch, before, {name: array.copy() for name, array in self.state.items()}))

    def step(self, networks, k, batches, phase):
        (name,) = batches
        y = self.indicators.labels(k, batches[name].ids, torch.device("cpu"))
        self._told.append(("step", name, k, batches[name].ids, y.numpy()))
        return super().step(networks, k, batches, phase)


def test_all_pairs_train_by_the_peers_labels_which_epoch_after_epoch_find_the_mismatched(tmp_path):
    method = Watched(epochs={"warmup": 1, "train": 3})
    trainer = Trainer(job(tmp_path, method))
    trainer.run()
    ids, wrong = method.setting.ids, trainer.job.pairs.mismatched()
    state, epoch, seen = None, 0, {0: [], 1: []}
    gaps = []
    for event in [*method._told, ("update", 4, {}, {})]:
        if event[0] == "update":
            for k in range(2):  # each network has trained on every pair once since the last pass
                assert sorted(np.concatenate(seen[k]).tolist()) == ids.tolist()
            epoch, seen, state = epoch + 1, {0: [], 1: []}, event[3]
            assert event[1] == epoch
            if state:
                labels = np.minimum(state["cross_modal"], state["intra_modal"])
                gaps.append(labels[:, ids[~wrong[ids]]].mean() - labels[:, ids[wrong[ids]]].mean())
        elif event[0] == "step":
            _, name, k, batch, y = event
            assert name == "all"
            expected = 1.0 if state is None else np.minimum(state["cross_modal"], state["intra_modal"])[1 - k, batch]
            assert (y == expected).all()
            seen[k].append(batch)
    assert epoch == 4 and "observe" not in method._told[: 2 * len(ids) // 32]
    assert 0 < gaps[0] < gaps[1] < gaps[2] and gaps[2] > 0.05
    assert [line["phase"] for line in trainer.log] == ["first", "train", "train", "train"]
    assert set(trainer.log[-1]["loss"]["network_0"]) == {"cross_modal", "intra_modal"}
    assert 0 < trainer.log[-1]["noise_rate"] < 1 and trainer.log[0]["noise_rate"] == 0
