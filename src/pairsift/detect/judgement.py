"""Match probabilities of pairs, from models that were not trained on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pairsift.arrays import Array, Bools, Floats, Ints, Reals
from pairsift.detect.calibration import Calibration, calibrate_sides, decoy_quantile
from pairsift.detect.combination import combine, combine_with_siblings
from pairsift.detect.evidence import Evidence, PairEncoder, contrast
from pairsift.detect.fitted import FittedDivision, Models
from pairsift.detect.folds import Folds, make_folds
from pairsift.detect.judged_pairs import JudgedPairs, with_finite_vectors, with_verified
from pairsift.detect.options import DetectOptions, VerdictOptions
from pairsift.detect.placeholders import find_placeholders, have_common

SHIPPED = DetectOptions()
FEW = 2000  # fewer pairs are judged with one thread
Networks = Callable[[Folds, Reals], PairEncoder]
Progress = Callable[[int], AbstractContextManager[Callable[[int], object]]]


def no_count(count: int) -> None:
    """Take no notice of what is done."""


def no_progress(total: int) -> AbstractContextManager[Callable[[int], object]]:
    """Show no progress."""
    return nullcontext(no_count)


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
            images joined with their other captions. `memory` counts as 0 where a division into folds took a pair out
            for a caption of any other image.
        group: Group of near-duplicate images of each pair, (n,); None if it is not known.
        near_auroc: AUROC with which the evidence separates matching pairs from near decoys, whose captions read like
            the given ones, [0, 1]; None where there are none (`near_decoy_auroc`).
        below_near: Share of the training pairs judged beside near captions that have less evidence than 95% of the
            near decoys, [0, 1]; 0 where none are. Above 0.05 there are captions of any images among them.
        counts_near: Whether near captions are counted too (`judge_near_mismatches`); None where they are not expected.
        placeholder: Number of the placeholder that each pair has, an image or a caption that is common to many and fits
            them no better than others (`pairsift.detect.placeholders`), -1 for none, (n,); empty if there is none.
        limits: What verdicts need.
    """

    probability: Reals
    rate: float
    low: float
    high: float
    auroc: float
    fold: Ints
    rate_outside_train: float | None = None
    detectors: Mapping[str, Reals | Floats] = field(default_factory=dict)
    group: Ints | None = None
    near_auroc: float | None = None
    below_near: float = 0.0
    counts_near: bool | None = None
    placeholder: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    limits: VerdictOptions = field(default_factory=VerdictOptions)

    def subset(self, rows: Ints) -> Judgement:
        """Return the judgement of the pairs in these rows; the rates stay those of all, and so does the verdict."""
        enough = len(self.probability) >= self.limits.min_pairs
        return replace(
            self,
            limits=replace(self.limits, min_pairs=0) if enough else self.limits,
            probability=self.probability[rows],
            fold=self.fold[rows],
            detectors={name: values[rows] for name, values in self.detectors.items()},
            group=None if self.group is None else self.group[rows],
            placeholder=self.placeholder[rows] if len(self.placeholder) else self.placeholder,
        )

    @property
    def in_placeholder(self) -> Bools:
        """Whether each pair has a placeholder, (n,); empty if none has."""
        return self.placeholder >= 0

    @property
    def verdicts(self) -> bool:
        """Whether the evidence is sufficient for verdicts.

        Verdicts need at least 100 pairs, an expected AUROC A of at least 0.8, and enough pairs that differ from random
        ones: (1 - high) (2 A - 1) of at least 0.11, with the upper end of the rate's interval. This is 2 A' - 1 for the
        AUROC A' of all pairs against random ones. Where it is less, the encoders may not understand the collection.
        """
        return len(self.probability) >= self.limits.min_pairs and self.limits.are_met(self.auroc, self.high)


def judge_pairs(
    judged: JudgedPairs,
    seed: int,
    fold: Ints | None = None,
    networks: Networks | None = None,
    options: DetectOptions = SHIPPED,
    progress: Progress = no_progress,
) -> Judgement:
    """Judge every pair by evidence from models that were not trained on it.

    The kinds of evidence are ridge canonical correlation, the nearest images and captions, the cosine where encoders
    share a space, networks if there are any, and for images joined with their other captions once more the canonical
    correlation, the cosine and the networks; `combine` weighs them.

    The models that judge a fold are trained on the other pairs. Each of these pairs is weighted by its match
    probability, which comes from the same kinds of evidence, computed without networks and without the fold. The other
    captions of an image are no evidence where whole images are mismatched, that is, where the probabilities of an
    image's captions correlate by 0.5 or more. If `fold` is None, the result is a mean over about 3,000 / n divisions
    into folds, at least one and at most five.

    Without networks, the models of a fold are trained on at most 20,000 pairs, which are drawn by whole images.

    Args:
        judged: The pairs.
        seed: Seed of folds, decoys and resampling.
        fold: Fold of each pair, (n,); by default they are drawn: ten folds, five from 1,000 pairs on, and fewer from
            25,000 pairs on, at least two.
        networks: Function from the folds and the trust, (folds, n), to an encoder by networks, each of them trained
            without one fold. The trust in a pair is its match probability by evidence that did not see the fold.
        options: The options of the detector.
        progress: Function from a number of models to a context that gives a function to count those that are done; the
            networks are not among them.
    """
    judged = with_finite_vectors(judged)
    with nullcontext() if networks else with_few_threads(len(judged)):
        _, judgements = judge_divisions(judged, seed, fold, networks, options, progress)
    return mean_judgement([judgement for judgement, _ in judgements], judged.verified, judged.group_of)


@contextmanager
def with_few_threads(pairs: int) -> Iterator[None]:
    """Let torch and BLAS compute with one thread where pairs are few.

    Waking another thread takes longer than small matrices do.
    """
    if pairs >= FEW:
        yield
        return
    threads = torch.get_num_threads()
    with threadpool_limits(1, "blas"):
        try:
            torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)


@dataclass(frozen=True)
class Folding:
    """One division of the pairs into folds.

    Attributes:
        fold: Fold of each pair, (n,).
        seed: Seed of decoys and resampling.
        resamples: Number of resampled collections for the interval of the rate.
        trust: Match probability of each pair by evidence that saw neither the fold nor the pair, (folds, n); 0 for the
            pairs of the fold and others that its models are not trained on; None trusts every pair.
    """

    fold: Ints
    seed: int
    resamples: int
    trust: Reals | None = None


def judge_divisions(
    judged: JudgedPairs,
    seed: int,
    fold: Ints | None = None,
    networks: Networks | None = None,
    options: DetectOptions = SHIPPED,
    progress: Progress = no_progress,
) -> tuple[list[Folding], list[tuple[Judgement, FittedDivision]]]:
    """Divide the pairs into folds, once or up to five times, and judge them by each division, as `judge_pairs` does.

    Returns:
        The divisions, and by division the judgement and what was learned.
    """
    divisions = draw_divisions(judged, seed, options, fold)
    number = sum(int(fold_of.max()) + 1 for fold_of in divisions)
    foldings, resamples = [], options.calibration.resamples // len(divisions)
    most = options.folds.max_learned if networks is None else len(judged)
    with progress(number * (options.folds.inner_folds + (networks is None))) as count:
        for row, fold_of in enumerate(divisions):
            trust = trust_without_folds(judged, fold_of, seed + row, most, options, count)
            foldings.append(Folding(fold_of, seed + row, resamples, trust))
        if networks is None:
            return foldings, judge_foldings(judged, foldings, options, count=count)
    return foldings, judge_foldings(judged, foldings, options, networks)


def draw_divisions(judged: JudgedPairs, seed: int, options: DetectOptions, fold: Ints | None = None) -> list[Ints]:
    """Return the fold of each pair, (n,), in the given division or in one to five; `judge_pairs` says how many."""
    if fold is not None:
        return [fold]
    number, most = options.folds.divisions(len(judged))
    return [make_folds(*judged.units(most, options.folds), seed + 7919 * row) for row in range(number)]


def mean_judgement(judgements: Sequence[Judgement], verified: Bools, group: Ints | None) -> Judgement:
    """Return the mean of the judgements about the same pairs by several divisions; the folds are the first one's.

    The other pairs have a rate of their own where they have one in each division, and near captions an AUROC where some
    division has one.

    Args:
        judgements: The judgements.
        verified: Whether each pair is known to match, (n,); empty where nothing is known.
        group: Group of near-duplicate images of each pair, (n,); None if it is not known.
    """

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in judgements]))

    other_rates = [one.rate_outside_train for one in judgements if one.rate_outside_train is not None]
    near = [one.near_auroc for one in judgements if one.near_auroc is not None]
    names = dict.fromkeys(name for one in judgements for name in one.detectors)
    return replace(
        judgements[0],
        probability=with_verified(_mean([one.probability for one in judgements]), verified),
        rate=mean("rate"),
        low=mean("low"),
        high=mean("high"),
        auroc=mean("auroc"),
        rate_outside_train=float(np.mean(other_rates)) if len(other_rates) == len(judgements) else None,
        detectors={name: _mean([one.detectors[name] for one in judgements if name in one.detectors]) for name in names},
        group=group,
        near_auroc=float(np.mean(near)) if near else None,
        below_near=mean("below_near"),
        counts_near=None,
    )


def _mean(values: Sequence[Array]) -> Array:
    return values[0] if len(values) == 1 else np.asarray(np.mean(values, axis=0))


def trust_without_folds(
    judged: JudgedPairs,
    fold: Ints,
    seed: int,
    most: int,
    options: DetectOptions,
    count: Callable[[int], object] = no_count,
) -> Reals:
    """Return the trust in each pair without each fold, (folds, n).

    It is the match probability by evidence that saw neither the fold nor the pair, for at most `most` pairs of whole
    images, and 0 for the pairs of the fold and the others. `count` is told of the models of each fold that is done.
    """
    trust = np.zeros((int(fold.max()) + 1, len(judged)))
    decoys = replace(options.decoys, number=options.decoys.number_for_trust)
    for held_out in range(len(trust)):
        rest = _whole_images(np.flatnonzero(fold != held_out).astype(np.int64), judged.image_of, most, seed)
        part = judged.subset(rest)
        units, number = part.units(options.folds.inner_folds, options.folds)
        trust[held_out, rest] = 1
        if number >= 2:
            inner = make_folds(units, number, seed + 1)
            folds = Folds.make(part.image_of, part.group_of, part.text_of, inner, seed, decoys)
            kinds, models = kinds_of(part, folds, seed, options)
            evidence, *_ = combine_with_siblings(folds, kinds, models, part.in_train, seed, options)
            calibration, _ = calibrate_sides(evidence, part.in_train, seed, 0, options.calibration)
            trust[held_out, rest] = with_verified(calibration.probability, part.verified)
        count(options.folds.inner_folds)
    return trust


def _whole_images(rows: Ints, image_of: Ints, most: int, seed: int) -> Ints:
    """Return the rows, or those of images that are drawn until there are `most`; the last image may be cut, (k,)."""
    if len(rows) <= most:
        return rows
    image = np.unique(image_of[rows], return_inverse=True)[1]
    place = np.random.default_rng((seed, 18)).permutation(int(image.max()) + 1)[image]
    return np.sort(rows[np.argsort(place, kind="stable")[:most]])


def judge_foldings(
    judged: JudgedPairs,
    foldings: Sequence[Folding],
    options: DetectOptions,
    networks: Networks | None = None,
    count: Callable[[int], object] = no_count,
) -> list[tuple[Judgement, FittedDivision]]:
    """Return the judgement about the pairs by each division into folds, and what was learned.

    The placeholders of several divisions are found by all together, by the evidence without the other captions of an
    image. A single division finds its own, by all its evidence. `count` is told of the models of each division that is
    done, one a fold.
    """
    pairs = judged.image_of, judged.group_of, judged.text_of
    divided = [Folds.make(*pairs, one.fold, one.seed, options.decoys, judged.captions) for one in foldings]
    if len(foldings) > 1 and have_common(divided[0], options):
        combined = []
        for one, folds in zip(foldings, divided, strict=True):
            kinds, _ = kinds_of(judged, folds, one.seed, options, one.trust)
            combined.append(combine(folds, [*kinds.values()], options.combination.max_decoys))
        placeholder = find_placeholders(divided, combined, options)
        divided = [replace(folds, placeholder=placeholder) for folds in divided]
    found = []
    for one, folds in zip(foldings, divided, strict=True):
        found.append(_judge(judged, one, folds, options, networks))
        count(folds.count)
    return found


def _judge(
    judged: JudgedPairs, folding: Folding, folds: Folds, options: DetectOptions, networks: Networks | None
) -> tuple[Judgement, FittedDivision]:
    seed, in_train = folding.seed, judged.in_train
    models = Models.fit(judged, folds, seed, options, folding.trust)
    kinds, encoders = kinds_of(judged, folds, seed, options, folding.trust, networks, models)
    evidence, first, rounds = combine_with_siblings(folds, kinds, encoders, in_train, seed, options)
    calibration, group = calibrate_sides(evidence, in_train, seed, folding.resamples, options.calibration)
    near = near_decoy_auroc(evidence, folds.near_decoy_images, calibration.probability)
    judgement = judgement_of(calibration, group, folding.fold, kinds, options.verdicts)
    of_group = np.zeros(int(judged.group_of.max(initial=-1)) + 1, np.int64)
    of_group[judged.group_of] = folding.fold
    images = int(judged.image_of.max(initial=-1)) + 1
    fitted = FittedDivision(of_group, models, kinds, first, rounds, evidence, images, options)
    return replace(judgement, near_auroc=near, placeholder=evidence.placeholder), fitted


def judgement_of(
    calibration: Calibration, group: int, fold: Ints, kinds: Mapping[str, Evidence], limits: VerdictOptions
) -> Judgement:
    """Make the judgement from a calibration. `group` is the group of the training pairs (`calibrate_sides`)."""
    return Judgement(
        calibration.probability,
        float(calibration.rates[group]),
        float(calibration.low[group]),
        float(calibration.high[group]),
        calibration.auroc,
        fold,
        rate_outside_train=float(calibration.rates[0]) if group else None,
        detectors={name: decoy_quantile(kind) for name, kind in kinds.items()},
        limits=limits,
    )


def kinds_of(
    judged: JudgedPairs,
    folds: Folds,
    seed: int,
    options: DetectOptions,
    trust: Reals | None = None,
    networks: Networks | None = None,
    models: Models | None = None,
) -> tuple[dict[str, Evidence], dict[str, PairEncoder]]:
    """Return the kinds of evidence from single captions, and the encoders of some of them, by name.

    Encoders are given for the kinds whose images and captions share a space.

    Args:
        judged: The pairs.
        folds: Their folds and the decoys.
        seed: Seed of the references.
        options: References, linear model and neighbours.
        trust: Weight of each pair in the models without each fold, (folds, n); None trusts every pair.
        networks: Encoder by networks, as `judge_pairs` describes it.
        models: The models, where they are fitted.
    """
    models = models or Models.fit(judged, folds, seed, options, trust)
    shared = models.shared(judged)
    if networks is not None and trust is not None:
        shared["networks"] = networks(folds, trust)
    encoders = shared | models.predicted(judged)
    return {name: contrast(folds, encode, seed, options) for name, encode in encoders.items()}, shared


def near_decoy_auroc(evidence: Evidence, given: Ints, probability: Reals) -> float | None:
    """Return how often a matching pair has more evidence than a near decoy, ties as one half.

    Pairs count by their match probability. Near decoys count by the probability of the pair whose image they have: only
    a caption that replaces a right one is as near as it reads.

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
