"""The embedded data as the demo uses it: planted mismatches are found, clean pairs left alone, few pairs not judged."""

import csv
import json
import shutil

import pytest
from flat_options import configured, fit
from light_evidence import LIGHT

import pairsift
from pairsift.cli import main
from pairsift.runs.prepare import prepare
from pairsift.scenes import write_scenes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole fits, on slow cores

ONE = {"sift.networks": 1, "device": "cpu"}
SHORT = {**ONE, "sift.epochs.train": 2, "detect": LIGHT}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    place = tmp_path_factory.mktemp("scenes")
    write_scenes(place / "scenes", 400, 2)
    return place / "scenes"


def options(source, out, **more):
    return {"out": str(source.parent / out), "cache": str(source.parent / "cache"), **more}


def test_planted_mismatches_among_scenes_are_found(source):
    run = fit(source, options(source, "run", noise=0.4, **ONE), progress=False)
    assert run.config.method.name == "sift"
    found, rate = run.metrics["detection"], run.metrics["noise_rate"]
    assert found["auroc"] > 0.9
    assert found["precision"] > 0.75 and found["recall"] > 0.6
    assert rate["estimated"] == pytest.approx(rate["true"], abs=0.08)
    assert rate["low"] - 0.03 <= rate["true"] <= rate["high"] + 0.03
    rows = run.pairs().to_pylist()
    wrong = [row for row in rows if row["suggested_caption"] is not None and row["truly_mismatched"]]
    assert len(wrong) > 50
    owner = {run.prepared.pairs.names[i]: i for i in range(run.prepared.pairs.n_images)}
    truth = run.prepared.pairs.true_image_of
    right = [truth[row["suggested_from_pair"]] == owner[row["image"]] for row in wrong]
    assert sum(right) / len(right) > 0.2  # of about 2,000 captions
    held_out = [row["is_mismatch"] for row in rows if row["split"] != "train"]
    assert sum(held_out) / len(held_out) < 0.1


def test_few_clean_scenes_are_flagged(source, capsys):
    run = fit(source, options(source, "clean", **SHORT), progress=False)
    flagged = run.pairs()["is_mismatch"].to_pylist()
    assert sum(flagged) <= 0.03 * len(flagged)
    rate = run.metrics["noise_rate"]
    assert rate["low"] <= rate["estimated"] < 0.03 and "true" not in rate and run.metrics["verdicts_given"]
    assert main(["audit", str(run.folder)]) == 0
    assert f"estimated share of mismatched training pairs: {rate['estimated']:.1%} (" in capsys.readouterr().out


def test_under_a_hundred_pairs_are_ranked_and_not_judged(source, capsys):
    with (source / "captions.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))[:100]  # with the names of the columns
    with (source.parent / "few.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    few = options(source, "few", image_folder=str(source / "images"), noise=0.4, **SHORT)
    run = fit(source.parent / "few.csv", few, progress=False)
    table = run.pairs().to_pylist()
    assert len(table) == 99 and {row["verdict"] for row in table} == {"unknown"}
    assert not any(row["is_mismatch"] or row["suggested_caption"] for row in table)
    scores = [row["match_probability"] for row in table]
    assert scores == sorted(scores) and len(set(scores)) > 30
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["verdicts_given"] is False and metrics["detection"]["flagged"] == 0
    rate = metrics["noise_rate"]
    assert (rate["estimated"], rate["low"], rate["high"]) == (None, None, None) and rate["true"] > 0.3
    assert metrics["warnings"][0]["code"] == "few-pairs"
    assert (run.folder / "suspects.csv").read_text().count("\n") == 1
    opened = pairsift.open_run(run.folder, progress=False).audit()
    assert opened["match_probability"].to_pylist() == pytest.approx(scores, abs=1e-6)
    assert main(["audit", str(run.folder)]) == 0
    out = capsys.readouterr().out
    assert "estimated share of mismatched training pairs: unknown (too few pairs or too little evidence)" in out
    assert "warning: 99 pairs are too few for verdicts" in out


@pytest.mark.parametrize("alike", ["captions", "images"])
def test_pairs_that_nothing_tells_apart_end_no_run(source, alike):
    folder = source.parent / alike
    folder.mkdir()
    with (source / "captions.csv").open(newline="") as stream:
        records = list(csv.DictReader(stream))[:150:5]
    lines = ["image,caption,split"]
    for number, record in enumerate(records):
        shown = records[0] if alike == "images" else record
        shutil.copy(source / "images" / shown["image"], folder / f"{number}.jpg")
        caption = "a thing" if alike == "captions" else record["caption"]
        lines.append(f'{number}.jpg,"{caption}",{("train", "dev", "test")[number % 3]}')
    (folder / "mine.csv").write_text("\n".join(lines))
    run = fit(folder / "mine.csv", options(source, f"{alike}-run", **SHORT), progress=False)
    scores = run.pairs()["match_probability"].to_pylist()
    assert len(scores) == 30 and all(0 <= score <= 1 for score in scores)


def test_one_caption_an_image_leaves_no_other_to_be_found(place, scenes, quick):
    config = configured({**quick, "source": str(scenes), "captions_per_image": 1})
    (place / "single").mkdir()
    prepared = prepare(config, place / "single", progress=False)
    ids = prepared.pairs.ids()
    assert len(ids) == len(set(prepared.pairs.true_image_of[ids].tolist())) == 120
    assert prepared.pairs.noise is not None and prepared.pairs.mismatched()[prepared.pairs.ids("train")].sum() > 20
