"""Mismatched pairs among vectors of images and captions, without files and without training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator

from pairsift.arrays import Array, Bools, Floats, Ints, Reals, equal_numbers, hashes
from pairsift.detect import DetectOptions, Judgement, shards
from pairsift.detect.caveats import Caveat, judgement_caveats
from pairsift.detect.folds import pair_counts
from pairsift.detect.pair_judge import PairEvidence
from pairsift.encode.features import Features, Table
from pairsift.encode.lazy_rows import LazyRows
from pairsift.errors import InputError
from pairsift.match.two_tower import LINEAR, TwoTower
from pairsift.retrieve.gallery import Gallery
from pairsift.suggest.duplicates import vague_captions, word_numbers, words_of
from pairsift.suggest.suggest import GalleryPairs, suggest
from pairsift.vector_judge import VectorJudge
from pairsift.vector_pairs import VectorPairs, mask_of, whole

SHIPPED = DetectOptions()
# Of more than 50,000 pairs:
REQUESTED = 1_000  # pairs that get suggestions at once
SEARCHED = 1_000_000  # captions that those of an image are sought among
NEAREST = 20  # captions that may be suggested for each of these images
LEVELS = 1_000  # images that all captions are compared with
REFERENCES = 5_000  # pairs that images and captions are compared with, to judge what fits
ROWS = 8192  # captions that are sought among at once


def find_mismatches(
    image_vectors: Any,
    caption_vectors: Any,
    captions: Sequence[str] | None = None,
    *,
    image_ids: Any = None,
    train: Any = None,
    aligned: bool = False,
    verified: Any = None,
    seed: int = 0,
) -> Mismatches:
    """Find the pairs of vectors whose image and caption do not belong together.

    Nothing is trained, read or written. The vectors may come from any encoders. Arrays are of numpy (also mapped from a
    file), torch or Arrow, of 16 to 64 bits.

    Args:
        image_vectors: Vector of each pair's image, (n, d).
        caption_vectors: Vector of each pair's caption, (n, e).
        captions: The captions, (n,). Their character n-grams are more evidence, and equal ones are one caption; by
            default, captions with equal vectors are one.
        image_ids: Image of each pair, any numbers or texts, (n,); by default, pairs with equal image vectors have one
            image.
        train: Whether each pair is a training pair, (n,). The other pairs may have another rate of mismatches; by
            default, all pairs have one rate.
        aligned: Whether images and captions share a space, as those of CLIP do, so that their cosine is evidence.
        verified: Whether each pair is known to match, (n,).
        seed: Seed of folds, decoys and resampling.

    Raises:
        InputError: The arrays cannot be used or do not fit each other.
    """
    pairs = VectorPairs.of(image_vectors, caption_vectors, captions, image_ids, aligned)
    if train is not None:
        pairs = replace(pairs, train=mask_of("train", train, len(pairs)))
    if verified is not None:
        pairs = replace(pairs, verified=mask_of("verified", verified, len(pairs)))
    judge = JudgedVectors.of(pairs, seed)
    return Mismatches(pairs, judge.judgement(), seed, judge)


class MismatchDetector(BaseEstimator):  # type: ignore[misc]
    """An estimator of match probabilities with the contract of scikit-learn.

    Args:
        aligned: Whether images and captions share a space, as those of CLIP do.
        seed: Seed of folds, decoys and resampling.

    Attributes:
        mismatches_: What `find_mismatches` returns.
        match_probability_: Probability that each pair matches, [0, 1], (n,).
        is_mismatch_: Whether each pair is flagged, (n,).
        rate_: Estimated share of mismatched pairs; None where the evidence is too weak for verdicts.
        interval_: The 90% interval of the rate; None where the evidence is too weak.
        warnings_: Reasons to doubt the result, each with a `code` and a `text`.
        n_features_in_: Length of an image's vector.
    """

    def __init__(self, *, aligned: bool = False, seed: int = 0) -> None:
        self.aligned = aligned
        self.seed = seed

    def fit(
        self,
        X: Any,
        Y: Any,
        captions: Sequence[str] | None = None,
        *,
        image_ids: Any = None,
        train: Any = None,
        verified: Any = None,
    ) -> MismatchDetector:
        """Judge pairs of image vectors X, (n, d), and caption vectors Y, (n, e); see `find_mismatches`.

        Raises:
            InputError: The arrays cannot be used or do not fit each other.
        """
        options: dict[str, Any] = {"image_ids": image_ids, "train": train, "verified": verified}
        result = find_mismatches(X, Y, captions, aligned=self.aligned, seed=self.seed, **options)
        self.mismatches_ = result
        self.match_probability_, self.is_mismatch_ = result.match_probability, result.is_mismatch
        self.rate_, self.interval_, self.warnings_ = result.rate, result.interval, result.warnings
        self.n_features_in_ = result.pairs.images.shape[1]
        return self

    def score_samples(self, X: Any, Y: Any, captions: Sequence[str] | None = None) -> Reals:
        """Return the match probability of pairs that `fit` has not seen, [0, 1], (m,); see `Mismatches.score`.

        Raises:
            InputError: The arrays cannot be used or are not like those of `fit`.
            NotFittedError: `fit` was not called.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self.mismatches_.score(X, Y, captions).match_probability


@dataclass(frozen=True)
class JudgedVectors:
    """Pairs of vectors with the judge that learned from all of them, or from 50,000 where there are more.

    Attributes:
        pairs: The pairs.
        seed: Seed of the choice, and of folds, decoys and resampling.
        learned: The pairs that it learned from, with whole images, ascending, (k,).
        rest: The other pairs, by whole images, (n - k,).
        judge: The judge.
        evidence: What it finds of the other pairs, in the order of `rest`; it is gone through once for each judgement.
    """

    pairs: VectorPairs
    seed: int
    learned: Ints
    rest: Ints
    judge: VectorJudge
    evidence: Iterable[PairEvidence]

    @staticmethod
    def of(pairs: VectorPairs, seed: int) -> JudgedVectors:
        """Learn from pairs, and find the evidence of the others.

        Raises:
            InputError: There is a single pair.
        """
        if len(pairs) < 2:
            raise InputError("one pair alone cannot be judged: give at least 2, since each is compared with others")
        learned, rest = shards.learned_rows(pairs.image_of, seed)
        judge = VectorJudge.fit(pairs.subset(learned) if len(rest) else pairs, seed)
        evidence = [judge.evidence_of(pairs.subset(rows)) for rows in shards.cut(pairs.image_of, rest)]
        return JudgedVectors(pairs, seed, learned, rest, judge, evidence)

    def judgement(self) -> Judgement:
        """Return the judgement about the pairs in their order."""
        return self.judge.judge.judgement(self.evidence, np.concatenate([self.learned, self.rest]))

    def judgement_of(self, new: VectorPairs) -> Judgement:
        """Return the judgement about new pairs, beside these.

        Where there are at most 50,000 pairs together, a judge learns from all: few pairs say little of others.
        """
        known = len(self.pairs)
        if known + len(new) <= shards.LEARNED:
            pairs = replace(self.pairs, train=np.ones(known, np.bool_))  # so that the new ones have a rate of their own
            judgement = JudgedVectors.of(pairs.concatenated(new), self.seed).judgement()
        else:
            order = np.argsort(new.image_of, kind="stable")
            parts = [self.judge.evidence_of(new.subset(rows)) for rows in shards.cut(new.image_of, order)]
            return self.judgement_beside(parts, order)
        return judgement.subset(np.arange(known, known + len(new)))

    def judgement_beside(self, evidence: Iterable[PairEvidence], rows: Ints) -> Judgement:
        """Return the judgement about new pairs beside these by their evidence, in their order.

        Args:
            evidence: The evidence of the new pairs, shard by shard.
            rows: The new pair that each piece of evidence is about, (m,).
        """
        known, pieces = len(self.pairs), chain(self.evidence, evidence)
        judgement = self.judge.judge.judgement(pieces, np.concatenate([self.learned, self.rest, known + rows]))
        return judgement.subset(np.arange(known, known + len(rows)))


class Mismatches:
    """The pairs of vectors that do not match, and what would fit.

    Args:
        pairs: The pairs.
        judgement: What held-out evidence says of them.
        seed: Seed of the suggestions.
        judge: These pairs, or those that they are judged beside, with the judge that learned from them.
        known: The pairs that these were scored beside; None for those that the judge learned from.

    Attributes:
        match_probability: Probability that each pair matches, [0, 1], (n,).
        is_mismatch: Whether each pair is flagged: its match probability is below one half, the evidence is sufficient
            for verdicts, and its caption is not one that says too little, such as "photo", (n,).
        rate: Estimated share of mismatched pairs, [0, 1]; None where the evidence is too weak for verdicts, and of new
            pairs that are beyond 50,000 with those before, of which some were not training pairs.
        interval: The ends of the rate's 90% interval; None where the evidence is too weak, and of new pairs where these
            have a rate of their own.
        warnings: Reasons to doubt the result, each with a `code` and a `text`.
    """

    def __init__(
        self, pairs: VectorPairs, judgement: Judgement, seed: int, judge: JudgedVectors, known: Mismatches | None = None
    ) -> None:
        self.pairs, self.judgement, self.seed, self.judge, self.known = pairs, judgement, seed, judge, known
        self.match_probability: Reals = judgement.probability
        self.is_mismatch: Bools = (judgement.probability < 0.5) & judgement.verdicts
        self.is_mismatch &= ~self._vague()
        outside = judgement.rate_outside_train
        rate = judgement.rate if known is None or outside is None else outside
        is_joint = known is None or known.pairs.train.all() or len(known) + len(pairs) <= shards.LEARNED
        self.rate: float | None = rate if judgement.verdicts and is_joint else None
        has_interval = self.rate is not None and (known is None or outside is None)
        self.interval: tuple[float, float] | None = (judgement.low, judgement.high) if has_interval else None
        self.warnings: list[Caveat] = judgement_caveats(judgement)
        self._suggested: dict[int, tuple[Ints, Reals]] = {}

    def __len__(self) -> int:
        return len(self.match_probability)

    def __repr__(self) -> str:
        if not self.judgement.verdicts:
            return f"<Mismatches: {len(self):,} pairs, no verdicts: {self.warnings[0]['text']}>"
        interval = "" if self.interval is None else f" ({self.interval[0]:.1%} to {self.interval[1]:.1%})"
        rate = "" if self.rate is None else f", {self.rate:.1%} mismatched{interval}"
        return f"<Mismatches: {len(self):,} pairs{rate}, {int(self.is_mismatch.sum()):,} flagged>"

    def suspects(self, k: int | None = None) -> pa.Table:
        """Return the flagged pairs, worst first, with the captions that would fit their images.

        Args:
            k: Number of pairs; by default, all flagged ones.

        Returns:
            A table with the columns of `to_arrow`.
        """
        return self._table(self._worst[:k])

    def to_arrow(self) -> pa.Table:
        """Return a row for each pair, in their order.

        Columns: `pair`, `match_probability`, `is_mismatch`, and for flagged pairs `suggested_from_pair`, the pair whose
        caption would fit the image, and `suggestion_probability`, the probability that it is the image's own; null
        where no caption fits. Where the captions are known, also `caption` and `suggested_caption`. After `score`,
        pairs are numbered among the new ones, and a suggestion comes from a pair that was there before.

        Of more than 50,000 pairs, captions are suggested from those that fit the images best among 1,000,000.
        """
        return self._table(np.arange(len(self)))

    def to_pandas(self) -> Any:
        """Return `to_arrow` as a DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError as error:
            raise InputError("a DataFrame needs pandas: pip install pandas, or use to_arrow()") from error

    def score(
        self,
        image_vectors: Any,
        caption_vectors: Any,
        captions: Sequence[str] | None = None,
        *,
        image_ids: Any = None,
    ) -> Mismatches:
        """Judge new pairs beside these, by models that saw none of them in training.

        The new pairs may have another rate of mismatches. Beyond 50,000 pairs together, nothing is learned from them,
        and a rate that is far from the known one may be estimated some points too low.

        Args:
            image_vectors: Vector of each new pair's image, (m, d), by the same encoder.
            caption_vectors: Vector of each new pair's caption, (m, e), by the same encoder.
            captions: The new captions, (m,), where the captions of these pairs are known.
            image_ids: Image of each new pair, (m,), as in `find_mismatches`.

        Returns:
            What is known of the new pairs.

        Raises:
            InputError: The arrays cannot be used, or are not like those of these pairs.
        """
        known = self if self.known is None else self.known
        new = VectorPairs.of(image_vectors, caption_vectors, captions, image_ids, known.pairs.aligned)
        widths = [(pairs.images.shape[1], pairs.captions.shape[1]) for pairs in (new, known.pairs)]
        if widths[0] != widths[1]:
            raise InputError(
                "the new vectors of images and captions have {} and {} values, and those before {} and {}: use the "
                "same encoders".format(*widths[0], *widths[1])
            )
        if (new.texts is None) != (known.pairs.texts is None):
            raise InputError("give captions with the new pairs where they were given before, and only there")
        new = replace(new, train=np.zeros(len(new), np.bool_))
        return Mismatches(new, self.judge.judgement_of(new), self.seed, self.judge, known)

    def _vague(self) -> Bools:
        """Return whether each pair's caption is one that says too little, beside all known pairs."""
        flagged, group, pairs = self.is_mismatch, self.judgement.group, self.pairs
        if not flagged.any() or group is None:
            return np.zeros(len(self), np.bool_)
        words = pairs.caption_keys()
        if self.known is not None:
            before = self.known
            words = chain(before.pairs.caption_keys(), words)
            flagged = np.concatenate([before.is_mismatch, flagged])
            group = np.concatenate([before.judgement.group, group])
        keys = hashes(words if pairs.texts is None else words_of(words))
        return vague_captions(keys, group, flagged)[-len(self) :]

    @cached_property
    def _worst(self) -> Ints:
        """The flagged pairs, worst first."""
        flagged = np.flatnonzero(self.is_mismatch)
        return flagged[np.argsort(self.match_probability[flagged], kind="stable")]

    def _table(self, rows: Ints) -> pa.Table:
        """Return the rows of `to_arrow` for some pairs."""
        source, probability = self._suggestions(rows)
        columns: dict[str, Any] = {
            "pair": rows,
            "match_probability": self.match_probability[rows],
            "is_mismatch": self.is_mismatch[rows],
        }
        if self.pairs.texts is not None:
            columns["caption"] = self.pairs.texts_at(rows)
            suggested = iter(self._candidates.texts_at(source[source >= 0]))
            columns["suggested_caption"] = [next(suggested) if pair >= 0 else None for pair in source.tolist()]
        columns["suggested_from_pair"] = pa.array(source, mask=source < 0)
        columns["suggestion_probability"] = pa.array(probability, from_pandas=True)
        return pa.table(columns)

    @property
    def _candidates(self) -> VectorPairs:
        """The pairs whose captions are suggested."""
        return self.pairs if self.known is None else self.known.pairs

    def _suggestions(self, rows: Ints) -> tuple[Ints, Reals]:
        """Return the pair whose caption is suggested for each of these pairs, -1 for none, and its probability."""
        place = np.full(len(self), -1, np.int64)
        place[self._worst] = np.arange(len(self._worst))
        place, size = place[rows], shards.LEARNED if len(self) <= shards.LEARNED else REQUESTED
        source, probability = np.full(len(rows), -1, np.int64), np.full(len(rows), np.nan)
        for part in np.unique(place[place >= 0] // size).tolist():  # the worst pairs, the next ones, and so on
            requested = np.sort(self._worst[part * size : (part + 1) * size])
            if part not in self._suggested:
                self._suggested[part] = self._suggest(requested)
            here = (place >= 0) & (place // size == part)
            at = np.searchsorted(requested, rows[here])
            source[here], probability[here] = (side[at] for side in self._suggested[part])
        return source, probability

    def _suggest(self, requested: Ints) -> tuple[Ints, Reals]:
        """Return the pair whose caption is suggested for each of these flagged pairs, and its probability."""
        before, beside = self if self.known is None else self.known, self._with_siblings(requested)
        asked, probability, wanted = (
            self.pairs.subset(beside),
            self.match_probability[beside],
            np.isin(beside, requested),
        )
        matcher, some, rows = before.matcher, before._references, before._pool(asked, probability)
        if self.known is None:
            rows = np.union1d(rows, beside)
            pairs, probability, wanted = self.pairs.subset(rows), self.match_probability[rows], np.isin(rows, requested)
        else:
            pairs = before.pairs.subset(rows).concatenated(asked)
            probability = np.concatenate([before.match_probability[rows], probability])
            wanted = np.concatenate([np.zeros(len(rows), np.bool_), wanted])
        images, keys = pairs.image_vectors(), pairs.caption_keys()
        gallery = _gallery(matcher, images, pairs.captions)
        words = equal_numbers(keys) if pairs.texts is None else word_numbers(keys)
        known = GalleryPairs(pairs.image_of, words, probability, probability >= 0.5)
        references = None if some is None else np.searchsorted(rows, some)
        found = suggest(gallery, known, wanted, self.seed, references=references)
        captions, chance = found.captions[:, 0], found.caption_probability[:, 0]
        fits = found.fits & (captions >= 0) & (captions < len(rows))
        return np.where(fits, rows[np.where(fits, captions, 0)], -1), np.where(fits, chance, np.nan)

    @cached_property
    def matcher(self) -> TwoTower:
        """The linear model of the pairs that were learned from, or the cosine where encoders share a space."""
        rows, pairs = self.judge.learned, self.pairs
        matcher = TwoTower(pairs.images.shape[1], pairs.captions.shape[1], LINEAR, pairs.aligned).eval()
        if not pairs.aligned:
            images, captions = (np.asarray(side[rows], np.float32) for side in (pairs.images, pairs.captions))
            matcher.start_linear(images, captions, self.match_probability[rows], SHIPPED)
        return matcher

    @cached_property
    def _references(self) -> Ints | None:
        """The pairs that stand for all others where captions are suggested, ascending; None where all are there.

        They are not flagged: the image that a flagged caption belongs to would count against it.
        """
        if len(self) <= shards.LEARNED:
            return None
        return references_of(np.flatnonzero(~self.is_mismatch), self.seed)

    def _with_siblings(self, rows: Ints) -> Ints:
        """Return these pairs with the other pairs of their images, ascending, but not of images that have very many."""
        image_of = self.pairs.image_of
        return np.union1d(
            rows, np.flatnonzero(np.isin(image_of, image_of[rows]) & (pair_counts(image_of) <= shards.LARGE_IMAGE))
        )

    def _pool(self, asked: VectorPairs, probability: Reals) -> Ints:
        """Return the pairs whose captions may be suggested for the images of some pairs, ascending.

        These are all pairs, or the references and of many the captions that fit the images best. Images are joined with
        their captions that match, and what a caption reaches with images of references is subtracted.
        """
        if self._references is None:
            return np.arange(len(self))
        matcher, levels = self.matcher, self.pairs.subset(self._references[:LEVELS]).image_vectors()
        weight = SHIPPED.siblings.weight * np.where(probability >= 0.5, probability, 0.0)
        joined, _ = _gallery(matcher, asked.image_vectors(), asked.captions).with_captions(asked.image_of, weight)
        images, scale = joined.images[0].vectors, joined.scale()
        # Flagged or not: whether the nearest are flagged more often than others says whether they are right.
        searched = np.sort(np.random.default_rng((self.seed, 21)).permutation(len(self))[:SEARCHED])
        near, fit = np.zeros((len(images), 0), np.int64), torch.zeros(len(images), 0)
        for start in range(0, len(searched), ROWS):
            rows = searched[start : start + ROWS]
            block = _gallery(matcher, levels, np.asarray(self.pairs.captions[rows], np.float32))
            captions, references = block.texts[0].vectors, block.images[0].vectors
            level = (scale * captions @ references.T).logsumexp(1) / scale
            near = np.concatenate([near, np.broadcast_to(rows, (len(near), len(rows)))], 1)
            fit, place = torch.cat([fit, images @ captions.T - level], 1).topk(min(NEAREST, near.shape[1]), 1)
            near = np.take_along_axis(near, place.numpy(), 1)
        return np.union1d(self._references, near)


def references_of(rows: Ints, seed: int) -> Ints:
    """Return the pairs that stand for all of these where captions are suggested, ascending, at most 5,000."""
    return np.sort(np.random.default_rng((seed, 20)).permutation(rows)[:REFERENCES])


def _gallery(matcher: TwoTower, images: Floats, captions: Array | LazyRows) -> Gallery:
    """Return the codes of images, (m, d), and of captions, (n, e)."""
    features = Features(Table(images), Table(whole(captions)))
    return Gallery.encode([matcher], features, np.arange(len(images)), np.arange(len(captions)))
