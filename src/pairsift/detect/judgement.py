"""Match probabilities of pairs, from models that were not trained on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.calibration import Calibration, calibrate_sides, decoy_quantile
from pairsift.detect.combination import combine, combine_with_siblings
from pairsift.detect.evidence import Evidence, PairEncoder, contrast, neighbour_evidence
from pairsift.detect.folds import Folds, Vectors, fold_units, make_folds
from pairsift.detect.linear import canonical_encoder
from pairsift.detect.placeholders import find_placeholders, have_common

MIN_PAIRS = 100  # smallest number of pairs for which verdicts are given
MIN_AUROC = 0.8  # smallest expected AUROC for which verdicts are given
MIN_SEPARATION = 0.11  # smallest (1 - high) (2 AUROC - 1) for which verdicts are given
RESAMPLES = 60  # number of resampled collections for the interval of the rate, over all divisions into folds
AVERAGED_PAIRS = 3000  # approximate number of pairs, summed over the divisions into folds that are averaged
INNER_FOLDS = 3  # number of folds of the pairs that a fold's models are trained on
Networks = Callable[[Folds, Reals], PairEncoder]


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
    """

    images: Vectors
    captions: Vectors
    texts: Sequence[str]
    image_of: Ints
    group_of: Ints
    in_train: NDArray[np.bool_]
    aligned: tuple[Vectors, Vectors] | None = None

    def __len__(self) -> int:
        return len(self.image_of)

    def units(self, most: int) -> tuple[Ints, int]:
        """Return the unit of each pair that folds keep together, (n,), and the number of folds (`fold_units`)."""
        return fold_units(self.image_of, self.group_of, most)

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
        )


@dataclass(frozen=True)
class Judgement:
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
        detectors: By kind of evidence, the share of decoys that have no more of this evidence than each pair, (0, 1),
            (n,): `linear`, `near_images`, `near_captions`, and `cosine`, `networks` and `memory` where they are used.
            Where images have several captions, also `linear_siblings`, `cosine_siblings` and `networks_siblings`, for
            images joined with their other captions. `memory` counts as 0 in a division into folds in which a pair was
            taken out for a caption of any other image.
        group: Group of near-duplicate images of each pair, (n,); None if it is not known.
        near_auroc: AUROC with which the evidence separates matching pairs from near decoys, whose captions read like
            those that they replace, [0, 1]; None where there are none (`near_auroc`).
        below_near: Share of the training pairs judged beside near captions that have less evidence than 95% of the
            near decoys, [0, 1]; 0 where none are. Above 0.05 there are captions of any images among them.
        counts_near: Whether near captions are counted too (`judge_near_mismatches`); None where they are not expected.
        placeholder: Number of the placeholder that each pair has, an image or a caption that is common to many and fits
            them no better than others (`pairsift.detect.placeholders`), -1 for none, (n,); empty if there is none.
    """

    probability: Reals
    rate: float
    low: float
    high: float
    auroc: float
    fold: Ints
    rate_outside_train: float | None = None
    detectors: Mapping[str, Reals] = field(default_factory=dict)
    group: Ints | None = None
    near_auroc: float | None = None
    below_near: float = 0.0
    counts_near: bool | None = None
    placeholder: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def in_placeholder(self) -> Bools:
        """A bool for each pair: whether it has a placeholder, (n,); empty if none has."""
        return self.placeholder >= 0

    @property
    def verdicts(self) -> bool:
        """A bool: whether the evidence is sufficient for verdicts.

        Verdicts need at least 100 pairs, an expected AUROC A of at least 0.8, and enough pairs that differ from random
        ones: (1 - high) (2 A - 1) of at least 0.11, with the upper end of the rate's interval. This is 2 A' - 1 for the
        AUROC A' of all pairs against random ones. Where it is less, the encoders may not understand the collection.
        """
        return len(self.probability) >= MIN_PAIRS and sufficient(self.auroc, self.high)


def sufficient(auroc: float, high: float) -> bool:
    """Return whether evidence with this expected AUROC, and this end of the rate's interval, is sufficient."""
    return auroc >= MIN_AUROC and (1 - high) * (2 * auroc - 1) >= MIN_SEPARATION


def judge_pairs(
    judged: JudgedPairs, seed: int, fold: Ints | None = None, networks: Networks | None = None
) -> Judgement:
    """Judge every pair by evidence from models that were not trained on it.

    The kinds of evidence are ridge canonical correlation, the nearest images and captions, the cosine where encoders
    share a space, networks if there are any, and for images joined with their other captions once more the canonical
    correlation, the cosine and the networks; `combine` weighs them. The models
    that judge a fold are trained on the other pairs. Each of these pairs is weighted by its match probability, which
    comes from the same kinds of evidence, computed without networks and without the fold. The other captions of an
    image are no evidence where whole images are mismatched, that is, where the probabilities of an image's captions
    correlate by 0.5 or more. If `fold` is None, the result is a mean over about 3,000 / n divisions into folds, at
    least one and at most five.

    Args:
        judged: The pairs.
        seed: Seed of folds, decoys and resampling.
        fold: Fold of each pair, (n,); by default they are drawn: ten folds, or five from 1,000 pairs on.
        networks: Function from the folds and the trust, (folds, n), to the encoder of networks, each of them trained
            without one fold. The trust in a pair is its match probability by evidence that did not see the fold.
    """
    judged = with_finite_vectors(judged)
    return mean_judgement(judge_foldings(judged, list(draw_foldings(judged, seed, fold)), networks), judged)


@dataclass(frozen=True)
class Folding:
    """One division of the pairs into folds.

    Attributes:
        fold: Fold of each pair, (n,).
        seed: Seed of decoys and resampling.
        resamples: Number of resampled collections for the interval of the rate.
        trust: Match probability of each pair by evidence that saw neither the fold nor the pair, (folds, n); 1 for the
            pairs of the fold; None trusts every pair.
    """

    fold: Ints
    seed: int
    resamples: int
    trust: Reals | None = None


def draw_foldings(judged: JudgedPairs, seed: int, fold: Ints | None = None) -> Iterator[Folding]:
    """Yield the given division into folds, or one to five that are drawn; `judge_pairs` says how many."""
    number = 1 if fold is not None else int(np.clip(round(AVERAGED_PAIRS / max(1, len(judged))), 1, 5))
    for folding in range(number):
        fold_of = fold
        if fold_of is None:
            fold_of = make_folds(*judged.units(5 if len(judged) >= 1000 else 10), seed + 7919 * folding)
        trust = _trust(judged, fold_of, seed + folding)
        yield Folding(fold_of, seed + folding, RESAMPLES // number, trust)


def mean_judgement(judgements: Sequence[Judgement], judged: JudgedPairs) -> Judgement:
    """Return the mean of the judgements about the same pairs by several divisions; the folds are those of the first.

    The other pairs have a rate of their own where they have one in each division, and near captions an AUROC where some
    division has one.
    """
    rate, low, high, auroc = np.mean(
        [(judgement.rate, judgement.low, judgement.high, judgement.auroc) for judgement in judgements], axis=0
    ).tolist()
    near = [judgement.near_auroc for judgement in judgements if judgement.near_auroc is not None]
    probability = np.mean([judgement.probability for judgement in judgements], axis=0)
    other_rates = [judgement.rate_outside_train for judgement in judgements if judgement.rate_outside_train is not None]
    others = float(np.mean(other_rates)) if len(other_rates) == len(judgements) else None
    names = dict.fromkeys(name for judgement in judgements for name in judgement.detectors)
    detectors = {
        name: np.mean([judgement.detectors[name] for judgement in judgements if name in judgement.detectors], axis=0)
        for name in names
    }
    near_mean = float(np.mean(near)) if near else None
    below = float(np.mean([judgement.below_near for judgement in judgements]))
    fold_of, group = judgements[0].fold, judged.group_of
    return Judgement(
        probability,
        rate,
        low,
        high,
        auroc,
        fold_of,
        others,
        detectors,
        group,
        near_mean,
        below,
        placeholder=judgements[0].placeholder,
    )


def with_finite_vectors(judged: JudgedPairs) -> JudgedPairs:
    """Replace vectors with values that are not finite by the mean of the others, which is no evidence."""
    return replace(judged, images=_finite(judged.images), captions=_finite(judged.captions))


def _finite(vectors: Vectors) -> Vectors:
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
        part = judged.subset(rest)
        units, number = part.units(INNER_FOLDS)
        if number >= 2:
            inner = make_folds(units, number, seed + 1)
            folds = Folds.make(part.image_of, part.group_of, part.texts, inner, seed)
            evidence = combine_with_siblings(folds, *kinds_of(part, folds, seed), part.in_train, seed)
            trust[held_out, rest] = calibrate_sides(evidence, part.in_train, seed, 0)[0].probability
    return trust


def judge_foldings(judged: JudgedPairs, parts: Sequence[Folding], networks: Networks | None = None) -> list[Judgement]:
    """Return the judgement about the pairs by each division into folds.

    The placeholders of several divisions are those of all together, found by the evidence without the other captions of
    an image. A single division finds its own, by all its evidence.
    """
    fits = [
        Folds.make(judged.image_of, judged.group_of, judged.texts, part.fold, part.seed, judged.captions)
        for part in parts
    ]
    if len(parts) > 1 and have_common(fits[0]):
        kinds = [kinds_of(judged, folds, part.seed, part.trust)[0] for folds, part in zip(fits, parts, strict=True)]
        found = find_placeholders(
            fits, [combine(folds, [*one.values()]) for folds, one in zip(fits, kinds, strict=True)]
        )
        fits = [replace(folds, placeholder=found) for folds in fits]
    return [_judge(judged, part, folds, networks) for part, folds in zip(parts, fits, strict=True)]


def _judge(judged: JudgedPairs, folding: Folding, folds: Folds, networks: Networks | None) -> Judgement:
    seed, in_train = folding.seed, judged.in_train
    kinds, models = kinds_of(judged, folds, seed, folding.trust, networks)
    evidence = combine_with_siblings(folds, kinds, models, in_train, seed)
    calibration, group = calibrate_sides(evidence, in_train, seed, folding.resamples)
    near = near_auroc(evidence, folds.near_decoy_images, calibration.probability)
    judgement = judgement_of(calibration, group, folding.fold, kinds, near)
    return replace(judgement, placeholder=evidence.placeholder)


def judgement_of(
    calibration: Calibration, group: int, fold: Ints, kinds: Mapping[str, Evidence], near: float | None = None
) -> Judgement:
    """Return the judgement that a calibration says; `group` is that of the training pairs (`calibrate_sides`)."""
    rate, low, high = (float(ends[group]) for ends in (calibration.rates, calibration.low, calibration.high))
    others = float(calibration.rates[0]) if group else None
    detectors = {name: decoy_quantile(kind) for name, kind in kinds.items()}
    return Judgement(
        calibration.probability, rate, low, high, calibration.auroc, fold, others, detectors=detectors, near_auroc=near
    )


def kinds_of(
    judged: JudgedPairs, folds: Folds, seed: int, trust: Reals | None = None, networks: Networks | None = None
) -> tuple[dict[str, Evidence], dict[str, PairEncoder]]:
    """Return the kinds of evidence without the other captions of an image, and the codes of some of them, by name.

    Codes are those of the kinds whose images and captions share a space.

    Args:
        judged: The pairs.
        folds: Their folds and the decoys.
        seed: Seed of the references.
        trust: Weight of each pair in the models without each fold, (folds, n); None trusts every pair.
        networks: Codes of networks, as `judge_pairs` describes them.
    """
    models = {"linear": canonical_encoder(folds, judged.images, judged.captions, trust)}
    if judged.aligned is not None:
        images, captions = (torch.from_numpy(vectors) for vectors in judged.aligned)
        models["cosine"] = lambda fold, members: (images[members], captions[members])
    if networks is not None and trust is not None:
        models["networks"] = networks(folds, trust)
    kinds = {name: contrast(folds, encode, seed) for name, encode in models.items()}
    by_neighbours = neighbour_evidence(folds, judged.images, judged.captions, seed, trust)
    return kinds | dict(zip(("near_images", "near_captions"), by_neighbours, strict=True)), models


def near_auroc(evidence: Evidence, given: Ints, probability: Reals) -> float | None:
    """Return the share of cases in which a matching pair has more evidence than a near decoy, ties as one half.

    Pairs count by their match probability. So do near decoys, by that of the pair whose image they have: only a caption
    that replaces a right one is as near as it reads.

    Args:
        evidence: Evidence of the pairs, (n,), and of near decoys, (k,); nan is left out.
        given: Pair that each near decoy has the image of, (k,).
        probability: Match probability of each pair, [0, 1], (n,).

    Returns:
        [0, 1]; None without near decoys, or where no pair matches.
    """
    known = np.flatnonzero(np.isfinite(evidence.near_decoys))
    weight, decoys = probability[given[known]], evidence.near_decoys[known]
    if not weight.sum() or not probability.sum():
        return None
    order = np.argsort(decoys, kind="stable")
    values, below = decoys[order], np.concatenate([[0.0], np.cumsum(weight[order])])
    less, up_to = (below[np.searchsorted(values, evidence.pairs, side)] for side in ("left", "right"))
    return float(probability @ (less + up_to) / 2 / below[-1] / probability.sum())
