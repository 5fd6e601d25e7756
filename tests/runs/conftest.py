"""Scenes, drawn once, and one finished run on them; fits are cheap, and the detector is light."""

import pytest
from flat_options import fit
from light_evidence import LIGHT

from pairsift.scenes import write_scenes
from quick_fits import quick_fits

QUICK = {
    "batch_size": 64,
    "device": "cpu",
    "noise": 0.4,
    "noise_seed": 1,
    "method": "pc2",
    "pc2.epochs.warmup": 1,
    "pc2.epochs.clean": 2,
    "pc2.epochs.all": 1,
    "detect": LIGHT,
}


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(tmp_path_factory):
    with quick_fits(tmp_path_factory):
        yield


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="session")
def scenes(place):
    write_scenes(place / "scenes", 120, 5)
    return place / "scenes"


@pytest.fixture(scope="session")
def quick(place):
    return {**QUICK, "cache": str(place / "cache")}


@pytest.fixture(scope="session")
def image_run(place, scenes, quick, tmp_path_factory):
    with quick_fits(tmp_path_factory):
        return fit(scenes, {**quick, "out": str(place / "run")}, progress=False)


@pytest.fixture(scope="session")
def run(image_run):
    return image_run
