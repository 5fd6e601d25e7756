"""The whole way from vectors that users bring for images and captions: mismatches found, and what cannot be done."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from flat_options import configured, fit
from sklearn.metrics import roc_auc_score

import pairsift
from embedding_sources import aligned, captions_of, write_parts, write_single
from pairsift.cli import main
from pairsift.encode import ngrams
from pairsift.runs import judging
from pairsift.runs.features import evidence_vectors
from pairsift.runs.prepare import prepare

pytestmark = pytest.mark.slow

N = 400
SPLIT = ["train"] * 280 + ["dev"] * 60 + ["test"] * 50 + ["unused"] * 10
BROKEN = {"image": (17, 395), "text": (250, 251)}  # rows with values that are not finite; 395 is unused
TOWERS = {
    "method": "plain",
    "plain.epochs.warmup": 0,
    "plain.epochs.train": 3,
    "plain.networks": 1,
    "two_tower.dim": 16,
    "two_tower.hidden": 16,
    "batch_size": 64,
    "device": "cpu",
    "threads": 1,
}


def options(folder, **more):
    return {**TOWERS, "out": str(folder / "run"), "cache": str(folder / "cache"), **more}


def columns(**more):
    names = [f"https://example.org/{n}.jpg" for n in range(N)]
    return {"caption": captions_of(N), "image": names, "split": SPLIT, "shelf": [f"A{n}" for n in range(N)], **more}


@pytest.fixture(scope="module")
def planted():
    """Vectors with 40% of the captions moved to another image's place, and whether each was moved."""
    images, texts = aligned(N, seed=4)
    rng = np.random.default_rng(5)
    moved = rng.permutation(N)[: int(0.4 * N)]
    place = np.arange(N)
    place[moved] = np.roll(moved, 1)
    images[BROKEN["image"], 3] = np.nan
    texts = texts[place]
    texts[BROKEN["text"], 0] = np.inf, -np.inf
    return images, texts, place != np.arange(N)


@pytest.fixture(scope="module")
def run(planted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    source = write_single(folder / "mine", *planted[:2], columns())
    return fit(source, options(folder), progress=False)


def test_planted_mismatches_are_found(run, planted):
    moved = planted[2]
    table = run.pairs()
    assert run.metrics["verdicts_given"] and len(table) == 387
    probability = table["match_probability"].to_numpy()
    assert roc_auc_score(~moved[table["pair"].to_numpy()], probability) > 0.9
    suspects = run.suspects()
    assert moved[suspects["pair"].to_numpy()].mean() > 0.9 and len(suspects) > 0.3 * len(table)
    assert suspects["shelf"][0].as_py() == f"A{suspects['pair'][0]}"
    assert abs(run.metrics["noise_rate"]["estimated"] - 0.4) < 0.1


def test_of_very_many_pairs_the_worst_alone_get_suggestions(run, planted, tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "MANY", 300)
    monkeypatch.setattr(judging, "SUGGESTED", 60)
    source = write_single(tmp_path / "mine", *planted[:2], columns())
    names = ["pair", "suggested_caption"]
    every, worst = (one.suspects().select(names).to_pydict() for one in (run, fit(source, options(tmp_path), False)))
    assert worst["pair"] == every["pair"] and len(every["pair"]) > 100  # worst first
    every, worst = every["suggested_caption"], worst["suggested_caption"]
    assert not any(worst[60:]) and sum(map(bool, every[60:])) > 20
    assert np.mean([a == b for a, b in zip(worst[:60], every[:60], strict=True)]) > 0.5  # of a weak network


def prepared_ids(run):
    return run.prepared.pairs.ids()


def test_both_sides_are_the_vectors_of_the_source(run, planted):
    prepared, order = run.prepared, np.random.default_rng(0).permutation(prepared_ids(run))[:40]
    np.testing.assert_array_equal(prepared.features.images.batch(order).values.numpy(), planted[0][order])
    np.testing.assert_array_equal(prepared.features.texts.batch(order).values.numpy(), planted[1][order])
    assert run.config.matcher.name == "two_tower" and run.config.encode.text_encoder is None
    evidence = evidence_vectors(prepared, prepared.pairs.ids(), None, False)
    np.testing.assert_array_equal(evidence.captions.batch(order).values.numpy(), planted[1][order])
    assert len(evidence.ngrams) == 387
    assert not list((run.folder.parent / "cache").glob("*.npy"))  # nothing was encoded


def test_the_run_opens_again_and_judges_the_same(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    opened = pairsift.open_run(tmp_path / "run", progress=False)
    assert opened.evaluate("test")["ensemble"] == pytest.approx(run.metrics["test"]["ensemble"])
    assert main(["audit", str(tmp_path / "run"), "--worst", "1"]) == 0
    again = pairsift.open_run(tmp_path / "run").pairs()
    assert again["pair"].to_pylist() == run.pairs()["pair"].to_pylist()


def one_line(capsys):
    _, err = capsys.readouterr()
    assert err.count("\n") == 1, err
    return err


def test_text_cannot_be_encoded(run, capsys):
    assert main(["search", str(run.folder), "a red dog"]) == 2
    line = one_line(capsys)
    assert "the captions' vectors came with the source" in line and "--text-encoder muse" in line
    with pytest.raises(pairsift.InputError, match="came with the source"):
        run.search("a red dog")


def test_changed_captions_are_not_judged_by_their_old_vectors(run, planted, tmp_path, capsys):
    shutil.copytree(run.folder, tmp_path / "run")
    new = columns()
    new["caption"][7] = "another caption"
    source = write_single(tmp_path / "mine", *planted[:2], new)
    assert main(["audit", str(tmp_path / "run"), "--source", str(source)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "1 caption changed" in line and "this run cannot encode captions" in line and "fit again" in line
    assert (tmp_path / "run" / "suspects.csv").read_bytes() == (run.folder / "suspects.csv").read_bytes()


def test_export_names_the_rows_that_are_left(run, tmp_path):
    counts = run.export(tmp_path / "rows.txt", drop_below=0.5)
    rows = np.loadtxt(tmp_path / "rows.txt", dtype=int)
    assert counts["skipped"] == 3 and not np.isin((17, 250, 251), rows).any()
    assert counts["kept"] == len(rows) and not np.isin(rows, run.suspects()["pair"].to_numpy()).any()
    run.export(tmp_path / "clean.csv", drop_below=0.5)
    with (tmp_path / "clean.csv").open(newline="") as stream:
        assert [row["shelf"] for row in csv.DictReader(stream)] == [f"A{row}" for row in rows]


def test_pairs_with_broken_vectors_are_skipped_and_counted(run):
    source = Path(run.config.source)
    skipped = {skip.pair: (skip.where, skip.reason) for skip in run.prepared.pairs.skipped}
    reason = "holds values that are not finite"
    assert skipped == {
        row: (f"{source / side}.npy: row {row}", reason) for side, rows in BROKEN.items() for row in rows
    }
    assert run.metrics["pairs"] == {"train": 277, "dev": 60, "test": 50, "unused": 9, "skipped": 4}
    assert len((run.folder / "skipped.csv").read_text().splitlines()) == 5


def test_parts_give_the_same_pairs_and_vectors(run, planted, tmp_path):
    source = write_parts(tmp_path / "parts", *planted[:2], columns(), [100, 240])
    prepared = prepare(configured({"source": str(source), **options(tmp_path)}), tmp_path, progress=False)
    assert prepared.pairs.split.tolist() == run.prepared.pairs.split.tolist()
    assert {skip.where for skip in prepared.pairs.skipped} >= {
        f"{source / 'img_emb' / 'img_emb_2.npy'}: row 155",
        f"{source / 'text_emb' / 'text_emb_2.npy'}: row 10",
    }
    for side in ("images", "texts"):
        found = [
            getattr(ready.features, side).batch(prepared_ids(run)).values.numpy() for ready in (prepared, run.prepared)
        ]
        np.testing.assert_array_equal(*found)


def test_a_text_encoder_may_take_the_place_of_the_vectors(run, tmp_path):
    config = configured({"source": run.config.source, **options(tmp_path, text_encoder="ngrams")})
    prepared = prepare(config, tmp_path, progress=False)
    assert prepared.features.texts.dim == ngrams.MAX_DIM
    assert prepared.texts.encode(["a harbour"]).shape == (1, ngrams.MAX_DIM)
    assert prepared.pairs.n_skipped == 2  # the captions' vectors are not read
    evidence = evidence_vectors(prepared, prepared.pairs.ids(), None, False)
    assert evidence.captions is prepared.features.texts


def test_matchers_that_learn_words_read_the_captions(run, planted, tmp_path):
    words = {key: value for key, value in options(tmp_path).items() if "tower" not in key}
    prepared = prepare(configured({"source": run.config.source, **words, "matcher": "vse"}), tmp_path, progress=False)
    assert prepared.texts.name == "words" and prepared.features.images.values.shape == (N, 1, 12)
    evidence = evidence_vectors(prepared, prepared.pairs.ids(), None, False)
    np.testing.assert_array_equal(evidence.captions.batch(np.arange(9)).values.numpy(), planted[1][:9])
    assert prepared.pairs.n_skipped == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--image-encoder", "efficientnet-lite0"], "has features and no images"),
        (["--text-encoder", "embeddings+ngrams"], "joins `embeddings`, which encodes no text"),
        (["--matcher", "vse", "--text-encoder", "embeddings"], "matcher vse cannot read the text encoder embeddings"),
        (["--reader", "precomp"], "has no train_ims.npy"),
    ],
)
def test_what_cannot_be_is_one_line(run, tmp_path, capsys, words, says):
    assert main(["fit", run.config.source, *words, f"--out={tmp_path / 'out'}", f"--cache={tmp_path}", "--quiet"]) == 2
    assert says in one_line(capsys) and not (tmp_path / "out").exists()


def test_other_sources_have_no_vectors_to_take(scenes, tmp_path, capsys):
    assert main(["fit", str(scenes), "--text-encoder", "embeddings", f"--out={tmp_path / 'out'}", "--quiet"]) == 2
    assert "has no vectors of captions: leave --text-encoder embeddings out" in one_line(capsys)


def test_the_reader_and_the_encoder_are_listed(capsys):
    assert main(["list", "readers"]) == 0 and main(["list", "encoders"]) == 0
    out = capsys.readouterr().out
    assert "clip-retrieval's img_emb/, text_emb/, metadata/" in out and "vectors that the source has" in out


def test_a_report_names_the_images(run):
    page = (run.folder / "report.html").read_text()
    assert "features only: https://example.org/" in page
    assert json.loads((run.folder / "metrics.json").read_text())["data"]["description"].startswith("embeddings: ")
