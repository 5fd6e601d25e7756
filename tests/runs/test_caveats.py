"""What a run says that it cannot know."""

from types import SimpleNamespace

import numpy as np
import pytest

from pairsift.detect.judgement import Judgement
from pairsift.runs import caveats
from pairsift.runs.caveats import TEXTS, rate_of, warnings_of

SPLITS = np.array(["train"] * 6 + ["dev", "dev", "test", "added"])


class Given(SimpleNamespace):
    """Pairs that are told by some of their attributes."""

    features, n_images = None, 8000

    def __len__(self):
        return 34_000


PAIRS = Given(
    captions=["a red coat", *(f"coat {number}" for number in range(9))],
    description="as given",
    noise=None,
    images=lambda split: range(100),
    split=SPLITS,
    image_of=np.array([0, 1, 2, 3, 4, 5, 6, 6, 7, 0]),
    ids=lambda *splits: np.flatnonzero(np.isin(SPLITS, splits)) if splits else np.arange(10),
)
PREPARED = SimpleNamespace(pairs=PAIRS, texts=None, changes=None, aligned=False, front=None)


def judgement(pairs=500, rate=0.3, low=0.25, high=0.35, auroc=0.95, **more):
    return Judgement(np.full(pairs, 0.7), rate, low, high, auroc, np.zeros(pairs, np.int64), **more)


def recall(r10, r5=0.0, r1=0.0):
    shares = {f"{way}_r{k}": r for way in ("i2t", "t2i") for k, r in ((1, r1), (5, r5), (10, r10))}
    return {"dev": {"ensemble": shares}}


def dev_of(n_images, texts=None):
    """Pairs of which dev has this number of images with a caption each, of this number of texts."""
    captions = [f"a coat in colour {row % (texts or n_images)}" for row in range(n_images)]
    rows = np.arange(n_images)
    return given(captions=captions, image_of=rows, images=lambda *_: rows, ids=lambda *_: rows)


def codes(*arguments):
    return [caveat["code"] for caveat in warnings_of(*arguments)]


def given(**more):
    pairs = Given(**{**vars(PAIRS), **more})
    return SimpleNamespace(pairs=pairs, texts=None, changes=None, aligned=False, front=None)


@pytest.mark.parametrize(
    ("found", "given", "code"),
    [
        (judgement(), True, None),
        (judgement(99), False, "few-pairs"),
        (judgement(auroc=0.79), False, "no-evidence"),
        (judgement(counts_near=True, near_auroc=0.9), True, None),
        (judgement(counts_near=True, near_auroc=0.84), True, "weak-evidence"),
        (judgement(counts_near=False), True, "near-captions"),
        (judgement(70, counts_near=False), False, "few-pairs"),
        (judgement(rate=0.88, low=0.8, high=0.92, auroc=0.91), False, "like-random"),
        (judgement(rate=0.77, low=0.68, high=0.84, auroc=0.81), False, "like-random"),
        (judgement(placeholder=np.where(np.arange(500) < 30, 7, -1)), True, "placeholders"),
        (judgement(rate=0.0, low=0.0, high=1.0, auroc=0.5), False, "no-evidence"),
        (judgement(low=0.1, high=0.4), True, "weak-evidence"),
        (judgement(auroc=0.82), True, "weak-evidence"),
    ],
)
def test_verdicts_are_withheld_and_doubts_are_said(found, given, code):
    assert found.verdicts is given
    assert (rate_of(found)["estimated"] is None) is not given
    cure = ["other-encoders"] if code in ("no-evidence", "like-random", "weak-evidence") else []
    assert codes(PREPARED, found, {}) == ([] if code is None else [code, *cure])
    for unable in ({"aligned": True}, {"front": object()}, {"pairs": Given(**vars(PAIRS), features=object())}):
        assert "other-encoders" not in codes(SimpleNamespace(**{**vars(PREPARED), **unable}), found, {})


def test_recall_near_chance_is_said():
    assert codes(dev_of(100), judgement(), recall(60.0)) == []
    assert codes(dev_of(100), judgement(), recall(20.0)) == ["near-chance"]
    few = dev_of(40)  # chance gives 25%: 72% is far above, though not three times as much
    assert codes(few, judgement(), recall(72.0)) == []
    assert codes(few, judgement(), recall(50.0)) == ["near-chance"]


def test_of_few_images_the_first_five_say_whether_anything_was_learned():
    """Of 20 images chance gives half at ten, which noisy captions keep even good networks close to."""
    few = dev_of(20)
    assert codes(few, judgement(), recall(80.0, 70.0)) == []
    [said] = warnings_of(few, judgement(), recall(80.0, 40.0))
    assert said["code"] == "near-chance" and "R@5 is 40%, and chance gives 25%" in said["text"]


def test_of_few_texts_the_first_says_whether_anything_was_learned():
    """Of five classes as captions, chance has the right one among the first five, and first in a fifth of cases."""
    classes = dev_of(100, texts=5)
    assert codes(classes, judgement(), recall(100.0, 100.0, 60.0)) == []
    [said] = warnings_of(classes, judgement(), recall(100.0, 80.0, 25.0))
    assert said["code"] == "near-chance" and "R@1 is 25%, and chance gives 20%" in said["text"]
    assert codes(dev_of(100, texts=2), judgement(), recall(100.0, 100.0, 50.0)) == []  # chance gives half


def test_vectors_that_share_no_space_are_said():
    aligned = SimpleNamespace(**{**vars(dev_of(100)), "aligned": True})

    def said(cosine, linear=0.82):
        detectors = {"cosine": np.full(500, cosine), "linear": np.full(500, linear)}
        return codes(aligned, judgement(detectors=detectors), recall(20.0))

    assert said(0.51) == ["no-common-space"]
    assert said(0.8) == said(0.51, 0.6) == ["near-chance"]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([0, 1, 2, 3, 4, 5, 2, 2, 7, 0], ["duplicates-in-train"]),
        ([0, 1, 2, 3, 4, 5, 6, 6, 7, 0], []),  # an image of the training pairs that got one more caption is none
    ],
)
def test_near_duplicates_of_training_images_in_dev_and_test_are_said(groups, said):
    assert codes(PREPARED, judgement(group=np.array(groups)), {"test": {}}) == said
    assert codes(PREPARED, judgement(group=np.array(groups)), {}) == []  # without recall there is nothing to doubt


def test_rates_that_differ_between_drawn_splits_are_said():
    drawn = {"description": "splits drawn by image", "ids": lambda *splits: np.arange(0)}
    assert codes(given(**drawn), judgement(rate_outside_train=0.02), {}) == ["rates-differ"]
    of_one_image = judgement(
        rate_outside_train=0.02, placeholder=np.where(np.arange(500) < 30, 7, -1)
    )  # which is in one split
    assert codes(given(**drawn), of_one_image, {}) == ["placeholders"]
    some_came_later = given(**drawn | {"ids": PAIRS.ids})
    assert codes(some_came_later, judgement(rate_outside_train=0.02), {}) == []


def test_suspects_that_were_taken_out_make_the_estimate_too_low():
    """Mismatches that look right stay in a source from which the suspects were removed."""
    mended = {"mended_suspects": 4}
    assert codes(PREPARED, judgement(), mended) == ["mended-suspects"]
    assert codes(PREPARED, judgement(auroc=0.5), mended) == ["no-evidence", "other-encoders"]


def test_the_time_of_other_encoders_is_that_of_these_pairs():
    """8,000 images at 4 a second, and 34,000 captions at 17."""
    text = warnings_of(PREPARED, judgement(auroc=0.5), {})[1]["text"]
    assert "--encoders siglip2 takes about 67 min for these pairs" in text


def test_captions_in_unknown_languages_are_said(monkeypatch):
    monkeypatch.setattr(caveats, "unknown_language", lambda *_: SimpleNamespace(message="all captions are Greek"))
    [said] = warnings_of(PREPARED, judgement(), {})
    assert said["code"] == "unknown-language"
    assert said["text"] == "all captions are Greek. Pairs with such captions may count as mismatched."
    ranked = warnings_of(PREPARED, judgement(99), {})
    assert ranked[1]["text"] == "all captions are Greek."


FACTS = {
    "few-pairs": {"pairs": 99, "least": 100},
    "no-evidence": {"auroc": 0.79},
    "like-random": {"high": 0.92},
    "weak-evidence": {"low": 0.1, "high": 0.4, "mismatched": "a mismatched pair", "auroc": 0.95},
    "near-captions": {},
    "placeholders": {"pairs": 1030},
    "other-encoders": {"name": "siglip2", "time": "67 min"},
    "mended-suspects": {"mended": 1030},
    "unknown-language": {"found": "all captions are Greek", "effect": ""},
    "no-common-space": {"cosine": 0.51, "linear": 0.82},
    "near-chance": {"k": 10, "recall": 20.0, "chance": 10.0},
    "duplicates-in-train": {"share": 0.5},
    "rates-differ": {"train": 0.3, "others": 0.02},
}
SENTENCES = """
99 pairs are too few for verdicts: the pairs are only ranked, the most doubtful first, and none is flagged. Verdicts \
need at least 100 pairs.
The evidence is too weak for verdicts: a mismatched pair is expected to rank below a matching one in only 79% of \
cases. The pairs are only ranked, the most doubtful first, and none is flagged.
Up to 92% of the pairs look like random pairs: either almost no caption belongs to its image, or the encoders do not \
understand these images or captions. No pair is flagged. Look at the pairs at both ends of the ranking, and try \
another text encoder.
The evidence is weak: between 10% and 40% of the pairs may be mismatched, and a mismatched pair is expected to rank \
below a matching one in 95% of cases. Read the ranking, and do not remove pairs by the flag alone.
Captions that read much like the right ones cannot be told here: too few pairs look right, or these hardly fit better \
than such captions do. Probabilities and rate are about captions of any other images.
1,030 pairs have an image or a caption that is common to many and fits hardly any of them, such as a placeholder: \
they count as mismatched.
Encoders that learned images and captions together may say more: --encoders siglip2 takes about 67 min for these pairs \
on two cores, and its model is fetched once (pip install 'pairsift[hf]').
1,030 suspects were mended or removed. Mismatches that remain are hard to find now: the rate and the number of \
suspects are too low. Suspects that did not change stay suspects.
all captions are Greek.
The vectors do not seem to share a space: by their cosine a pair stands above a random one in 51% of cases, by a \
linear map in 82%. Recall, search and suggestions start from the cosine: give --aligned false.
Recall on dev is near chance: R@10 is 20%, and chance gives 10%. The networks have learned little from these pairs: \
do not trust search and suggestions.
50% of the dev and test images have a near-duplicate in train: recall is higher than on new images.
30% of the training pairs and 2% of the other pairs are estimated to be mismatched, although the splits were drawn at \
random: unless one side alone was mended before, do not trust either estimate alone.
"""


def test_the_text_of_every_code():
    expected = SENTENCES.strip().splitlines()
    assert [text.format(**FACTS[code]) for code, text in TEXTS.items()] == expected
