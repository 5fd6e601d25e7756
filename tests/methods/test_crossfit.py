"""What held-out evidence does to training: the weights of `crossfit`, the room of a division, schedules left open."""

import numpy as np
import pytest
import torch
from method_helpers import FEATURES, IMAGE_OF, SETTING, Tiny, batch_of, make_networks

from pairsift.loss.ranking import InfoNCE
from pairsift.methods import METHODS
from pairsift.methods.crossfit import Crossfit
from pairsift.methods.npc import pairings
from pairsift.methods.parts.dropout import encode
from pairsift.methods.parts.pseudo_captions import CleanBatch
from pairsift.methods.plain import Plain, epochs_for
from pairsift.steps import Prior, Request, Setting, Step, not_negatives
from pairsift.train.batches import Gatherer, Likeness

PROBABILITY = np.linspace(0, 1, 12).astype(np.float32)


def settled(method, rate, most=1.0):
    method = method.begin(SETTING(InfoNCE(base=1.0), prior=Prior(PROBABILITY, rate, most)))
    return method


def values(method, ids):
    torch.manual_seed(0)
    (term,) = method.step(Step(make_networks(method, Tiny), 0, {"all": batch_of(ids)}, method.phases()[1]))
    return term.values.detach().numpy()


def test_pairs_weigh_as_far_as_they_are_believed():
    ids = [0, 3, 6, 9]
    plain = Plain()
    plain = plain.begin(SETTING(InfoNCE(base=1.0)))
    whole = values(plain, ids)
    assert values(settled(Crossfit(), 0.3), ids) == pytest.approx(PROBABILITY[ids] * whole, abs=1e-6)
    assert values(settled(Crossfit(), 0.005), ids) == pytest.approx(whole)  # hardly any mismatches: all count
    without = Crossfit()
    without = without.begin(SETTING(InfoNCE(base=1.0)))
    assert values(without, ids) == pytest.approx(whole)


@pytest.mark.parametrize("name", ["ncr", "pc2"])
def test_a_division_leaves_no_more_pairs_noisy_than_the_evidence_has_room_for(name):
    method = settled(METHODS[name](), 0.1, most=0.2)
    method.division.state["clean_probability"][:] = [*np.linspace(0, 0.4, 8), 0.9, 0.9, 0.9, 0.9]
    assert method.subset("noisy", 0).tolist() == [0, 1]  # of eight that a threshold of 0.5 names
    assert method.subset("clean", 0).tolist() == list(range(2, 10))
    wide = settled(METHODS[name](), 0.9, most=1.0)
    wide.division.state["clean_probability"][:] = method.division.state["clean_probability"]
    assert len(wide.subset("noisy", 0)) == 8


@pytest.mark.parametrize(("pairs", "batch_size", "epochs"), [(10, 2, 60), (1600, 128, 32), (30_000, 512, 8)])
def test_epochs_left_open_make_about_400_steps(pairs, batch_size, epochs):
    assert epochs_for(pairs, batch_size) == epochs
    for name in ("crossfit", "plain", "oracle"):
        for given, expected in ((None, epochs - 1), (5, 5)):
            method, ids = METHODS[name](epochs={"warmup": 1, "train": given}), np.arange(pairs)
            method = method.begin(Setting(ids, ids, pairs, None, InfoNCE(), 0, batch_size=batch_size))
            assert [phase.epochs for phase in method.phases()] == [1, expected]


def test_near_duplicates_and_equal_captions_are_no_negatives_of_each_other():
    images, texts = np.array([0, 1, 1, 3, 4, 5]), np.arange(12)
    texts[9] = texts[0]
    gather = Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"), Likeness(images, texts))
    batch = gather(Request(np.array([0, 2, 4, 9])))  # of the images 0, 1, 2 and 4
    related = np.eye(4, dtype=bool)
    related[1, 2] = related[2, 1] = True  # images 1 and 2 are near-duplicates
    related[0, 3] = related[3, 0] = True  # captions 0 and 9 read alike
    assert not_negatives(batch).numpy().tolist() == related.tolist()
    assert torch.equal(batch.images.values, FEATURES.images.batch(np.array([0, 1, 2, 4])).values)
    assert not_negatives(batch_of([0, 2, 4, 9])).numpy().tolist() == np.eye(4, dtype=bool).tolist()


@pytest.mark.parametrize("search", ["batch", "epoch"])
def test_captions_that_read_alike_are_no_negatives_where_they_come_with_other_images(search):
    method = METHODS["pc2"](classifier={"classes": 3}, captions={"search": search})
    networks = make_networks(method)
    method = method.begin(SETTING(InfoNCE()))
    texts = np.array([0, 1, 2, 3, 4, 5, 6, 5, 8, 9, 10, 11])  # the captions of pairs 5 and 7 read alike
    gather = Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"), Likeness(np.arange(6), texts))
    found = np.array([5, 3, 7])
    noisy = gather(Request(np.array([0, 2, 9]), found if search == "epoch" else None))
    clean = gather(Request(found))
    coded = [networks[0].encode(batch) for batch in (noisy, clean)]
    logits = networks[0].logits(coded[1][0])
    pairing, _ = method.captions.rematch(
        networks[0], 0, noisy, coded[0][0], CleanBatch(clean, *coded[1], logits), method.classifier
    )
    read = texts[found]
    if search == "batch":
        similarity = networks[0].logits(coded[0][0]).softmax(1), logits.softmax(1)
        left, right = (part / part.norm(dim=1, keepdim=True) for part in similarity)
        read = texts[found[(left @ right.T).argmax(1).numpy()]]
    alike = read[:, None] == read[None, :]
    assert alike.sum() > 3 and pairing.exclude.numpy()[alike].all()
    assert pairing.exclude.numpy().sum() < 9 or search == "batch"


def test_views_of_pairs_from_several_batches_know_captions_that_read_alike():
    texts = np.arange(12)
    texts[9] = texts[0]
    gather = Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"), Likeness(np.arange(6), texts))
    network = make_networks(METHODS["plain"]())[0]
    batches = [gather(Request(np.array([0, 4]))), gather(Request(np.array([7, 9])))]
    places = [torch.tensor([0, 1, 3]), torch.tensor([1, 2])]
    first, second = pairings(batches, encode(network, batches, 0), places)
    assert first.exclude.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert second.exclude.tolist() == [[True, False], [False, True]]
