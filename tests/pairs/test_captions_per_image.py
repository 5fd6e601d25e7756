"""A part of the captions of each image."""

import csv

import numpy as np
import pytest

from pairsift.pairs.pairs import UNUSED
from pairsift.pairs.readers import load
from pairsift.pairs.splits import keep_captions
from pairsift.scenes import write_scenes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subset")
    write_scenes(folder, 30, 1)
    return folder


def kept(pairs):
    return {(pairs.names[pairs.image_of[pair]], pairs.captions[pair]) for pair in pairs.ids()}


@pytest.mark.parametrize("most", [1, 2, 4, 9])
def test_each_image_keeps_so_many_captions_in_its_split(folder, most):
    whole = load(folder)
    part = keep_captions(whole, most, 0)
    for image in range(whole.n_images):
        before, after = (
            (pairs.image_of == image) & np.isin(pairs.split, ["train", "dev", "test"]) for pairs in (whole, part)
        )
        assert after.sum() == min(most, before.sum()) and not (after & ~before).any()
    same = part.split != UNUSED
    assert (part.split[same] == whole.split[same]).all()


def test_the_choice_depends_on_the_seed_and_not_on_the_order(folder, tmp_path):
    whole = load(folder)
    assert kept(keep_captions(whole, 1, 0)) == kept(keep_captions(whole, 1, 0)) != kept(keep_captions(whole, 1, 1))
    with (folder / "captions.csv").open(newline="") as stream:
        rows = [(row["image"], row["caption"]) for row in csv.DictReader(stream)]
    tables = []
    for number, order in enumerate((rows, rows[::-1])):
        with (tmp_path / f"{number}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("image", "caption"), *order])
        tables.append(load(tmp_path / f"{number}.csv", image_folder=folder / "images"))
    assert kept(keep_captions(tables[0], 2, 3)) == kept(keep_captions(tables[1], 2, 3))
