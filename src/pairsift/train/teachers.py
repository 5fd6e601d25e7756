"""Networks that teach others."""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from pairsift.arrays import Ints
from pairsift.encode.features import Features, Table
from pairsift.match.base import products
from pairsift.retrieve.bank import Bank
from pairsift.steps import Batch, Network

KEPT = 2**31  # bytes of the vectors that all teachers keep


class Teacher(Network):
    """A network that does not learn.

    Its codes of a pair are the same in every step. Where the similarity is their inner product, they can be kept.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network.matcher, network.head)
        self.eval().requires_grad_(False)
        self._kept: tuple[_Kept, _Kept] | None = None

    def keep(self, features: Features, ids: Ints, image_of: Ints, limit: int) -> None:
        """Encode the images and captions of all training pairs, if the vectors fit in memory.

        Args:
            features: The features of all pairs.
            ids: The training pairs, (n,).
            image_of: Image row of every pair, (n_pairs,).
            limit: Most bytes of the vectors.
        """
        sides = (features.images, np.unique(image_of[ids]), False), (features.texts, ids, True)
        size = next(self.matcher.parameters()).element_size() * self.matcher.index_dim
        if self.matcher.factorises and size * sum(len(rows) for _, rows, _ in sides) <= limit:
            images, texts = (_Kept(self, table, rows, texts) for table, rows, texts in sides)
            self._kept, self._image_of = (images, texts), image_of

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return similarities of the batch's images with its captions, (B, B), and the inverse temperature, scalar."""
        if self._kept is None:
            return super().forward(batch)
        images, texts = self._kept
        captions = batch.ids if batch.captions is None else batch.captions
        return products(images[self._image_of[batch.ids]], texts[captions]), self.matcher.scale()


class _Kept:
    """The vectors of some rows of a table."""

    def __init__(self, network: Network, table: Table, rows: Ints, texts: bool) -> None:
        self._vectors = Bank.encode_table(network.matcher, table, rows, texts, 0).vectors
        self._place = np.full(len(table), -1)
        self._place[rows] = np.arange(len(rows))

    def __getitem__(self, rows: Ints) -> Tensor:
        return self._vectors[from_numpy(self._place[rows]).to(self._vectors.device)]
