"""A run checked by a few decisions and recalibrated, by the command line."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from pairsift.cli import main
from pairsift.web.app import create_app

pytestmark = pytest.mark.slow


def test_a_run_is_checked_and_recalibrated(run, tmp_path, capsys):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    assert main(["spot-check", str(folder), "--apply"]) == 2
    assert f"has no spot check: draw one with: pairsift spot-check {folder}" in capsys.readouterr().err
    assert main(["spot-check", str(folder), "--pairs", "40"]) == 0
    assert "drew 40 pairs" in capsys.readouterr().out
    assert main(["spot-check", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("0 of 40 pairs are answered\na result needs")
    truth = {row["pair"]: row["truly_mismatched"] for row in run.pairs().to_pylist()}
    sheet = folder / "spot_check.csv"
    lines = sheet.read_text().splitlines()[1:]
    chosen = {line.split(",")[0]: "drop" if truth[int(line.split(",")[0])] else "keep" for line in lines}
    sheet.write_text("pair,decision\n" + "".join(f"{pair},{choice}\n" for pair, choice in chosen.items()))
    assert main(["decide", str(folder), "--from", str(sheet), "--quiet"]) == 0
    assert main(["spot-check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"40 of 40 pairs are answered; {list(chosen.values()).count('drop')} of these do not match" in out
    assert "by the match probabilities" in out
    before = pq.read_table(folder / "pairs.parquet")
    old = (folder / "metrics.json").read_text()
    assert main(["spot-check", str(folder), "--apply"]) == 0
    after = pq.read_table(folder / "pairs.parquet")
    assert after["pair"].to_pylist() == before["pair"].to_pylist()
    assert after["match_probability"].to_pylist() != before["match_probability"].to_pylist()
    flags = [p < 0.5 for p in after["match_probability"].to_pylist()]
    assert after["is_mismatch"].to_pylist() == flags
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["spot_check"]["answered"] == 40
    table = (folder / "pairs.parquet").read_bytes()
    (folder / "metrics.json").write_text(old)  # as after a kill before it was written
    assert main(["spot-check", str(folder), "--apply"]) == 0
    assert (folder / "pairs.parquet").read_bytes() == table
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    assert metrics["noise_rate"] == run.metrics["noise_rate"]  # that of the training pairs; the check is of all pairs
    assert capsys.readouterr().out.count("40 of 40 pairs are answered") == 2
    assert main(["spot-check", str(folder), "--apply"]) == 2  # the answers count once
    assert "recalibrated already" in capsys.readouterr().err
    assert main(["spot-check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "40 of 40" in out and "are recalibrated by them" in out and "would have" not in out
    page = TestClient(create_app(folder, {"here"}), base_url="http://here").get("/spot-check").text
    assert "The match probabilities are recalibrated by these answers" in page and 'id="draw"' not in page
    assert main(["spot-check", str(folder), "--pairs", "30"]) == 2  # whose answers would not be read
    assert "recalibrated already" in capsys.readouterr().err


def test_pairs_that_recalibration_flags_get_the_suggestions_of_the_run(run, tmp_path):
    """All answers say "mismatched", so that pairs are flagged which were not."""
    folder = shutil.copytree(run.folder, tmp_path / "run")
    assert main(["spot-check", str(folder), "--pairs", "60"]) == 0
    sheet = folder / "spot_check.csv"
    pairs = [line.split(",")[0] for line in sheet.read_text().splitlines()[1:]]
    sheet.write_text("pair,decision\n" + "".join(f"{pair},drop\n" for pair in pairs))
    assert main(["decide", str(folder), "--from", str(sheet), "--quiet"]) == 0
    before = {row["pair"]: row for row in pq.read_table(folder / "pairs.parquet").to_pylist()}
    assert main(["spot-check", str(folder), "--apply"]) == 0
    after = pq.read_table(folder / "pairs.parquet").to_pylist()
    new = [row for row in after if row["is_mismatch"] and not before[row["pair"]]["is_mismatch"]]
    saved = pq.read_table(folder / "suggestions.parquet").to_pylist()
    fitting = {row["pair"]: row for row in saved if row["fits"]}
    assert len(new) > 10 and any(row["pair"] in fitting for row in new)
    for row in after:
        source = row["suggested_from_pair"]
        wanted = fitting.get(row["pair"]) if row["is_mismatch"] else None
        assert source == (wanted["from_pair"] if wanted else None)
        assert row["suggestion_probability"] == (pytest.approx(wanted["probability"]) if wanted else None)
        assert row["suggested_caption"] == (before[source]["given_caption"] if wanted else None)
