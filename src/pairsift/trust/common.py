"""Images and captions that many pairs have in common, such as placeholders, compared with decoys of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pairsift.arrays import Ints
from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import COMMON, CrossFit, Vectors
from pairsift.trust.rate import Calibration

LARGE = 0.025  # share of the pairs from which on those of a common image are not kept in one fold
MIN_OWN = 100  # smallest number of decoys with which pairs are compared with these alone
ERRORS = 3.0  # number of standard errors above one half up to which the mean share of decoys is like chance
MOST = 0.1  # largest distance above one half that is like chance


def join_equal_images(image_of: Ints, vectors: Vectors) -> Ints:
    """Return the image of each pair, where images with equal vectors are one if at least 20 pairs have them, (n,).

    Args:
        image_of: Image of each pair, (n,).
        vectors: Vector of each pair's image, (n, d).
    """
    first, picture = np.unique(vectors, axis=0, return_index=True, return_inverse=True)[1:]
    joined = np.asarray(image_of[first][picture.reshape(-1)], np.int64)
    return np.where(_counts(picture) >= COMMON, joined, image_of)


def fold_units(image_of: Ints, group_of: Ints) -> Ints:
    """Return the unit of each pair that folds keep together, (n,): its group of near-duplicate images, or it alone.

    The pairs of a common image are units by themselves where they are more than 2.5% of the pairs. A fold of hardly
    anything else would have no decoys of this image.

    Args:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
    """
    size, n = _counts(image_of), len(image_of)
    alone = (size >= COMMON) & (size > LARGE * n)
    return np.where(alone, int(group_of.max(initial=0)) + 1 + np.arange(n), group_of)


def set_placeholders_apart(fit: CrossFit, evidence: Evidence) -> Evidence:
    """Name the pairs of placeholders, and leave out the decoys that have the image or the caption of one.

    Mismatched pairs are distributed like decoys if they are spread over images and captions as these are. The pairs of
    a placeholder are not: one image is a little like every caption, and neither very like nor very unlike any. So they
    are judged together, beside their own decoys (`placeholders`), and the others without them.

    Args:
        fit: The pairs and the decoys.
        evidence: Evidence of the pairs, (n,), and of decoys.
    """
    found, sets = placeholders(fit, evidence), _sets(fit)
    apart, own = np.isin(sets, found), np.isin(_sets(fit, fit.decoy_images, fit.decoy_captions), found)
    if not apart.any() or apart.all() or own.all():
        return evidence
    return replace(evidence, decoys=evidence.decoys[~own], placeholder=np.where(apart, sets, -1))


def with_placeholders(calibration: Calibration, placeholder: Ints, group: Ints) -> Calibration:
    """Return the calibration of all pairs, where those of a placeholder of n pairs have the probability 1 / (n + 2).

    This is the rule of succession for a set in which no pair has been seen to match. A group's rate, and the ends of
    its interval, become means over all of its pairs.

    Args:
        calibration: That of the other pairs.
        placeholder: Number of the placeholder of each pair, -1 for the others, (n,).
        group: Group of each pair in the calibration, (n,).
    """
    rest = placeholder < 0
    probability = 1 / (_counts(placeholder) + 2)
    probability[rest] = calibration.probability
    groups = [group == number for number in range(len(calibration.rates))]
    share = np.array([rest[inside].mean() for inside in groups])
    mismatched = np.array([((1 - probability) * ~rest)[inside].mean() for inside in groups])
    rates, low, high = (ends * share + mismatched for ends in (calibration.rates, calibration.low, calibration.high))
    return Calibration(rates, low, high, probability, calibration.auroc)


def placeholders(fit: CrossFit, evidence: Evidence) -> Ints:
    """Return the sets of pairs with a common image or caption that fits no better than its decoys do.

    A set has at least 20 pairs, and at least 100 decoys have this image or caption. Where no pair matches, the pairs'
    shares of these decoys with no more evidence are uniform. The mean of the shares is at most three standard errors of
    chance, and at most 0.1, above one half.
    """
    own, sets = _sets(fit, fit.decoy_images, fit.decoy_captions), _sets(fit)
    found = []
    for number in np.unique(sets[sets >= 0]):
        decoys, pairs = np.sort(evidence.decoys[own == number]), evidence.pairs[sets == number]
        if len(pairs) < COMMON or len(decoys) < MIN_OWN:
            continue
        less, up_to = (np.searchsorted(decoys, pairs, side) for side in ("left", "right"))
        if (less + up_to).mean() / 2 / len(decoys) <= 0.5 + min(MOST, ERRORS / np.sqrt(12 * len(pairs))):
            found.append(number)
    return np.array(found, np.int64)


def _sets(fit: CrossFit, of_image: Ints | None = None, of_caption: Ints | None = None) -> Ints:
    """Return the set of the image of some pairs combined with the caption of others, the larger one where both are.

    By default these are the pairs as they are given; -1 where neither image nor caption is common.
    """
    image = np.unique(fit.image_of, return_inverse=True)[1].reshape(-1)
    texts = fit.text_of if len(fit.text_of) else np.arange(len(fit))
    of_image = np.arange(len(fit)) if of_image is None else of_image
    of_caption = np.arange(len(fit)) if of_caption is None else of_caption
    by_image, by_text = _counts(image)[of_image], _counts(texts)[of_caption]
    found = np.where(by_image >= by_text, image[of_image], len(fit) + texts[of_caption])
    return np.where(np.maximum(by_image, by_text) >= COMMON, found, -1)


def _counts(number: Ints) -> Ints:
    """Return how many pairs have each pair's number, (n,)."""
    place = np.unique(number, return_inverse=True)[1].reshape(-1)
    return np.bincount(place, minlength=1)[place].astype(np.int64)
