"""Folds of pairs, decoys within each fold, and what counts as one image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pairsift.arrays import Array, Bools, Floats, Ints, first_numbers, unit_rows
from pairsift.detect.options import DecoyOptions, DetectOptions, FoldOptions

ROWS = 1024  # rows whose cosines with all others are in memory at once
BUCKETED = 4096  # smallest number of images that are compared by pivots, not all with all
PROBES = 8  # nearest pivots of an image whose images it is compared with
FINGERPRINTS = 8192  # vectors whose fingerprints are computed at once

UnitRows = Callable[[Ints], torch.Tensor]  # from rows to their unit vectors


@dataclass(frozen=True)
class Folds:
    """The judged pairs in folds, with decoys within each fold.

    A model that is trained on all folds except one has seen neither the pairs nor the decoys of this fold. A decoy is a
    mismatched pair: the image and the caption of two different pairs of the same fold. The images of these two pairs
    are no near-duplicates, and their captions differ. The caption of a near decoy moreover reads like the one that is
    given with the image: it is among the nearest of the fold.

    Attributes:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        fold: Fold of each pair, (n,), the same for all pairs of a group. Pairs of an image that has most of the
            collection are spread over the folds (`fold_units`).
        decoy_images: Pair whose image each decoy has, (m,).
        decoy_captions: Pair whose caption each decoy has, (m,).
        near_decoy_images: Pair whose image each near decoy has, (k,).
        near_decoy_captions: Pair whose caption each near decoy has, (k,).
        copies: Number of the copy where each decoy is a swap, (m,); empty where decoys are no swaps.
        text_of: Number of each caption's text, (n,); empty if it is not known.
        placeholder: Number of the placeholder that each pair has, -1 for none, (n,); None until they are sought
            (`pairsift.detect.placeholders`).
    """

    image_of: Ints
    group_of: Ints
    fold: Ints
    decoy_images: Ints
    decoy_captions: Ints
    near_decoy_images: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    near_decoy_captions: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    copies: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    text_of: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    placeholder: Ints | None = None

    def __len__(self) -> int:
        return len(self.fold)

    @property
    def count(self) -> int:
        """The number of folds."""
        return int(self.fold.max()) + 1

    @staticmethod
    def make(
        image_of: Ints,
        group_of: Ints,
        text_of: Ints,
        fold: Ints,
        seed: int,
        options: DecoyOptions,
        vectors: Floats | None = None,
    ) -> Folds:
        """Draw decoys for pairs in folds.

        Args:
            image_of: Image of each pair, (n,).
            group_of: Group of near-duplicate images of each pair, (n,).
            text_of: Number of each caption's text, (n,).
            fold: Fold of each pair, (n,).
            seed: Seed of the decoys.
            options: How many decoys are drawn.
            vectors: Vector of each pair's caption, (n, e), which says what captions are near; without them, there are
                no near decoys.
        """
        rng = np.random.default_rng((seed, 7))
        each = int(np.clip(np.ceil(options.number / max(1, len(fold))), 1, options.max_per_pair))
        images, partners = [], []
        for pairs in _members(fold):
            images.append(np.repeat(pairs, each))
            partners.append(rng.choice(pairs, len(pairs) * each))
        image_pairs, caption_pairs = np.concatenate(images), np.concatenate(partners)
        differ = (group_of[image_pairs] != group_of[caption_pairs]) & (text_of[image_pairs] != text_of[caption_pairs])
        near = (np.zeros(0, np.int64),) * 2
        if vectors is not None:
            near = _near_decoys(vectors, group_of, text_of, fold, seed, options)
        return Folds(image_of, group_of, fold, image_pairs[differ], caption_pairs[differ], *near, text_of=text_of)

    def members(self) -> list[Ints]:
        """Return the pairs of each fold."""
        return _members(self.fold)


def _members(fold: Ints) -> list[Ints]:
    return [np.flatnonzero(fold == number).astype(np.int64) for number in range(int(fold.max(initial=-1)) + 1)]


def _near_decoys(
    vectors: Floats, group_of: Ints, text: Ints, fold: Ints, seed: int, options: DecoyOptions
) -> tuple[Ints, Ints]:
    """Return the pairs that near decoys take their images and their captions from, (k,) each.

    Args:
        vectors: Vector of each pair's caption, (n, e).
        group_of: Group of near-duplicate images of each pair, (n,).
        text: Number of each caption's text, (n,).
        fold: Fold of each pair, (n,); small folds have no near decoys.
        seed: Seed of the decoys.
        options: How many decoys are drawn, and among what captions.
    """
    rng = np.random.default_rng((seed, 14))
    each = int(np.clip(np.ceil(options.number / max(1, len(fold))), 1, options.max_near_per_pair))
    share = min(1.0, options.number / max(1, len(fold)))
    images, captions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for members in _members(fold):
        if len(members) < options.min_candidates:
            continue
        candidates = np.sort(rng.permutation(members)[: options.max_candidates])
        given = np.sort(rng.permutation(members)[: int(np.ceil(share * len(members)))])
        k = max(1, round(options.near_share * len(candidates)))
        for start in range(0, len(given), ROWS):
            rows = given[start : start + ROWS]
            near, differs = _near_captions(vectors, rows, candidates, group_of, text, k)
            chosen = rng.integers(0, k, (len(rows), each))
            other = np.take_along_axis(differs, chosen, 1)
            images.append(np.repeat(rows[:, None], each, 1)[other])
            captions.append(np.take_along_axis(near, chosen, 1)[other])
    return np.concatenate(images).astype(np.int64), np.concatenate(captions).astype(np.int64)


def _near_captions(
    vectors: Floats, rows: Ints, candidates: Ints, group_of: Ints, text: Ints, k: int
) -> tuple[Ints, Bools]:
    """Return the k candidates nearest to each row's caption, (n, k), and whether each may replace it, (n, k).

    A candidate may not where it has the same text, or a near-duplicate of the image.
    """
    cosine = torch.from_numpy(unit_rows(vectors[rows])) @ torch.from_numpy(unit_rows(vectors[candidates])).T
    for number in map(torch.from_numpy, (group_of, text)):
        cosine.masked_fill_(number[rows, None] == number[candidates], -torch.inf)
    values, nearest = cosine.topk(k, 1)
    return candidates[nearest.numpy()], values.isfinite().numpy()


def near_duplicates(vectors: Floats, options: FoldOptions) -> Ints:
    """Return the group of near-duplicates of each image, (n,), numbered from 0.

    Two images whose centred vectors have a cosine of at least 0.9 are in the same group, and so are images that a chain
    of such images joins. If a group has more than a tenth of the images (and more than two), the encoder does not
    distinguish them, and each of them becomes a separate group.

    From 4,096 images on, an image is compared with those that have one of its 8 nearest pivots as their nearest, among
    4 sqrt(n) images that are drawn. All of 46,465 pairs of 31,754 images were found so, in a 25th of the time.

    Args:
        vectors: One vector per image, (n, d).
        options: The smallest cosine, and the largest group.
    """
    first, place = np.unique(first_numbers(fingerprints(vectors)), return_index=True, return_inverse=True)[1:]
    n = len(first)  # copies of an image are one row, since all of many would be near all others
    unit = CentredRows(vectors, vectors.mean(0), first)
    edges = NearRows(unit, n, options.near_duplicate_cosine).pairs(unit, n)
    graph = coo_matrix((np.ones(len(edges[0]), np.bool_), edges), (n, n))
    group = connected_components(graph, directed=False)[1].astype(np.int64)[place]
    oversized = np.flatnonzero(np.bincount(group)[group] > max(2, options.max_group_share * len(group)))
    group[oversized] = group.max(initial=0) + 1 + np.arange(len(oversized))
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class CentredRows:
    """A function from rows to their vectors, less a mean and scaled to unit length.

    Attributes:
        vectors: (n, d).
        mean: (d,).
        chosen: The rows of the vectors that are the rows here; None for all.
    """

    vectors: Floats
    mean: Floats
    chosen: Ints | None = None

    def __call__(self, rows: Ints) -> torch.Tensor:
        """Return the vectors of these rows, (k, d)."""
        rows = rows if self.chosen is None else self.chosen[rows]
        return torch.from_numpy(unit_rows(self.vectors[rows] - self.mean))


class NearRows:
    """Rows among which those near other rows are found, by comparing all, or from 4,096 on by pivots.

    Args:
        unit: Function from rows to their unit vectors, (k, d).
        n: Number of rows.
        least: Smallest cosine of rows that are near.
    """

    def __init__(self, unit: UnitRows, n: int, least: float) -> None:
        self.unit, self.n, self.least = unit, n, least
        self.pivots = unit(np.random.default_rng(0).permutation(n)[: int(4 * np.sqrt(n)) if n >= BUCKETED else 0])
        self.nearest = self._nearest(unit, n)

    def pairs(self, unit: UnitRows, n: int) -> tuple[Ints, ...]:
        """Return the pairs of n other rows, or the same, and these rows that are near, (k,) each.

        Where both are the same rows, a pair is found in one order or in both.
        """
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        if not len(self.pivots):
            all_rows = self.unit(np.arange(self.n))
            for block in _blocks(n):
                rows, columns = (unit(block) @ all_rows.T >= self.least).numpy().nonzero()
                found.append((block[rows], columns))
        else:
            nearest = self.nearest if unit is self.unit else self._nearest(unit, n)
            sides = self.nearest[:, 0], nearest.ravel()
            for here, seen in zip(*(np.split(*_stretches(side, len(self.pivots))) for side in sides), strict=True):
                own = self.unit(here)
                for part in np.array_split(seen // PROBES, max(1, len(seen) // ROWS)):
                    rows, columns = (unit(part) @ own.T >= self.least).numpy().nonzero()
                    found.append((part[rows], here[columns]))
        return tuple(np.concatenate(side) for side in zip(*found, strict=True))

    def _nearest(self, unit: UnitRows, n: int) -> Ints:
        """Return the nearest pivots of each row, (n, 8); without pivots, the array is empty."""
        if not len(self.pivots):
            return np.zeros((0, PROBES), np.int64)
        nearest = np.empty((n, PROBES), np.int64)  # one array, since many small ones between large ones split the heap
        for block in _blocks(n):
            nearest[block] = (unit(block) @ self.pivots.T).topk(PROBES, 1)[1]
        return nearest


def _blocks(n: int) -> list[Ints]:
    """Return n rows in blocks of at most 1,024."""
    return np.array_split(np.arange(n), max(1, -(-n // ROWS)))


def _stretches(number: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the places of the numbers in the order of the numbers, and where each number but the first begins."""
    order = np.argsort(number, kind="stable")
    return order, np.searchsorted(number[order], np.arange(1, count))


def make_folds(group_of: Ints, folds: int, seed: int) -> Ints:
    """Return a fold for each pair, (n,): groups stay together, and folds have about the same number of pairs.

    Args:
        group_of: Group of each pair, (n,).
        folds: Number of folds, at least 2.
        seed: Seed of the order of the groups.
    """
    rng = np.random.default_rng((seed, 8))
    group = np.unique(group_of, return_inverse=True)[1]
    size = np.bincount(group)
    order = rng.permutation(len(size))
    order = order[np.argsort(-size[order], kind="stable")]
    fold_of, load = np.zeros(len(size), np.int64), np.zeros(folds, np.int64)
    for number in order:
        fold_of[number] = load.argmin()
        load[fold_of[number]] += size[number]
    return fold_of[group]


def fold_units(image_of: Ints, group_of: Ints, most: int, options: FoldOptions) -> tuple[Ints, int]:
    """Return the unit of each pair that folds keep together, (n,), and the number of folds.

    A unit is a group of near-duplicate images, with all pairs of a common image. There are fewer folds than `most`, but
    at least two, where one image has more than half of a fold's pairs: a fold of hardly anything else would have no
    decoys of it. If more than 40% of the pairs have one image, each of these pairs is a unit by itself.

    Args:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        most: Largest number of folds.
        options: When an image is common, and when it is too large for one fold.
    """
    size, n = pair_counts(image_of), max(1, len(image_of))
    common, large = size >= options.min_common, size > options.max_kept_share * n
    # The unit of a common image is the group of its first pair.
    first = np.zeros(int(image_of.max(initial=-1)) + 1, np.int64)
    first[image_of[::-1]] = np.arange(len(image_of))[::-1]
    units = np.where(common, group_of[first[image_of]], group_of)
    alone = int(group_of.max(initial=0)) + 1 + np.arange(len(size))
    units = np.where(common & large, alone, units)
    # The largest image that stays together has at most half of a fold.
    kept = size[common & ~large]
    folds = max(2, n // (2 * int(kept.max()))) if len(kept) else most
    return units, min(most, folds, len(np.unique(units)))


def join_equal_images(image_of: Ints, vectors: Floats, rows: Ints, min_common: int) -> Ints:
    """Return the image of each pair, where images with equal vectors are one if many pairs have them, (n,).

    Args:
        image_of: Image of each pair, (n,).
        vectors: Vectors of the images, (m, d).
        rows: Row of each pair's image among the vectors, (n,).
        min_common: Smallest number of pairs that are many.
    """
    first, number = np.unique(fingerprints(vectors)[rows], return_index=True, return_inverse=True)[1:]
    pictures = number.reshape(-1)
    return np.where(pair_counts(pictures) >= min_common, image_of[first][pictures], image_of).astype(np.int64)


def fingerprints(vectors: Array) -> NDArray[np.uint64]:
    """Return a number for each vector, the same for equal ones and almost surely another for others, (m,)."""
    factors = np.random.default_rng(0).integers(1, 2**63, vectors.shape[1], np.uint64) * 2 + 1
    found = np.zeros(len(vectors), np.uint64)
    for start in range(0, len(vectors), FINGERPRINTS):
        part = np.ascontiguousarray(vectors[start : start + FINGERPRINTS], np.float32) + np.float32(0)  # -0 is 0
        part = part.view(np.uint32)
        found[start : start + FINGERPRINTS] = (part * factors).sum(1, dtype=np.uint64)
    return found


def draw_swaps(
    image_of: Ints,
    group_of: Ints,
    text_of: Ints,
    fold: Ints,
    seed: int,
    options: DetectOptions,
    vectors: Floats,
) -> Folds:
    """Draw decoys by exchanging captions of a fold that are near each other, in copies of the collection.

    Of two captions that change places, one has the other among the nearest 1% of its fold (at least the nearest one),
    by cosine. Their images are no near-duplicates, and their texts differ. A fifth of the captions change places in
    each of two copies, at most about 20,000, and no caption does so in both.

    Args:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        text_of: Number of each caption's text, (n,).
        fold: Fold of each pair, (n,).
        seed: Seed of the exchange.
        options: How many copies there are, how many captions change places, and what is near.
        vectors: Vector of each pair's caption, (n, e), which says what captions are near.
    """
    rng = np.random.default_rng((seed, 15))
    free = np.ones(len(fold), np.bool_)
    share = min(options.near_mismatches.swapped_share, options.decoys.number / max(1, len(fold)))
    found: list[tuple[int, int, int]] = []
    for copy in range(options.near_mismatches.copies):
        for members in _members(fold):
            candidates = np.sort(rng.permutation(members)[: options.decoys.max_candidates])
            k = max(1, round(options.decoys.near_share * len(candidates)))
            swaps = _exchanged(vectors, candidates, group_of, text_of, free, round(share * len(members) / 2), k, rng)
            for first, second in swaps:
                found += [(first, second, copy), (second, first, copy)]
    decoy_images, decoy_captions, copies = np.array(found, np.int64).reshape(-1, 3).T
    return Folds(image_of, group_of, fold, decoy_images, decoy_captions, copies=copies)


def _exchanged(
    vectors: Floats,
    candidates: Ints,
    group_of: Ints,
    text: Ints,
    free: Bools,
    wanted: int,
    k: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Return at most this number of pairs of captions that change places, and mark them as used."""
    order = rng.permutation(candidates)
    exchanged: list[tuple[int, int]] = []
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        if len(exchanged) == wanted:
            break
        for row, near, differs in zip(rows, *_near_captions(vectors, rows, candidates, group_of, text, k), strict=True):
            partners = near[differs & free[near]]
            if free[row] and len(partners) and len(exchanged) < wanted:
                partner = int(rng.choice(partners))
                free[[row, partner]] = False
                exchanged.append((int(row), partner))
    return exchanged


def copy_of(folds: Folds, number: int) -> Folds:
    """Return the pairs of a copy, whose captions have changed places, in one fold; a pair keeps its caption.

    In one fold, a swap meets the image that its caption was taken from no more often than a mismatched pair does.
    """
    swaps = folds.copies == number
    images, captions = folds.decoy_images[swaps], folds.decoy_captions[swaps]
    image_of, group_of = folds.image_of.copy(), folds.group_of.copy()
    image_of[captions], group_of[captions] = folds.image_of[images], folds.group_of[images]
    return Folds(image_of, group_of, np.zeros(len(folds), np.int64), *(np.zeros(0, np.int64),) * 2)


def pair_counts(number: Ints) -> Ints:
    """Return how many pairs have each pair's number, 0 and up, (n,)."""
    return np.bincount(number, minlength=1)[number].astype(np.int64)
