"""The benchmarks that plant mismatches of their own: missing partners, and captions exchanged with near ones."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import audit
import flickr8k_parts
from pairsift.arrays import unit_rows
from pairsift.encode.registry import text_encoder
from pairsift.pairs.readers import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in Flickr8k's layout: 200 training images, ten of dev and of test, two captions each."""
    place = tmp_path_factory.mktemp("flickr")
    (place / "splits").mkdir()
    names = [f"{number}.jpg" for number in range(220)]
    for split, part in (("train", names[:200]), ("dev", names[200:210]), ("test", names[210:])):
        (place / "splits" / f"{split}.txt").write_text("\n".join(part))
    with (place / "captions.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("image", "caption"))
        writer.writerows((name, f"{name} {caption}") for name in names for caption in "ab")
    return place


@pytest.mark.parametrize(("condition", "gone"), [("all", 0.0), ("half", 0.5)])
def test_moved_captions_belong_to_images_that_are_there_or_half_of_them_do_not(folder, tmp_path, condition, gone):
    facts = flickr8k_parts.with_partners(folder, tmp_path / "pairs.csv", condition, 0.4, 1)
    with (tmp_path / "pairs.csv").open(newline="") as stream:
        rows = [(Path(row["image"]).name, row["caption"].split()[0], row["split"]) for row in csv.DictReader(stream)]
    train = [(image, owner) for image, owner, split in rows if split == "train"]
    wrong = [(image, owner) for image, owner in train if image != owner]
    there = {image for image, _ in train}
    assert len(train) == facts["pairs"] == 200 and len(there) == 100
    assert all(image == owner for image, owner, split in rows if split != "train") and len(rows) == 240
    assert facts["wrong"] == pytest.approx(len(wrong) / 200, abs=1e-4) and 0.3 < facts["wrong"] < 0.5
    assert facts["gone"] == pytest.approx(np.mean([owner not in there for _, owner in wrong]), abs=1e-4)
    assert facts["gone"] == pytest.approx(gone, abs=0.15)


def test_both_conditions_keep_the_same_images(folder, tmp_path):
    found = []
    for condition in ("all", "half"):
        flickr8k_parts.with_partners(folder, tmp_path / "pairs.csv", condition, 0.4, 1)
        with (tmp_path / "pairs.csv").open(newline="") as stream:
            found.append({row["image"] for row in csv.DictReader(stream)})
    assert found[0] == found[1]


def test_a_part_has_the_first_images_and_every_sixtieth_pair_is_declared(folder, tmp_path):
    (folder / "images").mkdir()
    for number in range(220):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / "images" / f"{number}.jpg")
    path = flickr8k_parts.fewer(folder, 40, tmp_path)
    pairs = load(path)
    assert {split: len(set(pairs.image_of[pairs.ids(split)])) for split in ("train", "dev", "test")} == {
        "train": 40,
        "dev": 8,
        "test": 8,
    }
    flickr8k_parts.declare(path, tmp_path / "ids.txt")
    assert (tmp_path / "ids.txt").read_text().split() == [str(pair) for pair in pairs.ids("train")[::60]] == ["0", "60"]


def test_captions_are_exchanged_with_near_ones_of_other_images():
    true = [(f"{row // 2}.jpg", f"{colour} {thing} number {row}", "") for row, (colour, thing) in enumerate(words())]
    given, owner = audit.mismatched(true, {"kind": "near", "noise": 0.3, "missing": 0.0}, np.random.default_rng(0))
    image = audit.same_number([record[0] for record in given])
    moved = np.flatnonzero([one[1] != other[1] for one, other in zip(given, true, strict=True)])
    assert len(moved) == 180 and (owner != image)[moved].all() and (owner == image).sum() == 600 - 180
    vectors = unit_rows(np.asarray(text_encoder("wordllama").encode([record[1] for record in true])))
    row_of = {record[1]: row for row, record in enumerate(true)}
    near = 0
    for row in moved:
        cosine = vectors @ vectors[row]
        cosine[image == image[row]] = -np.inf
        near += bool(cosine[row_of[given[row][1]]] >= np.sort(cosine)[-6])
    assert near >= 90  # at least one of the two


def words():
    colours, things = ("red", "blue", "green", "white", "black"), ("dog", "car", "house", "boat", "chair", "bird")
    return [(colour, thing) for _ in range(20) for colour in colours for thing in things]
