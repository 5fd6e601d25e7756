"""Mismatched pairs among vectors of images and captions, without files and without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator

from pairsift.arrays import Bools, Floats, Ints, Reals, text_numbers
from pairsift.detect import DetectOptions, JudgedPairs, Judgement, judge_pairs
from pairsift.detect.caveats import Caveat, judgement_caveats
from pairsift.detect.folds import fingerprints
from pairsift.encode.features import Features, Table
from pairsift.encode.ngrams import ngram_vectors
from pairsift.errors import InputError
from pairsift.match.two_tower import LINEAR, TwoTower, check_one_space
from pairsift.retrieve.gallery import Gallery
from pairsift.suggest.duplicates import vague_captions, word_numbers
from pairsift.suggest.suggest import GalleryPairs, Suggestions, suggest

SHIPPED = DetectOptions()
LARGEST = 1e12  # the largest value lies between 1e-12 and this, since squares are added in float32


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
        pairs = replace(pairs, train=_mask("train", train, len(pairs)))
    if verified is not None:
        pairs = replace(pairs, verified=_mask("verified", verified, len(pairs)))
    return Mismatches(pairs, pairs.judged(seed), seed)


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
class VectorPairs:
    """Pairs of vectors in memory.

    Attributes:
        images: Vector of each image, (m, d).
        captions: Vector of each pair's caption, (n, e).
        image_of: Row of each pair's image, (n,).
        texts: The captions, (n,); None where they are not known.
        train: Whether each pair is a training pair, (n,).
        verified: Whether each pair is known to match, (n,).
        aligned: Whether images and captions share a space.
    """

    images: Floats
    captions: Floats
    image_of: Ints
    texts: list[str] | None
    train: Bools
    verified: Bools
    aligned: bool

    @staticmethod
    def of(
        image_vectors: Any, caption_vectors: Any, captions: Sequence[str] | None, image_ids: Any, aligned: bool
    ) -> VectorPairs:
        """Make pairs of arrays.

        Raises:
            InputError: The arrays cannot be used or do not fit each other.
        """
        images, texts = (
            _vectors(name, values)
            for name, values in (("image_vectors", image_vectors), ("caption_vectors", caption_vectors))
        )
        shapes = f"image_vectors has shape {images.shape} and caption_vectors {texts.shape}"
        if len(images) != len(texts):
            raise InputError(f"{shapes}: give one row of each for every pair")
        if len(images) < 2:
            raise InputError(f"{shapes}: give at least 2 pairs, since each is compared with others")
        if aligned:
            check_one_space(images.shape[1], texts.shape[1])
        if captions is not None:
            captions = _texts(captions, len(texts))
        ids = fingerprints(images) if image_ids is None else _ids(image_ids, len(images))
        first, number = np.unique(ids, return_index=True, return_inverse=True)[1:]
        everywhere = np.ones(len(texts), np.bool_)
        return VectorPairs(
            images if len(first) == len(images) else images[np.sort(first)],
            texts,
            np.argsort(np.argsort(first))[number.reshape(-1)],
            captions,
            everywhere,
            ~everywhere,
            aligned,
        )

    def __len__(self) -> int:
        return len(self.captions)

    def followed_by(self, new: VectorPairs) -> VectorPairs:
        """Return these pairs and new ones, which are no training pairs."""
        images, image_of = np.concatenate([self.images, new.images]), new.image_of + len(self.images)
        first, number = np.unique(fingerprints(images), return_index=True, return_inverse=True)[1:]
        same = first[number.reshape(-1)]  # a new image may be one of these
        image_of = np.concatenate([self.image_of, same[image_of]])
        used, image_of = np.unique(image_of, return_inverse=True)
        return VectorPairs(
            images[used],
            np.concatenate([self.captions, new.captions]),
            image_of.reshape(-1).astype(np.int64),
            None if self.texts is None or new.texts is None else [*self.texts, *new.texts],
            np.concatenate([self.train, np.zeros(len(new), np.bool_)]),
            np.concatenate([self.verified, new.verified]),
            self.aligned,
        )

    def text_of(self) -> Ints:
        """Return the number of each caption's text, (n,)."""
        if self.texts is not None:
            return text_numbers(self.texts)
        return np.unique(fingerprints(self.captions), return_inverse=True)[1].reshape(-1).astype(np.int64)

    def judged(self, seed: int) -> Judgement:
        """Judge the pairs by evidence from models that did not see them."""
        return judge_pairs(self._judged_pairs(), seed)

    def _judged_pairs(self) -> JudgedPairs:
        ngrams = None if self.texts is None else ngram_vectors(self.texts)
        args = self.images, self.captions, self.image_of, self.text_of(), self.train, ngrams, self.aligned
        return replace(JudgedPairs.make(*args), verified=self.verified)


class Mismatches:
    """The pairs of vectors that do not match, and what would fit.

    Args:
        pairs: The pairs.
        judgement: What held-out evidence says of them.
        seed: Seed of the suggestions.
        first: The first pair that is shown; those before it stand behind it as context.

    Attributes:
        match_probability: Probability that each pair matches, [0, 1], (n,).
        is_mismatch: Whether each pair is flagged: its match probability is below one half, the evidence is sufficient
            for verdicts, and its caption is not one that says too little, such as "photo", (n,).
        rate: Estimated share of mismatched pairs, [0, 1]; None where the evidence is too weak for verdicts.
        interval: The ends of the rate's 90% interval; None where the evidence is too weak, and of new pairs where these
            have a rate of their own.
        warnings: Reasons to doubt the result, each with a `code` and a `text`.
    """

    def __init__(self, pairs: VectorPairs, judgement: Judgement, seed: int, first: int = 0) -> None:
        self.pairs, self.judgement, self.seed, self.first = pairs, judgement, seed, first
        self.match_probability: Reals = judgement.probability[first:]
        self._flagged: Bools = (judgement.probability < 0.5) & judgement.verdicts
        group = judgement.group if judgement.group is not None else pairs.image_of
        self._words = pairs.text_of() if pairs.texts is None else word_numbers(pairs.texts)
        self._flagged &= ~vague_captions(self._words, group, self._flagged)
        self.is_mismatch: Bools = self._flagged[first:]
        outside = judgement.rate_outside_train
        rate = judgement.rate if not first or outside is None else outside
        self.rate: float | None = rate if judgement.verdicts else None
        known = judgement.verdicts and (not first or outside is None)
        self.interval: tuple[float, float] | None = (judgement.low, judgement.high) if known else None
        self.warnings: list[Caveat] = judgement_caveats(judgement)

    def __len__(self) -> int:
        return len(self.match_probability)

    def __repr__(self) -> str:
        if self.rate is None:
            return f"<Mismatches: {len(self):,} pairs, no verdicts: {self.warnings[0]['text']}>"
        interval = "" if self.interval is None else f" ({self.interval[0]:.1%} to {self.interval[1]:.1%})"
        flagged = int(self.is_mismatch.sum())
        return f"<Mismatches: {len(self):,} pairs, {self.rate:.1%} mismatched{interval}, {flagged:,} flagged>"

    def suspects(self, k: int | None = None) -> pa.Table:
        """Return the flagged pairs, worst first, with the captions that would fit their images.

        Args:
            k: Number of pairs; by default, all flagged ones.

        Returns:
            A table with the columns of `to_arrow`.
        """
        table = self.to_arrow()
        table = table.filter(table["is_mismatch"])
        order = np.argsort(table["match_probability"].to_numpy(), kind="stable")
        return table.take(order[:k])

    def to_arrow(self) -> pa.Table:
        """Return a row for each pair, in their order.

        Columns: `pair`, `match_probability`, `is_mismatch`, and for flagged pairs `suggested_from_pair`, the pair whose
        caption would fit the image, and `suggestion_probability`, the probability that it is the image's own; null
        where no caption fits. Where the captions are known, also `caption` and `suggested_caption`. After `score`,
        pairs are numbered among the new ones, and a suggestion comes from a pair that was there before.
        """
        source, probability = self._suggested
        columns: dict[str, Any] = {
            "pair": np.arange(len(self)),
            "match_probability": self.match_probability,
            "is_mismatch": self.is_mismatch,
        }
        if self.pairs.texts is not None:
            texts = self.pairs.texts
            columns["caption"] = texts[self.first :]
            columns["suggested_caption"] = [texts[pair] if pair >= 0 else None for pair in source]
        columns["suggested_from_pair"] = pa.array(source, mask=source < 0)
        columns["suggestion_probability"] = pa.array(probability, from_pandas=True)
        return pa.table(columns)

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

        The new pairs may have another rate of mismatches. All pairs are judged anew, which takes as long as at first.

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
        known = self.pairs
        new = VectorPairs.of(image_vectors, caption_vectors, captions, image_ids, known.aligned)
        widths = [(pairs.images.shape[1], pairs.captions.shape[1]) for pairs in (new, known)]
        if widths[0] != widths[1]:
            raise InputError(
                "the new vectors of images and captions have {} and {} values, and those before {} and {}: use the "
                "same encoders".format(*widths[0], *widths[1])
            )
        if (new.texts is None) != (known.texts is None):
            raise InputError("give captions with the new pairs where they were given before, and only there")
        pairs = known.followed_by(new)
        return Mismatches(pairs, pairs.judged(self.seed), self.seed, len(known))

    @cached_property
    def _suggested(self) -> tuple[Ints, Reals]:
        """The pair whose caption is suggested for each shown pair, -1 for none, and its probability."""
        requested = self._flagged & (np.arange(len(self.pairs)) >= self.first)
        source, probability = np.full(len(self.pairs), -1, np.int64), np.full(len(self.pairs), np.nan)
        if requested.any():
            found = self._suggestions(requested)
            captions = found.captions[:, 0]
            rows = found.fits & (captions >= 0) & ((captions < self.first) if self.first else True)
            source[found.pairs[rows]] = captions[rows]
            probability[found.pairs[rows]] = found.caption_probability[rows, 0]
        return source[self.first :], probability[self.first :]

    def _suggestions(self, requested: Bools) -> Suggestions:
        pairs, probability = self.pairs, self.judgement.probability
        sizes = pairs.images.shape[1], pairs.captions.shape[1]
        matcher = TwoTower(*sizes, LINEAR, pairs.aligned).eval()
        if not pairs.aligned:
            matcher.start_linear(pairs.images[pairs.image_of], pairs.captions, probability, SHIPPED)
        features = Features(Table(pairs.images), Table(pairs.captions))
        gallery = Gallery.encode([matcher], features, np.arange(len(pairs.images)), np.arange(len(pairs)))
        known = GalleryPairs(pairs.image_of, self._words, probability, probability >= 0.5)
        return suggest(gallery, known, requested, self.seed)


def _vectors(name: str, values: Any) -> Floats:
    """Return vectors as float32, (n, d).

    Raises:
        InputError: They are no rows of finite numbers.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float32).numpy()
    elif isinstance(values, pa.ChunkedArray | pa.Array):
        values = _arrow_rows(name, values)
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.zeros(0, np.object_)
    if array.dtype.kind not in "fiu":
        raise InputError(
            f"{name} is an array of {array.dtype}: give rows of numbers of one length, such as np.stack(rows)"
        )
    if array.ndim != 2 or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: give one row of numbers for every pair, (n, d)")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, np.float32)
    finite = np.isfinite(array.sum(1)) if np.isfinite(array.sum()) else np.isfinite(array).all(1)
    if not finite.all():
        row = int(finite.argmin())
        raise InputError(f"{name} has shape {array.shape}, and row {row} holds NaN or infinity: leave such pairs out")
    largest = max(float(array.max(initial=0)), -float(array.min(initial=0)))
    if largest and not 1 / LARGEST <= largest <= LARGEST:
        raise InputError(
            f"{name} holds values of up to {largest:.0e}, whose squares float32 cannot add: scale them to 1"
        )
    return array


def _arrow_rows(name: str, values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return the rows of an Arrow array of lists.

    Raises:
        InputError: It holds no lists of one length, or nulls.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    flat = array.flatten() if any(kind(array.type) for kind in kinds) else array
    if flat is array or array.null_count or flat.null_count or (len(array) and len(flat) % len(array)):
        raise InputError(
            f"{name} is an Arrow array of {array.type}, {array.null_count} of them null: give lists of one length"
        )
    if not pa.types.is_fixed_size_list(array.type) and len(set(array.value_lengths().to_pylist())) > 1:
        raise InputError(f"{name} is an Arrow array of lists of different lengths: give lists of one length")
    return np.asarray(flat.to_numpy(zero_copy_only=False).reshape(len(array), -1))


def _texts(captions: Sequence[str], rows: int) -> list[str]:
    """Return captions as a list.

    Raises:
        InputError: They are no texts, or not as many as rows.
    """
    if isinstance(captions, str):
        raise InputError(f"captions is one text, {captions[:20]!r}: give one for every pair")
    texts = captions.to_pylist() if isinstance(captions, pa.ChunkedArray | pa.Array) else list(captions)
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise InputError(f"captions holds {wrong[0]!r}: give one text for every pair")
    if len(texts) != rows:
        raise InputError(f"captions has {len(texts)} texts and caption_vectors {rows} rows: give one for every pair")
    return texts


def _ids(image_ids: Any, rows: int) -> np.ndarray:
    ids = np.asarray(image_ids)
    if ids.shape != (rows,):
        raise InputError(f"image_ids has shape {ids.shape} and image_vectors {rows} rows: give one for every pair")
    return ids.astype(str) if ids.dtype.kind == "O" else ids


def _mask(name: str, values: Any, rows: int) -> Bools:
    mask = np.asarray(values)
    if mask.shape != (rows,) or mask.dtype.kind != "b":
        raise InputError(f"{name} has shape {mask.shape} and type {mask.dtype}: give a bool for every pair, ({rows},)")
    return mask
