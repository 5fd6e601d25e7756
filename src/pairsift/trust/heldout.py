"""How far each pair is to be believed, by models that did not see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals
from pairsift.trust.combine import combine
from pairsift.trust.contrast import Evidence
from pairsift.trust.crossfit import CrossFit, Vectors, make_folds
from pairsift.trust.linear import linear_evidence
from pairsift.trust.neighbours import neighbour_evidence, sibling_evidence
from pairsift.trust.rate import Calibration, calibrate, decoy_quantile

FEWEST = 100  # pairs from which on verdicts are given
TELLING = 0.8  # expected AUROC from which on verdicts are given
LARGEST_RATE = 0.9  # upper end of the rate's interval from which on no verdicts are given
GROUP = 100  # pairs that a group needs for a rate of its own
RESAMPLES = 60  # of the pairs, for the interval of the rate, over all divisions into folds
FEWEST_RESAMPLES = 10  # that tell whether training pairs and others have different rates
TOGETHER = 0.5  # correlation of siblings' probabilities from which on mismatches come by whole images
STEADY = 3000  # pairs from which on one division into folds is enough
INNER = 3  # folds of the pairs that a fold's models learn from
Networks = Callable[[CrossFit, Reals], Evidence]


@dataclass(frozen=True)
class Judged:
    """Pairs and what is known of them before any link is believed, in one order.

    Attributes:
        images: Vector of each pair's image, (n, d).
        captions: Vector of each pair's caption, (n, e).
        texts: The captions, (n,).
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        seen: Whether each pair is a training pair; the others may have another rate of mismatches, (n,).
    """

    images: Vectors
    captions: Vectors
    texts: Sequence[str]
    image_of: Ints
    group_of: Ints
    seen: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.image_of)

    def only(self, rows: Ints) -> Judged:
        """Return these pairs alone."""
        texts = [self.texts[row] for row in rows]
        return Judged(
            self.images[rows], self.captions[rows], texts, self.image_of[rows], self.group_of[rows], self.seen[rows]
        )


@dataclass(frozen=True)
class Belief:
    """What held-out evidence says of pairs.

    Attributes:
        probability: Probability that each pair matches, [0, 1], (n,).
        rate: Share of mismatched pairs among the training pairs, [0, 1].
        low: Lower end of the interval that holds the rate in nine of ten cases, as far as chance goes.
        high: Its upper end.
        auroc: At which evidence is expected to tell matching pairs from mismatched ones, [0.5, 1].
        fold: Fold of each pair, (n,).
        others: Share of mismatched pairs among the others, where it differs beyond chance; else None.
        leaked: Share of the others' images that have a near-duplicate among the training images, [0, 1].
        detectors: By kind of evidence the share of decoys that have no more of it than each pair, (0, 1), (n,):
            `linear`, `near_images`, `near_captions`, and where they are used `networks` and `siblings`.
    """

    probability: Reals
    rate: float
    low: float
    high: float
    auroc: float
    fold: Ints
    others: float | None = None
    leaked: float = 0.0
    detectors: Mapping[str, Reals] = field(default_factory=dict)

    @property
    def verdicts(self) -> bool:
        """Whether there is enough to give verdicts.

        That takes 100 pairs, evidence that tells more than a ranking, and a rate that is surely under 90%: where hardly
        a pair can be told from a random one, the encoders may not understand the collection.
        """
        return len(self.probability) >= FEWEST and self.auroc >= TELLING and self.high < LARGEST_RATE


def believe(judged: Judged, seed: int, fold: Ints | None = None, networks: Networks | None = None) -> Belief:
    """Judge every pair by evidence from models that did not see it.

    Evidence is that of ridge canonical correlation, of nearest images and captions, of networks where there are any,
    and of the other captions of the image; `combine` weighs them. What judges a fold learns from the other pairs as far
    as they are believed by evidence of the same kinds, without networks, that saw nothing of the fold. The captions of
    an image do not vouch for each other where mismatches come by whole images: where their probabilities correlate by
    0.5 or more. Where there are fewer than 3,000 pairs and no folds are given, up to five divisions into folds are
    averaged.

    Args:
        judged: The pairs.
        seed: Seed of folds, decoys and resampling.
        fold: Fold of each pair, (n,), where it is settled; ten folds, or five from 1,000 pairs on, otherwise.
        networks: Returns the evidence of networks of which each was trained without a fold, given the folds and how
            far each pair is believed by what did not see each fold, (folds, n).
    """
    judged = replace(judged, images=_finite(judged.images), captions=_finite(judged.captions))
    times = 1 if fold is not None else int(np.clip(round(STEADY / max(1, len(judged))), 1, 5))
    beliefs = []
    for time in range(times):
        chosen = fold
        if chosen is None:
            folds = min(5 if len(judged) >= 1000 else 10, len(np.unique(judged.group_of)))
            chosen = make_folds(judged.group_of, folds, seed + 7919 * time)
        trust = _trust(judged, chosen, seed + time)
        beliefs.append(_believe(judged, chosen, seed + time, RESAMPLES // times, trust, networks))
    rate, low, high, auroc = np.mean([(one.rate, one.low, one.high, one.auroc) for one in beliefs], axis=0).tolist()
    probability = np.mean([one.probability for one in beliefs], axis=0)
    apart = [one.others for one in beliefs if one.others is not None]
    others = float(np.mean(apart)) if len(apart) == times else None
    names = dict.fromkeys(name for one in beliefs for name in one.detectors)
    detectors = {
        name: np.mean([one.detectors[name] for one in beliefs if name in one.detectors], axis=0) for name in names
    }
    return Belief(probability, rate, low, high, auroc, beliefs[0].fold, others, _leaked(judged), detectors)


def _finite(vectors: Vectors) -> Vectors:
    """Put the mean of the others, which says nothing, for vectors with values that are not finite."""
    known: NDArray[np.bool_] = np.asarray(np.isfinite(vectors).all(axis=1), np.bool_)
    if known.all():
        return vectors
    mean = vectors[known].mean(0) if known.any() else np.zeros(vectors.shape[1])
    return np.where(known[:, None], vectors, mean).astype(np.float32)


def _trust(judged: Judged, fold: Ints, seed: int) -> Reals:
    """How far each pair is believed by what did not see each of the folds, nor the pair itself, (folds, n)."""
    trust = np.ones((int(fold.max()) + 1, len(judged)))
    for one in range(len(trust)):
        rest = np.flatnonzero(fold != one).astype(np.int64)
        groups = len(np.unique(judged.group_of[rest]))
        if groups >= 2:
            inner = make_folds(judged.group_of[rest], min(INNER, groups), seed + 1)
            trust[one, rest] = _believe(judged.only(rest), inner, seed, 0).probability
    return trust


def _believe(
    judged: Judged,
    fold: Ints,
    seed: int,
    resamples: int,
    trust: Reals | None = None,
    networks: Networks | None = None,
) -> Belief:
    fit = CrossFit.make(judged.image_of, judged.group_of, judged.texts, fold, seed)
    near = neighbour_evidence(fit, judged.images, judged.captions, seed, trust)
    kinds = {"linear": linear_evidence(fit, judged.images, judged.captions, seed, trust)}
    kinds |= {"near_images": near[0], "near_captions": near[1]}
    if networks is not None and trust is not None:
        kinds["networks"] = networks(fit, trust)
    whole = _weigh(fit, kinds, judged.seen, seed)
    if len(np.unique(judged.image_of)) < len(judged):
        first = _calibrated(whole, judged.seen, seed, 0)[0].probability
        if agreement_within(judged.image_of, first, judged.seen) < TOGETHER:
            kinds["siblings"] = sibling_evidence(fit, judged.captions, first)
            whole = _weigh(fit, kinds, judged.seen, seed)
    calibration, group = _calibrated(whole, judged.seen, seed, resamples)
    rate, low, high = (float(ends[group]) for ends in (calibration.rates, calibration.low, calibration.high))
    others = float(calibration.rates[0]) if group else None
    detectors = {name: decoy_quantile(kind) for name, kind in kinds.items()}
    return Belief(calibration.probability, rate, low, high, calibration.auroc, fold, others, detectors=detectors)


def _weigh(fit: CrossFit, kinds: Mapping[str, Evidence], seen: NDArray[np.bool_], seed: int) -> Evidence:
    """Combine kinds of evidence as if no pair were mismatched, and once more with the rate that this shows."""
    every = list(kinds.values())
    calibration, group = _calibrated(combine(fit, every), seen, seed, 0)
    rates = np.minimum(calibration.rates, LARGEST_RATE)
    return _combine_by_split(fit, every, seen, rates) if group else combine(fit, every, float(rates[0]))


def _combine_by_split(fit: CrossFit, kinds: list[Evidence], seen: NDArray[np.bool_], rates: Reals) -> Evidence:
    """Weigh the evidence of training pairs and of the others by weights of their own, fitted on them alone.

    Where rates differ, so does what the other captions of an image are worth. Evidence is in units of known mismatches
    of the same side, so that both sides can be calibrated together; decoys across the sides are left out.
    """
    pairs, decoys, kept = np.zeros(len(fit)), np.zeros(len(fit.decoy_images)), np.zeros(len(fit.decoy_images), np.bool_)
    for side, rate in ((~seen, float(rates[0])), (seen, float(rates[1]))):
        rows, place = np.flatnonzero(side), np.cumsum(side) - 1
        own = side[fit.decoy_images] & side[fit.decoy_captions]
        left, right = place[fit.decoy_images[own]], place[fit.decoy_captions[own]]
        part = CrossFit(fit.image_of[rows], fit.group_of[rows], fit.fold[rows], left, right)
        found = combine(part, [Evidence(kind.pairs[rows], kind.decoys[own]) for kind in kinds], rate)
        spread = found.decoys.std() + 1e-9
        pairs[rows] = (found.pairs - found.decoys.mean()) / spread
        decoys[own] = (found.decoys - found.decoys.mean()) / spread
        kept |= own
    return Evidence(pairs, decoys[kept])


def agreement_within(image_of: Ints, probability: Reals, seen: NDArray[np.bool_]) -> float:
    """Return the correlation of each pair's probability with the mean of the others of its image; 0 without spread.

    Means over the training pairs and over the other pairs are taken away first, since their rates may differ.

    Args:
        image_of: Image of each pair, (n,).
        probability: (n,).
        seen: Whether each is a training pair, (n,).
    """
    image = np.unique(image_of, return_inverse=True)[1]
    others = np.bincount(image)[image] - 1
    both = np.stack([probability, (np.bincount(image, probability)[image] - probability) / np.maximum(others, 1)])
    for side in (seen, ~seen):
        rows = side & (others > 0)
        if rows.any():
            both[:, rows] -= both[:, rows].mean(1, keepdims=True)
    own, rest = both[:, others > 0]
    if len(own) < 2 or min(own.std(), rest.std()) < 1e-6:
        return 0.0
    return float(np.corrcoef(own, rest)[0, 1])


def _leaked(judged: Judged) -> float:
    image, first = np.unique(judged.image_of[~judged.seen], return_index=True)
    groups = judged.group_of[~judged.seen][first]
    return float(np.isin(groups, judged.group_of[judged.seen]).mean()) if len(image) else 0.0


def _calibrated(evidence: Evidence, seen: NDArray[np.bool_], seed: int, resamples: int) -> tuple[Calibration, int]:
    """Return the calibration, with separate rates where those of training pairs and others differ, and its groups."""
    one = np.zeros(len(seen), np.int64)
    if min(seen.sum(), (~seen).sum()) < GROUP:
        return calibrate(evidence, one, seed, resamples), 0
    apart = calibrate(evidence, seen.astype(np.int64), seed, max(resamples, FEWEST_RESAMPLES))
    if apart.low[0] <= apart.high[1] and apart.low[1] <= apart.high[0]:
        return calibrate(evidence, one, seed, resamples), 0
    return apart, 1
