"""Kinds of evidence combined by the rate that they estimate, and the probabilities that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.combine import combine
from pairsift.detect.contrast import Codes, Evidence, contrast
from pairsift.detect.crossfit import CrossFit
from pairsift.detect.placeholders import set_placeholders_apart, with_placeholders
from pairsift.detect.rate import Calibration, calibrate, likeliest_shape, rates_differ
from pairsift.detect.siblings import sibling_codes

MAX_RATE = 0.9  # largest rate with which kinds of evidence are combined
MIN_DECOYS = 20  # smallest number of decoys within training pairs, and within others, to combine these apart
MIN_GROUP = 40  # smallest number of pairs in a group with a separate rate
MIN_RESAMPLES = 10  # smallest number of resamples to decide whether training pairs and other pairs differ in rate
SIBLING_CORRELATION = (
    0.5  # correlation of siblings' probabilities from which on whole images count as mismatched together
)
ROUNDS = 2  # number of times that images are joined with their captions; a third one changed hardly anything


def weigh(fit: CrossFit, kinds: Mapping[str, Evidence], in_train: Bools, seed: int) -> Evidence:
    """Combine kinds of evidence with a rate of 0, then again with the rate that this estimates.

    Training pairs and others are combined apart where their rates differ and both have decoys of their own.

    Args:
        fit: The pairs, their folds and the decoys.
        kinds: Kinds of evidence by their names.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the resampling.
    """
    evidence = list(kinds.values())
    first = set_placeholders_apart(fit, combine(fit, evidence))
    calibration, group = calibrate_sides(first, in_train, seed, 0)
    rates = np.minimum(calibration.rates, MAX_RATE)
    if group and _have_decoys(fit, in_train):
        fit = replace(fit, placeholder=first.placeholder)  # few of their decoys are of one side
        return set_placeholders_apart(*_combine_by_split(fit, evidence, in_train, rates))
    return set_placeholders_apart(fit, combine(fit, evidence, float(rates[group])))


def _have_decoys(fit: CrossFit, in_train: Bools) -> bool:
    """Return whether training pairs and others have enough decoys of their own to be combined apart."""
    sides = in_train[fit.decoy_images], in_train[fit.decoy_captions]
    return bool(min((sides[0] & sides[1]).sum(), (~sides[0] & ~sides[1]).sum()) >= MIN_DECOYS)


def _combine_by_split(fit: CrossFit, kinds: list[Evidence], in_train: Bools, rates: Reals) -> tuple[CrossFit, Evidence]:
    """Combine the evidence of training pairs and of other pairs by separate weights, fitted on each side alone.

    Where the rates differ, the value of the other captions of an image differs too. Evidence is standardised by the
    decoys of the same side, so that both sides can be calibrated together. Decoys across the sides are left out, and
    near ones have no evidence there (nan).
    """
    pairs, decoys, used = np.zeros(len(fit)), np.zeros(len(fit.decoy_images)), np.zeros(len(fit.decoy_images), np.bool_)
    near_decoys = np.full(len(fit.near_images), np.nan)
    for side, rate in ((~in_train, float(rates[0])), (in_train, float(rates[1]))):
        rows, place = np.flatnonzero(side), np.cumsum(side) - 1
        inside = side[fit.decoy_images] & side[fit.decoy_captions]
        decoy_images, decoy_captions = place[fit.decoy_images[inside]], place[fit.decoy_captions[inside]]
        near = side[fit.near_images] & side[fit.near_captions]
        near_images, near_captions = place[fit.near_images[near]], place[fit.near_captions[near]]
        of_side = fit.image_of[rows], fit.group_of[rows], fit.fold[rows]
        part = CrossFit(*of_side, decoy_images, decoy_captions, near_images, near_captions)
        kinds_of_side = [Evidence(kind.pairs[rows], kind.decoys[inside], kind.near_decoys[near]) for kind in kinds]
        evidence = combine(part, kinds_of_side, rate)
        mean, spread = evidence.decoys.mean(), evidence.decoys.std() + 1e-9
        pairs[rows] = (evidence.pairs - mean) / spread
        decoys[inside] = (evidence.decoys - mean) / spread
        near_decoys[near] = (evidence.near_decoys - mean) / spread
        used |= inside
    fit = replace(fit, decoy_images=fit.decoy_images[used], decoy_captions=fit.decoy_captions[used])
    return fit, Evidence(pairs, decoys[used], near_decoys)


def weigh_with_siblings(
    fit: CrossFit, kinds: dict[str, Evidence], models: Mapping[str, Codes], in_train: Bools, seed: int
) -> Evidence:
    """Combine kinds of evidence, also of images joined with their other captions.

    Siblings count by the match probability that follows from the evidence before, at first without siblings. They are
    left out where whole images are mismatched together, placeholders apart, and where no image has several captions.

    Args:
        fit: The pairs, their folds and the decoys.
        kinds: Kinds of evidence by their names; those of `models` with siblings are added where they are used.
        models: Codes of the kinds whose images and captions share a space, by their names.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the references and of the resampling.
    """
    evidence = weigh(fit, kinds, in_train, seed)
    if len(np.unique(fit.image_of)) == len(fit):
        return evidence
    for number in range(ROUNDS):
        probability = calibrate_sides(evidence, in_train, seed, 0)[0].probability
        rest = evidence.placeholder < 0 if len(evidence.placeholder) else np.ones(len(fit), np.bool_)
        agreement = agreement_within(fit.image_of[rest], probability[rest], in_train[rest])
        if not number and agreement >= SIBLING_CORRELATION:
            return evidence
        for name, codes in models.items():
            kinds[f"{name}_siblings"] = contrast(fit, sibling_codes(codes, fit.image_of, probability), seed)
        evidence = weigh(fit, kinds, in_train, seed)
    return evidence


def agreement_within(image_of: Ints, probability: Reals, in_train: Bools) -> float:
    """Return the correlation of pairs' probabilities with the mean of the image's other pairs; 0 without spread.

    The means over training pairs and over other pairs are subtracted first, since their rates may differ.

    Args:
        image_of: Image of each pair, (n,).
        probability: Match probability of each pair, (n,).
        in_train: Whether each pair is a training pair, (n,).
    """
    image = np.unique(image_of, return_inverse=True)[1]
    others = np.bincount(image)[image] - 1
    both = np.stack([probability, (np.bincount(image, probability)[image] - probability) / np.maximum(others, 1)])
    for side in (in_train, ~in_train):
        rows = side & (others > 0)
        if rows.any():
            both[:, rows] -= both[:, rows].mean(1, keepdims=True)
    probabilities, means = both[:, others > 0]
    if len(probabilities) < 2 or min(probabilities.std(), means.std()) < 1e-6:
        return 0.0
    return float(np.corrcoef(probabilities, means)[0, 1])


def calibrate_sides(evidence: Evidence, in_train: Bools, seed: int, resamples: int) -> tuple[Calibration, int]:
    """Return the calibration, and the group of the training pairs in it: 1 where they have a separate rate, else 0.

    Placeholders are set apart (`with_placeholders`).

    Args:
        evidence: Evidence of the pairs, (n,), and of decoys.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the resampling.
        resamples: Number of resampled collections for the intervals; with 0, an interval holds only the rate.
    """
    if len(evidence.placeholder):
        rest = evidence.placeholder < 0
        others = Evidence(evidence.pairs[rest], evidence.decoys)
        calibration, separate = calibrate_sides(others, in_train[rest], seed, resamples)
        if not separate and _shares_differ(~rest, in_train):
            rates, low, high = (np.repeat(ends, 2) for ends in (calibration.rates, calibration.low, calibration.high))
            calibration, separate = replace(calibration, rates=rates, low=low, high=high), 1
        return with_placeholders(calibration, evidence.placeholder, in_train.astype(np.int64) * separate), separate
    group, shape = in_train.astype(np.int64), likeliest_shape(evidence)
    separate = int(
        min(in_train.sum(), (~in_train).sum()) >= MIN_GROUP
        and rates_differ(evidence, group, seed, max(resamples, MIN_RESAMPLES), shape)
    )
    return calibrate(evidence, group * separate, seed, resamples, shape), separate


def _shares_differ(apart: Bools, in_train: Bools) -> bool:
    """Return whether training pairs and others, 40 each or more, differ in a share by three standard errors."""
    sides = in_train, ~in_train
    if min(side.sum() for side in sides) < MIN_GROUP:
        return False
    shares, mean = [apart[side].mean() for side in sides], apart.mean()
    return bool(abs(shares[0] - shares[1]) > 3 * np.sqrt(mean * (1 - mean) * sum(1 / side.sum() for side in sides)))
