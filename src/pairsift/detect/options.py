"""The options of the detector: what each means, and how its value was chosen.

"Tried on three kinds of collections" stands for photographs, small pictures and drawn scenes with 0 to 60% of the
captions shuffled, where the value of one option was chosen on two kinds and reported on the third
(`benchmarks/constants.py`). Shipped values cost there at most 0.013 of one less the AUROC plus the error of the rate.
A value without such a note is a judgement of its author, or bounds time and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

ANY = float("-inf")
LEAST = {  # smallest values of options; of others, 1 for whole numbers and 0 for the rest
    **dict.fromkeys(("folds", "inner_folds", "folds_of_many", "max_folds"), 2),
    **dict.fromkeys(("max_log_ratio", "max_below_near", "steepness_mean"), ANY),
    "rounds": 0,
}


@dataclass(frozen=True)
class FoldOptions:
    """How pairs are put into folds, and what counts as one image.

    Attributes:
        near_duplicate_cosine: Smallest cosine of the centred vectors of two images that are near-duplicates.
        max_group_share: Largest share of the images in a group of near-duplicates. A larger group is dissolved, since
            the encoder does not distinguish its images.
        min_common: Smallest number of pairs with which an image or a caption is common.
        max_kept_share: Largest share of the pairs that one image may have and still be kept in one fold.
        folds: Number of folds of few pairs.
        folds_of_many: Number of folds of many pairs.
        many_pairs: Number of pairs from which on they are many.
        inner_folds: Number of folds of the pairs that a fold's models are trained on, for the trust in these pairs.
        max_learned: Largest number of pairs that the models of a fold are trained on, networks apart. Seen on 39,990
            pairs of photographs alone (`benchmarks/research/trials.md`).
        averaged_pairs: Approximate number of pairs, summed over the divisions into folds that are averaged: up to
            2,000 pairs are divided more than once.
        max_foldings: Largest number of divisions into folds.
    """

    near_duplicate_cosine: float = 0.9
    max_group_share: float = 0.1
    min_common: int = 20
    max_kept_share: float = 0.4
    folds: int = 10
    folds_of_many: int = 5
    many_pairs: int = 1000
    inner_folds: int = 3
    max_learned: int = 20_000
    averaged_pairs: int = 3000
    max_foldings: int = 5

    def divisions(self, pairs: int) -> tuple[int, int]:
        """Return how often this number of pairs is divided into folds, and into how many at most.

        Two folds are enough where half of the pairs are as many as a model is trained on.
        """
        number = min(max(round(self.averaged_pairs / max(1, pairs)), 1), self.max_foldings)
        if pairs < self.many_pairs:
            return number, self.folds
        beside = max(1, pairs - self.max_learned)  # pairs of a fold, whose models have enough to learn from
        return number, min(self.folds_of_many, max(2, round(pairs / beside)))


@dataclass(frozen=True)
class DecoyOptions:
    """How many mismatched pairs are made to compare with, and what counts as a caption that reads like another.

    Attributes:
        number: Approximate number of decoys.
        number_for_trust: Approximate number of decoys where only the trust in pairs is sought.
        max_per_pair: Largest number of decoys of a pair.
        max_near_per_pair: Largest number of near decoys of a pair.
        near_share: Share of the captions of a fold, the nearest ones, that read like a caption.
        min_candidates: Smallest number of captions of a fold for near decoys.
        max_candidates: Largest number of captions of a fold among which near ones are sought.
    """

    number: int = 20_000
    number_for_trust: int = 5_000
    max_per_pair: int = 200
    max_near_per_pair: int = 10
    near_share: float = 0.01
    min_candidates: int = 50
    max_candidates: int = 20_000


@dataclass(frozen=True)
class ContrastOptions:
    """The level that an image and a caption reach with references.

    Attributes:
        scale: Inverse temperature s of the references. Tried on three kinds of collections: 10 is better by 0.003 to
            0.006 on each.
        references: Largest number of pairs that every image and caption of a fold is compared with.
        min_references: Smallest number of pairs in a fold that are sufficient as references. A smaller fold is compared
            with pairs of all folds.
    """

    scale: float = 20.0
    references: int = 1024
    min_references: int = 50


@dataclass(frozen=True)
class LinearOptions:
    """Ridge canonical correlation.

    Attributes:
        directions: Largest number of canonical directions. Tried on three kinds of collections: 64 to 256 differ by at
            most 0.002.
        ridge: Share of the largest eigenvalue that is added to all. Tried on three kinds of collections: 0.3 is better
            by 0.004 and 0.005 on two, worse by 0.001 on one.
        full_ridge_weight: Total weight of the pairs above which the ridge falls with the square root of the weight.
            Kept after photographs, emoji and scenes of another seed.
        max_width: Number of principal components to which wider features are first reduced. Twice as many for images
            gained 0.0004 of AUROC on Flickr8k at 80%.
        max_rows: Largest number of rows, evenly spaced, that principal components are computed from.
    """

    directions: int = 128
    ridge: float = 0.1
    full_ridge_weight: float = 2000
    max_width: int = 320
    max_rows: int = 50_000


@dataclass(frozen=True)
class NeighbourOptions:
    """The predictions from the nearest pairs of other folds.

    Attributes:
        count: Number of nearest pairs. Tried on three kinds of collections: 60 is better by up to 0.003.
        sharpness: Inverse temperature of the neighbours' weights. Tried on three kinds of collections: best on emoji
            and scenes; another value is better by 0.013 on photographs.
        max_keys: Largest number of pairs, drawn once for each fold, among which neighbours are sought. With 20,000, of
            40,000 photographs' pairs at 40% AUROC was .9935 for .9934, in twice the time; of 10,000 at 30%, .9938 for
            .9937; of 8,000 drawn scenes', .9990 for .9990.
    """

    count: int = 30
    sharpness: float = 5.0
    max_keys: int = 4096


@dataclass(frozen=True)
class SiblingOptions:
    """Images that are joined with their other captions.

    Attributes:
        weight: Weight of a caption that surely matches, beside the image. Photographs and scenes, each alone, chose 2
            or 4 (`benchmarks/research/random.md`); from 1 to 4 the evidence hardly differed.
        rounds: Number of times that images are joined with their captions. A third one changed hardly anything.
        max_agreement: Correlation of siblings' probabilities from which on whole images count as mismatched together,
            so that siblings are no evidence.
        min_share: Smallest share of pairs with siblings at which siblings are evidence; for fewer, they would not pay
            for their time.
    """

    weight: float = 2.0
    rounds: int = 2
    max_agreement: float = 0.5
    min_share: float = 0.05


@dataclass(frozen=True)
class CombinationOptions:
    """The weights of the kinds of evidence.

    Attributes:
        max_decoys: From twice this number of decoys on, weights are fitted on a part of them, evenly spaced.
        max_rate: Largest rate of mismatches with which kinds of evidence are combined.
        min_decoys_of_side: Smallest number of decoys within training pairs, and within others, to combine these apart.
    """

    max_decoys: int = 5_000
    max_rate: float = 0.9
    min_decoys_of_side: int = 20


@dataclass(frozen=True)
class CalibrationOptions:
    """The rate of mismatches, its interval, and the match probabilities.

    Attributes:
        lowest_quantile: Smallest quantile of the decoys at which the largest possible rate is sought.
        highest_quantile: Largest such quantile.
        steepness_mean: Prior mean of log(a - 1) for the steepness a of matching pairs, with a standard deviation of 1.
            The density was chosen on 13 collections (`benchmarks/research/rate.md`).
        exponent_spread: Prior standard deviation of the logit of the exponent b, with mean 0.
        equal_weight_pairs: Number of pairs at which the free and the parametric probability have the same weight.
        min_mismatches: Number of mismatched pairs that probabilities allow for where the rate is 0.
        resamples: Number of resampled collections for the interval of the rate, over all divisions into folds.
        halvings: Number of bisection steps for an end of a profile interval.
        min_pairs_of_side: Smallest number of training pairs, and of others, with separate rates. With 24 others, sides
            were taken apart without a reason more often (`benchmarks/research/rate.md`).
        side_errors: Number of standard errors from which on the shares of placeholders on both sides differ.
    """

    lowest_quantile: float = 0.1
    highest_quantile: float = 0.6
    steepness_mean: float = 0.5
    exponent_spread: float = 1.5
    equal_weight_pairs: int = 1000
    min_mismatches: float = 0.1
    resamples: int = 60
    halvings: int = 12
    min_pairs_of_side: int = 40
    side_errors: float = 3.0


@dataclass(frozen=True)
class PlaceholderOptions:
    """When an image or a caption that many pairs have in common is a placeholder.

    Attributes:
        min_decoys: Smallest number of decoys with which pairs are compared with these alone.
        max_common_share: Share of the images, or of the captions, above which it is usual to be common.
        min_rest: Smallest number of pairs without a placeholder.
        mean_errors: Number of standard errors above one half up to which the mean share of decoys is like chance.
        high_errors: Number of standard errors up to which the number of the highest shares is like chance.
        max_shift: Largest distance of the mean share above one half that is like chance.
        max_log_ratio: Logarithm of the largest likelihood ratio with which a set is unlike the other pairs.
    """

    min_decoys: int = 100
    max_common_share: float = 0.1
    min_rest: int = 100
    mean_errors: float = 3.0
    high_errors: float = 3.0
    max_shift: float = 0.1
    max_log_ratio: float = -4.0


@dataclass(frozen=True)
class NearMismatchOptions:
    """The second judgement, beside captions that read like the right ones (`benchmarks/research/near.md`).

    Attributes:
        min_probability: Smallest match probability, beside captions of any images, of the pairs that are judged again.
        copies: Number of copies of the collection. In each copy, other captions change places.
        swapped_share: Share of the captions that change places in a copy.
        min_swaps: Smallest number of swaps that fit, in every division into folds.
        rounds: Number of choices of the swaps that are made of the images of matching pairs. No number was best on
            each of photographs, scenes and emoji.
        low_quantile: Quantile of the swaps below which pairs look like captions of any images.
    """

    min_probability: float = 0.5
    copies: int = 2
    swapped_share: float = 0.2
    min_swaps: int = 50
    rounds: int = 3
    low_quantile: float = 0.05


@dataclass(frozen=True)
class NetworkOptions:
    """Networks that give evidence, one for each fold.

    Attributes:
        min_pairs: Smallest number of training pairs for which networks give evidence. They were less accurate than
            linear evidence at 800 pairs, and more accurate at 30,000.
        max_folds: Largest number of folds, with one network each. Together they cost about as much as the networks of a
            run.
    """

    min_pairs: int = 10_000
    max_folds: int = 3


@dataclass(frozen=True)
class VerdictOptions:
    """What verdicts need.

    Attributes:
        min_pairs: Smallest number of pairs.
        min_auroc: Smallest expected AUROC. A limit of 0.825 was tried and dropped: it takes right verdicts from
            captions in a language that the word vectors do not know (`benchmarks/research/rate.md`).
        min_separation: Smallest (1 - high) (2 AUROC - 1), with the upper end of the rate's interval: how far all pairs
            differ from random ones. Chosen to withhold the wrong verdicts about captions that the encoder does not
            understand (`docs/verdicts.md`).
        max_below_near: Largest share of training pairs that look worse than nearly all near captions with which these
            are counted.
    """

    min_pairs: int = 100
    min_auroc: float = 0.8
    min_separation: float = 0.11
    max_below_near: float = 0.1

    def are_met(self, auroc: float, high: float) -> bool:
        """Return whether evidence with this expected AUROC and this upper end of the rate's interval is sufficient."""
        return auroc >= self.min_auroc and (1 - high) * (2 * auroc - 1) >= self.min_separation


@dataclass(frozen=True)
class DetectOptions:
    """All options of the detector.

    Attributes:
        folds: Folds, and what counts as one image.
        decoys: Decoys, and captions that read like others.
        contrast: The level that an image and a caption reach with references.
        linear: Ridge canonical correlation.
        neighbours: Predictions from the nearest pairs.
        siblings: Images joined with their other captions.
        combination: Weights of the kinds of evidence.
        calibration: Rate, interval and match probabilities.
        placeholders: Images and captions that many pairs have in common.
        near_mismatches: The second judgement, beside captions that read like the right ones.
        networks: Networks that give evidence.
        verdicts: What verdicts need.
    """

    folds: FoldOptions = field(default_factory=FoldOptions)
    decoys: DecoyOptions = field(default_factory=DecoyOptions)
    contrast: ContrastOptions = field(default_factory=ContrastOptions)
    linear: LinearOptions = field(default_factory=LinearOptions)
    neighbours: NeighbourOptions = field(default_factory=NeighbourOptions)
    siblings: SiblingOptions = field(default_factory=SiblingOptions)
    combination: CombinationOptions = field(default_factory=CombinationOptions)
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
    placeholders: PlaceholderOptions = field(default_factory=PlaceholderOptions)
    near_mismatches: NearMismatchOptions = field(default_factory=NearMismatchOptions)
    networks: NetworkOptions = field(default_factory=NetworkOptions)
    verdicts: VerdictOptions = field(default_factory=VerdictOptions)

    def changes(self) -> dict[str, dict[str, float]]:
        """Return the options that differ from the shipped ones, by group and name."""
        found: dict[str, dict[str, float]] = {}
        for group in fields(self):
            options = getattr(self, group.name)
            changed = {one.name: getattr(options, one.name) for one in fields(options)}
            changed = {name: value for name, value in changed.items() if value != getattr(type(options), name)}
            if changed:
                found[group.name] = changed
        return found

    def changed(self, values: Mapping[str, Any]) -> DetectOptions:
        """Return these options with other values, by group and name, as `changes` returns them.

        Raises:
            ValueError: A group or a name is unknown, or a value is no number, too small, or no whole number
                where one is needed.
        """
        groups: dict[str, Any] = {}
        for group, options in values.items():
            if group not in {known.name for known in fields(self)} or not isinstance(options, Mapping):
                raise ValueError(f"there is no group of options {group!r} with such a value")
            kinds = {known.name: known.type for known in fields(getattr(self, group))}
            for name, value in options.items():
                if name not in kinds:
                    raise ValueError(f"there is no option {group}.{name}")
                if isinstance(value, bool) or not isinstance(value, int if kinds[name] == "int" else int | float):
                    raise ValueError(f"{group}.{name} is {value!r}; it must be of the type {kinds[name]}")
                least = LEAST.get(name, int(kinds[name] == "int"))
                if not value >= least:
                    raise ValueError(f"{group}.{name} is {value!r}; it must be at least {least}")
            groups[group] = replace(getattr(self, group), **options)
        return replace(self, **groups)
