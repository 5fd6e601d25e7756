"""Intervals by the bootstrap: images are drawn with replacement, and the captions of an image stay with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pairsift.arrays import Ints, Reals
from pairsift.retrieve.equal import EqualRanks
from pairsift.retrieve.ranks import KS, Ranks

LEVEL = 0.95  # share of the resamples between the ends of an interval
SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: The number, computed without resampling.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float

    @staticmethod
    def make(value: float, resampled: Reals) -> Estimate:
        """Take the interval from the values of the resamples, (samples,): the quantiles that hold `LEVEL` of them."""
        low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Estimate(value, float(low), float(high))


def draw_images(n_images: int, samples: int, seed: int = SEED) -> Iterator[Ints]:
    """Yield the number of times that each image is drawn, (n_images,), for each resample.

    The same arguments give the same resamples, so that several systems are compared on the same images.
    """
    rng = np.random.default_rng((seed, 13))
    for _ in range(samples):
        yield np.bincount(rng.integers(0, n_images, n_images), minlength=n_images)


def resampled_recall(
    systems: Sequence[Ranks | EqualRanks],
    image_of: Ints,
    samples: int,
    seed: int = SEED,
    ks: tuple[int, ...] = KS,
    picture: Ints | None = None,
) -> dict[str, Reals]:
    """Return the recall of several systems on the same resampled images, in percent.

    Nothing is ranked again: an image that is drawn counts as often as it is drawn, as a query and with all its
    captions as queries, each with its rank among all items.

    Args:
        systems: The ranks of each system for the same images and captions; every image has a caption.
        image_of: Image of each caption, (n_texts,).
        samples: Number of resamples.
        seed: Seed of the resamples.
        ks: The ranks to count, as in `recall`.
        picture: Number of the picture of each image, (n_images,): copies are drawn together. By default all differ.

    Returns:
        An array (n_systems, samples) for every key of `recall`.

    Raises:
        ValueError: An image has no caption, or the systems have other numbers of images or captions.
    """
    n_images = len(systems[0].i2t)
    if any(len(one.i2t) != n_images or len(one.t2i) != len(image_of) or one.i2t.min() < 0 for one in systems):
        raise ValueError("the systems need ranks for the same images and captions, and every image needs a caption")
    picture = np.arange(n_images) if picture is None else picture
    n_pictures = int(picture.max()) + 1
    sizes = np.stack([np.bincount(picture), np.bincount(picture[image_of], minlength=n_pictures)], 1)
    hits = np.stack([_hits(one, picture, image_of, ks) for one in systems], 1).reshape(n_pictures, -1)
    shares = np.empty((samples, len(systems), 2, len(ks)))
    for sample, drawn in zip(shares, draw_images(n_pictures, samples, seed), strict=True):
        sample[:] = 100 * (drawn @ hits).reshape(sample.shape) / (drawn @ sizes)[:, None]
    keys = [f"{direction}_r{k}" for direction in ("i2t", "t2i") for k in ks]
    columns = shares.reshape(samples, len(systems), -1).transpose(2, 1, 0)
    return {**dict(zip(keys, columns, strict=True)), "rsum": columns.sum(0)}


def _hits(ranks: Ranks | EqualRanks, picture: Ints, image_of: Ints, ks: tuple[int, ...]) -> Reals:
    """Return the number of queries of each picture with a correct item among the first K, (n_pictures, 2, len(ks))."""
    images = [np.bincount(picture, ranks.i2t < k) for k in ks]
    captions = [np.bincount(picture[image_of], ranks.t2i < k, len(images[0])) for k in ks]
    return np.asarray(np.stack([*images, *captions], 1).reshape(len(images[0]), 2, len(ks)), np.float64)
