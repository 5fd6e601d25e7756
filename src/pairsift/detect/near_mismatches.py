"""Match probabilities about captions of any other images, and about captions that read like the right ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import hypot

import numpy as np

from pairsift.arrays import Bools, Floats, Ints, Reals
from pairsift.detect.calibration import calibrate_sides, decoy_quantile
from pairsift.detect.combination import combine_by_rate, combine_with_siblings
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, draw_swaps
from pairsift.detect.judged_pairs import JudgedPairs, with_finite_vectors
from pairsift.detect.judgement import (
    SHIPPED,
    Folding,
    Judgement,
    Networks,
    Progress,
    judge_divisions,
    judgement_of,
    kinds_of,
    mean_judgement,
    no_progress,
)
from pairsift.detect.options import DetectOptions

Memory = Callable[[Folds, Ints], Evidence]


def judge_near_mismatches(
    judged: JudgedPairs,
    vectors: Floats,
    seed: int,
    memory: Memory,
    fold: Ints | None = None,
    networks: Networks | None = None,
    options: DetectOptions = SHIPPED,
    progress: Progress = no_progress,
) -> Judgement:
    """Judge every pair beside captions of any images, and the pairs that fit once more beside near captions.

    A pair fits where its match probability beside captions of any images is at least one half. It is judged again
    beside swaps (`draw_swaps`) of such pairs. The swaps must fit too: they have as much of the first evidence as the
    least of the pairs that fit. Without this, near mismatches, which passed the first judgement, would be compared with
    captions that it would have taken out. Where fewer than 50 swaps fit in a division into folds, or near captions
    cannot be told, the judgement stays about captions of any images.

    Args:
        judged: The pairs.
        vectors: Vector of each pair's caption, (n, c), which says what captions are near.
        seed: Seed of folds, decoys and resampling.
        memory: Function from the folds and swaps of some pairs, and the rows of these pairs, to the evidence of
            networks that learned the pairs, and learned the swaps like them (`memory_evidence`).
        fold: Fold of each pair, (n,); by default they are drawn, as `judge_pairs` does.
        networks: Encoder by networks, as `judge_pairs` describes it.
        options: The options of the detector.
        progress: Progress of the judgement beside captions of any images, as for `judge_pairs`.
    """
    judged, limits = with_finite_vectors(judged), options.near_mismatches
    foldings, judged_by = judge_divisions(judged, seed, fold, networks, options, progress)
    judgements = [judgement for judgement, _ in judged_by]
    judgement = mean_judgement(judgements, judged.verified, judged.group_of)
    joined, near = [], []
    for folding, first in zip(foldings, judgements, strict=True):
        kept = np.flatnonzero(first.probability >= limits.min_probability).astype(np.int64)
        found = None
        if judgement.verdicts and judged.in_train[kept].sum() >= options.verdicts.min_pairs:
            found = _judge_near(judged, vectors, folding, first, kept, networks, memory, options)
        if found is None:
            return replace(judgement, near_auroc=None, counts_near=False)
        near.append(found)
        joined.append(join(first, found, kept, judged.in_train))
    both = mean_judgement(joined, judged.verified, judged.group_of)
    auroc, high = (float(np.mean([getattr(one, name) for one in near])) for name in ("auroc", "high"))
    verdicts = options.verdicts
    counted = verdicts.are_met(auroc, high) and both.verdicts and both.below_near <= verdicts.max_below_near
    judgement = both if counted else judgement
    return replace(judgement, near_auroc=auroc, below_near=both.below_near, counts_near=counted)


def _judge_near(
    judged: JudgedPairs,
    vectors: Floats,
    folding: Folding,
    judgement: Judgement,
    kept: Ints,
    networks: Networks | None,
    memory: Memory,
    options: DetectOptions,
) -> Judgement | None:
    """Return the judgement about the kept pairs beside near captions; None where too few swaps fit.

    `judgement` is about all pairs and captions of any images, by this division.
    """
    part, seed, fold = judged.subset(kept), folding.seed, folding.fold[kept]
    # Pairs of placeholders are not kept, so that none is sought among these.
    swaps = draw_swaps(part.image_of, part.group_of, part.text_of, fold, seed, options, vectors[kept])
    swaps = replace(swaps, placeholder=np.zeros(0, np.int64))
    # The evidence that all pairs, and the swaps as near decoys, have beside captions of any images.
    folds = Folds.make(judged.image_of, judged.group_of, judged.text_of, folding.fold, seed, options.decoys)
    near = {"near_decoy_images": kept[swaps.decoy_images], "near_decoy_captions": kept[swaps.decoy_captions]}
    folds = replace(folds, **near, placeholder=judgement.placeholder)
    held_out, models = kinds_of(judged, folds, seed, options, folding.trust, networks)
    first, *_ = combine_with_siblings(folds, held_out, models, judged.in_train, seed, options)
    # The swaps that fit as well as the kept pairs.
    side = judged.in_train if judgement.rate_outside_train is not None else np.ones(len(judged), np.bool_)
    fitting = _fitting(first, kept, folds.near_decoy_images, side)
    if fitting.sum() < options.near_mismatches.min_swaps:
        return None
    # Beside these, the kept pairs are judged by the same evidence, and by what networks learned.
    kinds = {name: Evidence(kind.pairs[kept], kind.near_decoys) for name, kind in held_out.items()}
    kinds["memory"] = memory(swaps, kept)
    swaps, kinds = _only(swaps, kinds, fitting)
    evidence = _combine_matching(swaps, kinds, part.in_train, seed, options)
    calibration, group = calibrate_sides(evidence, part.in_train, seed, folding.resamples, options.calibration)
    low = decoy_quantile(evidence)[part.in_train] < options.near_mismatches.low_quantile
    found = judgement_of(calibration, group, fold, kinds, options.verdicts)
    return replace(found, below_near=float(low.mean()))


def _fitting(first: Evidence, kept: Ints, given: Ints, side: Bools) -> Bools:
    """Return whether each near decoy has as much evidence as some kept pair on the same side of the split, (k,).

    `given` is the pair that each near decoy has the image of, (k,), and `side` says on which side of the split each
    pair is, (n,), all on one where both sides have one rate.
    """
    least = [first.pairs[kept[side[kept] == one]].min(initial=np.inf) for one in (False, True)]
    return np.asarray(first.near_decoys >= np.array(least)[side[given].astype(np.int64)])


def _only(swaps: Folds, kinds: Mapping[str, Evidence], chosen: Bools) -> tuple[Folds, dict[str, Evidence]]:
    """Return only the chosen decoys."""
    images, captions = swaps.decoy_images[chosen], swaps.decoy_captions[chosen]
    part = replace(swaps, decoy_images=images, decoy_captions=captions, copies=swaps.copies[chosen])
    return part, {name: Evidence(kind.pairs, kind.decoys[chosen]) for name, kind in kinds.items()}


def _combine_matching(
    swaps: Folds, kinds: Mapping[str, Evidence], in_train: Bools, seed: int, options: DetectOptions
) -> Evidence:
    """Combine kinds of evidence beside swaps that are made of the images of matching pairs.

    A caption that is near a wrong one is not near the right one. So a swap is kept with the match probability of the
    pair whose image it has, by the evidence before, first beside all swaps. This is repeated.
    """
    drawn = np.random.default_rng((seed, 17)).random(len(swaps.decoy_images))
    evidence, _ = combine_by_rate(swaps, kinds, in_train, seed, options)
    for _ in range(options.near_mismatches.rounds):
        probability = calibrate_sides(evidence, in_train, seed, 0, options.calibration)[0].probability
        kept = drawn < probability[swaps.decoy_images]
        if not kept.any():
            break
        evidence, _ = combine_by_rate(*_only(swaps, kinds, kept), in_train, seed, options)
    return evidence


def join(judgement: Judgement, near: Judgement, kept: Ints, in_train: Bools) -> Judgement:
    """Return the judgement about both kinds of mismatches.

    A pair that was taken out keeps its probability, and a kept pair has the one beside near captions. The rate is the
    sum over both parts, and the errors of both kinds are joined as independent.

    Args:
        judgement: Judgement of all pairs, about captions of any other images, (n,).
        near: Judgement of the kept pairs, about near captions, (k,).
        kept: Row of each kept pair among all pairs, (k,).
        in_train: Whether each pair is a training pair, (n,).
    """
    probability = judgement.probability.copy()
    probability[kept] = near.probability
    is_kept = np.isin(np.arange(len(probability)), kept)

    def joined(side: Bools, rate: float) -> float:
        out = float((1 - probability[side & ~is_kept]).sum() + rate * (side & is_kept).sum())
        return out / max(1, int(side.sum()))

    rate, others = joined(in_train, near.rate), None
    if near.rate_outside_train is not None or judgement.rate_outside_train is not None:
        others = joined(~in_train, near.rate if near.rate_outside_train is None else near.rate_outside_train)
    part = float(is_kept[in_train].mean()) if in_train.any() else 1.0
    below = hypot(part * (near.rate - near.low), judgement.rate - judgement.low)
    above = hypot(part * (near.high - near.rate), judgement.high - judgement.rate)
    memory: Reals = np.zeros(len(probability))
    memory[kept] = near.detectors["memory"]
    return replace(
        judgement,
        probability=probability,
        rate=rate,
        low=max(0.0, rate - below),
        high=min(1.0, rate + above),
        rate_outside_train=others,
        detectors={**judgement.detectors, "memory": memory},
        below_near=near.below_near,
    )
