"""Runs side by side: on the pairs that they share, after cleaning, and what cannot be compared."""

import csv
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from flat_options import fit
from light_evidence import LIGHT

import pairsift
from pairsift.cli import main
from pairsift.cli.compare import _short
from pairsift.cli.summary import KEYS
from pairsift.errors import InputError
from pairsift.marker import write_marker
from pairsift.pairs.same_pairs import shared_pairs
from pairsift.retrieve.gallery import Gallery
from pairsift.review import Decision
from pairsift.runs.cleaned import cleaned_config
from pairsift.runs.compare import _cleaning, _spot_checked
from pairsift.runs.prepare import read_pairs
from pairsift.runs.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mine(scenes, place, quick):
    """A run on a table without splits."""
    with (scenes / "captions.csv").open(newline="") as stream:
        rows = [{"photo": row["image"], "title": row["caption"]} for row in csv.DictReader(stream)]
    source = place / "compare" / "shop.csv"
    source.parent.mkdir()
    with source.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    options = {"cache": quick["cache"], "device": "cpu", "method": "plain", "plain.epochs.train": 2, "detect": LIGHT}
    options |= {"plain.networks": 1, "seed": 3, "out": str(place / "compare" / "mine")}
    return fit(source, {**options, "image_column": "photo", "image_folder": str(scenes / "images")}, progress=False)


@pytest.fixture(scope="module")
def cleaned(mine, place):
    """A run with the options of `mine` on its export: two test pairs dropped, one rewritten, a test image gone."""
    pairs = mine.prepared.pairs
    test = pairs.ids("test")
    first, last = (test[pairs.image_of[test] == row] for row in pairs.images("test")[[0, -1]])
    drops = [*last.tolist(), int(first[0])]
    drops += [int(pair) for row in pairs.images("train")[:5] for pair in np.flatnonzero(pairs.image_of == row)]
    decisions = [Decision(pair, "drop") for pair in drops]
    mine.decisions().decide([*decisions, Decision(int(first[1]), "replace", "something else")])
    table, out = place / "compare" / "clean.csv", place / "compare" / "clean"
    assert main(["export", str(mine.folder), "--out", str(table), "--splits", "--quiet"]) == 0
    assert main(["fit", str(table), "--config", str(mine.folder / "config.yaml"), "--out", str(out), "--quiet"]) == 0
    return pairsift.open_run(out, progress=False)


def naive_recall(run, ids):
    """Recall among the images and the different captions of these pairs, by definition, from the full matrix."""
    pairs = run.prepared.pairs
    rows = np.unique(pairs.image_of[ids])
    gallery = Gallery.encode(run.matchers, run.prepared.features, rows, ids)
    texts = [" ".join(pairs.captions[pair].casefold().split()) for pair in ids]
    different = list(dict.fromkeys(texts))
    scores = gallery.block(np.arange(len(rows)))[:, [texts.index(text) for text in different]]
    having = [{row for row, text in zip(pairs.image_of[ids], texts, strict=True) if text == one} for one in different]
    right = np.array([[row in images for images in having] for row in rows])
    i2t = [(s[~own] >= s[own].max()).sum() for s, own in zip(scores, right, strict=True)]
    t2i = [(s[~own] >= s[own].max()).sum() for s, own in zip(scores.T, right.T, strict=True)]
    ranks = {"i2t": np.array(i2t), "t2i": np.array([t2i[different.index(text)] for text in texts])}
    found = {f"{way}_r{k}": 100 * np.mean(ranks[way] < k) for way in ("i2t", "t2i") for k in (1, 5, 10)}
    return {**found, "rsum": sum(found.values())}


def test_a_run_does_not_differ_from_itself_and_has_its_recall(run):
    found = pairsift.compare([run, run.folder], samples=50)
    first, second = found.runs
    expected = {key: run.evaluate("test")["ensemble"][key] for key in KEYS}
    assert {key: one.value for key, one in first.recall.items()} == pytest.approx(expected)
    assert all(one.low <= one.value <= one.high for one in first.recall.values())
    assert all((one.value, one.low, one.high) == (0.0, 0.0, 0.0) for one in second.difference.values())
    assert second.recall == first.recall and first.difference == {} and set(second.difference) == set(expected)
    assert found.options == {} and (found.images, found.captions) == (12, 60) and found.samples == 50
    assert first.detection["auroc"].value == pytest.approx(run.metrics["detection"]["auroc"])
    assert first.noise_rate == run.metrics["noise_rate"] and first.judged == len(run.pairs())
    assert first.suspects == len(run.suspects())


def test_cleaned_data_are_compared_on_the_pairs_that_both_runs_have(mine, cleaned):
    pairs = mine.prepared.pairs
    test, n = pairs.ids("test"), len(pairs.images("test"))
    found = pairsift.compare([mine, cleaned], samples=30)
    assert (found.images, found.captions) == (n - 1, len(test) - 5 - 2)  # an image of five, a drop, a new caption
    assert found.notes[0].startswith("The test splits differ (") and f"{n - 1:,} images" in found.notes[0]
    assert not any("--splits" in note for note in found.notes)
    shared = shared_pairs([mine.prepared.pairs, cleaned.prepared.pairs], "test")
    for run, ids, compared in zip((mine, cleaned), shared, found.runs, strict=True):
        assert {key: one.value for key, one in compared.recall.items()} == pytest.approx(naive_recall(run, ids))
    for key, one in found.runs[1].difference.items():
        assert one.value == found.runs[1].recall[key].value - found.runs[0].recall[key].value
    assert [*found.options] == ["source"] and found.options["source"][1].endswith("clean.csv")


def test_splits_drawn_anew_are_noticed(mine, cleaned):
    """Without --splits the images are drawn from fewer, so some change their split."""
    pairs = cleaned.prepared.pairs
    split = np.array(pairs.split)
    moved = pairs.images("test")[:2]
    split[np.isin(pairs.image_of, moved)] = "train"
    other = Run(cleaned.folder, replace(cleaned.prepared, pairs=replace(pairs, split=split)))
    found = pairsift.compare([mine, other], samples=5)
    assert any(note.startswith("2 test images of") and "`pairsift export --splits`" in note for note in found.notes)
    assert found.images == len(mine.prepared.pairs.images("test")) - 3


def test_one_command_trains_on_the_export_and_shows_before_and_after(mine, place, capsys):
    folder, out = shutil.copytree(mine.folder, place / "compare" / "again"), place / "compare" / "again-cleaned"
    for file in folder.glob("decisions.sqlite*"):
        file.unlink()  # other tests decided about this run
    drops = mine.prepared.pairs.ids("train")[:10].tolist()
    pairsift.open_run(folder, progress=False).decisions().decide([Decision(pair, "drop") for pair in drops])
    table, drawn = place / "compare" / "export" / "again.csv", place / "compare" / "export" / "drawn.csv"
    assert main(["export", str(folder), "--out", str(table), "--splits", "--quiet"]) == 0
    assert main(["export", str(folder), "--out", str(drawn), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["compare", str(folder), "--train-on", str(drawn), "--quiet"]) == 2
    assert "export again with --splits" in capsys.readouterr().err and not out.exists()
    assert main(["compare", str(folder), "--train-on", str(table), "--samples", "20", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert f"minus {_short(str(folder))}" in said and _short(str(out)) in said
    first, second = mine.config.tree(), pairsift.open_run(out, progress=False).config.tree()
    assert {name for name in first if first[name] != second[name]} == {"source", "out"}
    assert first["text_encoder"] == mine.prepared.texts.name == "muse"
    assert len(pairsift.open_run(out).pairs()) == len(pairsift.open_run(folder).pairs()) - len(drops)
    assert main(["compare", str(folder), "--train-on", str(table), "--quiet"]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_the_export_of_planted_noise_is_trained_on_as_it_is(run, place):
    export, coco = place / "planted" / "planted.csv", place / "planted" / "planted.json"
    for out in (export, coco):
        assert main(["export", str(run.folder), "--out", str(out), "--quiet"]) == 0
    other = Run(run.folder, run.prepared)
    other.config = replace(run.config, data=run.config.data.replaced(image_column="photo", caption_column="title"))
    for out in (export, coco):
        config = cleaned_config(other, out, place / "x")
        assert (config.data.noise, config.data.image_column, config.data.caption_column) == (0, None, None)
        pairs = read_pairs(config).pairs
        assert sorted(pairs.captions) == sorted(run.prepared.pairs.captions)


def test_the_command_prints_a_table_and_writes_files(run, capsys, tmp_path):
    words = ["compare", str(run.folder), str(run.folder), "--samples", "20", "--split", "dev"]
    assert main([*words, "--json", str(tmp_path / "c.json"), "--html", str(tmp_path / "c.html"), "--quiet"]) == 0
    out = capsys.readouterr().out
    tree = json.loads((tmp_path / "c.json").read_text())
    assert out.startswith("dev: 12 images and 60 captions; intervals hold 95% of 20 resamples of the images (seed 0)")
    rsum = tree["runs"][0]["recall"]["rsum"]
    assert f"{rsum['value']:.1f}" in out and f"[{rsum['low']:.1f},{rsum['high']:.1f}]" in out and "[+0.0,+0.0]" in out
    lines = out.splitlines()
    table = lines[3 : lines.index("", 3)]
    assert len({len(line) for line in table}) == 1 and table[0].split()[-1] == "rSum"  # aligned to the right
    assert f"{len(run.suspects()):,} of {len(run.pairs()):,}" in out and "AUROC" in out
    assert "2 runs side by side" in (tmp_path / "c.html").read_text()


def test_what_cannot_be_compared_is_one_line(run, mine, place, capsys):
    def line(*words):
        assert main(["compare", *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("pairsift: ")
        return err.splitlines()[-1]

    folder = str(run.folder)
    assert "alone cannot be compared: give at least two runs" in line(folder)
    assert "--resume goes with --train-on EXPORT" in line(folder, folder, "--resume")
    assert "there is nothing at" in line(folder, "--train-on", str(place / "nowhere.csv"), "--quiet")
    assert "holds no run" in line(folder, str(place / "nowhere"))
    assert "no split 'tset'" in line(folder, folder, "--split", "tset", "--quiet")
    (place / "compare" / "begun").mkdir()
    write_marker(place / "compare" / "begun", "run")
    (place / "compare" / "begun" / "config.yaml").write_text("source: x\n")
    assert "holds an unfinished run" in line(folder, str(place / "compare" / "begun"))
    with pytest.raises(InputError, match="at least two"):
        pairsift.compare([run])
    with pytest.raises(InputError, match="samples is 0"):
        pairsift.compare([run, run], samples=0)


def test_runs_without_a_common_pair_are_refused_with_the_reason(run):
    pairs = run.prepared.pairs
    other = replace(run.prepared, pairs=replace(pairs, captions=[f"new {caption}" for caption in pairs.captions]))
    with pytest.raises(InputError, match="no test pair is in all runs: no image of the same name has the same caption"):
        pairsift.compare([run, Run(run.folder, other)])


def test_a_run_whose_source_is_gone_says_how_to_open_it(run, tmp_path):
    gone = Run(run.folder, source=tmp_path / "gone.csv", progress=False)
    with pytest.raises(InputError, match=r"nothing at .*gone\.csv, the source of .*source=\.\.\."):
        pairsift.compare([run, gone])


def judged(folder, probability, kept=(), verdicts=True):
    """What `_cleaning` reads of a run: pairs 0, 1, ... with these match probabilities, of which people kept some."""
    folder.mkdir(exist_ok=True)
    ids = list(probability)
    values = pa.array(list(probability.values()), pa.float64())
    table = pa.table({"pair": ids, "image": [f"{k}.jpg" for k in ids], "given_caption": [f"c {k}" for k in ids]})
    table = table.append_column("match_probability", values)
    table = table.append_column("is_mismatch", pa.array([value < 0.5 for value in probability.values()]))
    decided = pa.table({"pair": pa.array(kept, pa.int64()), "decision": pa.array(["keep"] * len(kept), pa.string())})
    decisions = SimpleNamespace(table=lambda: decided)
    metrics = {"verdicts_given": verdicts}
    return SimpleNamespace(folder=folder, metrics=metrics, pairs=lambda: table, decisions=lambda: decisions)


def test_a_cleaned_run_says_what_its_noise_rate_does_not_count(tmp_path):
    everything = {k: 0.1 if k < 20 else 0.8 for k in range(100)}
    first = judged(tmp_path / "a", everything)
    cleaned = judged(tmp_path / "b", {k: 1.0 for k in range(20, 100)})
    note = _cleaning(first, cleaned)
    assert "lacks 20 suspects" in note and "20.0% of the 80 pairs that both have are mismatched" in note
    assert note.endswith(f"the recall of {cleaned.folder} can be somewhat too high.")
    kept = _cleaning(judged(tmp_path / "a", everything, kept=range(60, 100)), cleaned)
    assert "10.0% of the 80 pairs" in kept
    assert _cleaning(first, first) is None
    assert _cleaning(first, judged(tmp_path / "b", {k: 1.0 for k in range(0, 100, 2)})) is None  # a sample
    assert _cleaning(first, judged(tmp_path / "b", {k: 1.0 for k in range(9, 100)})) is None
    assert _cleaning(first, judged(tmp_path / "b", {k: 1.0 for k in range(100, 200)})) is None
    assert _cleaning(judged(tmp_path / "a", everything, verdicts=False), cleaned) is None


def test_a_recalibrated_run_says_what_its_spot_check_found():
    found = {"answered": 50, "rate": 0.4, "low": 0.29, "high": 0.52}
    note = _spot_checked(SimpleNamespace(folder="runs/a", metrics={"noise_rate": {}, "spot_check": found}))
    assert note.startswith("runs/a is recalibrated by a spot check of 50 pairs: by it 40.0% of all judged pairs")
    assert "(90% interval 29.0% to 52.0%)" in note
    assert _spot_checked(SimpleNamespace(folder="runs/a", metrics={"noise_rate": {}})) is None
