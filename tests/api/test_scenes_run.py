"""The embedded data as the demo uses it: the default encoders learn it, and planted mismatches are found."""

import pytest

from pairsift.api.fit import fit
from pairsift.pairs import write_scenes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("scenes")
    write_scenes(place / "scenes", 700, 2)
    runs = {}
    for method in ("plain", "pc2"):
        options = {"out": str(place / method), "cache": str(place / "cache"), "method": method, "noise": 0.4}
        runs[method] = fit(place / "scenes", options, progress=False).metrics
    return runs


def test_planted_mismatches_are_detected(found):
    assert found["pc2"]["detection"]["auroc"] >= 0.97
    assert found["pc2"]["detection"]["precision"] > 0.85 and found["pc2"]["detection"]["recall"] > 0.85
    assert found["pc2"]["noise_rate"]["estimated"] == pytest.approx(found["pc2"]["noise_rate"]["true"], abs=0.05)


def test_pc2_retrieves_better_than_no_protection(found):
    assert found["pc2"]["test"]["ensemble"]["rsum"] > found["plain"]["test"]["ensemble"]["rsum"] + 10
