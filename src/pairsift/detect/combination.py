"""The combination of kinds of evidence, weighted by how well each separates pairs from decoys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.calibration import Calibration, calibrate_sides
from pairsift.detect.evidence import Evidence, PairEncoder, References, contrast, sibling_encoder
from pairsift.detect.folds import Folds, pair_counts
from pairsift.detect.options import DetectOptions
from pairsift.detect.placeholders import set_placeholders_apart

LARGEST_LOG = 600.0  # largest absolute log-odds, so that the odds are finite and above 0


def combine(folds: Folds, evidence: Sequence[Evidence], max_decoys: int, rate: float = 0.0) -> Evidence:
    """Combine kinds of evidence by a regression of given pairs against decoys, fitted without each pair's fold.

    Decoys replace labels. Where a share of the given pairs, `rate`, is mismatched, this share of them has evidence x
    distributed as decoys have it, and the rest as matching pairs have it. The odds of a given pair against a decoy are
    then

        o(x) = rate + (1 - rate) exp(w x + c),

    and w x is the logarithm of the odds of a matching against a mismatched pair, up to a constant. With a rate of 0,
    this is logistic regression. Weights are at least 0: no kind of evidence counts against a pair. Half of every
    squared weight is added to the loss, which sums over the given pairs and, with the same total weight, over the
    decoys.

    Args:
        folds: The pairs, their folds and the decoys.
        evidence: At least one kind of evidence.
        max_decoys: From twice this number of decoys on, weights are fitted on a part of them, evenly spaced.
        rate: Estimated share of mismatched pairs, [0, 1).

    Returns:
        The combined evidence; zeros where there are no decoys to compare with.
    """
    return evidence[0] if len(evidence) == 1 else _combined(folds, evidence, max_decoys, rate)[0]


@dataclass(frozen=True)
class Weights:
    """The weights of the kinds of evidence in each fold, and the unit of what they are combined to.

    Attributes:
        mean: Mean of each kind over the decoys, (k,).
        spread: Standard deviation of each kind over the decoys, (k,).
        of_fold: Weights of the kinds in units of these deviations, (folds, k).
        shift: What is subtracted from the combined evidence.
        unit: What it is then divided by.
    """

    mean: Reals
    spread: Reals
    of_fold: Reals
    shift: float = 0.0
    unit: float = 1.0

    def combined(self, values: Reals, fold: Ints) -> Reals:
        """Return the combined evidence, (n,), of values of each kind, (n, k), of pairs in these folds, (n,)."""
        standard, combined = (values - self.mean) / self.spread, np.zeros(len(values))
        for number in range(int(fold.max(initial=-1)) + 1):  # the last row also stands for folds without decoys
            weights = self.of_fold[min(number, len(self.of_fold) - 1)]
            combined[fold == number] = standard[fold == number] @ weights
        return (combined - self.shift) / self.unit


def _combined(
    folds: Folds, evidence: Sequence[Evidence], max_decoys: int, rate: float = 0.0
) -> tuple[Evidence, Weights]:
    """Combine kinds of evidence as `combine` does, and return the weights too."""
    k, sides = len(evidence), ("pairs", "decoys", "near_decoys")
    pairs, decoys, near = (np.stack([getattr(kind, side) for kind in evidence], 1) for side in sides)
    if k == 1 or not len(folds.decoy_images):
        weights = Weights(np.zeros(k), np.ones(k), np.full((folds.count, k), float(k == 1)))
    else:
        mean, spread = decoys.mean(0), decoys.std(0) + 1e-9
        given, made, decoy_fold = (pairs - mean) / spread, (decoys - mean) / spread, folds.fold[folds.decoy_images]
        of_fold = []
        for fold in range(folds.count):
            others = made[decoy_fold != fold]
            others = others[:: max(1, len(others) // max_decoys)]
            of_fold.append(odds_weights(given[folds.fold != fold], others, rate))
        weights = Weights(mean, spread, np.stack(of_fold))
    decoy_fold, near_fold = folds.fold[folds.decoy_images], folds.fold[folds.near_decoy_images]
    combined = (
        weights.combined(pairs, folds.fold),
        weights.combined(decoys, decoy_fold),
        weights.combined(near, near_fold),
    )
    return Evidence(*combined), weights


def odds_weights(given: Reals, decoys: Reals, rate: float = 0.0) -> Reals:
    """Return non-negative weights that separate matching pairs from decoys, (k,).

    Args:
        given: Evidence of given pairs in units of the decoys' standard deviations, (n, k).
        decoys: Evidence of decoys, (m, k).
        rate: Share of mismatched pairs among the given pairs, [0, 1).
    """
    if not len(given) or not len(decoys):
        return np.ones(given.shape[1])
    rows, n = np.concatenate([given, decoys]), len(given)
    weight = np.repeat([0.5, 0.5 * n / len(decoys)], [n, len(decoys)])

    def loss(theta: Reals) -> tuple[float, Reals]:
        matching = (1 - rate) * np.exp(np.clip(rows @ theta[:-1] + theta[-1], -LARGEST_LOG, LARGEST_LOG))
        odds = rate + matching
        # Cross-entropy and its gradient, as if every row were a decoy; then corrected for the n rows of pairs.
        surprise, pull = np.log1p(odds), matching / (1 + odds)
        surprise[:n] -= np.log(odds[:n])
        pull[:n] -= matching[:n] / odds[:n]
        pull *= weight
        return float(weight @ surprise + (theta[:-1] ** 2).sum() / 2), np.append(pull @ rows + theta[:-1], pull.sum())

    bounds = [(0.0, None)] * given.shape[1] + [(None, None)]
    start = np.append(np.full(given.shape[1], 0.1), 0.0)
    weights = np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[:-1])
    return weights if weights.any() else np.full(given.shape[1], 1e-3)


@dataclass(frozen=True)
class Combination:
    """The weights of the kinds of evidence, for all pairs or apart for training pairs and others.

    Attributes:
        sides: The weights of all pairs, or those of the other pairs and those of the training pairs.
    """

    sides: tuple[Weights, ...]

    def combined(self, values: Reals, fold: Ints, in_train: Bools) -> Reals:
        """Return the combined evidence, (n,), of values of each kind, (n, k), of pairs in these folds, (n,)."""
        found = self.sides[-1].combined(values, fold)
        return found if len(self.sides) == 1 else np.where(in_train, found, self.sides[0].combined(values, fold))


def combine_by_rate(
    folds: Folds, kinds: Mapping[str, Evidence], in_train: Bools, seed: int, options: DetectOptions
) -> tuple[Evidence, Combination]:
    """Combine kinds of evidence with a rate of 0, then again with the rate that this estimates.

    Training pairs and others are combined apart where their rates differ and both have enough decoys. Placeholders are
    set apart.

    Args:
        folds: The pairs, their folds and the decoys.
        kinds: Kinds of evidence by their names.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the resampling.
        options: Weights, rates and placeholders.

    Returns:
        The combined evidence and the weights.
    """
    evidence, limits = list(kinds.values()), options.combination
    first = set_placeholders_apart(folds, combine(folds, evidence, limits.max_decoys), options)
    calibration, group = calibrate_sides(first, in_train, seed, 0, options.calibration)
    rates = np.minimum(calibration.rates, limits.max_rate)
    if group and _decoys_of_a_side(folds, in_train) >= limits.min_decoys_of_side:
        # Few decoys of a placeholder have both pairs on one side, so that it is not sought again.
        folds = replace(folds, placeholder=first.placeholder)
        folds, combined, weights = _combine_sides(folds, evidence, in_train, rates, limits.max_decoys)
        return set_placeholders_apart(folds, combined, options), Combination(weights)
    combined, of_all = _combined(folds, evidence, limits.max_decoys, float(rates[group]))
    return set_placeholders_apart(folds, combined, options), Combination((of_all,))


def _decoys_of_a_side(folds: Folds, in_train: Bools) -> int:
    """Return the number of decoys within training pairs, or within others, whichever is smaller."""
    image, caption = in_train[folds.decoy_images], in_train[folds.decoy_captions]
    return int(min((image & caption).sum(), (~image & ~caption).sum()))


def _combine_sides(
    folds: Folds, kinds: list[Evidence], in_train: Bools, rates: Reals, max_decoys: int
) -> tuple[Folds, Evidence, tuple[Weights, Weights]]:
    """Combine the evidence of training pairs and of other pairs by separate weights, fitted on each side alone.

    Where the rates differ, the value of the other captions of an image differs too. Evidence is standardised by the
    decoys of the same side, so that both sides can be calibrated together. Decoys across the sides are left out, and
    near ones have no evidence there (nan).
    """
    pairs, decoys = np.zeros(len(folds)), np.zeros(len(folds.decoy_images))
    used, weights = np.zeros(len(decoys), np.bool_), []
    near_decoys = np.full(len(folds.near_decoy_images), np.nan)
    for side, rate in ((~in_train, float(rates[0])), (in_train, float(rates[1]))):
        # The pairs of this side, with the decoys that have both pairs on it.
        rows, place = np.flatnonzero(side), np.cumsum(side) - 1
        inside = side[folds.decoy_images] & side[folds.decoy_captions]
        near = side[folds.near_decoy_images] & side[folds.near_decoy_captions]
        part = Folds(
            folds.image_of[rows],
            folds.group_of[rows],
            folds.fold[rows],
            place[folds.decoy_images[inside]],
            place[folds.decoy_captions[inside]],
            place[folds.near_decoy_images[near]],
            place[folds.near_decoy_captions[near]],
        )
        kinds_of_side = [Evidence(kind.pairs[rows], kind.decoys[inside], kind.near_decoys[near]) for kind in kinds]
        evidence, of_side = _combined(part, kinds_of_side, max_decoys, rate)
        mean, spread = evidence.decoys.mean(), evidence.decoys.std() + 1e-9
        weights.append(replace(of_side, shift=float(mean), unit=float(spread)))
        pairs[rows] = (evidence.pairs - mean) / spread
        decoys[inside] = (evidence.decoys - mean) / spread
        near_decoys[near] = (evidence.near_decoys - mean) / spread
        used |= inside
    folds = replace(folds, decoy_images=folds.decoy_images[used], decoy_captions=folds.decoy_captions[used])
    return folds, Evidence(pairs, decoys[used], near_decoys), (weights[0], weights[1])


@dataclass(frozen=True)
class SiblingRound:
    """A combination with evidence of images joined with their other captions.

    Attributes:
        calibration: The calibration of the evidence before, by which siblings count.
        separate: Whether training pairs have a rate of their own in it.
        references: The references of each fold, by the kind that they are joined in.
        combination: The weights of all kinds, with those of siblings.
    """

    calibration: Calibration
    separate: bool
    references: Mapping[str, Sequence[References]]
    combination: Combination


def combine_with_siblings(
    folds: Folds,
    kinds: dict[str, Evidence],
    models: Mapping[str, PairEncoder],
    in_train: Bools,
    seed: int,
    options: DetectOptions,
) -> tuple[Evidence, Combination, list[SiblingRound]]:
    """Combine kinds of evidence, also of images joined with their other captions.

    Siblings count by the match probability that follows from the evidence before, at first without siblings. They are
    left out where whole images are mismatched together, placeholders apart, and where below 5% of the pairs have any.

    Args:
        folds: The pairs, their folds and the decoys.
        kinds: Kinds of evidence by their names; kinds of `models` with siblings are added where they are used.
        models: Encoders of the kinds whose images and captions share a space, by their names.
        in_train: Whether each pair is a training pair, (n,).
        seed: Seed of the references and of the resampling.
        options: References, siblings, weights, rates and placeholders.

    Returns:
        The combined evidence, the weights without siblings, and the rounds with siblings.
    """
    evidence, first = combine_by_rate(folds, kinds, in_train, seed, options)
    rounds: list[SiblingRound] = []
    if (pair_counts(folds.image_of) > 1).mean() < options.siblings.min_share:
        return evidence, first, rounds
    for number in range(options.siblings.rounds):
        calibration, group = calibrate_sides(evidence, in_train, seed, 0, options.calibration)
        probability = calibration.probability
        rest = evidence.placeholder < 0 if len(evidence.placeholder) else np.ones(len(folds), np.bool_)
        agreement = agreement_within(folds.image_of[rest], probability[rest], in_train[rest])
        if not number and agreement >= options.siblings.max_agreement:
            break
        for name, encode in models.items():
            joined = sibling_encoder(encode, folds.image_of, probability, options.siblings.weight)
            kinds[f"{name}_siblings"] = contrast(folds, joined, seed, options)
        evidence, combination = combine_by_rate(folds, kinds, in_train, seed, options)
        references = {name: kinds[f"{name}_siblings"].references for name in models}
        rounds.append(SiblingRound(calibration, group > 0, references, combination))
    return evidence, first, rounds


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
