"""A whole run: what the folder holds, that the numbers hang together, that it opens again and goes on after a kill."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from flat_options import configured, fit
from light_evidence import LIGHT, LIGHT_OPTIONS, light_file
from safetensors.numpy import load_file
from sklearn.metrics import roc_auc_score

import pairsift
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.runs.config import configure, from_tree, read_config
from pairsift.scenes import write_scenes

pytestmark = pytest.mark.slow

FILES = {
    "pairsift.json",
    "config.yaml",
    "metrics.json",
    "log.jsonl",
    "method_state.parquet",
    "pairs.parquet",
    "suspects.csv",
    "report.html",
    "first_suspects.parquet",
    "skipped.csv",
    "source.parquet",
    "suggestions.parquet",
    "trust.parquet",
    "model",
}


def test_the_folder_holds_what_the_design_names(run):
    assert {path.name for path in run.folder.iterdir()} == FILES
    assert {path.name for path in (run.folder / "model").iterdir()} == {
        "captions.safetensors",
        "images.safetensors",
        "network_0.safetensors",
        "network_1.safetensors",
    }
    metrics = json.loads((run.folder / "metrics.json").read_text())
    names = ("r1", "r5", "r10", "median_rank", "map_at_r", "r_precision")
    keys = {"rsum", *(f"{way}_{name}" for way in ("i2t", "t2i") for name in names)}
    for split in ("test", "dev"):
        assert set(metrics[split]) == {"ensemble", "network_0", "network_1"}
        assert all(set(view) == keys for view in metrics[split].values())
    rate = metrics["noise_rate"]
    assert rate["true"] == pytest.approx(0.4, abs=0.02) and 0 <= rate["low"] <= rate["estimated"] <= rate["high"] <= 1
    assert metrics["verdicts_given"] is True and all(set(caveat) == {"code", "text"} for caveat in metrics["warnings"])
    assert set(metrics["seconds"]) == {"encode", "evidence", "train"}
    assert metrics["noise"]["index_hash"] and metrics["data"]["hash"] and metrics["versions"]["torch"]


def test_detection_is_that_of_the_table(run):
    rows = [row for row in run.pairs().to_pylist() if row["split"] == "train"]
    wrong = [row["true_image"] != row["image"] for row in rows]
    auroc = roc_auc_score(wrong, [1 - row["match_probability"] for row in rows])
    assert run.metrics["detection"]["auroc"] == pytest.approx(auroc)
    assert auroc > 0.8
    kept = pyarrow.parquet.read_table(run.folder / "trust.parquet").to_pydict()
    own = dict(zip(kept["pair"], kept["linear"], strict=True))
    linear = run.metrics["detectors"]["linear"]
    assert linear["auroc"] == pytest.approx(roc_auc_score(wrong, [-own[row["pair"]] for row in rows]))
    assert sum(wrong) / len(rows) == pytest.approx(run.metrics["noise_rate"]["true"])


def test_pairs_are_all_rows_and_suspects_the_flagged_ones_worst_first_with_suggestions_from_elsewhere(run):
    table = run.pairs().to_pylist()
    scores = [row["match_probability"] for row in table]
    assert scores == sorted(scores) and scores[0] >= 0 and scores[-1] <= 1
    captions = run.prepared.pairs.captions
    for row in table:
        assert row["is_mismatch"] == (row["match_probability"] < 0.5) == (row["verdict"] == "mismatched")
        assert row["verdict"] in ("clean", "mismatched")
        if (other := row["suggested_from_pair"]) is None:
            assert row["suggested_caption"] is None
        else:
            assert row["is_mismatch"] and captions[other] == row["suggested_caption"]
            assert captions[other].casefold() != row["given_caption"].casefold()
            assert run.prepared.pairs.image_of[other] != run.prepared.pairs.image_of[row["pair"]]
    assert sum(row["suggested_caption"] is not None for row in table) > 10
    assert sorted(row["pair"] for row in table) == run.prepared.pairs.ids().tolist()
    with (run.folder / "suspects.csv").open(encoding="utf-8-sig", newline="") as stream:
        flagged = list(csv.DictReader(stream))
    suspects = pairsift.open_run(run.folder).suspects()
    assert [str(pair) for pair in suspects["pair"].to_pylist()] == [row["pair"] for row in flagged]
    assert suspects.to_pylist() == [row for row in table if row["is_mismatch"]] != []


def test_an_opened_run_gives_the_same_numbers(run):
    opened = pairsift.open_run(run.folder, progress=False)
    assert opened.evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
    before, after = (table.sort_by("pair").to_pylist() for table in (run.pairs(), opened.audit()))
    numbers = {name for name, value in before[0].items() if isinstance(value, float)}
    assert "match_probability" in numbers
    for row, again in zip(before, after, strict=True):
        for name, value in row.items():  # a busy machine may add in another order
            assert again[name] == (pytest.approx(value, abs=1e-5) if name in numbers else value), name


def test_a_run_opens_from_another_folder(run, tmp_path, monkeypatch, place):
    monkeypatch.chdir(place)
    options = yaml.safe_load((run.folder / "config.yaml").read_text())
    relative = configured({**options, "source": "scenes"})
    assert relative.source == str((place / "scenes").resolve())
    monkeypatch.chdir(tmp_path)
    assert read_config(run.folder / "config.yaml").source == relative.source


def test_the_folder_of_images_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert configured({"source": "x.csv", "image_folder": "pics"}).data.image_folder == str(tmp_path / "pics")
    home = configured({"source": "~/x.csv", "image_folder": "~/pics", "cache": "~/c"})
    assert home.source == str(tmp_path / "home" / "x.csv")
    assert home.data.image_folder == str(tmp_path / "home" / "pics")
    assert home.encode.cache == str(tmp_path / "home" / "c")


def test_search_ranks_by_the_mean_of_the_networks(run):
    found = run.search("a red ball", 5)
    assert len(found) == 5 and len({path for path, _ in found}) == 5
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True) and -1 <= scores[-1] <= scores[0] <= 1
    assert all(os.path.exists(path) for path, _ in found)


def test_a_source_of_ones_own_needs_no_noise_option(place, scenes, quick, run):
    lines = ["photo,caption,shop"]
    with (scenes / "captions.csv").open(newline="") as stream:
        records = list(csv.DictReader(stream))[:250]
    lines += [f'../scenes/images/{row["image"]},"{row["caption"]}",a{n % 3}' for n, row in enumerate(records)]
    lines += ["../scenes/images/nowhere.jpg,a cat,b", f"../scenes/images/{records[0]['image']},,b"]
    folder = place / "own"
    folder.mkdir()
    (folder / "mine.csv").write_text("\n".join(lines))
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff no picture")
    with (folder / "mine.csv").open("a") as stream:
        stream.write("\nbroken.jpg,a broken thing,c\n")
    options = {name: value for name, value in quick.items() if not name.startswith("noise")}
    mine = fit(folder / "mine.csv", {**options, "out": str(place / "mine"), "image_column": "photo"}, progress=False)
    assert "detection" not in mine.metrics and "true" not in mine.metrics["noise_rate"]
    table = mine.pairs()
    assert "shop" in table.column_names and "true_image" not in table.column_names
    assert set(table["split"].to_pylist()) == {"train", "dev", "test"}
    with (place / "mine" / "skipped.csv").open(newline="") as stream:
        skipped = list(csv.DictReader(stream))
    assert len(skipped) == 3 and all(row["reason"] for row in skipped)
    assert "<html" in (place / "mine" / "report.html").read_text()[:200].lower()


@pytest.mark.timeout(900)  # three whole fits, on slow cores
def test_a_killed_fit_that_is_resumed_twice_goes_on_once_to_the_same_weights(place, quick, monkeypatch):
    out, scenes = place / "killed", place / "fewer"
    write_scenes(scenes, 40, 5)
    given = {name: value for name, value in {**quick, "out": out, "threads": 1}.items() if name != "detect"}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = [sys.executable, "-m", "pairsift.cli", "fit", str(scenes), f"--config={light_file(place)}", *options]
    straight = place / "straight"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    subprocess.run([*command, f"--out={straight}"], check=True, capture_output=True)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (out / "checkpoint.safetensors").exists():
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (out / "metrics.json").exists()
    both = [
        subprocess.Popen([*command, "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = {child.pid: (child.communicate()[1], child.returncode) for child in both}
    assert sorted(code for _, code in ends.values()) == [0, 2], ends  # one goes on, the other is refused in a line
    winner = next(pid for pid, (_, code) in ends.items() if code == 0)
    [refusal] = [err.splitlines()[-1] for err, code in ends.values() if code == 2]
    assert f"process {winner} on " in refusal and f"is writing {out}: wait" in refusal
    for k in range(2):
        name = f"model/network_{k}.safetensors"
        a, b = load_file(straight / name), load_file(out / name)
        assert all(np.array_equal(a[key], b[key]) for key in a) and a.keys() == b.keys()
    assert pyarrow.parquet.read_table(straight / "pairs.parquet").equals(
        pyarrow.parquet.read_table(out / "pairs.parquet")
    )


def test_another_choice_than_the_runs_is_named_when_it_is_resumed(place, scenes, quick, run):
    begun = place / "begun"
    begun.mkdir()
    for name in ("config.yaml", "pairsift.json"):
        shutil.copy(run.folder / name, begun)
    options = {**quick, "out": str(begun), "resume": True}
    with pytest.raises(InputError, match=r"started with --noise-seed 1, not --noise-seed 2: resume with the same"):
        fit(scenes, {**options, "noise_seed": 2}, progress=False)
    with pytest.raises(InputError, match=r"started with --pc2.classifier.classes 128, not --pc2.classifier.classes 64"):
        fit(scenes, {**options, "pc2.classifier.classes": 64}, progress=False)
    with pytest.raises(InputError, match=r"started with --detect\.\S+ \d+, not without --detect\."):
        fit(scenes, {**options, "detect": {}}, progress=False)
    others = {name: value for name, value in options.items() if not name.startswith("pc2")}
    with pytest.raises(InputError, match=r"started with --method pc2, not --method ncr"):
        fit(scenes, {**others, "method": "ncr", "seed": 7}, progress=False)


def test_options_of_the_detector_are_kept_where_they_differ(tmp_path):
    source, file = tmp_path / "x.csv", tmp_path / "config.yaml"
    source.write_text("image,caption\na.jpg,a dog\n")
    assert "detect" not in configure(source).tree()
    config = configure(source, detect=LIGHT_OPTIONS)
    file.write_text(config.text())
    assert config.tree()["detect"] == LIGHT and read_config(file).detect == LIGHT_OPTIONS
    for values, words in (
        ({"linear": {"rigde": 1.0}}, r"detect: there is no option linear\.rigde"),
        (3, "detect is 3"),
    ):
        with pytest.raises(InputError, match=words):
            from_tree({"source": str(source), "detect": values})


def test_the_saved_configuration_makes_the_same_run(place, scenes, run):
    config = place / "again.yaml"
    options = yaml.safe_load((run.folder / "config.yaml").read_text())
    config.write_text(yaml.safe_dump({**options, "out": str(place / "again")}))
    assert main(["fit", f"--config={config}"]) == 0
    again = json.loads((place / "again" / "metrics.json").read_text())
    assert again["test"] == run.metrics["test"]


@pytest.mark.parametrize("matcher", ["vse"])
def test_other_matchers_go_the_whole_way(place, scenes, quick, matcher):
    options = {"out": str(place / matcher), "matcher": matcher, "vse.dim": 32, "vse.word_dim": 16, "min_count": 1}
    options |= {"method": "ncr", "ncr.epochs.warmup": 1, "ncr.epochs.clean": 1, "ncr.epochs.all": 1}
    quick = {name: value for name, value in quick.items() if not name.startswith("pc2")}
    run = fit(scenes, {**quick, **options}, progress=False)
    assert run.config.loss.name == "hinge" and run.config.train.batch_size == 64
    assert (run.folder / "vocabulary.json").exists()
    assert len(pairsift.open_run(run.folder, progress=False).search("a tree zzz", 3)) == 3
