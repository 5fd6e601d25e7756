"""Images and captions that many pairs have in common, such as placeholders, compared with decoys of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pairsift.arrays import Ints, Reals
from pairsift.detect.calibration import decoy_quantile
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import COMMON, Folds, pair_counts

MIN_OWN = 100  # smallest number of decoys with which pairs are compared with these alone
MAX_COMMON = 0.1  # share of the images, or of the captions, above which it is usual to be common
MIN_REST = 100  # smallest number of pairs without a placeholder
ERRORS = 3.0  # number of standard errors above one half up to which the mean share of decoys is like chance
HIGH_ERRORS = 3.0  # number of standard errors up to which the number of the highest shares is like chance
MAX_SHIFT = 0.1  # largest distance above one half that is like chance
MAX_LOG_RATIO = -4.0  # logarithm of the largest likelihood ratio with which a set is unlike the other pairs
BINS = 20  # number of bins of the density of the other pairs


def set_placeholders_apart(folds: Folds, evidence: Evidence) -> Evidence:
    """Name the pairs of placeholders, and leave out the decoys that have the image or the caption of one.

    Mismatched pairs are distributed like decoys if they are spread over images and captions as these are. The pairs of
    a placeholder are not: one image is a little like every caption, and neither very like nor very unlike any. So they
    are judged together, beside their own decoys (`find_placeholders`), and the others without them. If no decoys would
    be left, nothing is set apart.

    Args:
        folds: The pairs and the decoys; its placeholders are sought by this evidence if they are not known.
        evidence: Evidence of the pairs, (n,), and of decoys.
    """
    placeholder = find_placeholders([folds], [evidence]) if folds.placeholder is None else folds.placeholder
    if (placeholder < 0).all():
        return evidence
    images, texts = _common(folds)
    found = np.unique(placeholder[placeholder >= 0])
    of_one = np.isin(images[folds.decoy_images], found) | np.isin(texts[folds.decoy_captions], found)
    return evidence if of_one.all() else replace(evidence, decoys=evidence.decoys[~of_one], placeholder=placeholder)


def have_common(folds: Folds) -> bool:
    """Return whether pairs have an image or a caption in common with so many that it could be a placeholder."""
    return bool(np.maximum(*_common(folds)).max(initial=-1) >= 0)


def find_placeholders(fits: Sequence[Folds], evidence: Sequence[Evidence]) -> Ints:
    """Return the number of the placeholder of each pair, that of its image where both are, -1 for none, (n,).

    A placeholder is an image or a caption that fits no better than its decoys do. It is judged by the pairs that have
    it and nothing else in common with many, at least 20. There is none where more than a tenth of the images, or of the
    captions, are common, since this is usual there, or where fewer than 100 other pairs would be left. In each division
    into folds, at least 100 decoys have this image or caption. (A collection of 20,000 pairs and more has one decoy a
    pair, so that about a hundred pairs are needed.) Where no pair matches, the shares of these decoys that have no more
    evidence than each pair are uniform. So their mean must be at most three standard errors, and at most 0.1, above one
    half, and at most a twentieth of them, and three standard errors, may lie in the highest twentieth. Standard errors
    count the pairs and the other pairs that the decoys are made of. Moreover, the shares must be at least e^4 times
    likelier as uniform ones than as those of the other pairs among all decoys. Each number is a mean over the
    divisions.

    Args:
        fits: The same pairs in one or more divisions into folds, with decoys.
        evidence: Evidence of the pairs, (n,), and of decoys, in each division.
    """
    images, texts = _common(fits[0])
    sets = _alone(images, texts)
    numbers, n = np.unique(sets[sets >= 0], return_counts=True)
    if not len(numbers):
        return np.full(len(sets), -1)
    scores = [_scores(numbers, sets, folds, one) for folds, one in zip(fits, evidence, strict=True)]
    share, high, log_ratio, others = np.mean(scores, axis=0).T
    spread = 1 / n + others / len(fits)
    low_mean = share <= 0.5 + np.minimum(MAX_SHIFT, ERRORS * np.sqrt(spread / 12))
    few_high = high <= 1 / BINS + HIGH_ERRORS * np.sqrt(1 / BINS * (1 - 1 / BINS) * spread)
    found = numbers[(n >= COMMON) & low_mean & few_high & (log_ratio <= MAX_LOG_RATIO)]
    of_text = np.where(np.isin(texts, found), texts, -1)
    placeholder = np.where(np.isin(images, found), images, of_text)
    return placeholder if (placeholder < 0).sum() >= MIN_REST else np.full(len(sets), -1)


def _scores(numbers: Ints, sets: Ints, folds: Folds, evidence: Evidence) -> Reals:
    """Return what the pairs of each set say, (k, 4): nan where fewer than 100 decoys have their image or caption.

    For the shares of these decoys that have no more evidence than each pair, these are the mean, the part of them in
    the highest twentieth, and the log-likelihood ratio of the other pairs' density to the uniform one; then one divided
    by the number of other pairs that the decoys are made of.

    Args:
        numbers: Number of each set, ascending, (k,).
        sets: Set of each pair, -1 for none, (n,).
        folds: The pairs and the decoys.
        evidence: Evidence of the pairs, (n,), and of decoys, (m,).
    """
    images, texts = _common(folds)
    decoys = _alone(images[folds.decoy_images], texts[folds.decoy_captions])
    partner = np.where(images[folds.decoy_images] >= 0, folds.decoy_captions, folds.decoy_images)
    of_set, of_own = np.argsort(sets, kind="stable"), np.argsort(decoys, kind="stable")
    ends = [np.searchsorted(own[order], [numbers, numbers + 1]).T for own, order in ((sets, of_set), (decoys, of_own))]
    bins, found = _bins(decoy_quantile(evidence)), np.full((len(numbers), 4), np.nan)
    total = np.bincount(bins, minlength=BINS)
    for row, ((first, last), (start, end)) in enumerate(zip(*ends, strict=True)):
        if end - start < MIN_OWN:
            continue
        given, own = evidence.pairs[of_set[first:last]], np.sort(evidence.decoys[of_own[start:end]])
        less, up_to = (np.searchsorted(own, given, side) for side in ("left", "right"))
        share, others = (less + up_to) / 2 / len(own), 1 + total - np.bincount(bins[of_set[first:last]], minlength=BINS)
        log_ratio = np.log(BINS * others / others.sum())[_bins(share)].sum()
        made_of = len(np.unique(partner[of_own[start:end]]))
        found[row] = share.mean(), (share >= 1 - 1 / BINS).mean(), log_ratio, 1 / made_of
    return found


def _bins(share: Reals) -> Ints:
    return np.minimum(share * BINS, BINS - 1).astype(np.int64)


def _common(folds: Folds) -> tuple[Ints, Ints]:
    """Return the number of each pair's image, and that of its caption, -1 where it is not common, (n,) each."""
    texts = folds.text_of if len(folds.text_of) else np.arange(len(folds))
    after = int(folds.image_of.max(initial=-1)) + 1
    images, captions = (_common_counts(number) >= COMMON for number in (folds.image_of, texts))
    return np.where(images, folds.image_of, -1), np.where(captions, after + texts, -1)


def _alone(images: Ints, texts: Ints) -> Ints:
    """Return the number of the image or of the caption where only one of them is common, -1 elsewhere."""
    return np.where(texts < 0, images, np.where(images < 0, texts, -1))


def _common_counts(number: Ints) -> Ints:
    """Return how many pairs have each pair's number, (n,); 0 for all where it is usual to be common."""
    size = np.bincount(number, minlength=1)
    return pair_counts(number) if (size >= COMMON).sum() <= MAX_COMMON * (size > 0).sum() else np.zeros_like(number)
