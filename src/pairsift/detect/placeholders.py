"""Images and captions that many pairs have in common, such as placeholders, compared with decoys of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.calibration import decoy_quantile
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, pair_counts
from pairsift.detect.options import DetectOptions

BINS = 20  # number of bins of the shares of decoys; the highest one is a twentieth


def set_placeholders_apart(folds: Folds, evidence: Evidence, options: DetectOptions) -> Evidence:
    """Set the pairs of placeholders apart, and remove the decoys with the image or the caption of a placeholder.

    Mismatched pairs are distributed like decoys if they are spread over images and captions as these are. The pairs of
    a placeholder are not: one image is a little like every caption, and neither very like nor very unlike any. So they
    are judged together, beside their own decoys (`find_placeholders`), and the others without them. If no decoys would
    be left, nothing is set apart.

    Args:
        folds: The pairs and the decoys; its placeholders are sought by this evidence if they are not known.
        evidence: Evidence of the pairs, (n,), and of decoys.
        options: When an image or a caption is common, and when it is a placeholder.
    """
    placeholder = folds.placeholder
    if placeholder is None:
        placeholder = find_placeholders([folds], [evidence], options)
    if (placeholder < 0).all():
        return evidence
    images, texts = _common(folds, options)
    found = np.unique(placeholder[placeholder >= 0])
    of_one = np.isin(images[folds.decoy_images], found) | np.isin(texts[folds.decoy_captions], found)
    return evidence if of_one.all() else replace(evidence, decoys=evidence.decoys[~of_one], placeholder=placeholder)


def have_common(folds: Folds, options: DetectOptions) -> bool:
    """Return whether any image or caption is common enough to be a placeholder."""
    return bool(np.maximum(*_common(folds, options)).max(initial=-1) >= 0)


def find_placeholders(foldings: Sequence[Folds], evidence: Sequence[Evidence], options: DetectOptions) -> Ints:
    """Return the placeholder of each pair as a number, -1 for none, (n,). Of two, the image counts.

    A placeholder is an image or a caption that fits no better than its decoys do. It is judged by the pairs that have
    it and nothing else in common with many. Several divisions into folds are judged by their mean.

    Args:
        foldings: The same pairs in one or more divisions into folds, with decoys.
        evidence: Evidence of the pairs, (n,), and of decoys, in each division.
        options: When an image or a caption is common, and when it is a placeholder.
    """
    # The pairs of each image or caption that is common, at least 20. There is none where more than a tenth of the
    # images, or of the captions, are common, since this is usual there.
    images, texts = _common(foldings[0], options)
    sets = _alone(images, texts)
    numbers, n = np.unique(sets[sets >= 0], return_counts=True)
    if not len(numbers):
        return np.full(len(sets), -1)
    # Where no pair matches, the shares of decoys with no more evidence than each pair are uniform. Sets with fewer than
    # 100 decoys have no scores. (From 20,000 pairs on there is one decoy a pair, so that about 100 pairs are needed.)
    limits = options.placeholders
    scores = [_scores(numbers, sets, folds, one, options) for folds, one in zip(foldings, evidence, strict=True)]
    share, high, log_ratio, others = np.mean(scores, axis=0).T
    # Standard errors count the pairs, and the other pairs that the decoys are made of.
    spread = 1 / n + others / len(foldings)
    # The mean share is at most three standard errors, and at most 0.1, above one half.
    low_mean = share <= 0.5 + np.minimum(limits.max_shift, limits.mean_errors * np.sqrt(spread / 12))
    # At most a twentieth of the shares, and three standard errors, lie in the highest twentieth.
    few_high = high <= 1 / BINS + limits.high_errors * np.sqrt(1 / BINS * (1 - 1 / BINS) * spread)
    # The shares are at least e^4 times likelier as uniform ones than among the other pairs.
    unlike_others = log_ratio <= limits.max_log_ratio
    found = numbers[(n >= options.folds.min_common) & low_mean & few_high & unlike_others]
    of_text = np.where(np.isin(texts, found), texts, -1)
    placeholder = np.where(np.isin(images, found), images, of_text)
    # At least 100 other pairs must be left.
    return placeholder if (placeholder < 0).sum() >= limits.min_rest else np.full(len(sets), -1)


def _scores(numbers: Ints, sets: Ints, folds: Folds, evidence: Evidence, options: DetectOptions) -> Reals:
    """Return four scores of each set, (k, 4): nan where fewer than 100 decoys have its image or caption.

    The first three are about the shares of these decoys that have no more evidence than each pair: their mean, how many
    of them lie in the highest twentieth, and the log-likelihood ratio of the other pairs' density to the uniform one.
    The last one is one divided by the number of other pairs that the decoys are made of.

    Args:
        numbers: Number of each set, ascending, (k,).
        sets: Set of each pair, -1 for none, (n,).
        folds: The pairs and the decoys.
        evidence: Evidence of the pairs, (n,), and of decoys, (m,).
        options: When an image or a caption is common, and how many decoys are enough.
    """
    images, texts = _common(folds, options)
    decoys = _alone(images[folds.decoy_images], texts[folds.decoy_captions])
    partner = np.where(images[folds.decoy_images] >= 0, folds.decoy_captions, folds.decoy_images)
    # The pairs and the decoys of each set are a stretch of their order by set.
    of_set, of_own = np.argsort(sets, kind="stable"), np.argsort(decoys, kind="stable")
    ends = [np.searchsorted(own[order], [numbers, numbers + 1]).T for own, order in ((sets, of_set), (decoys, of_own))]
    bins, found = _bins(decoy_quantile(evidence)), np.full((len(numbers), 4), np.nan)
    total = np.bincount(bins, minlength=BINS)
    for row, ((first, last), (start, end)) in enumerate(zip(*ends, strict=True)):
        if end - start < options.placeholders.min_decoys:
            continue
        # The share of the set's own decoys below each pair, ties as one half.
        given, own = evidence.pairs[of_set[first:last]], np.sort(evidence.decoys[of_own[start:end]])
        less, up_to = (np.searchsorted(own, given, side) for side in ("left", "right"))
        share = (less + up_to) / 2 / len(own)
        # The density of the other pairs among all decoys, with one more pair in each bin.
        others = 1 + total - np.bincount(bins[of_set[first:last]], minlength=BINS)
        log_ratio = np.log(BINS * others / others.sum())[_bins(share)].sum()
        made_of = len(np.unique(partner[of_own[start:end]]))
        found[row] = share.mean(), (share >= 1 - 1 / BINS).mean(), log_ratio, 1 / made_of
    return found


def _bins(share: Reals) -> Ints:
    return np.minimum(share * BINS, BINS - 1).astype(np.int64)


def _common(folds: Folds, options: DetectOptions) -> tuple[Ints, Ints]:
    """Return the numbers of each pair's image and of its caption, -1 where it is not common, (n,) each."""
    texts = folds.text_of if len(folds.text_of) else np.arange(len(folds))
    after = int(folds.image_of.max(initial=-1)) + 1
    images, captions = (_are_common(number, options) for number in (folds.image_of, texts))
    return np.where(images, folds.image_of, -1), np.where(captions, after + texts, -1)


def _are_common(number: Ints, options: DetectOptions) -> Bools:
    """Return whether many pairs have each pair's number, (n,); none where it is usual to be common."""
    least, size = options.folds.min_common, np.bincount(number, minlength=1)
    if (size >= least).sum() > options.placeholders.max_common_share * (size > 0).sum():
        return np.zeros(len(number), np.bool_)
    return np.asarray(pair_counts(number) >= least)


def _alone(images: Ints, texts: Ints) -> Ints:
    """Return the number of the image or of the caption where only one of them is common, -1 elsewhere."""
    return np.where(texts < 0, images, np.where(images < 0, texts, -1))
