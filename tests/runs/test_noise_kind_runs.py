"""Runs with planted noise of near, edited and vague captions: fitted, opened, audited, exported, resumed."""

import csv
import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import yaml
from flat_options import configured, fit
from light_evidence import LIGHT

import pairsift
from embedding_sources import aligned, captions_of, write_single
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.noise.planted import plant_noise
from pairsift.retrieve.gallery import evaluate
from pairsift.runs.prepare import SourcePairs, encode, prepare, read_pairs, require_possible

pytestmark = pytest.mark.slow

PLAIN = {"method": "plain", "plain.networks": 1, "plain.epochs.warmup": 0, "plain.epochs.train": 1, "seed": 1}
PLAIN |= {"detect": LIGHT}


@pytest.fixture(scope="module", params=["near", "edit", "vague"])
def kind_run(request, place, scenes):
    kind = request.param
    options = {**PLAIN, "batch_size": 64, "device": "cpu", "cache": str(place / "cache"), "noise": 0.4}
    out = str(place / f"run-{kind}")
    return fit(scenes, {**options, "noise_kind": kind, "noise_seed": 1, "out": out}, progress=False)


def test_the_truth_and_the_facts_say_the_kind(kind_run):
    kind, pairs = kind_run.metrics["noise"]["kind"], kind_run.prepared.pairs
    wrong = pairs.mismatched()
    assert kind in str(kind_run.folder) and kind_run.config.data.noise_kind == kind
    assert wrong.sum() == round(0.4 * len(pairs.ids("train"))) and not wrong[pairs.split != "train"].any()
    assert kind_run.metrics["noise_rate"]["true"] == kind_run.metrics["noise"]["rate"]
    for row in kind_run.pairs().to_pylist():
        pair = row["pair"]
        assert row["truly_mismatched"] == wrong[pair] and row["given_caption"] == pairs.captions[pair]
        expected = None if kind != "near" and wrong[pair] else pairs.names[pairs.true_image_of[pair]]
        assert row["true_image"] == expected
    page = (kind_run.folder / "report.html").read_text()
    assert f"({kind}), seed 1" in page
    assert {"near": "read much alike", "edit": "wrong in one word", "vague": "fit many images"}[kind] in page


def test_texts_are_those_of_the_planted_captions(kind_run):
    prepared = kind_run.prepared
    encoded = np.asarray(prepared.texts.encode(prepared.pairs.captions), np.float32)
    np.testing.assert_allclose(np.asarray(prepared.features.texts.values), encoded, atol=1e-6)  # batches differ
    if kind_run.metrics["noise"]["kind"] == "vague":
        counts = Counter(np.array(prepared.pairs.captions)[prepared.pairs.mismatched()].tolist())
        assert len(counts) <= 10
    read = SourcePairs(prepared.pairs, prepared.hash)
    again = encode(kind_run.config, kind_run.folder, read, finished=True, progress=False)
    assert np.array_equal(again.features.texts.values, prepared.features.texts.values)


def test_a_run_opens_with_the_same_pairs(kind_run):
    opened = pairsift.open_run(kind_run.folder, progress=False)
    pairs, again = kind_run.prepared.pairs, opened.prepared.pairs
    assert opened.prepared.changes is None and opened.prepared.hash == kind_run.metrics["data"]["hash"]
    assert again.noise == pairs.noise and again.captions == pairs.captions
    assert again.image_of.tolist() == pairs.image_of.tolist()
    assert again.true_image_of.tolist() == pairs.true_image_of.tolist()
    assert opened.evaluate("test")["ensemble"] == pytest.approx(kind_run.metrics["test"]["ensemble"])


def test_a_run_is_audited_and_exported(kind_run, tmp_path, capsys):
    folder = shutil.copytree(kind_run.folder, tmp_path / "run")
    before = kind_run.pairs().sort_by("pair")
    assert main(["audit", str(folder), "--worst", "1"]) == 0
    after = pairsift.open_run(folder).pairs().sort_by("pair")
    for name in ("image", "given_caption", "truly_mismatched", "true_image"):
        assert after[name].to_pylist() == before[name].to_pylist()
    assert main(["export", str(folder), "--out", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = [(row["image"], row["caption"]) for row in csv.DictReader(stream)]
    assert rows == list(zip(before["image"].to_pylist(), before["given_caption"].to_pylist(), strict=True))
    assert main(["search", str(folder), "a red bird"]) == 0
    capsys.readouterr()


def test_noise_survives_a_change_of_the_source(kind_run, scenes, tmp_path):
    folder, data = shutil.copytree(kind_run.folder, tmp_path / "run"), shutil.copytree(scenes, tmp_path / "data")
    with (data / "captions.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    with (data / "captions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([rows[0], [rows[1][0], "a new caption"], *rows[1:]])
    pairs, opened = kind_run.prepared.pairs, pairsift.open_run(folder, source=data, progress=False)
    opened.audit()
    again = pairsift.open_run(folder, source=data, progress=False).prepared.pairs
    assert len(again) == len(pairs) + 1 and again.captions[:-1] == pairs.captions
    assert again.mismatched()[:-1].tolist() == pairs.mismatched().tolist() and not again.mismatched()[-1]


def test_noise_is_planted_again_from_the_options(kind_run, tmp_path):
    pairs = kind_run.prepared.pairs
    again = prepare(kind_run.config, tmp_path, progress=False).pairs
    assert again.noise == pairs.noise and again.captions == pairs.captions
    assert again.image_of.tolist() == pairs.image_of.tolist()
    config = replace(kind_run.config, data=kind_run.config.data.replaced(noise_seed=2))
    assert prepare(config, tmp_path, progress=False).pairs.noise.index_hash != pairs.noise.index_hash


def test_a_run_of_before_opens_and_has_random_noise(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config.pop("noise_kind", None)
    config.get("data", {}).pop("noise_kind", None)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["noise"].pop("kind") == "random"
    (folder / "metrics.json").write_text(json.dumps(metrics))
    opened = pairsift.open_run(folder, progress=False)
    assert opened.config.data.noise_kind == "random" and opened.prepared.pairs.noise.kind == "random"
    expected = plant_noise(read_pairs(opened.config).pairs, 0.4, 1)
    assert opened.prepared.pairs.image_of.tolist() == expected.image_of.tolist()


def refused(options):
    with pytest.raises(InputError) as caught:
        require_possible(configured(options))
    return str(caught.value)


def test_options_that_a_kind_excludes(scenes, capsys):
    options = {"source": str(scenes), "noise": 0.4, "noise_kind": "near"}
    assert "leave --noise-granularity image out" in refused({**options, "noise_granularity": "image"})
    assert "leave --noise-kind near out" in refused({**options, "noise": 0, "noise_index": "index.npy"})
    assert main(["fit", str(scenes), "--noise-kind", "close"]) == 2
    assert "--noise-kind" in capsys.readouterr().err


def test_vectors_of_captions_take_near_noise_and_no_vague_one(tmp_path):
    images, texts = aligned(80, seed=4)
    columns = {
        "caption": captions_of(80),
        "image": [f"https://example.org/{n}.jpg" for n in range(80)],
        "split": ["train"] * 60 + ["dev"] * 10 + ["test"] * 10,
    }
    write_single(tmp_path / "data", images, texts, columns)
    options = {"source": str(tmp_path / "data"), "noise": 0.5, "cache": str(tmp_path / "cache"), "device": "cpu"}
    near = prepare(configured({**options, "noise_kind": "near"}), tmp_path, progress=False).pairs
    assert near.mismatched().sum() == 30
    with pytest.raises(InputError, match="leave it out, or give --text-encoder muse"):
        prepare(configured({**options, "noise_kind": "vague"}), tmp_path, progress=False)
    words = configured({**options, "noise_kind": "vague", "text_encoder": "wordllama"})
    assert prepare(words, tmp_path, progress=False).pairs.mismatched().sum() == 30


@pytest.mark.parametrize("kind", ["random", "vague"])
def test_noise_in_all_splits(kind, place, scenes):
    options = {**PLAIN, "batch_size": 64, "device": "cpu", "cache": str(place / "cache"), "noise": 0.4}
    options |= {"noise_kind": kind, "noise_splits": "all", "noise_seed": 1, "out": str(place / f"run-all-{kind}")}
    run = fit(scenes, options, progress=False)
    pairs = run.prepared.pairs
    wrong = pairs.mismatched()
    for name in ("train", "dev", "test"):
        assert 0.2 < wrong[pairs.ids(name)].mean() <= 0.41, name
    assert run.metrics["noise"]["splits"] == "all"
    matching = np.where(wrong & (pairs.split == "test"), "unused", pairs.split)
    expected = evaluate(run.matchers, run.prepared.features, replace(pairs, split=matching), "test")
    assert run.metrics["test_matching"] == expected != run.metrics["test"]
    again = pairsift.open_run(run.folder, progress=False).prepared.pairs
    assert again.noise == pairs.noise and again.captions == pairs.captions
    assert np.array_equal(again.image_of, pairs.image_of) and np.array_equal(again.true_image_of, pairs.true_image_of)
    page = (run.folder / "report.html").read_text()
    assert "test, truly matching pairs alone" in page and "40% of the captions of each split were" in page


def test_an_index_file_and_noise_in_all_splits_exclude_each_other(scenes, tmp_path):
    np.save(tmp_path / "index.npy", np.arange(3))
    with pytest.raises(InputError, match="leave --noise-splits all out"):
        require_possible(
            configured(
                {"source": str(scenes), **PLAIN, "noise_index": str(tmp_path / "index.npy"), "noise_splits": "all"}
            )
        )
