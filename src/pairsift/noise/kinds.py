"""Planted noise that is harder to find than a random caption: captions of near texts, and captions that fit anything.

The vectors of texts come from outside, as a function of captions. They are rounded so that every similarity is exact:
the noise then depends neither on the number of threads nor on the order of summation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Array, Floats, Ints, text_numbers
from pairsift.noise.planted import refuse_noisy, repointed, rewritten
from pairsift.pairs.pairs import Pairs

Encode = Callable[[list[str]], Array]

NEAREST = 0.01  # share of the training captions that count as near a caption
CENTRAL = 10  # largest number of captions that replace others as vague ones
SHORTEST = 0.1  # share of the distinct training captions, the shortest, among which the vague ones are chosen
SCALE = 2048  # unit vectors are rounded to multiples of 1 / SCALE: sums of products are exact in float32
BLOCK = 256  # captions whose similarities to all others are in memory at once


def plant_near(pairs: Pairs, ratio: float, seed: int, encode: Encode) -> Pairs:
    """Plant noise: exchange training captions between images where their texts are near each other.

    Of two captions that change places, one has the other among its nearest 1% (at least the nearest one), by cosine.
    A caption that the image of the first has too, in whatever spelling of case and spaces, is not counted there and
    never goes to this image. Every caption is still given once, and exactly `round(ratio * n)` of the n training
    captions are moved. Captions are tried in random order, each with a random free partner. Where no caption with a
    free partner in its nearest 1% is left, a caption changes places with the nearest one that is still free. The last
    of an odd number, or of captions that fit no free partner, joins the exchange of the nearest moved caption, so that
    three or more captions change places in a circle. If no circle takes it either, as with one image alone, fewer
    captions are moved; `noise.rate` is the real share.

    Args:
        pairs: Pairs without planted noise.
        ratio: Share of the training captions to move, in [0, 1].
        seed: Seed of numpy's default generator, 0 or above.
        encode: Function from n captions to their vectors, (n, dim).

    Returns:
        The pairs with `true_image_of` and `noise` set.

    Raises:
        InputError: The pairs already have planted noise.
    """
    refuse_noisy(pairs)
    train = pairs.ids("train")
    rng = np.random.default_rng(seed)
    texts = [pairs.captions[pair] for pair in train]
    exchange = _Exchange(pairs.image_of[train], text_numbers(texts), _rounded_units(encode(texts)), rng)
    moved = exchange.run(round(ratio * len(train)))
    return repointed(pairs, moved, ratio, seed, "caption", "near")


def plant_vague(pairs: Pairs, ratio: float, seed: int, encode: Encode) -> Pairs:
    """Plant noise: replace training captions by vague ones, which fit many images of the collection.

    The vague captions are at most ten of the shortest tenth of the distinct training captions: those with the largest
    mean cosine to all training captions. Random captions are replaced by one of these, drawn at random, that their
    image does not have. The vague captions themselves stay at their own images. Exactly `round(ratio * n)` of the n
    training captions are replaced, or as many as are not vague themselves.

    A replaced caption belongs to no image: its `true_image_of` is -1, although it may be right about the image.

    Args:
        pairs: Pairs without planted noise.
        ratio: Share of the training captions to replace, in [0, 1].
        seed: Seed of numpy's default generator, 0 or above.
        encode: Function from n captions to their vectors, (n, dim).

    Returns:
        The pairs with new `captions`, and with `source_captions`, `true_image_of` and `noise` set.

    Raises:
        InputError: The pairs already have planted noise.
    """
    refuse_noisy(pairs)
    train = pairs.ids("train")
    rng = np.random.default_rng(seed)
    texts = [pairs.captions[pair] for pair in train]
    numbers = text_numbers(texts)
    vague = central_captions(texts, encode) if texts else []
    texts_of = _texts_of_images(pairs.image_of[train], numbers)
    captions, true_image_of = list(pairs.captions), pairs.image_of.copy()
    left, central = round(ratio * len(train)), set(numbers[vague].tolist())
    for place in rng.permutation(len(train)).tolist():
        pair = int(train[place])
        possible = [row for row in vague if numbers[row] not in texts_of[int(pairs.image_of[pair])]]
        if left and possible and int(numbers[place]) not in central:
            captions[pair] = texts[possible[int(rng.integers(len(possible)))]]
            true_image_of[pair] = -1
            left -= 1
    return rewritten(pairs, captions, true_image_of, ratio, seed, "vague")


def central_captions(texts: list[str], encode: Encode) -> list[int]:
    """Return the places of the most central short captions, at most ten distinct ones, the most central first.

    Args:
        texts: Captions, at least one.
        encode: Function from n captions to their vectors, (n, dim).
    """
    vectors = _rounded_units(encode(texts)).astype(np.int64)
    likeness = vectors @ vectors.sum(0)  # exact, and in the order of the mean cosine
    first = np.unique(text_numbers(texts), return_index=True)[1]
    by_length = sorted(first.tolist(), key=lambda row: (len(texts[row]), row))
    short = by_length[: max(1, round(SHORTEST * len(first)))]
    return sorted(short, key=lambda row: (-likeness[row], row))[:CENTRAL]


class _Exchange:
    """The places of captions while they are exchanged.

    Args:
        image_of: Image of each caption, (n,).
        texts: Number of each caption's text, (n,).
        vectors: Vectors whose inner products are similarities, (n, dim).
        rng: Generator for the order of the captions that are tried, and for the choice among near ones.
    """

    def __init__(self, image_of: Ints, texts: Ints, vectors: Floats, rng: np.random.Generator) -> None:
        self.image_of, self.texts, self.vectors, self.rng = image_of, texts, vectors, rng
        self.order = rng.permutation(len(image_of)).tolist()
        self.moved = image_of.copy()
        self.free = np.ones(len(image_of), np.bool_)
        self.nearest = max(1, round(NEAREST * len(image_of)))
        self.texts_of = _texts_of_images(image_of, texts)
        order = np.argsort(texts, kind="stable")
        self.captions_of = np.split(order, np.searchsorted(texts[order], np.arange(1, texts.max(initial=0) + 1)))

    def run(self, wanted: int) -> Ints:
        """Move this number of captions, and return the image that each caption is given with, (n,)."""
        left = self._swap_near(wanted)
        left = self._move_nearest(left, True)
        self._move_nearest(left, False)
        return self.moved

    def _swap_near(self, left: int) -> int:
        """Swap captions with free ones of their nearest 1%; return how many are still to be moved."""
        for start in range(0, len(self.order), BLOCK):
            block = [caption for caption in self.order[start : start + BLOCK] if self.free[caption]]
            if left < 2:
                return left
            for caption, similarity in zip(block, self.vectors[block] @ self.vectors.T, strict=True):
                if left >= 2 and self.free[caption]:
                    near = self._near(caption, similarity)
                    left -= self._move(caption, self.rng.permutation(near[self.free[near]]).tolist())
        return left

    def _near(self, caption: int, similarity: Floats) -> Ints:
        """Return the nearest 1% of the captions that this caption's image lacks, and all equally near ones."""
        for text in self.texts_of[int(self.image_of[caption])]:
            similarity[self.captions_of[text]] = -np.inf
        limit = np.partition(similarity, -self.nearest)[-self.nearest]
        return np.flatnonzero((similarity >= limit) & np.isfinite(similarity))

    def _move_nearest(self, left: int, swap: bool) -> int:
        """Swap captions with the nearest free ones, or let single ones join the exchanges of the nearest moved ones.

        Returns:
            How many are still to be moved.
        """
        for caption in self.order:
            if left > swap and self.free[caption]:
                left -= self._move(caption, self._by_nearness(caption, self.free if swap else ~self.free))
        return left

    def _by_nearness(self, caption: int, among: NDArray[np.bool_]) -> list[int]:
        """Return captions, the nearest to one caption first."""
        rows = np.flatnonzero(among)
        similarity = self.vectors[rows] @ self.vectors[caption]
        return [int(row) for row in rows[np.argsort(-similarity, kind="stable")]]

    def _move(self, caption: int, partners: list[int]) -> int:
        """Let a caption change places with the first partner that it can; return how many more captions are moved."""
        image = int(self.image_of[caption])
        for partner in partners:
            place = int(self.moved[partner])
            if self._fits(partner, image) and self._fits(caption, place):
                self.moved[caption], self.moved[partner] = place, image
                count = 1 + int(self.free[partner])
                self.free[[caption, partner]] = False
                return count
        return 0

    def _fits(self, caption: int, image: int) -> bool:
        """Return whether the caption would be a mismatch there: the image has no caption of the same text."""
        return int(self.texts[caption]) not in self.texts_of[image]


def _rounded_units(vectors: Array) -> Floats:
    """Return vectors of length 1, times 2,048 and rounded: their inner products are exact, (n, dim) float32."""
    values = np.asarray(vectors, np.float64)
    length = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    return np.asarray(np.rint(SCALE * values / length), np.float32)


def _texts_of_images(image_of: Ints, texts: Ints) -> dict[int, set[int]]:
    """Return the texts of each image's captions."""
    texts_of: dict[int, set[int]] = {}
    for image, text in zip(image_of.tolist(), texts.tolist(), strict=True):
        texts_of.setdefault(image, set()).add(text)
    return texts_of
