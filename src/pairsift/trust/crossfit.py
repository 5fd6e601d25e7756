"""Folds of pairs, and decoys: captions combined with images of other pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pairsift.arrays import Ints, unit_rows

NEAR = 0.9  # smallest cosine of the vectors of two images that count as near-duplicates
DECOYS = 20_000  # approximate number of decoys
LARGEST = 0.1  # largest share of the images in a group of near-duplicates; a larger group is dissolved
ROWS = 1024

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class CrossFit:
    """The judged pairs in folds, with decoys within each fold.

    A model that is trained on all folds except one has seen neither the pairs nor the decoys of this fold. A decoy is a
    mismatched pair: the image and the caption of two different pairs of the same fold. The images of these two pairs
    are no near-duplicates, and their captions differ.

    Attributes:
        image_of: Image of each pair, (n,).
        group_of: Group of near-duplicate images of each pair, (n,).
        fold: Fold of each pair, (n,), the same for all pairs of a group.
        decoy_images: Pair whose image each decoy has, (m,).
        decoy_captions: Pair whose caption each decoy has, (m,).
    """

    image_of: Ints
    group_of: Ints
    fold: Ints
    decoy_images: Ints
    decoy_captions: Ints

    def __len__(self) -> int:
        return len(self.fold)

    @property
    def folds(self) -> int:
        """The number of folds."""
        return int(self.fold.max()) + 1

    @staticmethod
    def make(image_of: Ints, group_of: Ints, captions: Sequence[str], fold: Ints, seed: int) -> CrossFit:
        """Draw decoys for pairs in folds.

        Args:
            image_of: Image of each pair, (n,).
            group_of: Group of near-duplicate images of each pair, (n,).
            captions: Each pair's caption, (n,).
            fold: Fold of each pair, (n,).
            seed: Seed of the decoys.
        """
        rng = np.random.default_rng((seed, 7))
        text = np.unique([" ".join(caption.casefold().split()) for caption in captions], return_inverse=True)[1]
        each = int(np.clip(np.ceil(DECOYS / max(1, len(fold))), 1, 200))
        images, partners = [], []
        for pairs in _members(fold):
            images.append(np.repeat(pairs, each))
            partners.append(rng.choice(pairs, len(pairs) * each))
        image_pairs, caption_pairs = np.concatenate(images), np.concatenate(partners)
        differ = (group_of[image_pairs] != group_of[caption_pairs]) & (text[image_pairs] != text[caption_pairs])
        return CrossFit(image_of, group_of, fold, image_pairs[differ], caption_pairs[differ])

    def members(self) -> list[Ints]:
        """Return the pairs of each fold."""
        return _members(self.fold)


def _members(fold: Ints) -> list[Ints]:
    return [np.flatnonzero(fold == number).astype(np.int64) for number in range(int(fold.max()) + 1)]


def near_duplicates(vectors: Vectors, least: float = NEAR) -> Ints:
    """Return the group of near-duplicates of each image, (n,), numbered from 0.

    Two images whose centred vectors have at least this cosine are in the same group, and so are images that a chain of
    such images joins. If a group has more than a tenth of the images (and more than two), the encoder does not
    distinguish them, and each of them becomes a separate group.

    Args:
        vectors: One vector per image, (n, d).
        least: Smallest cosine, (0, 1].
    """
    unit = torch.from_numpy(unit_rows(vectors - vectors.mean(0)))
    rows, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, len(unit), ROWS):
        near_pairs = (unit[start : start + ROWS] @ unit.T >= least).nonzero().numpy()
        rows.append(near_pairs[:, 0] + start)
        columns.append(near_pairs[:, 1])
    edges = np.concatenate(rows), np.concatenate(columns)
    graph = coo_matrix((np.ones(len(edges[0]), np.bool_), edges), (len(unit), len(unit)))
    group = connected_components(graph, directed=False)[1].astype(np.int64)
    oversized = np.flatnonzero(np.bincount(group)[group] > max(2, LARGEST * len(group)))
    group[oversized] = group.max(initial=0) + 1 + np.arange(len(oversized))
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def make_folds(group_of: Ints, folds: int, seed: int) -> Ints:
    """Return a fold for each pair, (n,): groups stay together, and folds have about the same number of pairs.

    Args:
        group_of: Group of each pair, (n,).
        folds: Number of folds, at least 2.
        seed: Seed of the order in which groups are dealt.
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
