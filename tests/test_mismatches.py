"""The detector called on arrays."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils import estimator_checks

import pairsift
from pairsift import InputError, MismatchDetector, find_mismatches, mismatches
from pairsift.detect import shards
from pairsift.mismatches import VectorPairs


def planted(n=200, noise=0.3, seed=0, per=1, blur=0.3):
    """Vectors of images and captions that share a hidden vector, a share of the captions moved; who wrote each."""
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(n // per), per)
    hidden = rng.normal(size=(n // per, 12))
    images = hidden @ rng.normal(size=(12, 24)) + blur * rng.normal(size=(n // per, 24))
    own = hidden[image_of] @ rng.normal(size=(12, 16)) + 0.3 * rng.normal(size=(n, 16))
    source, moved = np.arange(n), rng.permutation(n)[: round(noise * n)]
    source[moved] = np.roll(moved, 1)
    return images[image_of].astype(np.float32), own[source].astype(np.float32), source, image_of


@pytest.fixture(scope="module")
def found():
    images, captions, source, _ = planted()
    return find_mismatches(images, captions, [f"caption {i}" for i in source]), source != np.arange(200), source


def test_planted_mismatches_are_found_with_their_captions(found):
    result, wrong, source = found
    assert len(result) == 200 and result.rate == pytest.approx(0.3, abs=0.06)
    assert result.interval[0] <= 0.3 <= result.interval[1] and not result.warnings
    assert roc_auc_score(~wrong, result.match_probability) > 0.99
    assert (result.is_mismatch == wrong).mean() > 0.95
    worst = result.suspects(20).to_pydict()
    assert len(worst["pair"]) == 20 and worst["match_probability"] == sorted(worst["match_probability"])
    right = [
        source[pair] == other for other, pair in zip(worst["pair"], worst["suggested_from_pair"], strict=True) if pair
    ]
    assert len(right) >= 10 and np.mean(right) > 0.8
    assert worst["suggested_caption"][0] in {None, f"caption {source[worst['suggested_from_pair'][0] or 0]}"}
    assert "200 pairs" in repr(result) and "flagged" in repr(result)
    everything = result.to_arrow()
    assert everything["pair"].to_pylist() == list(range(200))
    assert (
        everything.filter(everything["is_mismatch"]).num_rows == result.suspects().num_rows == result.is_mismatch.sum()
    )


@pytest.mark.slow
def test_new_pairs_are_scored_beside_the_first(found):
    result = found[0]
    new_images, new_captions = result.pairs.images[:60], result.pairs.captions[:60]
    right = np.flatnonzero(~found[1][:60])
    noise = 0.05 * np.random.default_rng(1).normal(size=new_images.shape).astype(np.float32)
    scored = result.score((new_images + noise)[right], new_captions[right], [f"new {i}" for i in right])
    assert len(scored) == len(right) and scored.match_probability.mean() > 0.9
    moved = result.score((new_images + noise)[right], np.roll(new_captions[right], 5, 0), [f"new {i}" for i in right])
    assert moved.match_probability.mean() < 0.3
    sources = [pair for pair in moved.to_arrow()["suggested_from_pair"].to_pylist() if pair is not None]
    assert all(pair < 200 for pair in sources)


@pytest.mark.slow
def test_many_pairs_are_judged_by_what_was_learned_from_some(monkeypatch, tmp_path):
    images, captions, source, image_of = planted(1800, per=3)
    texts = [f"caption {i}" for i in source]
    whole = find_mismatches(images, captions, texts)
    monkeypatch.setattr(shards, "LEARNED", 600)
    mapped = [KINDS["memory-mapped"](side, tmp_path) for side in (images, captions)]
    result = find_mismatches(*mapped, pa.chunked_array([texts]))
    judge = result.judge
    assert len(judge.learned) <= 600 < len(judge.rest) and len(judge.evidence) > 1
    assert not np.isin(image_of[judge.learned], image_of[judge.rest]).any()  # all pairs of an image are together
    assert np.sort(np.concatenate([judge.learned, judge.rest])).tolist() == list(range(1800))
    wrong = source != np.arange(1800)
    assert (result.is_mismatch == wrong).mean() > 0.95 and (result.is_mismatch == whole.is_mismatch).mean() > 0.97
    assert result.rate == pytest.approx(whole.rate, abs=0.05)
    worst = result.suspects(30).to_pydict()
    right = [
        image_of[source[other]] == image_of[pair]
        for pair, other in zip(worst["pair"], worst["suggested_from_pair"], strict=True)
        if other is not None
    ]
    assert len(right) >= 5 and np.mean(right) > 0.7
    asked = np.flatnonzero(~wrong)[:150]
    noise = 0.05 * np.random.default_rng(1).normal(size=(150, 24)).astype(np.float32)
    scored = result.score(images[asked] + noise, np.roll(captions[asked], 30, 0), [f"new {i}" for i in range(150)])
    assert scored.is_mismatch.mean() > 0.9 and scored.rate > 0.8


@pytest.mark.slow
def test_other_captions_of_an_image_help_to_find_its_own_among_many(monkeypatch):
    images, captions, source, image_of = planted(1800, per=3, blur=4.0)

    def right():
        worst = find_mismatches(images, captions, image_ids=image_of).suspects(300).to_pydict()
        pairs = zip(worst["pair"], worst["suggested_from_pair"], strict=True)
        return sum(other is not None and image_of[source[other]] == image_of[pair] for pair, other in pairs)

    whole = right()
    monkeypatch.setattr(shards, "LEARNED", 900)
    for name, value in {"REFERENCES": 100, "NEAREST": 5, "REQUESTED": 100}.items():
        monkeypatch.setattr(mismatches, name, value)
    assert whole > 200 and right() > 0.9 * whole


def test_an_image_of_many_pairs_is_not_kept_together(monkeypatch):
    monkeypatch.setattr(shards, "LEARNED", 100)
    monkeypatch.setattr(shards, "LARGE_IMAGE", 20)
    image_of = np.concatenate([np.zeros(150, np.int64), np.arange(1, 101)])
    learned, rest = shards.learned_rows(image_of, 0)
    assert 80 <= len(learned) <= 100 and 20 < (image_of[learned] == 0).sum() < 80
    parts = list(shards.cut(image_of, rest))
    assert (np.concatenate(parts) == rest).all() and max(map(len, parts)) <= 120


KINDS = {
    "float16": lambda x, place: x.astype(np.float16),
    "float64": lambda x, place: x.astype(np.float64),
    "columns": lambda x, place: np.asfortranarray(x),
    "torch": lambda x, place: torch.from_numpy(x).requires_grad_(),
    "bfloat16": lambda x, place: torch.from_numpy(x).bfloat16(),
    "lists": lambda x, place: x.tolist(),
    "arrow": lambda x, place: pa.array(x.tolist(), pa.list_(pa.float32())),
    "arrow of one length": lambda x, place: pa.chunked_array(
        [pa.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])]
    ),
    "memory-mapped": lambda x, place: (
        np.save(place / f"{x.shape[1]}.npy", x),
        np.load(place / f"{x.shape[1]}.npy", "r"),
    )[1],
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind_are_read_alike(kind, tmp_path):
    images, captions, _, _ = planted(30)
    pairs = VectorPairs.of(*(KINDS[kind](side, tmp_path) for side in (images, captions)), None, None, False)
    precision = {"float16": 2e-3, "bfloat16": 1e-2}.get(kind, 0)
    for read, given in ((pairs.images, images), (pairs.captions, captions)):
        assert read.dtype.kind == "f" and read == pytest.approx(given, abs=precision * float(np.abs(given).max()))


def test_nothing_is_printed_written_or_changed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAIRSIFT_CACHE", str(tmp_path / "cache"))
    images, captions, _, _ = planted(30)
    kept = images.copy(), captions.copy()
    find_mismatches(images, captions, ["a caption"] * 30).suspects()
    assert not list(tmp_path.iterdir()) and capfd.readouterr() == ("", "")
    assert (images == kept[0]).all() and (captions == kept[1]).all()


def test_few_pairs_are_ranked_and_a_warning_says_so():
    result = find_mismatches(*planted(12)[:2])
    assert result.rate is None and result.interval is None and not result.is_mismatch.any()
    assert [warning["code"] for warning in result.warnings] == ["few-pairs"] and "too few" in repr(result)
    assert not result.suspects().num_rows


def test_equal_image_vectors_are_one_image_and_ids_say_otherwise():
    images, captions, _, image_of = planted(40, per=4)
    assert (VectorPairs.of(images, captions, None, None, False).image_of == image_of).all()
    names = np.array([f"{i}.jpg" for i in range(40)], object)
    assert (VectorPairs.of(images, captions, None, names, False).image_of == np.arange(40)).all()


@pytest.mark.slow
def test_verified_pairs_match_and_teach():
    images, captions, source, _ = planted(150, 0.6)
    right = source == np.arange(150)
    known = right & (np.arange(150) % 2 == 0)
    result, plain = find_mismatches(images, captions, verified=known), find_mismatches(images, captions)
    assert (result.match_probability[known] == 1).all() and not result.is_mismatch[known].any()
    others = ~known
    better, before = (roc_auc_score(right[others], one.match_probability[others]) for one in (result, plain))
    assert better >= before - 0.002


@pytest.mark.slow
def test_pairs_outside_train_have_a_rate_of_their_own():
    images, captions, _, _ = planted(400, 0.0)
    train = np.arange(400) % 2 == 0
    moved = np.flatnonzero(train)[:100]
    captions[moved] = captions[np.roll(moved, 1)]
    result = find_mismatches(images, captions, train=train)
    assert result.rate == pytest.approx(0.5, abs=0.1) and not result.is_mismatch[~train].mean() > 0.02


def test_vectors_of_one_space_are_compared_by_their_cosine():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(120, 16)).astype(np.float32)
    captions = images + 0.5 * rng.normal(size=images.shape).astype(np.float32)
    captions[:36] = np.roll(captions[:36], 1, 0)
    result = find_mismatches(images, captions, aligned=True)
    assert "cosine" in result.judgement.detectors and (result.is_mismatch[:36]).mean() > 0.95
    first = result.suspects(10).to_pydict()
    assert (
        np.mean(
            [
                (pair + 1) % 36 == source
                for pair, source in zip(first["pair"], first["suggested_from_pair"], strict=True)
            ]
        )
        > 0.7
    )


@pytest.mark.parametrize(
    ("images", "captions", "more", "message"),
    [
        (np.zeros(5), np.zeros((5, 2)), {}, r"image_vectors has shape \(5,\): give one row of numbers for every pair"),
        (np.ones((5, 2)), np.ones((4, 3)), {}, r"image_vectors has shape \(5, 2\) and caption_vectors \(4, 3\)"),
        (np.ones((1, 2)), np.ones((1, 3)), {}, r"one pair alone cannot be judged: give at least 2"),
        (np.array([[1, 2], [3, np.nan]]), np.ones((2, 2)), {}, r"shape \(2, 2\), and row 1 holds NaN or infinity"),
        (np.full((2, 2), 1e300), np.ones((2, 2)), {}, "row 0 holds NaN or infinity"),
        (np.full((2, 2), 1e30), np.ones((2, 2)), {}, r"values of up to 1e\+30, which float32 cannot compare"),
        (np.ones((2, 2)), np.full((2, 2), 1e-30), {}, "caption_vectors holds values of up to 1e-30"),
        (np.array([["a", "b"]] * 3), np.ones((3, 2)), {}, "image_vectors is an array of <U1"),
        (np.array([[1], [2, 3]], object), np.ones((2, 2)), {}, r"an array of object: give rows of numbers.*np.stack"),
        ([[1.0], [2.0, 3.0]], np.ones((2, 2)), {}, "an array of object"),
        (pa.array([[1.0], [2.0, 3.0]]), np.ones((2, 2)), {}, "an Arrow array of (lists of different lengths|list)"),
        (pa.array([1.0, 2.0]), np.ones((2, 2)), {}, "an Arrow array of double"),
        (pa.array([[1.0], None]), np.ones((2, 2)), {}, "1 of them null"),
        (np.ones((3, 2)), np.ones((3, 2)), {"captions": ["a", "b"]}, "captions has 2 texts and caption_vectors 3 rows"),
        (np.ones((2, 2)), np.ones((2, 2)), {"captions": ["a", None]}, "captions holds None"),
        (np.ones((2, 2)), np.ones((2, 2)), {"captions": "ab"}, "captions is one text"),
        (np.ones((2, 2)), np.ones((2, 2)), {"image_ids": [1]}, r"image_ids has shape \(1,\)"),
        (np.ones((2, 2)), np.ones((2, 2)), {"train": [1, 0]}, "train has shape .* give a bool for every pair"),
        (np.ones((2, 2)), np.ones((2, 2)), {"verified": [True]}, r"verified has shape \(1,\)"),
        (np.ones((2, 2)), np.ones((2, 3)), {"aligned": True}, "they share no space"),
    ],
)  # fmt: skip
def test_bad_arrays_end_in_one_line(images, captions, more, message):
    with pytest.raises(InputError, match=message) as error:
        find_mismatches(images, captions, **more)
    assert "\n" not in str(error.value)


def test_new_pairs_of_other_encoders_are_refused(found):
    with pytest.raises(InputError, match="have 3 and 16 values, and those before 24 and 16"):
        found[0].score(np.ones((2, 3)), np.ones((2, 16)), ["a", "b"])
    with pytest.raises(InputError, match="give captions with the new pairs where they were given before"):
        found[0].score(np.ones((2, 24)), np.ones((2, 16)))


@pytest.mark.slow
def test_detector_keeps_the_contract_of_scikit_learn():
    images, captions, _, _ = planted(30)
    detector = MismatchDetector(seed=3)
    with pytest.raises(NotFittedError):
        detector.score_samples(images, captions)
    assert detector.get_params() == {"aligned": False, "seed": 3} and clone(detector).seed == 3
    assert detector.set_params(seed=4).seed == 4
    fitted = detector.fit(images, captions)
    assert fitted is detector and detector.n_features_in_ == 24 and detector.rate_ is None
    assert (detector.match_probability_ == find_mismatches(images, captions, seed=4).match_probability).all()
    again = pickle.loads(pickle.dumps(detector))
    new = images[:3] + 0.1, captions[:3]
    assert (again.score_samples(*new) == detector.score_samples(*new)).all()
    for name in ("parameters_default_constructible", "get_params_invariance", "set_params", "no_attributes_set_in_init",
                 "estimator_repr", "estimator_cloneable", "do_not_raise_errors_in_init_or_set_params"):  # fmt: skip
        getattr(estimator_checks, f"check_{name}")("MismatchDetector", MismatchDetector())


def test_stranger_reads_the_folder_of_clip_retrieval(tmp_path):
    images, captions, source, _ = planted(160)
    for kind, values in (("img_emb", images), ("text_emb", captions)):
        (tmp_path / kind).mkdir()
        np.save(tmp_path / kind / f"{kind}_0.npy", values.astype(np.float16))
    (tmp_path / "metadata").mkdir()
    pq.write_table(
        pa.table({"caption": [f"caption {i}" for i in source]}), tmp_path / "metadata" / "metadata_0.parquet"
    )

    image_vectors = np.load(tmp_path / "img_emb/img_emb_0.npy", mmap_mode="r")
    caption_vectors = np.load(tmp_path / "text_emb/text_emb_0.npy", mmap_mode="r")
    texts = pq.read_table(tmp_path / "metadata/metadata_0.parquet")["caption"]
    found = pairsift.find_mismatches(image_vectors, caption_vectors, texts)
    worst = found.suspects(20)
    assert worst.num_rows == 20 and (source[worst["pair"].to_numpy()] != worst["pair"].to_numpy()).mean() > 0.9


def test_stranger_reads_a_table_with_columns_of_vectors(tmp_path):
    images, captions, source, _ = planted(160)
    columns = {
        "image_embedding": images.tolist(),
        "text_embedding": captions.tolist(),
        "text": [f"{i}" for i in source],
    }
    pq.write_table(pa.table(columns), tmp_path / "train-00000-of-00001.parquet")

    table = pq.read_table(tmp_path / "train-00000-of-00001.parquet")
    found = pairsift.find_mismatches(table["image_embedding"], table["text_embedding"], table["text"])
    assert (found.is_mismatch == (source != np.arange(160))).mean() > 0.9


@pytest.mark.slow
def test_the_arrays_of_the_readme_give_what_it_shows(capsys):
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    code, shown = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(shown.splitlines()) and printed[0].startswith("<Mismatches: 500 pairs, ")
    for line in printed[1:]:  # the order of the worst, and the last digits, are the machine's
        pair, probability, source = line.split()
        assert int(pair) < 100 and int(source) == int(pair) + 1 and float(probability) < 0.01


def moved(n, share, seed=0):
    """Vectors of pairs of which a share of the captions, the first ones, is moved."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 8))
    images, captions = (hidden @ np.random.default_rng(side).normal(size=(8, 16)) for side in (7, 8))
    captions = captions + 0.2 * rng.normal(size=captions.shape)
    count = round(share * n)
    captions[:count] = np.roll(captions[:count], 1, 0)
    return images, captions


@pytest.mark.slow
def test_new_pairs_have_a_rate_of_their_own_whatever_the_training_pairs_were():
    known, new = moved(300, 0.2), moved(200, 0.6, seed=1)
    train = np.arange(300) < 150  # the moved ones among them
    scored = find_mismatches(*known, train=train).score(*new)
    assert scored.rate == pytest.approx(0.6, abs=0.08)
    assert scored.is_mismatch[:120].mean() > 0.9 and scored.is_mismatch[120:].mean() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 20])
def test_few_new_pairs_are_judged_beside_many(n):
    found = find_mismatches(*moved(300, 0.2))
    images, captions = moved(20, 1.0, seed=1)
    scored = found.score(images[:n], captions[:n])
    assert scored.rate is not None and scored.is_mismatch.mean() > 0.8 and not scored.warnings
