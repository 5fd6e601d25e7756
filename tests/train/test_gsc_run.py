"""GSC in the loop: estimates from the second epoch on, labels exchanged, and a run that was cut short ends the same."""

from dataclasses import replace

import numpy as np
import torch
from train_helpers import make_job

from pairsift.loss.ranking import InfoNCE
from pairsift.train.loop import Trainer


def job(folder, told=None, **options):
    """A job of GSC; `told` gets what happens in which order, and the labels of every step."""

    def observed(method, observe, seen):
        told.append("observe")
        return observe(seen)

    def updated(method, update, notes, epoch):
        before = {name: array.copy() for name, array in method.indicators.state.items()}
        update(notes, epoch)
        after = {name: array.copy() for name, array in method.indicators.state.items()}
        told.append(("update", epoch, before, after))

    def stepped(method, step, given):
        (name,) = given.batches
        y = method.indicators.labels(given.k, given.batch.ids, torch.device("cpu"))
        told.append(("step", name, given.k, given.batch.ids, y.numpy()))
        return step(given)

    hooks = {} if told is None else {"observe": observed, "update": updated, "step": stepped}
    return replace(make_job(folder, "gsc", hooks=hooks, **options), ranking=InfoNCE(base=1.0))


def test_all_pairs_train_by_the_peers_labels_which_epoch_after_epoch_find_the_mismatched(tmp_path):
    told = []
    trainer = Trainer(job(tmp_path, told, epochs={"warmup": 1, "train": 3}))
    trainer.run()
    method = trainer.method
    ids, wrong = method.setting.ids, trainer.job.pairs.mismatched()
    state, epoch, seen = None, 0, {0: [], 1: []}
    gaps = []
    for event in [*told, ("update", 4, {}, {})]:
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
    assert epoch == 4 and "observe" not in told[: 2 * len(ids) // 32]
    assert 0 < gaps[0] < gaps[1] < gaps[2] and gaps[2] > 0.05
    assert [line["phase"] for line in trainer.log] == ["first", "train", "train", "train"]
    assert set(trainer.log[-1]["loss"]["network_0"]) == {"cross_modal", "intra_modal"}
    assert 0 < trainer.log[-1]["noise_rate"] < 1 and trainer.log[0]["noise_rate"] == 0
