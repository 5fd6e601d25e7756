"""Each network is observed by itself, has a state of its own and trains by its peer's."""

import numpy as np
import pytest
import torch
from train_helpers import make_job, over

from pairsift.loss.ranking import InfoNCE
from pairsift.methods import METHODS
from pairsift.methods.gsc import structure_agreement
from pairsift.steps import Observation, Request, Setting, not_negatives
from pairsift.train.loop import Trainer

CLASSES = {"classifier": {"classes": 4}}
OPTIONS = {
    "ncr": {},
    "pc2": CLASSES,
    "pcsr": {**CLASSES, "epochs": {"warmup": 0, "clean": 0}, "consistency": {"counted_from": 1}},
    "bicro": {},
    "cream": {},
    "l2rm": {},
    "npc": {},
    "gsc": {},
}
IMAGE_OF = np.repeat(np.arange(20), 2)
IDS = np.arange(4, 40)
LOW = [IDS < 24, IDS >= 16]  # where each network's losses are small


def begun(name: str, **options):
    method = METHODS[name](**over({"networks": 2, **OPTIONS[name]}, options))
    method = method.begin(Setting(IDS, IMAGE_OF, 20, None, InfoNCE(), 0, method.networks))
    return method


def notes_of(k: int, epoch: int) -> dict[str, np.ndarray]:
    """What network k might note of the pairs, for every method; the networks agree in nothing."""
    rng = np.random.default_rng((k, epoch))
    predictions = rng.dirichlet(np.full(4, 0.3), 20)[IMAGE_OF[IDS]].astype(np.float32)
    loss = np.where(LOW[k], 0.1, 0.9) + 0.05 * rng.random(len(IDS))
    images, texts = rng.normal(size=(20, 5))[IMAGE_OF[IDS]], rng.normal(size=(len(IDS), 5))
    return {
        **{f"{part}.loss": loss for part in ("division", "bank")},
        "classifier.predictions": predictions,
        **{f"{part}.by_image": images for part in ("anchors", "bank")},
        **{f"{part}.by_text": texts for part in ("anchors", "bank")},
        "indicators.probability": rng.random(len(IDS)),
        "indicators.agreement": rng.random(len(IDS)),
    }


@pytest.mark.parametrize("name", OPTIONS)
def test_each_network_is_observed_with_its_own_weights(tmp_path, name):
    passes, marks = [], [0.5, 1.5]

    def marked(method, observe, seen):
        number = torch.full((len(seen.batch),), seen.k)
        return {**observe(seen), "number": number, "mark": seen.network.matcher.log_scale.expand(len(seen.batch))}

    hooks = {"observe": marked, "update": lambda method, update, notes, epoch: passes.append((notes, epoch))}
    job = make_job(tmp_path, name, n_images=60, hooks=hooks)
    trainer = Trainer(job)
    for network, mark in zip(trainer.networks, marks, strict=True):
        network.matcher.log_scale.data.fill_(mark)
    trainer._observe(1)
    ((seen, epoch),) = passes
    assert epoch == 1 and len(seen) == 2
    every = trainer.gather(Request(trainer.method.setting.ids))
    for k, (notes, network, mark) in enumerate(zip(seen, trainer.networks, marks, strict=True)):
        assert (notes["mark"] == mark).all() and (notes["number"] == k).all()
        with torch.no_grad():
            own = job.ranking.observe(*network.eval()(every), not_negatives(every))
        for noted in ("division.loss", "bank.loss"):
            if noted in notes:  # all training pairs fit into one block
                assert notes[noted] == pytest.approx(own.numpy(), rel=1e-4)


@pytest.mark.parametrize("name", ["ncr", "pc2", "pcsr", "bicro", "l2rm"])
def test_small_losses_of_one_network_are_clean_pairs_of_the_other(name):
    method = begun(name)
    method.update([notes_of(0, 0), notes_of(1, 0)], 0)
    for k in range(2):
        w = method.division.state["clean_probability"][k]
        assert w[IDS[LOW[k]]].min() > 0.9 and w[IDS[~LOW[k]]].max() < 0.1
        assert method.subset("clean", k).tolist() == IDS[LOW[1 - k]].tolist()
        assert method.subset("noisy", k).tolist() == IDS[~LOW[1 - k]].tolist()


def test_small_losses_of_one_network_make_the_bank_of_the_other():
    method = begun("npc")
    method.update([notes_of(0, 0), notes_of(1, 0)], 0)
    for k in range(2):
        w = method.bank.state["clean_probability"][k]
        assert w[IDS[LOW[k]]].min() > 0.9 and w[IDS[~LOW[k]]].max() < 0.1
        for side in ("by_image", "by_text"):
            assert set(method.bank.pairs(side, IDS, k)) <= set(IDS[LOW[1 - k]])


@pytest.mark.parametrize("name", OPTIONS)
def test_a_networks_state_is_that_of_a_lone_network_with_its_observations(name):
    both, alone = begun(name), [begun(name, networks=1) for _ in range(2)]
    for epoch in range(2):
        seen = [notes_of(k, epoch) for k in range(2)]
        both.update(seen, epoch)
        for k, lone in enumerate(alone):
            lone.update([seen[k]], epoch)
    assert both.arrays().keys() == alone[0].arrays().keys()
    for entry, arrays in both.arrays().items():
        for k, lone in enumerate(alone):
            np.testing.assert_array_equal(arrays[k], lone.arrays()[entry][0])
        of_steps = entry in (
            "impact.weight",
            "impact.mean_weight",
            "impact.weighings",
        )  # these come from steps, not from a pass
        assert of_steps or not np.array_equal(*arrays), entry


def requested(method, k: int, noisy: np.ndarray) -> np.ndarray:
    """Ids of the pairs whose captions network k trains noisy pairs with."""
    if method.name == "pc2":
        return method.requests({"noisy": noisy}, k)["noisy"].captions
    found = [method.requests({name: noisy}, k)[name].captions for name in ("refinable", "ambiguous")]
    np.testing.assert_array_equal(*found)
    return found[0]


@pytest.mark.parametrize("name", ["pc2", "pcsr"])
def test_a_networks_own_predictions_find_captions_among_its_peers_clean_pairs(name):
    method = begun(name, captions={"search": "epoch"})
    classes = [np.arange(20) % 4, np.arange(20) // 5]
    seen = [{**notes_of(k, 0), "classifier.predictions": np.eye(4)[classes[k][IMAGE_OF[IDS]]]} for k in range(2)]
    method.update(seen, 0)
    for k in range(2):
        noisy = IDS[~LOW[1 - k]]
        found = requested(method, k, noisy)
        clean = IDS[LOW[1 - k]]
        assert set(found) <= set(clean)
        same = classes[k][IMAGE_OF[found]] == classes[k][IMAGE_OF[noisy]]
        assert same.tolist() == np.isin(classes[k][IMAGE_OF[noisy]], classes[k][IMAGE_OF[clean]]).tolist()


def test_an_estimate_of_gsc_takes_the_agreement_by_the_labels_that_its_network_trains_by(tmp_path):
    trainer = Trainer(make_job(tmp_path, "gsc", n_images=60))
    method, rng = trainer.method, np.random.default_rng(0)
    for name in ("cross_modal", "intra_modal"):
        method.indicators.state[name][:] = rng.random(method.indicators.state[name].shape)
    labels = torch.from_numpy(
        np.minimum(method.indicators.state["cross_modal"], method.indicators.state["intra_modal"])
    )
    batch = trainer.gather(Request(method.setting.ids))
    for k, network in enumerate(trainer.networks):
        with torch.no_grad():
            found = method.observe(Observation.make(network.eval(), k, batch))["indicators.agreement"]
            within = [network.matcher.intra_similarity(codes) for codes in network.encode(batch)]
        by = [structure_agreement(*within, labels[other, batch.ids]) for other in (1 - k, k)]
        torch.testing.assert_close(found, by[0])
        assert (found - by[1]).abs().max() > 0.01


def test_an_estimate_of_gsc_is_that_of_the_network_that_noted_it():
    method = begun("gsc", indicators={"beta2": 1.0})
    method.update([{**notes_of(k, 0), "indicators.agreement": np.where(LOW[k], 0.9, 0.1)} for k in range(2)], 0)
    for k in range(2):
        assert (method.indicators.state["intra_modal"][k, IDS] > 0.5).tolist() == LOW[k].tolist()


@pytest.mark.parametrize(
    ("name", "threshold", "options"),
    [
        ("ncr", 0.5, {}),
        ("bicro", 0.5, {"warmup_share": 1.0}),
        ("pc2", 0.5, {"captions": {"search": "batch"}}),
        ("pc2", 0.6, {"captions": {"search": "epoch"}, "division": {"threshold": 0.6}}),
    ],
)
def test_pairs_train_as_the_peer_divides_them_and_every_clean_one_once_an_epoch(tmp_path, name, threshold, options):
    believed, trained = {}, {}

    def updated(method, update, notes, epoch):
        update(notes, epoch)
        believed[epoch] = method.division.state["clean_probability"].copy()

    def stepped(method, updates, given):
        for subset, batch in given.batches.items():
            trained.setdefault((trainer.position.epoch, given.k, subset), []).extend(batch.ids.tolist())
        return updates(given)

    job = make_job(tmp_path, name, n_images=160, hooks={"update": updated, "updates": stepped}, **options)
    trainer = Trainer(job)
    trainer.run()
    ids = job.pairs.ids("train")
    expected = {(0, k, "all"): ids.tolist() for k in range(2)}
    for epoch, w in believed.items():
        for k in range(2):
            clean = w[1 - k, ids] > threshold
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
