"""Which images of a run are copies of each other, and what a run says of its recall."""

from dataclasses import replace
from pathlib import Path
from shutil import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from pairsift.cli.summary import print_summary
from pairsift.encode.features import Features, Table
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.pairs.pairs import Noise, Pairs
from pairsift.runs.recall import pictures, recall_metrics


def made(names, split, captions=None):
    n = len(names)
    captions = captions or [f"caption {row}" for row in range(n)]
    paths = [Path(name) for name in names]
    return Pairs("made", [str(name) for name in names], paths, captions, np.arange(n), np.array(split))


def draw(path, seed):
    """A picture of soft shapes: noise of 12 x 9 cells, enlarged."""
    cells = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)
    Image.fromarray(cells).resize((240, 180), Image.Resampling.BICUBIC).save(path, quality=92)
    return path


def test_copies_are_the_same_picture_and_like_pictures_are_not(tmp_path):
    """Files 1 to 3 are the first one again, copied, made half as large and compressed; 4 is moved by some pixels."""
    first = draw(tmp_path / "0.jpg", 1)
    copy(first, tmp_path / "1.jpg")
    with Image.open(first) as image:
        image.resize((120, 90), Image.Resampling.LANCZOS).save(tmp_path / "2.jpg", quality=90)
        image.save(tmp_path / "3.jpg", quality=60)
        Image.fromarray(np.roll(np.array(image), 8, axis=1)).save(tmp_path / "4.jpg", quality=92)
    draw(tmp_path / "5.jpg", 2)
    copy(first, tmp_path / "6.jpg")  # in train, which is not compared
    (tmp_path / "7.jpg").write_bytes(b"no image")
    (tmp_path / "8.jpg").write_bytes(b"no image")
    pairs = made([tmp_path / f"{k}.jpg" for k in range(9)], ["test"] * 6 + ["train"] + ["test"] * 2)
    found = pictures(SimpleNamespace(pairs=pairs), tmp_path / "cache", "dev", "test")
    assert len(set(found[:4].tolist())) == 1
    assert len(set(found[[0, 4, 5, 6, 7, 8]].tolist())) == 6


def test_pale_pictures_differ_by_their_cells(tmp_path):
    """Two pictures of few levels, each with a white and a black dot, so that both have the widest range."""
    for name, turns in (("0.png", 0), ("1.png", 1)):
        values = np.rot90(np.full((64, 64), 120, np.uint8) + np.arange(64, dtype=np.uint8) // 8, turns).copy()
        values[:2, 0] = 0, 255
        Image.fromarray(values).convert("RGB").save(tmp_path / name)
    pairs = made([tmp_path / "0.png", tmp_path / "1.png"], ["test"] * 2)
    found = pictures(SimpleNamespace(pairs=pairs), tmp_path / "cache", "test")
    assert found[0] != found[1]


def test_equal_features_are_one_picture_unless_they_are_constant():
    """Features in the place of images: vectors, and regions."""
    values = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)
    values[[1500, 1999]] = values[3]
    values[[7, 8]] = 0  # as where images could not be read
    for table in (Table(values), Table(np.stack([values, values + (values != 0)], 1))):
        pairs = replace(made([f"{k}.jpg" for k in range(2000)], ["test"] * 1999 + ["dev"]), features=object())
        found = pictures(SimpleNamespace(pairs=pairs, features=Features(table, table)), None, "dev", "test")
        assert found[3] == found[1500] == found[1999] and len(set(found.tolist())) == 1998
        alone = pictures(SimpleNamespace(pairs=pairs, features=Features(table, table)), None, "test")
        assert alone[3] == alone[1500] != alone[1999]


@pytest.fixture
def prepared():
    """Test and dev of 20 images each, every one of them twice; noise moved two of the test captions."""
    rng = np.random.default_rng(3)
    vectors = np.repeat(rng.normal(size=(20, 6)), 2, axis=0).astype(np.float32)
    texts = rng.normal(size=(40, 6)).astype(np.float32)
    pairs = made([f"{k}.jpg" for k in range(40)], ["test"] * 20 + ["dev"] * 20)
    moved = pairs.image_of.copy()
    moved[[0, 5]] = moved[[5, 0]]
    noise = Noise(0.1, 1, "caption", 0.1, "0", splits="all")
    pairs = replace(pairs, image_of=moved, true_image_of=pairs.image_of, noise=noise)
    return SimpleNamespace(pairs=pairs, features=Features(Table(vectors), Table(texts)))


def test_metrics_have_both_protocols_and_say_why_they_differ(prepared, capsys):
    torch.manual_seed(0)
    matcher = TwoTower(6, 6, TwoTowerOptions(dim=4, hidden=4)).eval()
    found = recall_metrics([matcher], prepared, np.arange(40) // 2)
    assert set(found) == {"test", "dev", "test_matching", "strict", "recall_notes"}
    for split in ("test", "dev", "test_matching"):
        strict, equal = found["strict"][split]["ensemble"], found[split]["ensemble"]
        assert strict["t2i_r1"] < 6 and strict["rsum"] < equal["rsum"]  # two images have lost their copy
    [note] = found["recall_notes"]["dev"]
    assert note.startswith("20 of 20 dev images are copies of another. Equal items count as one right answer")
    print_summary(Path("run"), {"noise_rate": {"estimated": None}, **found})
    printed = capsys.readouterr().out
    assert f"note: {note}\n" in printed and printed.count("note: ") == 3
    alone = recall_metrics([matcher], prepared, np.arange(40))
    assert alone["dev"] == alone["strict"]["dev"]
