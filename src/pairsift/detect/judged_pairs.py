"""The pairs that are judged: reduced vectors, and what counts as one image and as one caption."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pairsift.arrays import Bools, Floats, Ints, Reals, unit_rows
from pairsift.detect.folds import fold_units, join_equal_images, near_duplicates
from pairsift.detect.linear import Components, StackedKinds
from pairsift.detect.options import DetectOptions, FoldOptions, LinearOptions

SHIPPED = DetectOptions()


@dataclass(frozen=True)
class PairVectors:
    """The vectors of pairs, and what is known of them.

    Attributes:
        images: Vectors of the images, (m, d).
        captions: Vector of each pair's caption, (n, e).
        image_of: Row of each pair's image among the vectors, (n,); each row has a pair.
        text_of: Number of each caption's text, (n,).
        in_train: Whether each pair is a training pair, (n,).
        ngrams: Vectors of the captions' character n-grams, which stand beside the captions' vectors, (n, g).
        aligned: Whether images and captions share a space.
        verified: Whether each pair is known to match, (n,); empty where nothing is known.
    """

    images: Floats
    captions: Floats
    image_of: Ints
    text_of: Ints
    in_train: Bools
    ngrams: Floats | None = None
    aligned: bool = False
    verified: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.captions)

    def known_verified(self) -> Bools:
        """Return whether each pair is known to match, (n,)."""
        return self.verified if len(self.verified) else np.zeros(len(self), np.bool_)

    def caption_kinds(self) -> tuple[Floats, ...]:
        """Return the vectors of the captions, (n, e), and of their n-grams where there are any, (n, g)."""
        return (self.captions,) if self.ngrams is None else (self.captions, self.ngrams)

    def aligned_sides(self) -> tuple[Floats, Floats] | None:
        """Return unit vectors of each pair's image and caption, (n, d) each; None where they share no space."""
        return (unit_rows(self.images)[self.image_of], unit_rows(self.captions)) if self.aligned else None


@dataclass(frozen=True)
class Reduction:
    """The principal components of images and of captions.

    Attributes:
        image: The components of the images.
        means: Means of the captions' vectors, and of those of their n-grams where they have any, (e,) and (g,).
        caption: The components of the captions' vectors side by side.
    """

    image: Components
    means: list[Floats]
    caption: Components

    @staticmethod
    def fit(pairs: PairVectors, options: LinearOptions) -> Reduction:
        """Fit the components to pairs."""
        joined = StackedKinds(*pairs.caption_kinds())
        return Reduction(Components.fit(pairs.images, options), joined.means, Components.fit(joined, options))

    def sides(self, pairs: PairVectors) -> tuple[Floats, Floats]:
        """Return the components of each pair's image and of its caption, (n, at most 320) each."""
        images, rows = self.image.project(pairs.images), pairs.image_of
        captions = self.caption.project(StackedKinds(*pairs.caption_kinds(), means=self.means))
        return images if np.array_equal(rows, np.arange(len(images))) else images[rows], captions


@dataclass(frozen=True)
class JudgedPairs:
    """The pairs to be judged, with their vectors, captions and groups.

    Attributes:
        images: Vector of each pair's image, (n, d).
        captions: Vector of each pair's caption, (n, e).
        text_of: Number of each caption's text, (n,).
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        in_train: Whether each pair is a training pair; the other pairs may have another rate of mismatches, (n,).
        aligned: Unit vectors of each pair's image and of its caption in a space that encoders share, (n, d) each; None
            where there is none.
        verified: Whether each pair is known to match, (n,); empty where nothing is known.
    """

    images: Floats
    captions: Floats
    text_of: Ints
    image_of: Ints
    group_of: Ints
    in_train: Bools
    aligned: tuple[Floats, Floats] | None = None
    verified: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    @staticmethod
    def make(pairs: PairVectors, options: DetectOptions = SHIPPED, reduction: Reduction | None = None) -> JudgedPairs:
        """Reduce vectors to their principal components, and group images that are near-duplicates.

        Args:
            pairs: The pairs with their vectors.
            options: The options of the detector.
            reduction: The components of these pairs, where they are known.
        """
        rows, common = pairs.image_of, options.folds.min_common
        return JudgedPairs(
            *(reduction or Reduction.fit(pairs, options.linear)).sides(pairs),
            pairs.text_of,
            join_equal_images(rows, pairs.images, rows, common),
            near_duplicates(pairs.images, options.folds)[rows],
            pairs.in_train,
            pairs.aligned_sides(),
            pairs.verified,
        )

    def __len__(self) -> int:
        return len(self.image_of)

    def units(self, most: int, options: FoldOptions) -> tuple[Ints, int]:
        """Return the unit of each pair that folds keep together, (n,), and the number of folds (`fold_units`)."""
        return fold_units(self.image_of, self.group_of, most, options)

    def subset(self, rows: Ints) -> JudgedPairs:
        """Return only the pairs in these rows."""
        aligned = None if self.aligned is None else (self.aligned[0][rows], self.aligned[1][rows])
        return JudgedPairs(
            self.images[rows],
            self.captions[rows],
            self.text_of[rows],
            self.image_of[rows],
            self.group_of[rows],
            self.in_train[rows],
            aligned,
            self.verified[rows] if len(self.verified) else self.verified,
        )


def with_verified(probability: Reals, verified: Bools) -> Reals:
    """Return match probabilities with 1 for the pairs that are known to match, (n,); `verified` may be empty."""
    return np.where(verified, 1.0, probability) if len(verified) else probability


def with_finite_vectors(judged: JudgedPairs) -> JudgedPairs:
    """Replace vectors that are not finite by the mean of the finite ones, so that they are no evidence."""
    return replace(judged, images=_finite(judged.images), captions=_finite(judged.captions))


def _finite(vectors: Floats) -> Floats:
    finite: Bools = np.asarray(np.isfinite(vectors).all(axis=1), np.bool_)
    if finite.all():
        return vectors
    mean = vectors[finite].mean(0) if finite.any() else np.zeros(vectors.shape[1])
    return np.where(finite[:, None], vectors, mean).astype(np.float32)
