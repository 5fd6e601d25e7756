"""A small table of drawn scenes with wrong captions and a finished run on it, for pages and notebooks to begin with."""

import csv
import importlib
import random
import shutil

import pytest

import pairsift
from pairsift.detect import DetectOptions
from pairsift.methods import plain
from pairsift.scenes import write_scenes
from quick_fits import quick_fits

IMAGES = 40
LIGHTER = {
    "folds": {"averaged_pairs": 1, "folds": 3, "inner_folds": 2},
    "linear": {"max_width": 96},
    "calibration": {"resamples": 12},
}


@pytest.fixture(scope="module")
def quickly(tmp_path_factory):
    """Take few steps and a lighter detector: these tests are about pages, not about how much a run finds.

    It ends with the module, since other tests of the same process need the real constants.
    """
    with pytest.MonkeyPatch.context() as patch, quick_fits(tmp_path_factory):
        light = DetectOptions().changed(LIGHTER)
        patch.setattr("pairsift.runs.config.detect_options", light.changed)
        patch.setattr(plain, "epochs_for", lambda pairs, batch_size: 2)
        patch.setattr(importlib.import_module("pairsift.runs.fit"), "ngrams_help", lambda *args: False)
        yield patch


@pytest.fixture(scope="module")
def prepared(quickly, tmp_path_factory):
    """A folder with `mine.csv`, the scenes of its images, and the run `runs/mine`."""
    place = tmp_path_factory.mktemp("prepared")
    quickly.setenv("XDG_CACHE_HOME", str(place.parent / "cache"))
    write_scenes(place / "scenes", IMAGES, 3)
    with (place / "scenes" / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    chance = random.Random(0)
    wrong = chance.sample(range(len(rows)), 60)
    captions = [rows[i]["caption"] for i in wrong]
    chance.shuffle(captions)
    for i, caption in zip(wrong, captions, strict=True):
        rows[i]["caption"] = caption
    with (place / "mine.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "shelf"])
        table.writerows([f"scenes/images/{row['image']}", row["caption"], f"A{i % 7}"] for i, row in enumerate(rows))
    pairsift.fit(place / "mine.csv", out=place / "runs" / "mine", progress=False)
    return place


@pytest.fixture
def working_folder(prepared, tmp_path, monkeypatch):
    """A copy of the prepared folder, to work in."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "runs" / "mine" / "config.yaml"
    config.write_text(config.read_text().replace(str(prepared), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path
