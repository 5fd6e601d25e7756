"""The embedded data as the demo uses it: the default encoders learn it, and planted mismatches are found."""

import pytest

from pairsift.api.fit import fit
from pairsift.pairs import write_scenes


def test_planted_mismatches_among_scenes_are_found(tmp_path):
    write_scenes(tmp_path / "scenes", 700, 2)
    options = {"out": str(tmp_path / "run"), "cache": str(tmp_path / "cache"), "noise": 0.4}
    run = fit(tmp_path / "scenes", options, progress=False)
    found = run.metrics["detection"]
    assert found["auroc"] >= 0.97
    assert found["precision"] > 0.85 and found["recall"] > 0.85
    assert run.metrics["noise_rate"]["estimated"] == pytest.approx(run.metrics["noise_rate"]["true"], abs=0.05)
    rows = run.issues().to_pylist()
    wrong = [row for row in rows if row["split"] == "train" and row["is_mismatch"] and row["truly_mismatched"]]
    owner = {run.pairs.names[i]: i for i in range(run.pairs.n_images)}
    truth = run.pairs.true_image_of
    right = [truth[row["suggested_from_pair"]] == owner[row["image"]] for row in wrong]
    assert sum(right) / len(right) > 0.3  # of about 3,500 captions
    held_out = [row["is_mismatch"] for row in rows if row["split"] != "train"]
    assert sum(held_out) / len(held_out) < 0.1
