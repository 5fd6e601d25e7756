"""The benchmark of verdicts at reduced size: drawn scenes, clean ones among them."""

from pathlib import Path

import numpy as np
import pytest

import verdicts
from pairsift.pairs.readers import load


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """One row for nothing shuffled and one for 30%."""
    cache = str(tmp_path_factory.mktemp("cache"))
    key = ("verdicts", "scenes-60", 0.0, "all", 1, "")
    wanted = dict(zip(verdicts.KEY, key, strict=True))
    return [verdicts.measure({**wanted, "noise": noise}, Path("nowhere"), cache) for noise in (0.0, 0.3)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clean_scenes_stay_clean_and_shuffled_ones_are_found(rows):
    clean, noisy = rows
    assert clean["verdicts"] and clean["flagged"] <= 0.03 and clean["estimate"] <= 0.03
    assert noisy["estimate"] == pytest.approx(noisy["wrong"], abs=0.1)
    assert noisy["auroc"] >= max(noisy["auroc_cca"], noisy["auroc_knn"]) - 0.01
    assert noisy["calibration"] < 0.1


def test_rows_of_one_seed_have_the_same_splits_wherever_scenes_are_drawn(tmp_path):
    found = []
    for folder, noise in (("a", 0.0), ("b/c", 0.3)):
        place = tmp_path / folder
        place.mkdir(parents=True)
        true = verdicts.records("scenes-60", Path("nowhere"), 1, place)
        given, _ = verdicts.shuffled(true, noise, 1, "all")
        found.append(load(verdicts.write_source(given, place)))
    assert found[0].split.tolist() == found[1].split.tolist() and set(found[0].split) == {"train", "dev", "test"}
    assert found[0].names == found[1].names and not found[0].skipped
    assert (found[0].image_of == found[1].image_of).all() and found[0].captions != found[1].captions


def test_the_calibration_error_is_that_of_bins_of_equal_mass():
    probability = np.repeat([0.1, 0.9], 150)
    right = np.concatenate([np.arange(150) < 30, np.arange(150) < 120])
    error = verdicts.calibration(probability, right, bins=2)
    assert error == pytest.approx((abs(0.1 - 0.2) + abs(0.9 - 0.8)) / 2)


@pytest.mark.parametrize(("where", "side"), [("all, image", 0), ("all, caption", 1)])
def test_a_tenth_of_the_pairs_gets_a_placeholder_and_is_mismatched(tmp_path, where, side):
    given, wrong = [(f"{i}.png", f"caption {i}", "") for i in range(300)], np.arange(300) < 30
    found, now = verdicts.with_placeholder(given, wrong, 1, where, tmp_path)
    hit = np.array([new != old for new, old in zip(found, given, strict=True)])
    assert 15 < hit.sum() < 45 and (now == (wrong | hit)).all()
    assert len({found[row][side] for row in np.flatnonzero(hit)}) == 1
    assert all(found[row][1 - side] == given[row][1 - side] for row in range(300))
    same, unchanged = verdicts.with_placeholder(given, wrong, 1, "all", tmp_path)
    assert same == given and (unchanged == wrong).all()


def test_collections_without_splits_get_some_where_train_alone_is_shuffled():
    true = [(f"{i // 2}.png", f"caption {i}", "") for i in range(200)]
    given = verdicts.with_splits(true, 1)
    assert [record[:2] for record in given] == [record[:2] for record in true]
    assert all(given[i][2] == given[i + 1][2] for i in range(0, 200, 2))
    assert [sum(record[2] == split for record in given) for split in ("train", "dev", "test")] == [160, 20, 20]
    shuffled, wrong = verdicts.shuffled(given, 0.5, 1, "train")
    assert wrong.any() and not any(wrong[i] for i in range(200) if given[i][2] != "train")
    assert verdicts.with_splits(given, 2) == given and shuffled != given
