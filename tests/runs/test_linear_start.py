"""A linear model, fitted to few pairs, competes with the networks of a run."""

import numpy as np
import pytest
from flat_options import configured, fit

import pairsift
from embedding_sources import aligned, captions_of, write_single
from pairsift.cli.summary import print_summary
from pairsift.runs import job
from pairsift.runs.prepare import prepare
from pairsift.steps import Prior

pytestmark = pytest.mark.slow

PAIRS = 400


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    split = ["train"] * 280 + ["dev"] * 60 + ["test"] * 60
    columns = {"caption": captions_of(PAIRS), "image": [f"{n}.jpg" for n in range(PAIRS)], "split": split}
    return write_single(tmp_path_factory.mktemp("linear"), *aligned(PAIRS), columns)


def whole_cosines(images, texts, weight):
    """Cosines of weighted canonical variates of all pairs, fitted to the first of them, by numpy."""
    sides = [(x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) for x in (images, texts)]
    x, y = (side.astype(float) - np.average(side[: len(weight)], axis=0, weights=weight) for side in sides)
    roots = []
    for side in (x[: len(weight)], y[: len(weight)]):
        values, vectors = np.linalg.eigh((weight[:, None] * side).T @ side / weight.sum())
        roots.append(vectors @ np.diag((values + 0.1 * values.max()) ** -0.5) @ vectors.T)
    between = (weight[:, None] * x[: len(weight)]).T @ y[: len(weight)] / weight.sum()
    u, s, v = np.linalg.svd(roots[0] @ between @ roots[1], full_matrices=False)
    left, right = x @ roots[0] @ u * s, y @ roots[1] @ v.T * s
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right))
    return left @ right.T


def rsum(cosine):
    ranks = [(row >= row[n]).sum() for matrix in (cosine, cosine.T) for n, row in enumerate(matrix)]
    half = len(cosine)
    return sum(100 * np.mean([rank <= k for rank in part]) for k in (1, 5, 10) for part in (ranks[:half], ranks[half:]))


def test_a_run_keeps_it_where_the_networks_stay_behind(source, tmp_path, capsys):
    options = {"source": str(source), "cache": str(tmp_path / "cache"), "device": "cpu", "out": str(tmp_path / "run")}
    options |= {"lr": 1e-7, "sift.epochs.train": 1, "noise": 0.3, "noise_splits": "train"}
    found = fit(source, options, progress=False)
    assert found.metrics["best"]["epoch"] == -1 and found.metrics["best"]["model"] == "linear"
    assert "On dev a linear model of the vectors finds as much" in (found.folder / "report.html").read_text()
    print_summary(found.folder, found.metrics)
    assert (
        "kept: a linear model, which finds as much on dev as the networks of any epoch, or more"
        in capsys.readouterr().out
    )
    judged = found.pairs().sort_by("pair")
    weight = judged["match_probability"].to_numpy()[:280]
    rows = judged["given_image" if "given_image" in judged.column_names else "image"].to_pylist()
    images, texts = (np.load(source / f"{name}.npy") for name in ("image", "text"))
    shown = images[[int(str(name).rpartition("/")[2].removesuffix(".jpg")) for name in rows]]
    expected = rsum(whole_cosines(shown, texts, weight)[340:, 340:])
    assert found.metrics["test"]["ensemble"]["rsum"] == pytest.approx(expected, abs=2.0)
    again = pairsift.open_run(found.folder, progress=False)
    assert again.evaluate("test")["ensemble"]["rsum"] == found.metrics["test"]["ensemble"]["rsum"]


@pytest.mark.parametrize(
    ("options", "below", "there"),
    [
        ({}, 10_000, True),
        ({"method": "sift"}, 10_000, True),
        ({"method": "plain"}, 10_000, False),
        ({"method": "pc2"}, 10_000, False),
        ({"matcher": "vse", "text_encoder": "words"}, 10_000, False),
        ({}, 280, False),
    ],
)
def test_where_there_is_one(source, tmp_path, monkeypatch, options, below, there):
    monkeypatch.setattr(job, "LINEAR_BELOW", below)
    config = configured({"source": str(source), "cache": str(tmp_path / "cache"), "device": "cpu", **options})
    (tmp_path / "run" / "model").mkdir(parents=True)
    prepared = prepare(config, tmp_path / "run", progress=False)
    assert (job.linear_start(config, prepared, None) is not None) is there


def test_pairs_count_as_far_as_they_are_believed(source, tmp_path):
    config = configured({"source": str(source), "cache": str(tmp_path / "cache"), "device": "cpu"})
    (tmp_path / "run" / "model").mkdir(parents=True)
    prepared = prepare(config, tmp_path / "run", progress=False)
    weight = np.random.default_rng(0).random(PAIRS).astype(np.float32)
    images, texts = (np.load(source / f"{name}.npy") for name in ("image", "text"))
    for rate, expected in ((0.3, weight[:280]), (0.005, np.ones(280))):
        made = job.job_of(config, prepared, tmp_path, Prior(weight, rate, 1.0))
        matcher = made.matcher()
        made.linear(matcher)
        matcher.eval()
        ids = np.arange(PAIRS)
        codes = (
            matcher.encode_images(prepared.features.images.batch(prepared.pairs.image_of[ids])),
            matcher.encode_texts(prepared.features.texts.batch(ids)),
        )
        found = matcher.similarity(*codes).detach().numpy()
        assert found == pytest.approx(whole_cosines(images, texts, expected.astype(float)), abs=1e-3)
        assert matcher.scale().item() == pytest.approx(20)
