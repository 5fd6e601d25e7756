"""Match probabilities of pairs, from models that were not trained on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals
from pairsift.trust.combine import combine
from pairsift.trust.contrast import Evidence, contrast
from pairsift.trust.crossfit import CrossFit, Vectors, make_folds
from pairsift.trust.linear import linear_evidence
from pairsift.trust.neighbours import neighbour_evidence, sibling_evidence
from pairsift.trust.rate import Calibration, calibrate, decoy_quantile, rates_differ
from pairsift.trust.swaps import draw_swaps

MIN_PAIRS = 100  # smallest number of pairs for which verdicts are given
MIN_AUROC = 0.8  # smallest expected AUROC for which verdicts are given
MAX_RATE = 0.9  # no verdicts are given where the upper end of the rate's interval reaches this
MIN_DECOYS = 20  # smallest number of decoys within training pairs, and within others, to combine these apart
MIN_GROUP = 100  # smallest number of pairs in a group with a separate rate
RESAMPLES = 60  # number of resampled collections for the interval of the rate, over all divisions into folds
MIN_RESAMPLES = 10  # smallest number of resamples to decide whether training pairs and other pairs differ in rate
SIBLING_CORRELATION = (
    0.5  # correlation of siblings' probabilities from which on whole images count as mismatched together
)
AVERAGED_PAIRS = 3000  # approximate number of pairs, summed over the divisions into folds that are averaged
NEAR_QUANTILE = 0.05  # quantile of the near decoys below which pairs look like captions of any images
ROUNDS = 3  # number of choices of the near decoys that are made of the images of matching pairs
INNER_FOLDS = 3  # number of folds of the pairs that a fold's models are trained on
Networks = Callable[[CrossFit, Reals], Evidence]
Memory = Callable[[CrossFit], Evidence]


@dataclass(frozen=True)
class JudgedPairs:
    """The pairs to be judged, with their vectors, captions and groups.

    Attributes:
        images: Vector of each pair's image, (n, d).
        captions: Vector of each pair's caption, (n, e).
        texts: The captions, (n,).
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        in_train: Whether each pair is a training pair; the other pairs may have another rate of mismatches, (n,).
        aligned: Unit vectors of each pair's image and of its caption in a space that encoders share, (n, d) each; None
            where there is none.
        near_by: Vector of each pair's caption, by which captions are near, (n, c), where mismatched pairs have captions
            near the right ones; None where they have any captions.
    """

    images: Vectors
    captions: Vectors
    texts: Sequence[str]
    image_of: Ints
    group_of: Ints
    in_train: NDArray[np.bool_]
    aligned: tuple[Vectors, Vectors] | None = None
    near_by: Vectors | None = None

    def __len__(self) -> int:
        return len(self.image_of)

    def subset(self, rows: Ints) -> JudgedPairs:
        """Return only the pairs in these rows."""
        texts = [self.texts[row] for row in rows]
        aligned = None if self.aligned is None else (self.aligned[0][rows], self.aligned[1][rows])
        return JudgedPairs(
            self.images[rows],
            self.captions[rows],
            texts,
            self.image_of[rows],
            self.group_of[rows],
            self.in_train[rows],
            aligned,
            None if self.near_by is None else self.near_by[rows],
        )


@dataclass(frozen=True)
class Belief:
    """The match probabilities of pairs by held-out evidence, and the estimated rate of mismatches.

    Attributes:
        probability: Probability that each pair matches, [0, 1], (n,).
        rate: Share of mismatched pairs among the training pairs, [0, 1].
        low: Lower end of the 90% interval of the rate, which accounts for chance only.
        high: Upper end of this interval.
        auroc: AUROC with which the evidence is expected to separate matching from mismatched pairs, [0.5, 1].
        fold: Fold of each pair, (n,).
        rate_outside_train: Share of mismatched pairs among the pairs that are not training pairs, where it differs
            from `rate` beyond chance; else None.
        duplicates_of_train: Share of the images of these other pairs that have a near-duplicate among the training
            images, [0, 1].
        detectors: By kind of evidence, the share of decoys that have no more of this evidence than each pair, (0, 1),
            (n,): `linear`, `near_images`, `near_captions`, and `cosine`, `networks`, `memory` and `siblings` where
            they are used. `memory` is 0 for pairs that were taken out for captions of any other images.
        group: Group of near-duplicate images of each pair, (n,); None if it is not known.
        near_auroc: AUROC with which the evidence separates matching pairs from near decoys, whose captions read like
            those that they replace, [0, 1]; None where there are none (`near_auroc`).
        below_near: Share of the training pairs judged beside near captions that have less evidence than 95% of the
            near decoys, [0, 1]; 0 where none are. Above 0.05 there are captions of any images among them.
        counts_near: Whether near captions are counted too (`pairsift.trust.near.count_near`); None where they are not
            expected.
    """

    probability: Reals
    rate: float
    low: float
    high: float
    auroc: float
    fold: Ints
    rate_outside_train: float | None = None
    duplicates_of_train: float = 0.0
    detectors: Mapping[str, Reals] = field(default_factory=dict)
    group: Ints | None = None
    near_auroc: float | None = None
    below_near: float = 0.0
    counts_near: bool | None = None

    @property
    def verdicts(self) -> bool:
        """A bool: whether the evidence is sufficient for verdicts.

        Verdicts need at least 100 pairs, an expected AUROC of at least 0.8, and an interval of the rate that ends below
        90%. Where almost no pair differs from a random pair, the encoders may not understand the collection.
        """
        return len(self.probability) >= MIN_PAIRS and self.auroc >= MIN_AUROC and self.high < MAX_RATE


def believe(
    judged: JudgedPairs,
    seed: int,
    fold: Ints | None = None,
    networks: Networks | None = None,
    memory: Memory | None = None,
) -> Belief:
    """Judge every pair by evidence from models that were not trained on it.

    The kinds of evidence are ridge canonical correlation, the nearest images and captions, the cosine where encoders
    share a space, networks if there are any, and the other captions of the image; `combine` weighs them. The models
    that judge a fold are trained on the other pairs. Each of these pairs is weighted by its match probability, which
    comes from the same kinds of evidence, computed without networks and without the fold. The other captions of an
    image are no evidence where whole images are mismatched, that is, where the probabilities of an image's captions
    correlate by 0.5 or more. If `fold` is None, the result is a mean over about 3,000 / n divisions into folds, at
    least one and at most five.

    Args:
        judged: The pairs.
        seed: Seed of folds, decoys and resampling.
        fold: Fold of each pair, (n,); by default they are drawn: ten folds, or five from 1,000 pairs on.
        networks: Function from the folds and the trust, (folds, n), to the evidence of networks, each of them trained
            without one fold. The trust in a pair is its match probability by evidence that did not see the fold.
        memory: Function from the folds to the evidence of networks that learned the pairs, and learned the decoys like
            them (`pairsift.trust.swaps.memory_evidence`). It is for captions that are near the right ones, which
            held-out evidence tells less well.
    """
    judged = replace(judged, images=_finite(judged.images), captions=_finite(judged.captions))
    n_divisions = 1 if fold is not None else int(np.clip(round(AVERAGED_PAIRS / max(1, len(judged))), 1, 5))
    beliefs = []
    for number in range(n_divisions):
        fold_of = fold
        if fold_of is None:
            folds = min(5 if len(judged) >= 1000 else 10, len(np.unique(judged.group_of)))
            fold_of = make_folds(judged.group_of, folds, seed + 7919 * number)
        trust = _trust(judged, fold_of, seed + number)
        beliefs.append(_believe(judged, fold_of, seed + number, RESAMPLES // n_divisions, trust, networks, memory))
    rate, low, high, auroc = np.mean(
        [(belief.rate, belief.low, belief.high, belief.auroc) for belief in beliefs], axis=0
    ).tolist()
    near = [belief.near_auroc for belief in beliefs if belief.near_auroc is not None]
    probability = np.mean([belief.probability for belief in beliefs], axis=0)
    other_rates = [belief.rate_outside_train for belief in beliefs if belief.rate_outside_train is not None]
    others = float(np.mean(other_rates)) if len(other_rates) == n_divisions else None
    names = dict.fromkeys(name for belief in beliefs for name in belief.detectors)
    detectors = {
        name: np.mean([belief.detectors[name] for belief in beliefs if name in belief.detectors], axis=0)
        for name in names
    }
    near_mean = float(np.mean(near)) if near else None
    below = float(np.mean([belief.below_near for belief in beliefs]))
    duplicates = _duplicates_of_train(judged)
    fold_of, group = beliefs[0].fold, judged.group_of
    return Belief(probability, rate, low, high, auroc, fold_of, others, duplicates, detectors, group, near_mean, below)


def _finite(vectors: Vectors) -> Vectors:
    """Replace vectors with values that are not finite by the mean of the others, which is no evidence."""
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1), np.bool_)
    if finite.all():
        return vectors
    mean = vectors[finite].mean(0) if finite.any() else np.zeros(vectors.shape[1])
    return np.where(finite[:, None], vectors, mean).astype(np.float32)


def _trust(judged: JudgedPairs, fold: Ints, seed: int) -> Reals:
    """Return the trust in each pair without each fold, (folds, n); 1 for the pairs of the fold.

    It is the match probability by evidence that saw neither the fold nor the pair.
    """
    trust = np.ones((int(fold.max()) + 1, len(judged)))
    for held_out in range(len(trust)):
        rest = np.flatnonzero(fold != held_out).astype(np.int64)
        groups = len(np.unique(judged.group_of[rest]))
        if groups >= 2:
            inner = make_folds(judged.group_of[rest], min(INNER_FOLDS, groups), seed + 1)
            trust[held_out, rest] = _believe(judged.subset(rest), inner, seed, 0).probability
    return trust


def _believe(
    judged: JudgedPairs,
    fold: Ints,
    seed: int,
    resamples: int,
    trust: Reals | None = None,
    networks: Networks | None = None,
    memory: Memory | None = None,
) -> Belief:
    given = judged.image_of, judged.group_of, judged.texts, fold, seed
    if judged.near_by is None:
        fit = CrossFit.make(*given, judged.captions if resamples else None)
    else:
        fit = draw_swaps(*given, judged.near_by)
    by_neighbours = neighbour_evidence(fit, judged.images, judged.captions, seed, trust)
    kinds = {"linear": linear_evidence(fit, judged.images, judged.captions, seed, trust)}
    kinds |= {"near_images": by_neighbours[0], "near_captions": by_neighbours[1]}
    if judged.aligned is not None:
        images, captions = (torch.from_numpy(vectors) for vectors in judged.aligned)
        kinds["cosine"] = contrast(fit, lambda fold, members: (images[members], captions[members]), seed)
    if networks is not None and trust is not None:
        kinds["networks"] = networks(fit, trust)
    if memory is not None:
        kinds["memory"] = memory(fit)
    evidence = _weigh(fit, kinds, judged.in_train, seed)
    if len(np.unique(judged.image_of)) < len(judged):
        probability = _calibrated(evidence, judged.in_train, seed, 0)[0].probability
        if agreement_within(judged.image_of, probability, judged.in_train) < SIBLING_CORRELATION:
            kinds["siblings"] = sibling_evidence(fit, judged.captions, probability)
            evidence = _weigh(fit, kinds, judged.in_train, seed)
    if judged.near_by is not None:
        evidence = _weigh_right(fit, kinds, judged.in_train, seed, evidence)
    calibration, group = _calibrated(evidence, judged.in_train, seed, resamples)
    rate, low, high = (float(ends[group]) for ends in (calibration.rates, calibration.low, calibration.high))
    others = float(calibration.rates[0]) if group else None
    near = near_auroc(evidence, fit.near_images, calibration.probability)
    detectors = {name: decoy_quantile(kind) for name, kind in kinds.items()}
    below = 0.0 if judged.near_by is None else float((decoy_quantile(evidence)[judged.in_train] < NEAR_QUANTILE).mean())
    return Belief(
        calibration.probability,
        rate,
        low,
        high,
        calibration.auroc,
        fold,
        others,
        detectors=detectors,
        near_auroc=near,
        below_near=below,
    )


def _weigh(fit: CrossFit, kinds: Mapping[str, Evidence], in_train: NDArray[np.bool_], seed: int) -> Evidence:
    """Combine kinds of evidence with a rate of 0, then again with the rate that this estimates.

    Training pairs and others are combined apart where their rates differ and both have decoys of their own.
    """
    evidence = list(kinds.values())
    calibration, group = _calibrated(combine(fit, evidence), in_train, seed, 0)
    rates = np.minimum(calibration.rates, MAX_RATE)
    sides = in_train[fit.decoy_images], in_train[fit.decoy_captions]
    if group and min((sides[0] & sides[1]).sum(), (~sides[0] & ~sides[1]).sum()) >= MIN_DECOYS:
        return _combine_by_split(fit, evidence, in_train, rates)
    return combine(fit, evidence, float(rates[group]))


def _weigh_right(
    fit: CrossFit, kinds: Mapping[str, Evidence], in_train: NDArray[np.bool_], seed: int, evidence: Evidence
) -> Evidence:
    """Combine kinds of evidence again, beside near decoys that are made of the images of matching pairs.

    A caption that is near a wrong one is not near the right one. So a decoy is kept with the match probability of the
    pair whose image it has, by the evidence before, which is repeated.
    """
    drawn = np.random.default_rng((seed, 17)).random(len(fit.decoy_images))
    for _ in range(ROUNDS):
        probability = _calibrated(evidence, in_train, seed, 0)[0].probability
        kept = drawn < probability[fit.decoy_images]
        if not kept.any():
            break
        images, captions = fit.decoy_images[kept], fit.decoy_captions[kept]
        part = CrossFit(fit.image_of, fit.group_of, fit.fold, images, captions)
        matching = {name: Evidence(kind.pairs, kind.decoys[kept]) for name, kind in kinds.items()}
        evidence = _weigh(part, matching, in_train, seed)
    return evidence


def _combine_by_split(fit: CrossFit, kinds: list[Evidence], in_train: NDArray[np.bool_], rates: Reals) -> Evidence:
    """Combine the evidence of training pairs and of other pairs by separate weights, fitted on each side alone.

    Where the rates differ, the value of the other captions of an image differs too. Evidence is standardised by the
    decoys of the same side, so that both sides can be calibrated together. Decoys across the sides are left out, and so
    are near decoys.
    """
    pairs, decoys, used = np.zeros(len(fit)), np.zeros(len(fit.decoy_images)), np.zeros(len(fit.decoy_images), np.bool_)
    for side, rate in ((~in_train, float(rates[0])), (in_train, float(rates[1]))):
        rows, place = np.flatnonzero(side), np.cumsum(side) - 1
        inside = side[fit.decoy_images] & side[fit.decoy_captions]
        decoy_images, decoy_captions = place[fit.decoy_images[inside]], place[fit.decoy_captions[inside]]
        part = CrossFit(fit.image_of[rows], fit.group_of[rows], fit.fold[rows], decoy_images, decoy_captions)
        evidence = combine(part, [Evidence(kind.pairs[rows], kind.decoys[inside]) for kind in kinds], rate)
        spread = evidence.decoys.std() + 1e-9
        pairs[rows] = (evidence.pairs - evidence.decoys.mean()) / spread
        decoys[inside] = (evidence.decoys - evidence.decoys.mean()) / spread
        used |= inside
    return Evidence(pairs, decoys[used])


def agreement_within(image_of: Ints, probability: Reals, in_train: NDArray[np.bool_]) -> float:
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


def near_auroc(evidence: Evidence, given: Ints, probability: Reals) -> float | None:
    """Return the share of cases in which a matching pair has more evidence than a near decoy, ties as one half.

    Pairs count by their match probability. So do near decoys, by that of the pair whose image they have: only a caption
    that replaces a right one is as near as it reads.

    Args:
        evidence: Evidence of the pairs, (n,), and of near decoys, (k,).
        given: Pair that each near decoy has the image of, (k,).
        probability: Match probability of each pair, [0, 1], (n,).

    Returns:
        [0, 1]; None without near decoys, or where no pair matches.
    """
    weight = probability[given] if len(evidence.near_decoys) else np.zeros(0)
    if not weight.sum() or not probability.sum():
        return None
    order = np.argsort(evidence.near_decoys, kind="stable")
    values, below = evidence.near_decoys[order], np.concatenate([[0.0], np.cumsum(weight[order])])
    less, up_to = (below[np.searchsorted(values, evidence.pairs, side)] for side in ("left", "right"))
    return float(probability @ (less + up_to) / 2 / below[-1] / probability.sum())


def _duplicates_of_train(judged: JudgedPairs) -> float:
    image, first = np.unique(judged.image_of[~judged.in_train], return_index=True)
    groups = judged.group_of[~judged.in_train][first]
    return float(np.isin(groups, judged.group_of[judged.in_train]).mean()) if len(image) else 0.0


def _calibrated(evidence: Evidence, in_train: NDArray[np.bool_], seed: int, resamples: int) -> tuple[Calibration, int]:
    """Return the calibration, and the group of the training pairs in it: 1 where they have a separate rate, else 0."""
    group = in_train.astype(np.int64)
    separate = min(in_train.sum(), (~in_train).sum()) >= MIN_GROUP and rates_differ(
        evidence, group, seed, max(resamples, MIN_RESAMPLES)
    )
    return calibrate(evidence, group if separate else np.zeros_like(group), seed, resamples), int(separate)
