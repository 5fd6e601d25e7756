"""What a run says that it cannot know."""

from types import SimpleNamespace

import numpy as np
import pytest

from pairsift.detect.heldout import Belief
from pairsift.pairs.changes import Changes
from pairsift.runs.caveats import rate_of, warnings_of

SPLITS = np.array(["train"] * 6 + ["dev", "dev", "test", "added"])
PAIRS = SimpleNamespace(
    captions=["a red coat", *(f"coat {number}" for number in range(9))],
    description="as given",
    noise=None,
    images=lambda split: range(100),
    split=SPLITS,
    image_of=np.array([0, 1, 2, 3, 4, 5, 6, 6, 7, 0]),
    ids=lambda *splits: np.flatnonzero(np.isin(SPLITS, splits)) if splits else np.arange(10),
)
UNTOLD = "Captions that read much like the right ones cannot be told here:"
PREPARED = SimpleNamespace(pairs=PAIRS, texts=None, changes=None, aligned=False)


def belief(pairs=500, rate=0.3, low=0.25, high=0.35, auroc=0.95, **more):
    return Belief(np.full(pairs, 0.7), rate, low, high, auroc, np.zeros(pairs, np.int64), **more)


def recall(r10, r5=0.0):
    return {"dev": {"ensemble": {"i2t_r5": r5, "t2i_r5": r5, "i2t_r10": r10, "t2i_r10": r10}}}


def given(**more):
    return SimpleNamespace(pairs=SimpleNamespace(**{**vars(PAIRS), **more}), texts=None, changes=None, aligned=False)


@pytest.mark.parametrize(
    ("found", "given", "start"),
    [
        (belief(), True, None),
        (belief(99), False, "99 pairs are too few for verdicts: "),
        (belief(auroc=0.79), False, "The evidence is too weak for verdicts: "),
        (belief(counts_near=True, near_auroc=0.9), True, None),
        (belief(counts_near=True, near_auroc=0.84), True, "The evidence is weak: "),
        (
            belief(counts_near=False, near_auroc=0.9, below_near=0.12),
            True,
            f"{UNTOLD} 12% of the training pairs that look right fit w",
        ),
        (belief(counts_near=False, near_auroc=0.74), True, f"{UNTOLD} a pair with one is expected to rank below a m"),
        (
            belief(counts_near=False),
            True,
            f"{UNTOLD} too few pairs, or too few such captions, fit better than captions",
        ),
        (belief(counts_near=False, near_auroc=0.9), True, f"{UNTOLD} it may be that almost all pairs that look"),
        (belief(70, counts_near=False), False, "70 pairs are too few for verdicts: "),
        (belief(rate=0.88, low=0.8, high=0.92, auroc=0.91), False, "Up to 92% of the pairs look like random pairs: "),
        (belief(rate=0.77, low=0.68, high=0.84, auroc=0.81), False, "Up to 84% of the pairs look like random pairs: "),
        (
            belief(placeholder=np.where(np.arange(500) < 30, 7, -1)),
            True,
            "30 pairs have an image or a caption that is common to many",
        ),
        (belief(rate=0.0, low=0.0, high=1.0, auroc=0.5), False, "The evidence is too weak for verdicts: "),
        (belief(low=0.1, high=0.4), True, "The evidence is weak: between 10% and 40% of the pairs may be mismatched"),
        (belief(auroc=0.82), True, "The evidence is weak: "),
    ],
)
def test_verdicts_are_withheld_and_doubts_are_said(found, given, start):
    assert found.verdicts is given
    assert (rate_of(found)["estimated"] is None) is not given
    said = warnings_of(PREPARED, found, {})
    assert len(said) == (start is not None)
    assert start is None or said[0].startswith(start)


def test_recall_near_chance_is_said():
    assert warnings_of(PREPARED, belief(), recall(60.0)) == []
    [said] = warnings_of(PREPARED, belief(), recall(20.0))
    assert said.startswith("Recall on dev is near chance: R@10 is 20%, and chance gives 10%.")
    few = given(images=lambda split: range(40))  # chance gives 25%: 72% is far above, though not three times as much
    assert warnings_of(few, belief(), recall(72.0)) == []
    assert len(warnings_of(few, belief(), recall(50.0))) == 1


def test_of_few_images_the_first_five_say_whether_anything_was_learned():
    """Of 20 images chance gives half at ten, which noisy captions keep even good networks close to."""
    few = given(images=lambda split: range(20))
    assert warnings_of(few, belief(), recall(80.0, 70.0)) == []
    [said] = warnings_of(few, belief(), recall(80.0, 40.0))
    assert said.startswith("Recall on dev is near chance: R@5 is 40%, and chance gives 25%.")


def test_repeated_captions_are_the_reason_where_recall_is_near_chance():
    ids = PAIRS.ids("dev")
    repeated = given(captions=["a coat" if row in ids else f"coat {row}" for row in range(10)])
    [said] = warnings_of(repeated, belief(), recall(20.0))
    assert "Its 2 captions are 1 different texts" in said and "networks" not in said


def test_vectors_that_share_no_space_are_said():
    aligned = SimpleNamespace(**{**vars(PREPARED), "aligned": True})

    def told(cosine, linear=0.82):
        detectors = {"cosine": np.full(500, cosine), "linear": np.full(500, linear)}
        return warnings_of(aligned, belief(detectors=detectors), recall(20.0))

    [said] = told(0.51)
    assert said.startswith("The vectors do not seem to share a space: by their cosine") and "51%" in said
    for [said] in (told(0.8), told(0.51, 0.6)):
        assert said.startswith("Recall on dev is near chance")


@pytest.mark.parametrize(
    ("groups", "start"),
    [
        ([0, 1, 2, 3, 4, 5, 2, 2, 7, 0], "50% of the dev and test images have a near-duplicate in train: "),
        ([0, 1, 2, 3, 4, 5, 6, 6, 7, 0], None),  # an image of the training pairs that got one more caption is none
    ],
)
def test_near_duplicates_of_training_images_in_dev_and_test_are_said(groups, start):
    found = warnings_of(PREPARED, belief(group=np.array(groups)), {})
    assert [sentence.startswith(str(start)) for sentence in found] == [True] * (start is not None)


def test_rates_that_differ_between_drawn_splits_are_said():
    drawn = {"description": "splits drawn by image", "ids": lambda *splits: np.arange(0)}
    [said] = warnings_of(given(**drawn), belief(rate_outside_train=0.02), {})
    assert said.startswith("30% of the training pairs and 2% of the other pairs are estimated")
    of_one_image = belief(
        rate_outside_train=0.02, placeholder=np.where(np.arange(500) < 30, 7, -1)
    )  # which is in one split
    assert len(warnings_of(given(**drawn), of_one_image, {})) == 1
    some_came_later = given(**drawn | {"ids": PAIRS.ids})
    assert warnings_of(some_came_later, belief(rate_outside_train=0.02), {}) == []


def test_pairs_that_were_taken_out_make_the_estimate_too_low():
    """Mismatches that look right stay in a source from which the suspects were removed."""

    def said(gone, **more):
        changed = SimpleNamespace(**{**vars(PREPARED), "changes": Changes(gone=gone)})
        return warnings_of(changed, belief(**more), {})

    assert said(25) == [] and len(said(26, auroc=0.5)) == 1
    [sentence] = said(26)
    assert sentence.startswith("26 pairs of the fit are gone from the source. If they were removed because")
