"""Plain and crossfit: how long they train, and how far they believe a pair."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from method_helpers import (
    FEATURES,
    IMAGE_OF,
    SETTING,
    Tiny,
    batch_of,
    curve,
    excluded,
    make_networks,
    naive_hinge,
    similarities,
)

from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.methods import METHODS
from pairsift.methods.crossfit import Crossfit, held_out_correspondence
from pairsift.methods.oracle import Oracle
from pairsift.methods.plain import Plain, epochs_for
from pairsift.steps import Prior, Request, Setting, Step, not_negatives
from pairsift.train.batches import Gatherer, Likeness

PROBABILITY = np.linspace(0.05, 0.95, 12).astype(np.float32)


def setting(prior, ranking=None):
    ranking = Hinge() if ranking is None else ranking
    return SETTING(ranking, prior=prior)


def large(networks=2):
    """5,000 pairs in batches of 512."""
    ids = np.arange(5000)
    return Setting(ids, ids, 5000, None, InfoNCE(), 0, networks, 512)


@pytest.mark.parametrize(
    ("pairs", "batch_size", "epochs"),
    [(5000, 512, 41), (30_000, 512, 8), (6000, 512, 35), (1000, 128, 52), (10, 2, 60), (0, 64, 60), (400, 8, 8)],
)
def test_about_400_steps_in_8_to_60_epochs(pairs, batch_size, epochs):
    assert epochs_for(pairs, batch_size) == epochs
    assert epochs in (8, 60) or epochs * pairs / batch_size == pytest.approx(400, rel=0.05)


@pytest.mark.parametrize("kind", [Plain, Crossfit, Oracle])
def test_epochs_left_open_are_settled_less_the_warm_up(kind):
    for warmup, expected in ((0, 41), (3, 38), (60, 1)):
        method = kind(epochs={"warmup": warmup, "train": None})
        assert [phase.epochs for phase in method.phases()] == [warmup, 7]  # nobody has counted the pairs yet
        method = method.begin(large())
        assert [phase.epochs for phase in method.phases()] == [warmup, expected]
    fixed = kind(epochs={"warmup": 2, "train": 9})
    fixed = fixed.begin(large())
    assert [phase.epochs for phase in fixed.phases()] == [2, 9]
    assert [phase.warm for phase in fixed.phases()] == [True, False]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("plain", "crossfit", "oracle")])
def test_the_phases_of_other_methods_do_not_depend_on_the_setting(name):
    method = METHODS[name]()
    before = method.phases()
    method = method.begin(replace(large(method.networks), verified=np.array([0, 1])))
    assert method.phases() == before


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (None, np.ones(4)),
        (Prior(PROBABILITY, 0.0099, 0.5), np.ones(4)),
        (Prior(PROBABILITY, 0.01, 0.5), PROBABILITY[[7, 0, 3, 9]]),
        (Prior(PROBABILITY, 0.6, 0.5), PROBABILITY[[7, 0, 3, 9]]),
    ],
)
def test_a_pair_counts_as_far_as_it_is_believed_from_one_percent_on(prior, expected):
    method, batch = Crossfit(), batch_of([7, 0, 3, 9])
    method = method.begin(setting(prior))
    assert held_out_correspondence(method.setting, batch).tolist() == pytest.approx(expected.tolist())
    plain = Plain()
    plain = plain.begin(setting(prior))
    networks = make_networks(plain)
    (term,) = plain.step(Step(networks, 0, {"all": batch}, plain.phases()[1]))
    s, mask = similarities(networks[0], batch), excluded(batch)
    assert term.values.tolist() == pytest.approx(naive_hinge(s, [0.2] * 4, mask, True), abs=1e-6)


def test_the_hinges_margin_follows_the_probability():
    method, batch = Crossfit(), batch_of([0, 2, 4, 6, 8])
    method = method.begin(setting(Prior(PROBABILITY, 0.3, 1.0), Hinge(negatives="mean")))
    networks = make_networks(method)
    (term,) = method.step(Step(networks, 0, {"all": batch}, method.phases()[1]))
    s, out, mask = similarities(networks[0], batch), [], excluded(batch)
    for i in range(5):
        margin = 0.2 * curve(float(PROBABILITY[batch.ids[i]]))
        others = [j for j in range(5) if j != i and not mask[i, j]]
        rows = [max(0.0, margin + s[i, j] - s[i, i]) for j in others]
        columns = [max(0.0, margin + s[j, i] - s[i, i]) for j in others]
        out.append(sum(rows) / len(rows) + sum(columns) / len(columns))
    assert term.values.tolist() == pytest.approx(out, abs=1e-5)


def test_infonce_of_base_one_weighs_pairs_by_their_probability():
    method, plain, batch = Crossfit(), Plain(), batch_of([0, 2, 4, 6, 8])
    prior = Prior(PROBABILITY, 0.3, 1.0)
    terms = []
    for one in (method, plain):
        one = one.begin(setting(prior, InfoNCE(base=1.0)))
        terms.append(one.step(Step(make_networks(one), 0, {"all": batch}, one.phases()[1]))[0].values)
    weight = PROBABILITY[batch.ids]
    share = (terms[0] / terms[1]).detach().numpy()
    assert share / share[0] == pytest.approx(weight / weight[0], rel=1e-4)


def alike_batch(ids, captions=None):
    images = np.array([0, 1, 1, 3, 4, 5])  # images 1 and 2 are near-duplicates
    texts = np.array([0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 7])  # captions 0 and 5 read alike, and 7 and 11
    gatherer = Gatherer(FEATURES, IMAGE_OF, torch.device("cpu"), Likeness(images, texts))
    return gatherer(Request(np.array(ids), None if captions is None else np.array(captions))), images, texts


@pytest.mark.parametrize(
    ("ids", "captions"), [([0, 2, 4, 6, 8], None), ([0, 5, 7, 11, 9], None), ([0, 2, 7, 9], [6, 4, 11, 0])]
)
def test_near_duplicates_and_equal_captions_are_no_negatives(ids, captions):
    batch, images, texts = alike_batch(ids, captions)
    given = ids if captions is None else captions
    n, row = range(len(ids)), [int(images[IMAGE_OF[i]]) for i in ids]
    owner = [int(images[IMAGE_OF[c]]) for c in given]
    expected = [
        [
            row[i] == row[j] or owner[i] == owner[j] or row[i] == owner[j] or texts[given[i]] == texts[given[j]]
            for j in n
        ]
        for i in n
    ]
    found = not_negatives(batch).tolist()
    assert found == expected and any(found[i][j] for i in n for j in n if i != j)


def test_without_likeness_only_siblings_are_no_negatives():
    batch = batch_of([0, 1, 2, 5])
    assert batch.caption_texts is None
    assert not_negatives(batch).tolist() == excluded(batch).tolist()


def test_equal_captions_do_not_push_each_other_apart():
    batch, _, _ = alike_batch([0, 5, 8])
    method = Plain()
    method = method.begin(SETTING(InfoNCE()))
    network = make_networks(method, Tiny)[0]
    s = torch.from_numpy(similarities(network, batch)) * network.matcher.scale().item()
    (term,) = method.step(Step([network], 0, {"all": batch}, method.phases()[1]))
    expected = []
    for i, others in enumerate([[0, 2], [1, 2], [0, 1, 2]]):
        row = torch.logsumexp(s[i, others], 0) - s[i, i]
        column = torch.logsumexp(s[others, i], 0) - s[i, i]
        expected.append(float(row + column))
    found = term.values.detach().double().numpy()
    assert found / found[2] == pytest.approx(np.array(expected) / expected[2], rel=1e-4)


def test_rows_of_features_stay_those_of_the_pairs_themselves():
    batch, _, _ = alike_batch([2, 4], [4, 2])
    assert batch.image_rows.tolist() == [1, 1] == batch.caption_images.tolist()
    assert (batch.images.values.numpy() == FEATURES.images.values[[1, 2]]).all()
    assert (batch.texts.values.numpy() == FEATURES.texts.values[[4, 2]]).all()
    assert batch.caption_texts.tolist() == [4, 2]
