"""Vectors of images and captions in one space: the cosine is where everything starts, and training only adds to it."""

import numpy as np
import pytest
import torch
from flat_options import configured, fit

import pairsift
from embedding_sources import captions_of, write_single
from pairsift.encode.features import Items
from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError
from pairsift.marker import write_marker
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.runs.claim import claimed
from pairsift.runs.prepare import require_possible

pytestmark = pytest.mark.slow

PAIRS = 400


def test_a_matcher_of_aligned_vectors_starts_as_their_cosine():
    torch.manual_seed(0)
    matcher = TwoTower(12, 12, TwoTowerOptions(dim=99, hidden=6, depth=2), True)
    images, texts = 3 * torch.randn(7, 12), torch.randn(5, 12)
    for mode in (matcher.train(), matcher.eval()):  # dropout meets zeros
        found = mode.similarity(mode.encode_images(Items(images)), mode.encode_texts(Items(texts)))
        expected = torch.nn.functional.cosine_similarity(images[:, None], texts[None], dim=-1)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert matcher.dim == 12 and matcher.starts_trained and not TwoTower(12, 12).starts_trained
    loss = matcher.similarity(matcher.encode_images(Items(images)), matcher.encode_texts(Items(texts))).square().sum()
    loss.backward()
    assert all(head.project[-1].weight.grad.abs().sum() > 0 for head in (matcher.image_head, matcher.text_head))


def test_vectors_of_different_lengths_share_no_space():
    with pytest.raises(InputError, match=r"images have 12 values, the vectors of captions 8: .* leave --aligned out"):
        TwoTower(12, 8, aligned=True)


@pytest.mark.parametrize(
    ("options", "shared"),
    [
        ({}, False),
        ({"aligned": True}, True),
        ({"image_encoder": "hf:clip", "text_encoder": "hf:clip"}, True),
        ({"image_encoder": "hf:clip", "text_encoder": "hf:clip", "aligned": False}, False),
        ({"image_encoder": "hf:clip", "text_encoder": "hf:bert"}, False),
        ({"image_encoder": "efficientnet-lite0", "text_encoder": "wordllama"}, False),
    ],
)
def test_one_checkpoint_or_the_user_says_that_a_space_is_shared(options, shared):
    assert EncodeOptions(**options).shared_space is shared


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Vectors in one space, as a CLIP gives them: both sides show the same meaning, with noise of their own."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(PAIRS, 24))
    images, texts = (meaning + 0.8 * rng.normal(size=meaning.shape) for _ in range(2))
    columns = {
        "caption": captions_of(PAIRS),
        "image": [f"https://example.org/{n}.jpg" for n in range(PAIRS)],
        "split": ["train"] * 280 + ["dev"] * 60 + ["test"] * 60,
    }
    return write_single(
        tmp_path_factory.mktemp("shared"), *(side.astype(np.float32) for side in (images, texts)), columns
    )


def run(source, tmp_path, **options):
    given = {"source": str(source), "cache": str(tmp_path / "cache"), "device": "cpu", "seed": 1, "method": "plain"}
    given |= {"plain.networks": 1, "noise": 0.4, "noise_seed": 1, "out": str(tmp_path / "run")}
    return fit(source, {**given, **options}, progress=False)


def cosine_rsum(source):
    """Recall of the cosine over the test pairs, in plain loops."""
    images, texts = (np.load(source / f"{name}.npy")[340:].astype(float) for name in ("image", "text"))
    images, texts = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (images, texts))
    cosine = images @ texts.T
    ranks = [(row > row[n]).sum() for matrix in (cosine, cosine.T) for n, row in enumerate(matrix)]
    return sum(100 * np.mean([rank < k for rank in ranks[half : half + 60]]) for k in (1, 5, 10) for half in (0, 60))


def test_zero_epochs_give_the_recall_of_the_cosine_and_an_audit(source, tmp_path):
    none = {"plain.epochs.warmup": 0, "plain.epochs.train": 0}
    found = run(source, tmp_path, aligned=True, **none)
    assert found.metrics["test"]["ensemble"]["rsum"] == pytest.approx(cosine_rsum(source), abs=0.01)
    assert found.metrics["best"]["epoch"] == -1
    detectors = found.metrics["detectors"]
    assert "cosine" in str(detectors) and found.metrics["detection"]["auroc"] > 0.95
    again = pairsift.open_run(found.folder, progress=False)
    assert again.evaluate("test")["ensemble"]["rsum"] == found.metrics["test"]["ensemble"]["rsum"]
    with pytest.raises(InputError, match="starts untrained"):
        run(source, tmp_path / "other", **none)


def test_the_start_competes_with_what_training_makes_of_it(source, tmp_path):
    spoiled = run(source, tmp_path, aligned=True, lr=1.0, **{"plain.epochs.warmup": 0, "plain.epochs.train": 2})
    assert spoiled.metrics["best"]["epoch"] == -1
    assert spoiled.metrics["test"]["ensemble"]["rsum"] == pytest.approx(cosine_rsum(source), abs=0.01)


def test_a_matcher_that_has_no_use_for_a_common_space_is_refused(source):
    with pytest.raises(InputError, match=r"matcher vse cannot start from a common space: leave --aligned out"):
        require_possible(configured({"source": str(source), "matcher": "vse", "aligned": True}))


@pytest.mark.parametrize("method", ["osa", "npc"])
def test_methods_for_trained_matchers_take_one_that_starts_from_a_common_space(source, method):
    options = {"source": str(source), "method": method, **({"npc.epochs.warmup": 0} if method == "npc" else {})}
    with pytest.raises(InputError, match="two_tower starts untrained"):
        require_possible(configured(options))
    require_possible(configured({**options, "aligned": True}))


@pytest.mark.parametrize("matcher", ["pcme", "pcmepp", "pau"])
def test_one_checkpoint_serves_matchers_that_cannot_start_from_its_space(source, matcher):
    encoders = {"image_encoder": "hf:clip", "text_encoder": "hf:clip"}
    config = configured({"source": str(source), "matcher": matcher, **encoders})
    require_possible(config)
    assert not config.starts_aligned
    assert configured({"source": str(source), **encoders}).starts_aligned


def test_a_run_on_vectors_of_different_lengths_says_so_before_evidence(tmp_path):
    rows = {"caption": captions_of(40), "image": [f"{n}.jpg" for n in range(40)]}
    rows["split"] = ["train"] * 30 + ["dev"] * 5 + ["test"] * 5
    unlike = write_single(tmp_path / "unlike", np.eye(40, 12, dtype=np.float32), np.eye(40, 8, dtype=np.float32), rows)
    with pytest.raises(InputError, match=r"images have 12 values, the vectors of captions 8"):
        run(unlike, tmp_path, aligned=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (True, None, "was started with --aligned true, not without --aligned: resume"),
        (None, True, "was started without --aligned, not --aligned true: resume"),
        (False, True, "was started with --aligned false, not --aligned true: resume"),
    ],
)
def test_another_space_than_the_runs_is_named_when_it_is_resumed(source, tmp_path, first, then, words):
    options = {"source": str(source), "out": str(tmp_path)}
    write_marker(tmp_path, "run")
    (tmp_path / "config.yaml").write_text(configured({**options, "aligned": first}).text(), encoding="utf-8")
    with pytest.raises(InputError, match=words), claimed(configured({**options, "aligned": then}), resume=True):
        pass
