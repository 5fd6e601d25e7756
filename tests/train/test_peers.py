"""Each network is observed by itself, has a state of its own and trains by its peer's."""

import numpy as np
import pytest
import torch
from train_helpers import make_job

from pairsift.loss.ranking import InfoNCE
from pairsift.methods import METHODS
from pairsift.methods.base import Setting, not_negatives
from pairsift.train.loop import Trainer

OPTIONS = {"ncr": {}, "pc2": {"classes": 4}, "pcsr": {"classes": 4, "warmup_epochs": 0}, "npc": {}, "gsc": {}}
OPTIONS["pcsr"] |= {"clean_epochs": 0, "counted_from": 1}
IMAGE_OF = np.repeat(np.arange(20), 2)
IDS = np.arange(4, 40)
LOW = [IDS < 24, IDS >= 16]  # where each network's losses are small


def begun(name: str, **options):
    method = METHODS[name](**{"networks": 2, **OPTIONS[name], **options})
    method.begin(Setting(IDS, IMAGE_OF, 20, None, InfoNCE(), 0))
    return method


def notes_of(k: int, epoch: int) -> dict[str, np.ndarray]:
    """What network k might note of the pairs, for every method; the networks agree in nothing."""
    rng = np.random.default_rng((k, epoch))
    predictions = rng.dirichlet(np.full(4, 0.3), 20)[IMAGE_OF[IDS]].astype(np.float32)
    return {
        "loss": np.where(LOW[k], 0.1, 0.9) + 0.05 * rng.random(len(IDS)),
        "predictions": predictions,
        "label": predictions.argmax(1),
        "by_image": rng.normal(size=(20, 5))[IMAGE_OF[IDS]],
        "by_text": rng.normal(size=(len(IDS), 5)),
        "probability": rng.random(len(IDS)),
        "agreement": np.tile(rng.random((len(IDS), 1)), 2),
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_each_network_is_observed_with_its_own_weights(tmp_path, name):
    job = make_job(tmp_path, name, n_images=60)
    trainer, passes = Trainer(job), []
    observe = job.method.observe
    marks = [0.5, 1.5]
    for network, mark in zip(trainer.networks, marks, strict=True):
        network.matcher.log_scale.data.fill_(mark)

    def marked(network, batch):
        return {**observe(network, batch), "mark": network.matcher.log_scale.expand(len(batch))}

    job.method.observe, job.method.update = marked, lambda seen, epoch: passes.append((seen, epoch))
    trainer._observe(1)
    ((seen, epoch),) = passes
    assert epoch == 1 and len(seen) == 2
    every = trainer.gather(job.method.setting.ids)
    for notes, network, mark in zip(seen, trainer.networks, marks, strict=True):
        assert (notes["mark"] == mark).all()
        with torch.no_grad():
            own = job.ranking.observe(*network.eval()(every), not_negatives(every))
        if "loss" in notes:  # all training pairs fit into one block
            assert notes["loss"] == pytest.approx(own.numpy(), rel=1e-4)


@pytest.mark.parametrize("name", ["ncr", "pc2", "pcsr", "npc"])
def test_small_losses_of_one_network_are_clean_pairs_of_the_other(name):
    method = begun(name)
    method.update([notes_of(0, 0), notes_of(1, 0)], 0)
    for k in range(2):
        w = method.state["clean_probability"][k]
        assert w[IDS[LOW[k]]].min() > 0.9 and w[IDS[~LOW[k]]].max() < 0.1
        assert method.subset("clean", k).tolist() == IDS[LOW[1 - k]].tolist()
        assert method.subset("noisy", k).tolist() == IDS[~LOW[1 - k]].tolist()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_networks_state_is_that_of_a_lone_network_with_its_observations(name):
    both, alone = begun(name), [begun(name, networks=1) for _ in range(2)]
    for epoch in range(2):
        seen = [notes_of(k, epoch) for k in range(2)]
        both.update(seen, epoch)
        for k, lone in enumerate(alone):
            lone.update([seen[k]], epoch)
    assert both.state.keys() == alone[0].state.keys()
    for entry, arrays in both.state.items():
        for k, lone in enumerate(alone):
            np.testing.assert_array_equal(arrays[k], lone.state[entry][0])
        assert not np.array_equal(*arrays), entry


@pytest.mark.parametrize("name", ["pc2", "pcsr"])
def test_a_networks_own_predictions_find_captions_among_its_peers_clean_pairs(name):
    method = begun(name, search="epoch")
    classes = [np.arange(20) % 4, np.arange(20) // 5]
    seen = [{**notes_of(k, 0), "predictions": np.eye(4)[classes[k][IMAGE_OF[IDS]]]} for k in range(2)]
    method.update(seen, 0)
    for k in range(2):
        noisy = IDS[~LOW[1 - k]]
        found = method.captions("noisy", k, noisy)
        clean = IDS[LOW[1 - k]]
        assert set(found) <= set(clean)
        same = classes[k][IMAGE_OF[found]] == classes[k][IMAGE_OF[noisy]]
        assert same.tolist() == np.isin(classes[k][IMAGE_OF[noisy]], classes[k][IMAGE_OF[clean]]).tolist()


def test_an_estimate_of_gsc_takes_the_agreement_by_the_labels_that_its_network_trains_by():
    method = begun("gsc", beta2=1.0)
    columns = np.stack([np.where(LOW[0], 0.9, 0.1), np.where(LOW[1], 0.9, 0.1)], 1)
    method.update([{**notes_of(k, 0), "agreement": columns} for k in range(2)], 0)
    for k in range(2):
        assert (method.state["intra_modal"][k, IDS] > 0.5).tolist() == LOW[k].tolist()


@pytest.mark.parametrize(
    ("name", "options"), [("ncr", {}), ("pc2", {"search": "batch"}), ("pc2", {"search": "epoch", "threshold": 0.6})]
)
def test_pairs_train_as_the_peer_divides_them_and_every_clean_one_once_an_epoch(tmp_path, name, options):
    job = make_job(tmp_path, name, n_images=160, **options)
    method, believed, trained = job.method, {}, {}
    update, step = method.update, method.step
    trainer = Trainer(job)

    def updated(seen, epoch):
        update(seen, epoch)
        believed[epoch] = method.state["clean_probability"].copy()

    def stepped(networks, k, batches, phase):
        for subset, batch in batches.items():
            trained.setdefault((trainer.at.epoch, k, subset), []).extend(batch.ids.tolist())
        return step(networks, k, batches, phase)

    method.update, method.step = updated, stepped
    trainer.run()
    ids = job.pairs.ids("train")
    expected = {(0, k, "all"): ids.tolist() for k in range(2)}
    for epoch, w in believed.items():
        for k in range(2):
            clean = w[1 - k, ids] > options.get("threshold", 0.5)
            assert 0.1 < clean.mean() < 0.9
            expected[epoch, k, "clean"] = ids[clean].tolist()
            if epoch > 1:
                expected[epoch, k, "noisy"] = ids[~clean].tolist()
    assert sorted(believed) == [1, 2, 3] and trained.keys() == expected.keys()
    for (epoch, k, subset), found in trained.items():
        whole = expected[epoch, k, subset]
        if subset == "noisy":  # as many as clean ones, all as often as each other, within one
            counts = [found.count(i) for i in whole]
            assert len(found) == sum(counts) and max(counts) - min(counts) <= 1
            assert len(found) == len(expected[epoch, k, "clean"])
        else:
            assert sorted(found) == whole
