"""Captions that change places with near ones: mismatched pairs that networks can learn as they learn given pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pairsift.arrays import Bools, Ints, Reals, unit_rows
from pairsift.detect.contrast import Evidence
from pairsift.detect.crossfit import CANDIDATES, DECOYS, NEAREST, ROWS, CrossFit, Vectors, text_numbers

COPIES = 2  # number of copies of the collection, in each of which other captions change places
SHARE = 0.2  # share of the captions that change places in a copy


def draw_swaps(
    image_of: Ints, group_of: Ints, captions: Sequence[str], fold: Ints, seed: int, vectors: Vectors
) -> CrossFit:
    """Draw decoys by exchanging captions of a fold that are near each other, in two copies of the collection.

    Of two captions that change places, one has the other among the nearest 1% of its fold (at least the nearest one),
    by cosine. Their images are no near-duplicates, and their texts differ. A fifth of the captions change places in a
    copy, at most about 20,000, and no caption does so in both copies.

    Args:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        captions: Each pair's caption, (n,).
        fold: Fold of each pair, (n,).
        seed: Seed of the exchange.
        vectors: Vector of each pair's caption, (n, e), by which captions are near.
    """
    rng, text = np.random.default_rng((seed, 15)), text_numbers(captions)
    unit = torch.from_numpy(unit_rows(vectors))
    free = np.ones(len(fold), np.bool_)
    share = min(SHARE, DECOYS / max(1, len(fold)))
    found: list[tuple[int, int, int]] = []
    for copy in range(COPIES):
        for number in range(int(fold.max(initial=-1)) + 1):
            members = np.flatnonzero(fold == number).astype(np.int64)
            for first, second in _exchanged(unit, members, group_of, text, free, round(share * len(members) / 2), rng):
                found += [(first, second, copy), (second, first, copy)]
    decoy_images, decoy_captions, copies = np.array(found, np.int64).reshape(-1, 3).T
    return CrossFit(image_of, group_of, fold, decoy_images, decoy_captions, copies=copies)


def _exchanged(
    unit: torch.Tensor, members: Ints, group_of: Ints, text: Ints, free: Bools, wanted: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return at most this number of pairs of captions that change places; they are free no more."""
    candidates = np.sort(rng.permutation(members)[:CANDIDATES])
    order, k = rng.permutation(candidates), max(1, round(NEAREST * len(candidates)))
    exchanged: list[tuple[int, int]] = []
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        if len(exchanged) == wanted:
            break
        cosine = (unit[rows] @ unit[candidates].T).numpy()
        cosine[(group_of[rows, None] == group_of[candidates]) | (text[rows, None] == text[candidates])] = -np.inf
        nearest = np.argpartition(-cosine, k - 1, axis=1)[:, :k]
        possible = np.isfinite(np.take_along_axis(cosine, nearest, 1))
        for row, near, other in zip(rows, candidates[nearest], possible, strict=True):
            near = near[other & free[near]]
            if free[row] and len(near) and len(exchanged) < wanted:
                partner = int(rng.choice(near))
                free[[row, partner]] = False
                exchanged.append((int(row), partner))
    return exchanged


def copy_of(fit: CrossFit, number: int) -> CrossFit:
    """Return the pairs of a copy, whose captions have changed places, in one fold; a pair keeps its caption.

    In one fold, a swap meets the image that its caption was taken from no more often than a mismatched pair does.
    """
    swaps = fit.copies == number
    images, captions = fit.decoy_images[swaps], fit.decoy_captions[swaps]
    image_of, group_of = fit.image_of.copy(), fit.group_of.copy()
    image_of[captions], group_of[captions] = fit.image_of[images], fit.group_of[images]
    return CrossFit(image_of, group_of, np.zeros(len(fit), np.int64), *(np.zeros(0, np.int64),) * 2)


def memory_evidence(fit: CrossFit, of_copies: Reals, seed: int) -> Evidence:
    """Return the evidence of networks that learned a copy each: of every swap by the network that learned it.

    A pair has the evidence of a network that learned it as it is given, so that a mismatched pair and a decoy were
    learned alike.

    Args:
        fit: The pairs, and decoys that are swaps.
        of_copies: Evidence of the pairs of each copy by the network that learned it, (copies, n).
        seed: Seed of the choice where all networks learned a pair as it is given.
    """
    copy = np.random.default_rng((seed, 16)).integers(0, len(of_copies), len(fit))
    copy[fit.decoy_captions] = (fit.copies + 1) % len(of_copies)
    return Evidence(of_copies[copy, np.arange(len(fit))], of_copies[fit.copies, fit.decoy_captions])
