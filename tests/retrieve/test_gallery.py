"""Galleries of token codes against loops over pairs, and their memory."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import pairsift
from pairsift.errors import InputError
from pairsift.match.base import Codes
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve import Answers, ranks, recall
from pairsift.retrieve import bank as bank_module
from pairsift.retrieve import gallery as module
from pairsift.retrieve.answers import answered
from pairsift.retrieve.bank import Bank, token_batches
from pairsift.retrieve.gallery import Gallery, evaluate, most_similar
from token_helpers import make_features, make_matchers, naive


@pytest.fixture(params=["held", "encoded again", "small parts", "small parts encoded again"])
def memory(request, monkeypatch):
    """Galleries give the same whatever they hold and however they are cut."""
    if "again" in request.param:
        monkeypatch.setattr(module, "KEPT_BYTES", 0)
    if "small" in request.param:
        monkeypatch.setattr(bank_module, "ROWS", 5)
        monkeypatch.setattr(bank_module, "TOKENS", 17)
    return request.param


def make_gallery(n_images, n_texts, ragged=False):
    images, texts, features = make_features(n_images, n_texts, ragged)
    matchers = make_matchers()
    gallery = Gallery.encode(matchers, features, np.arange(n_images), np.arange(n_texts))
    return gallery, np.stack([naive(matcher, images, texts) for matcher in matchers])


def test_images_are_joined_with_captions_and_each_pair_with_the_others(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 2)
    rng = np.random.default_rng(3)
    owner, weight = np.array([1, 0, 1, 2, 1]), np.array([0.5, 2.0, 0.0, 1.0, 1.5])
    matchers = [TwoTower(4, 4, TwoTowerOptions(dim=6, hidden=4)) for _ in range(2)]
    sides = [
        [torch.nn.functional.normalize(torch.tensor(rng.normal(size=(n, 6))).float()) for _ in (0, 1)] for n in (4, 5)
    ]
    gallery = Gallery(matchers, *([Bank.from_codes(Codes(side)) for side in both] for both in sides))
    joined, own = gallery.with_captions(owner, weight)
    expected = np.zeros(5)
    for images, captions, bank in zip(*sides, joined.images, strict=True):
        images, captions = images.double().numpy(), captions.double().numpy()
        for image in range(4):
            total = images[image] + sum(weight[t] * captions[t] for t in range(5) if owner[t] == image)
            assert bank.vectors[image].numpy() == pytest.approx(total / np.linalg.norm(total), abs=1e-6)
        for pair in range(5):
            others = [t for t in range(5) if owner[t] == owner[pair] and t != pair]
            total = images[owner[pair]] + sum(weight[t] * captions[t] for t in others)
            expected[pair] += total @ captions[pair] / np.linalg.norm(total) / 2
    assert own == pytest.approx(expected, abs=1e-6)
    assert gallery.shares_space and not make_gallery(3, 4)[0].shares_space


@pytest.mark.parametrize("ragged", [False, True])
def test_blocks_and_pairs_equal_loops_over_pairs(memory, ragged):
    gallery, expected = make_gallery(11, 23, ragged)
    assert all(bool(bank.codes) == ("again" not in memory) for bank in gallery.texts)
    for rows in (np.arange(11), np.array([4]), np.array([7, 0, 7, 10, 2])):
        assert np.allclose(gallery.views(rows), expected[:, rows], atol=1e-5)
        assert np.allclose(gallery.block(rows), expected.mean(0)[rows], atol=1e-5)
        assert np.allclose(
            gallery.ensemble_and_views(rows)[[0, 2]], [expected.mean(0)[rows], expected[1, rows]], atol=1e-5
        )
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 11, 60), rng.integers(0, 23, 60)
    assert np.allclose(gallery.pairs(left, right), expected.mean(0)[left, right], atol=1e-5)
    assert gallery.pairs(left[:0], right[:0]).shape == (0,)
    few = np.array([20, 3, 9])
    assert np.allclose(gallery.only_captions(few).block(np.arange(11)), expected.mean(0)[:, few], atol=1e-5)


def test_banks_give_codes_in_the_order_asked_for(memory):
    gallery, _ = make_gallery(7, 19)
    whole = gallery.texts[0]
    for places in (np.arange(19), np.array([18, 2, 2, 5]), np.array([3])):
        codes = whole.select(places)
        torch.testing.assert_close(codes.vectors, whole.vectors[places])
        for row, place in enumerate(places):
            alone = whole.select(np.array([place]))
            torch.testing.assert_close(codes.tokens[row][codes.mask[row]], alone.tokens[0][alone.mask[0]])
    walked = np.concatenate([places for places, _ in whole.walk()])
    assert sorted(walked.tolist()) == list(range(19))
    coarse = sum(i.vectors @ t.vectors.T for i, t in zip(gallery.images, gallery.texts, strict=True)) / 2
    assert np.allclose(gallery.coarse(np.array([3, 1])), coarse[[3, 1]].numpy(), atol=1e-6)


def test_parts_are_padded_little_and_stay_within_bounds(monkeypatch):
    monkeypatch.setattr(bank_module, "ROWS", 4)
    monkeypatch.setattr(bank_module, "TOKENS", 10)
    parts = token_batches(np.array([1, 1, 1, 1, 1, 2, 3, 5, 11, 1]))
    assert [(part.start, part.stop) for part in parts] == [(0, 4), (4, 7), (7, 8), (8, 9), (9, 10)]
    assert token_batches(np.zeros(0, int)) == [slice(0, 0)]


def test_similarities_are_computed_in_evaluation_mode_and_the_mode_comes_back():
    gallery, expected = make_gallery(5, 6)
    for matcher in gallery.matchers:
        matcher.train()
    assert np.allclose(gallery.views(np.arange(5)), expected, atol=1e-5)
    assert np.allclose(gallery.pairs(np.arange(5), np.arange(5)), expected.mean(0)[range(5), range(5)], atol=1e-5)
    assert all(matcher.training for matcher in gallery.matchers)


def test_a_matcher_that_factorises_keeps_vectors_alone():
    images, _, features = make_features(4, 5)
    two_tower = TwoTower(6, 30, TwoTowerOptions(dim=8, hidden=8))
    table = type(features.images)(np.stack(images)[:, 0])
    codes = Bank.encode_table(two_tower, table, np.array([3, 0]), False, 0).select(np.array([1, 0, 1]))
    with torch.no_grad():
        expected = two_tower.eval().encode_images(table.batch(np.array([0, 3, 0]))).vectors
    assert codes.tokens is None and codes.mask is None
    torch.testing.assert_close(codes.vectors, expected)


def make_pairs(n_images, per):
    image_of = np.repeat(np.arange(n_images), per)
    names = [f"{i}.jpg" for i in range(n_images)]
    captions = [f"c{i}" for i in range(len(image_of))]
    split = np.full(len(image_of), "test")
    return Pairs("made", names, [Path(name) for name in names], captions, image_of, split)


@pytest.mark.parametrize("folds", [1, 3])
def test_evaluate_ranks_every_view_and_compares_each_pair_once(memory, folds):
    images, texts, features = make_features(18, 36)
    pairs, matchers = make_pairs(18, 2), make_matchers()
    found = evaluate(matchers, features, pairs, "test", folds)
    assert [matcher.compared for matcher in matchers] == [18 * 36 // folds] * 2
    scores = [naive(matcher, images, texts) for matcher in matchers]
    size = 18 // folds
    for name, view in {"ensemble": sum(scores) / 2, "network_0": scores[0], "network_1": scores[1]}.items():
        parts = [view[k * size : (k + 1) * size, 2 * k * size : 2 * (k + 1) * size] for k in range(folds)]
        owner = np.repeat(np.arange(size), 2)
        each = [recall(ranks(lambda rows, part=part: part[rows], owner, size)) for part in parts]
        assert found[name] == pytest.approx({key: np.mean([one[key] for one in each]) for key in each[0]})


@pytest.mark.parametrize("columns", [None, ("cocoid", "sentid"), ("image_id", "id")])
def test_answers_are_found_by_the_ids_of_the_source(columns, tmp_path):
    """Image 2 is in train, so its id answers nothing; images 0 and 1 share a caption, and image 4 is no query."""
    images, texts, features = make_features(6, 12)
    pairs, matchers = make_pairs(6, 2), make_matchers()
    pairs.split[4:6] = "train"
    image_ids, caption_ids = [f"{i}.jpg" for i in range(6)], [str(i) for i in range(12)]
    if columns is not None:
        image_ids, caption_ids = [str(70 + i) for i in range(6)], [str(900 - i) for i in range(12)]
        cells = [image_ids[image] for image in pairs.image_of], caption_ids
        pairs = replace(pairs, columns=dict(zip(columns, cells, strict=True)))
    right = {0: [0, 1, 2], 1: [2], 3: [6, 4], 5: [10, 11, 6]}
    files = tmp_path / "i2t.json", tmp_path / "t2i.json"
    numbers = int if columns else str  # ids are numbers in COCO's files
    files[0].write_text(json.dumps({image_ids[i]: [numbers(caption_ids[t]) for t in own] for i, own in right.items()}))
    files[1].write_text(json.dumps({caption_ids[2]: [image_ids[1], image_ids[0]], caption_ids[9]: [image_ids[4]]}))
    found = evaluate(matchers, features, pairs, "test", answers=Answers.read(*files))
    rows, ids = [0, 1, 3, 4, 5], [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    scores = [naive(matcher, images, texts)[np.ix_(rows, ids)] for matcher in matchers]
    i2t = np.array([0, 0, 0, 1, 2, 4, 4, 4]), np.array([0, 1, 2, 2, 4, 8, 9, 4])
    t2i = np.array([0, 1, 3]), np.array([2, 2, 7])
    expected = answered(lambda places: np.stack([sum(scores) / 2, *scores])[:, places], i2t, t2i, (5, 10))
    assert list(found) == ["ensemble", "network_0", "network_1"]
    for measured, one in zip(found.values(), expected, strict=True):
        assert measured == pytest.approx(one)


def test_answers_that_fit_nothing_are_refused_in_one_line(tmp_path):
    pairs, file = make_pairs(6, 2), tmp_path / "i2t.json"
    with pytest.raises(InputError, match=r"none of the right answers .* made; .* image '0.jpg' and caption '0'$"):
        Answers({"0.jpg": ["1"]}, {"1": ["9.jpg"]}).links(pairs, np.arange(6), np.arange(12))
    file.write_text('{"1": 2}')
    with pytest.raises(InputError, match=r"i2t\.json: needs an object with a list of ids under each id"):
        Answers.read(file, file)


def test_search_with_a_shortlist_of_everything_is_exact(memory):
    gallery, expected = make_gallery(30, 4)
    for text in range(4):
        one, scores = gallery.only_captions(np.array([text])), expected.mean(0)[:, text]
        found, score = most_similar(one, True, 7, 30)
        assert found.tolist() == np.argsort(-scores, kind="stable")[:7].tolist()
        assert np.allclose(score, scores[found], atol=1e-5)
        best = np.sort(np.argsort(-one.coarse(np.arange(30))[:, 0])[:8])
        assert most_similar(one, True, 3, 8)[0].tolist() == best[np.argsort(-scores[best])[:3]].tolist()
        assert len(most_similar(one, True, 50, 8)[0]) == 30


PEAK = """
import resource
import numpy as np
from token_helpers import Late
from pairsift.encode.features import Features, Table
from pairsift.retrieve.gallery import evaluate
from test_gallery import make_pairs

rng = np.random.default_rng(0)
texts = [rng.integers(0, 50, 400 if t == 7 else rng.integers(5, 12)) for t in range(1500)]
features = Features(Table(rng.normal(size=(300, 4, 8)).astype(np.float32)), Table.from_items(texts))
matchers = [Late(8, 50, dim=256) for _ in range(2)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
evaluate(matchers, features, make_pairs(300, 5), "test")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_one_long_caption_does_not_swell_the_memory():
    """Padded to the longest, the captions alone would take 2 * 1500 * 400 * 256 * 4 bytes, 1.1 GiB."""
    here = Path(__file__).parent
    paths = [str(Path(pairsift.__file__).parents[1]), str(here), str(here.parent)]
    environment = {"PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", PEAK]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 400
