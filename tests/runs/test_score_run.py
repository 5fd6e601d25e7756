"""New pairs judged by a finished run."""

import csv
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

import pairsift
from pairsift.cli import main
from pairsift.pairs.pairs import Pairs
from pairsift.runs import scoring
from pairsift.scenes import write_scenes

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(scoring.Scorer, "score", score)
    opened.score(new, tmp_path / "at_once.parquet", image_folder=images)
    assert pq.read_table(tmp_path / "at_once.parquet").equals(table)
    assert rows == len(table) == calls[0] + calls[2] == 300
    shared = tmp_path / "shared.parquet"
    assert opened.score(new, shared, image_folder=images, shard="1/2") is None and not shared.exists()
    assert opened.score(new, shared, image_folder=images, shard="0/2") == 300 and pq.read_table(shared).equals(table)
    assert opened.score(new, shared, image_folder=images, shard="1/2") == 300  # comes late
    [record] = tmp_path.glob(".*")
    assert record.name.startswith(".shared.parquet.") and record.suffix == ".done"
    [skip] = list(csv.DictReader((tmp_path / "scored.skipped.csv").open(newline="")))
    assert skip["pair"] == "300" and "missing.jpg" in skip["reason"]
    assert table["pair"].to_pylist() == list(range(300))
    given = [row["caption"] for row in csv.DictReader(new.open(newline=""))]
    assert [given[pair] for pair in table["pair"].to_pylist()] == table["given_caption"].to_pylist()
    assert table["sku"].to_pylist() == [f"={pair}" for pair in table["pair"].to_pylist()]
    wrong = np.array(table["wrong"].to_pylist()) == "1"
    assert roc_auc_score(~wrong, table["match_probability"].to_numpy()) > 0.75
    unknown = {"true_image", "truly_mismatched", "image_duplicates", "caption_duplicates"}
    names = set(run.pairs().column_names) - unknown
    assert names <= set(table.column_names) and set(table["split"].to_pylist()) == {"added"}
    assert (folder / "trust.parquet").read_bytes() == before


@pytest.fixture(scope="module")
def whole(run, new, tmp_path_factory):
    """The scores of all new pairs as one part."""
    out = tmp_path_factory.mktemp("whole") / "scored.parquet"
    pairsift.open_run(run.folder, progress=False).score(new, out, image_folder=new.parent / "scenes" / "images")
    return pq.read_table(out)


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        (["clean", "mismatched", "vague"], "1 of 3 new pairs are flagged as mismatched"),
        (["clean", "unknown"], "0 of 2 new pairs are flagged as mismatched; 1 without a verdict: "),
    ],
)
def test_the_line_says_how_many_are_flagged(verdicts, line):
    table = pa.table({"verdict": verdicts, "is_mismatch": [verdict == "mismatched" for verdict in verdicts]})
    assert scoring._flag_line(table).startswith(line)


def entries(cache):
    return {path.name for path in cache.glob("*.json")}


def test_any_number_of_parts_is_one_entry_of_the_cache_and_says_the_same(run, new, whole, tmp_path, monkeypatch):
    cache = run.config.cache
    before = entries(cache)
    lines = new.read_text().splitlines()
    other = tmp_path / "other.csv"
    other.write_text("\n".join([*lines[:1], *(line.replace("A ", "One ") for line in lines[1:])]) + "\n")
    monkeypatch.setattr(scoring, "CHUNK", 170)
    opened, images = pairsift.open_run(run.folder, progress=False), new.parent / "scenes" / "images"
    opened.score(other, tmp_path / "other.parquet", image_folder=images)
    made = entries(cache) - before
    assert sorted(name.partition("-")[0] for name in made) == ["texts"]  # the images have their entry already
    opened.score(new, tmp_path / "parts.parquet", image_folder=images)
    assert entries(cache) - before == made
    parts = pq.read_table(tmp_path / "parts.parquet")
    assert parts.drop_columns(["match_probability"]).schema == whole.drop_columns(["match_probability"]).schema
    for name in ("pair", "image", "given_caption", "split", "sku", "wrong"):
        assert parts[name].to_pylist() == whole[name].to_pylist()
    left, right = (table["match_probability"].to_numpy() for table in (parts, whole))
    # what is judged side by side shares a rate of mismatches, so that the division into parts tells a little
    assert np.corrcoef(left, right)[0, 1] > 0.9 and ((left < 0.5) == (right < 0.5)).mean() > 0.9


def test_a_new_caption_of_an_image_of_the_run_has_the_image_there(run, scenes, new, tmp_path):
    """So that the captions that the image has in the run are its siblings."""
    old, images = run.prepared.pairs, new.parent / "scenes" / "images"
    rows = [(old.paths[row].absolute(), "another caption") for row in (3, 1)]
    rows += [(path.absolute(), "a new image") for path in sorted(images.iterdir())[:2]]
    with (tmp_path / "mixed.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image", "caption"), *rows])
    joined = scoring.joined_pairs(old, pairsift.load(tmp_path / "mixed.csv"))
    owner = joined.image_of[len(old) :].tolist()
    assert owner[:2] == [3, 1] and min(owner[2:]) >= old.n_images
    assert [joined.paths[row] for row in owner] == [old.paths[3], old.paths[1], *(path for path, _ in rows[2:])]
    assert np.array_equal(joined.image_of[: len(old)], old.image_of)


def test_a_single_pair_is_judged_and_splits_of_new_pairs_are_not_read(run, new, tmp_path, capsys):
    images = new.parent / "scenes" / "images"
    name = min(images.iterdir()).name
    rows = [("image", "caption", "split"), (name, "a red house", "train"), (name, "a blue boat", "test")]
    for count in (1, 2):
        with (tmp_path / f"{count}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows(rows[: 1 + count])
        out = tmp_path / f"{count}.parquet"
        table = str(tmp_path / f"{count}.csv")
        assert main(["score", str(run.folder), table, "--out", str(out), "--image-folder", str(images)]) == 0
        assert set(pq.read_table(out)["split"].to_pylist()) == {"added"} and len(pq.read_table(out)) == count
        out, err = capsys.readouterr()
        pairs = ("1 pair", "2 pairs")[count - 1]
        assert out.endswith(f": {pairs}\n") and f"caption from column 'caption': {pairs}, 1 image\n" in err


def test_parts_are_as_large_as_each_other_and_split_no_image():
    image_of = np.array([0] * 7 + [1] + [2] * 30 + [3, 4, 5, -1, 6])
    split = np.array(["train"] * 40 + ["skipped"] + ["train"] * 2, "<U7")
    pairs = Pairs("s.csv", [""] * 7, [Path()] * 7, ["a"] * len(image_of), image_of, split)
    for chunk in (1, 2, 5, 10, 40, 50):
        parts = list(scoring._chunks(pairs, chunk))
        assert sorted(np.concatenate(parts).tolist()) == [*range(40), 42] and all(len(part) for part in parts)
        assert sum(len(np.unique(image_of[part])) for part in parts) == 6
    single = Pairs("s.csv", [""] * 41, [Path()] * 41, ["a"] * 41, np.arange(41), np.full(41, "train"))
    assert [len(part) for part in scoring._chunks(single, 20)] == [13, 14, 14]


def test_scores_are_those_of_an_audit_of_the_grown_source(run, scenes, new, tmp_path):
    """The same pairs by another way: as rows that came into the run's own source."""
    folder, data = shutil.copytree(run.folder, tmp_path / "run"), shutil.copytree(scenes, tmp_path / "data")
    for path in (new.parent / "scenes" / "images").iterdir():
        shutil.copy(path, data / "images" / f"new_{path.name}")
    rows = list(csv.DictReader(new.open(newline="")))[:60]
    with (tmp_path / "few.csv").open("w", newline="") as few, (data / "captions.csv").open("a", newline="") as all_rows:
        csv.writer(few).writerow(("image", "caption"))
        for row in rows:
            for stream in (few, all_rows):
                csv.writer(stream).writerow((f"new_{row['image']}", row["caption"]))
    [train] = [file for file in (data / "splits").iterdir() if "train" in file.name]
    names = dict.fromkeys(f"new_{row['image']}" for row in rows)
    train.write_text("\n".join([train.read_text().rstrip("\n"), *names]) + "\n")
    out, images = tmp_path / "scored.parquet", data / "images"
    pairsift.open_run(run.folder, progress=False).score(tmp_path / "few.csv", out, image_folder=images)
    scored = pq.read_table(out)
    table = pairsift.open_run(folder, source=data, progress=False).audit().sort_by("pair")
    table = table.filter(pa.compute.equal(table["split"], "added"))
    size = len(run.prepared.pairs)
    assert scored["pair"].to_pylist() == [pair - size for pair in table["pair"].to_pylist()] == list(range(60))
    for name in ("given_caption", "image"):
        assert scored[name].to_pylist() == table[name].to_pylist()
    np.testing.assert_allclose(scored["match_probability"], table["match_probability"], atol=1e-6)


def test_a_second_call_on_the_same_table_is_refused(run, new, whole, tmp_path, monkeypatch, capsys):
    images, out, score = new.parent / "scenes" / "images", tmp_path / "scored.parquet", scoring.Scorer.score
    reached, go = threading.Event(), threading.Event()

    def waiting(self, ids):
        reached.set()
        assert go.wait(60)
        return score(self, ids)

    monkeypatch.setattr(scoring.Scorer, "score", waiting)
    first = pairsift.open_run(run.folder, progress=False)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first.score, new, out, image_folder=images)
        assert reached.wait(60)
        few = tmp_path / "few.csv"  # other pairs, the same table
        few.write_text("\n".join(new.read_text().splitlines()[:41]) + "\n")
        assert main(["score", str(run.folder), str(few), "--out", str(out), "--image-folder", str(images)]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and f"is writing {out}: wait until it is done" in line
        go.set()
        assert done.result() == 300
    assert pq.read_table(out).equals(whole) and not list(tmp_path.glob(".*"))


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


@pytest.mark.parametrize("told", [True, False])
def test_a_part_in_which_near_captions_cannot_be_told_is_counted(run, new, told, tmp_path, monkeypatch, capsys):
    judge = scoring.Judge.judge_again
    monkeypatch.setattr(
        scoring.Judge, "judge_again", lambda *given, **as_: replace(judge(*given, **as_), counts_near=told)
    )
    opened = pairsift.open_run(shutil.copytree(run.folder, tmp_path / "run"))
    opened.score(new, tmp_path / "scored.parquet", image_folder=new.parent / "scenes" / "images")
    assert ("cannot be told among 300 of the new pairs: their" in capsys.readouterr().err) is not told
