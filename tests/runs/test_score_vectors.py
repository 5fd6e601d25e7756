"""New vectors judged by a run that was made of vectors."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from flat_options import fit
from sklearn.metrics import roc_auc_score

import pairsift
from embedding_sources import aligned, captions_of, write_parts, write_single
from pairsift.cli import main
from pairsift.runs import scoring

pytestmark = pytest.mark.slow

RUN, NEW = 400, 150
BROKEN = {"image": 3, "text": 8}  # new rows with values that are not finite
TOWERS = {
    "method": "plain",
    "plain.epochs.warmup": 0,
    "plain.epochs.train": 2,
    "plain.networks": 1,
    "batch_size": 64,
    "device": "cpu",
    "threads": 1,
}


def columns(ids):
    return {
        "caption": [captions_of(RUN + NEW)[row] for row in ids],
        "image": [f"{row}.jpg" for row in ids],
        "shelf": [f"A{row}" for row in ids],
    }


@pytest.fixture(scope="module")
def vectors():
    """Vectors of images and captions, a third of the captions moved; whether each was moved."""
    images, texts = aligned(RUN + NEW, seed=4)
    place, rng = np.arange(RUN + NEW), np.random.default_rng(5)
    for part in (rng.permutation(RUN)[:120], RUN + 10 + rng.permutation(NEW - 10)[:50]):
        place[part] = np.roll(part, 1)
    texts = texts[place]
    images[RUN + BROKEN["image"], 3] = np.nan
    texts[RUN + BROKEN["text"], 0] = np.inf
    return images, texts, place != np.arange(RUN + NEW)


@pytest.fixture(scope="module")
def run(vectors, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    source = write_single(folder / "mine", vectors[0][:RUN], vectors[1][:RUN], columns(range(RUN)))
    options = {**TOWERS, "two_tower.dim": 16, "two_tower.hidden": 16, "cache": str(folder / "cache")}
    return fit(source, {**options, "out": str(folder / "run")}, progress=False)


@pytest.fixture(scope="module")
def new(vectors, tmp_path_factory):
    place = tmp_path_factory.mktemp("new")
    return write_parts(place / "new", vectors[0][RUN:], vectors[1][RUN:], columns(range(RUN, RUN + NEW)), [40, 100])


def last_line(capsys):
    return capsys.readouterr().err.splitlines()[-1]


def test_new_vectors_are_scored_as_if_they_had_come_into_the_source(run, new, vectors, tmp_path, capsys):
    out = tmp_path / "scored.parquet"
    assert main(["score", str(run.folder), str(new), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {NEW - 2} pairs\n"
    scored = pq.read_table(out)
    pairs = scored["pair"].to_numpy()
    assert sorted({*range(NEW)} - set(pairs.tolist())) == sorted(BROKEN.values())
    assert scored["shelf"].to_pylist() == [f"A{RUN + pair}" for pair in pairs]
    probability = scored["match_probability"].to_numpy()
    assert roc_auc_score(~vectors[2][RUN + pairs], probability) > 0.9
    assert set(scored["split"].to_pylist()) == {"added"} and not list((run.folder.parent / "cache").glob("*.npy"))

    shutil.copytree(run.folder, tmp_path / "run")
    grown = write_single(tmp_path / "mine", vectors[0], vectors[1], columns(range(RUN + NEW)))
    table = pairsift.open_run(tmp_path / "run", source=grown, progress=False).audit().sort_by("pair")
    table = table.filter(pa.compute.equal(table["split"], "added"))
    assert [pair - RUN for pair in table["pair"].to_pylist()] == pairs.tolist()
    np.testing.assert_allclose(probability, table["match_probability"].to_numpy(), atol=1e-6)
    assert scored["verdict"].to_pylist() == table["verdict"].to_pylist()


def test_parts_a_kill_and_vectors_that_change_meanwhile(run, new, vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK", 60)
    opened, score, calls = pairsift.open_run(run.folder, progress=False), scoring.Scorer.score, []

    def killed(self, ids):
        calls.append(ids)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return score(self, ids)

    monkeypatch.setattr(scoring.Scorer, "score", killed)
    out, source = tmp_path / "scored.csv", shutil.copytree(new, tmp_path / "new")
    with pytest.raises(KeyboardInterrupt):
        opened.score(source, out)
    [parts] = tmp_path.glob(".*")
    assert len(list(parts.iterdir())) == 1 and parts.suffix == ".parts"
    assert opened.score(source, out) == NEW - 2 and [len(ids) for ids in calls] == [50, 50, 50, 50]
    assert not list(tmp_path.glob(".*"))
    opened.score(source, tmp_path / "at_once.csv")
    assert (tmp_path / "at_once.csv").read_bytes() == out.read_bytes()

    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        opened.score(source, tmp_path / "changed.csv")
    np.save(source / "text_emb" / "text_emb_1.npy", vectors[1][:60])  # the table and its captions are as they were
    opened.score(source, tmp_path / "changed.csv")
    assert len(calls) == 5 and not list(tmp_path.glob(".*"))  # the first part was judged again
    assert (tmp_path / "changed.csv").read_bytes() != out.read_bytes()


def test_captions_that_the_run_encodes_need_no_vectors(run, new, vectors, tmp_path):
    options = {**TOWERS, "two_tower.dim": 16, "two_tower.hidden": 16, "text_encoder": "ngrams"}
    words = {**options, "cache": str(tmp_path / "cache"), "out": str(tmp_path / "run")}
    other = fit(run.config.source, words, progress=False)
    before = len(list((tmp_path / "cache").glob("*.json")))
    short = write_single(tmp_path / "short", vectors[0][RUN:], vectors[1][RUN:, :3], columns(range(NEW)))
    assert other.score(short, tmp_path / "scored.parquet") == NEW - 1  # only the image's vector is read
    assert len(list((tmp_path / "cache").glob("*.json"))) == before + 1


def test_tokens_and_regions(run, new, tmp_path):
    options = {**TOWERS, "matcher": "vse", "vse.dim": 16, "vse.word_dim": 8, "cache": str(tmp_path / "cache")}
    other = fit(run.config.source, {**options, "out": str(tmp_path / "run")}, progress=False)
    assert other.score(new, tmp_path / "scored.parquet") == NEW - 2
    scored = pq.read_table(tmp_path / "scored.parquet")
    assert len(scored) == NEW - 2 and set(scored["split"].to_pylist()) == {"added"}


@pytest.mark.parametrize(
    ("dims", "says"),
    [
        ((9, 8), "holds rows of 9 for images and of 8 for captions, and the run was made of rows of 12 for images and"),
        ((12, 5), "holds rows of 12 for images and of 5 for captions, and the run was made of rows of 12 for images"),
    ],
)
def test_vectors_of_other_lengths_are_refused(run, vectors, tmp_path, capsys, dims, says):
    images, texts = aligned(20, dims=dims)
    source = write_single(tmp_path / "new", images, texts, columns(range(20)))
    assert main(["score", str(run.folder), str(source), "--out", str(tmp_path / "s.csv")]) == 2
    assert says in (line := last_line(capsys)) and "vectors by the same encoders" in line
    assert not list(tmp_path.glob("*.csv")) and not list(tmp_path.glob(".*"))


def test_images_are_no_vectors_and_vectors_no_images(run, new, scenes, tmp_path, capsys, image_run):
    out = str(tmp_path / "s.csv")
    assert main(["score", str(run.folder), str(scenes), "--out", out]) == 2
    assert "holds images, and the run was made of rows of 12 for images and of 8 for captions" in last_line(capsys)
    assert main(["score", str(image_run.folder), str(new), "--out", out]) == 2
    assert "holds rows of 12 for images, and the run was made of images: give new pairs of the same kind" in last_line(
        capsys
    )
