"""New pairs judged by a finished run."""

import csv
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

import pairsift
from pairsift.cli import main
from pairsift.pairs import write_scenes
from pairsift.runs import scoring


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """A table of 60 other scenes, in which every third caption belongs to another image."""
    place = tmp_path_factory.mktemp("new")
    write_scenes(place / "scenes", 60, 77)
    with (place / "scenes" / "captions.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    captions = [row["caption"] for row in rows]
    shifted = captions[50:] + captions[:50]
    with (place / "new.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["sku", "image", "caption", "wrong"])
        writer.writeheader()
        for k, row in enumerate(rows):
            wrong = k % 3 == 0
            caption = shifted[k] if wrong else captions[k]
            writer.writerow({"sku": f"={k}", "image": row["image"], "caption": caption, "wrong": int(wrong)})
        writer.writerow({"sku": "none", "image": "missing.jpg", "caption": "no image", "wrong": 0})
    return place / "new.csv"


def test_new_pairs_are_judged_in_parts_and_a_killed_call_goes_on(run, new, tmp_path, monkeypatch):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    images = new.parent / "scenes" / "images"
    opened = pairsift.open_run(folder, progress=False)
    before = (folder / "trust.parquet").read_bytes()
    monkeypatch.setattr(scoring, "CHUNK", 200)
    monkeypatch.setattr(scoring.score_to, "__defaults__", (200,))
    calls, score = [], scoring.Scorer.score

    def counted(self, part):
        calls.append(len(part))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return score(self, part)

    monkeypatch.setattr(scoring.Scorer, "score", counted)
    with pytest.raises(KeyboardInterrupt):
        opened.score(new, tmp_path / "scored.parquet", image_folder=images)
    assert not (tmp_path / "scored.parquet").exists()
    rows = opened.score(new, tmp_path / "scored.parquet", image_folder=images)
    assert len(calls) == 3 and calls[1] == calls[2]  # the first part is not judged again
    table = pq.read_table(tmp_path / "scored.parquet")
    assert rows == len(table) == calls[0] + calls[2] == 300
    assert table["pair"].to_pylist() == list(range(300)) and not list(tmp_path.glob(".*"))
    given = [row["caption"] for row in csv.DictReader(new.open(newline=""))]
    assert [given[pair] for pair in table["pair"].to_pylist()] == table["given_caption"].to_pylist()
    assert table["sku"].to_pylist() == [f"={pair}" for pair in table["pair"].to_pylist()]
    wrong = np.array(table["wrong"].to_pylist()) == "1"
    assert roc_auc_score(~wrong, table["match_probability"].to_numpy()) > 0.75
    unknown = {"true_image", "truly_mismatched", "image_duplicates", "caption_duplicates"}
    names = set(run.pairs().column_names) - unknown
    assert names <= set(table.column_names) and set(table["split"].to_pylist()) == {"added"}
    assert (folder / "trust.parquet").read_bytes() == before


def test_the_verb_writes_a_safe_table(run, new, tmp_path, capsys):
    images = str(new.parent / "scenes" / "images")
    few = tmp_path / "few.csv"
    few.write_text("\n".join(new.read_text().splitlines()[:41]) + "\n")
    out = tmp_path / "scored.csv"
    assert main(["score", str(run.folder), str(few), "--out", str(out), "--image-folder", images]) == 0
    assert capsys.readouterr().out == f"{out}: 40 pairs\n"
    rows = list(csv.DictReader(out.open(newline="")))
    assert len(rows) == 40 and rows[0]["sku"] == "'=0"
    assert main(["score", str(run.folder), str(few), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["score", str(run.folder), str(few), "--out", str(tmp_path / "x.xlsx")]) == 2
    assert "scores are written as .parquet or .csv" in capsys.readouterr().err
    assert main(["score", str(run.folder), str(tmp_path / "none.csv"), "--out", str(tmp_path / "y.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err
