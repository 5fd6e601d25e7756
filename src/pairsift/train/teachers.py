"""Networks that teach others."""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from pairsift.arrays import Ints
from pairsift.encode.features import Features
from pairsift.match.base import products
from pairsift.retrieve.bank import Bank
from pairsift.steps import Batch, Network

VECTOR_BYTES = 2**31  # limit of the vectors that all teachers keep


class Teacher(Network):
    """A network that does not learn.

    Its codes of a pair are the same in every step. Where the similarity is their inner product, they can be kept.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network.matcher, network.head)
        self.eval().requires_grad_(False)
        self._sides: tuple[_Side, _Side] | None = None

    def keep(self, features: Features, ids: Ints, image_of: Ints, limit: int) -> None:
        """Encode the images and captions of all training pairs, if the vectors fit in memory.

        Args:
            features: The features of all pairs.
            ids: The training pairs, ascending, (n,).
            image_of: Image row of every pair, (n_pairs,).
            limit: Most bytes of the vectors.
        """
        matcher = self.matcher
        rows, image = np.unique(image_of[ids], return_inverse=True)
        size = next(matcher.parameters()).element_size() * matcher.index_dim
        if matcher.factorises and size * (len(rows) + len(ids)) <= limit:
            images, texts = (
                Bank.encode_table(matcher, table, own, is_text, 0).vectors
                for table, own, is_text in ((features.images, rows, False), (features.texts, ids, True))
            )
            self._sides = _Side(images, ids, image), _Side(texts, ids, np.arange(len(ids)))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return similarities of the batch's images with its captions, (B, B), and the inverse temperature, scalar."""
        if self._sides is None:
            return super().forward(batch)
        images, texts = self._sides
        captions = batch.ids if batch.captions is None else batch.captions
        return products(images.of_pairs(batch.ids), texts.of_pairs(captions)), self.matcher.scale()


class _Side:
    """The vectors of the images or of the captions of pairs.

    Args:
        vectors: The vectors, (m, d).
        ids: The pairs, ascending, (n,).
        place: Place of each pair's vector, (n,).
    """

    def __init__(self, vectors: Tensor, ids: Ints, place: Ints) -> None:
        self._vectors, self._ids, self._place = vectors, ids, place

    def of_pairs(self, ids: Ints) -> Tensor:
        """Return the vectors of these pairs, (len(ids), d)."""
        place = self._place[np.searchsorted(self._ids, ids)]
        return self._vectors[from_numpy(place).to(self._vectors.device)]
