"""Networks that teach others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from torch import Tensor, from_numpy

from pairsift.arrays import Ints
from pairsift.encode.features import Features, Table
from pairsift.errors import writing
from pairsift.match.base import Matcher, products
from pairsift.retrieve.bank import Bank, encode_parts, parts_of
from pairsift.steps import Batch, Network

VECTOR_BYTES = 2**31  # limit of the vectors in memory of all teachers


class Teacher(Network):
    """A network that does not learn.

    Its codes of a pair are the same in every step. Where the similarity is their inner product, they can be kept.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network.matcher, network.head)
        self.eval().requires_grad_(False)
        self._sides: tuple[_Side, _Side] | None = None

    def keep(self, features: Features, ids: Ints, image_of: Ints, limit: int, folder: Path, room: int) -> None:
        """Encode the images and captions of all training pairs, if the vectors fit in memory or on the disk.

        On the disk are vectors of length 1 alone, in half precision, in a file without a name, which ends with the
        process.

        Args:
            features: The features of all pairs.
            ids: The training pairs, ascending, (n,).
            image_of: Image row of every pair, (n_pairs,).
            limit: Most bytes of the vectors in memory.
            folder: A folder on the disk.
            room: Most bytes of the vectors on the disk.

        Raises:
            WriteError: The file cannot be written.
        """
        matcher = self.matcher
        if not matcher.factorises:
            return
        rows, image = np.unique(image_of[ids], return_inverse=True)
        values = matcher.index_dim * (len(rows) + len(ids))
        if next(matcher.parameters()).element_size() * values <= limit:
            encode = _vectors_in_memory
        elif matcher.shares_space and np.float16().itemsize * values <= room:
            encode = partial(_vectors_on_disk, folder)
        else:
            return
        images, place = encode(matcher, features.images, rows, False)
        texts, own = encode(matcher, features.texts, ids, True)
        self._sides = _Side(images, ids, place[image]), _Side(texts, ids, own)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return similarities of the batch's images with its captions, (B, B), and the inverse temperature, scalar."""
        if self._sides is None:
            return super().forward(batch)
        images, texts = self._sides
        captions = batch.ids if batch.captions is None else batch.captions
        scale = self.matcher.scale()
        return products(images.of_pairs(batch.ids).to(scale), texts.of_pairs(captions).to(scale)), scale


def _vectors_in_memory(matcher: Matcher, table: Table, rows: Ints, texts: bool) -> tuple[Tensor, Ints]:
    """Return the vectors of rows of a table, (n, d), and the place of each, (n,)."""
    return Bank.encode_table(matcher, table, rows, texts, 0).vectors, np.arange(len(rows))


def _vectors_on_disk(folder: Path, matcher: Matcher, table: Table, rows: Ints, texts: bool) -> tuple[Tensor, Ints]:
    """Return the vectors of rows of a table in a mapped file, (n, d), and the place of each, (n,)."""
    parts = parts_of(table.lengths[rows])
    with writing(folder / "vectors of a teacher"), TemporaryFile(dir=folder) as file:
        for codes in encode_parts(matcher, table, rows, texts, parts):
            file.write(codes.indexed.half().cpu().numpy().tobytes())
        file.flush()
        vectors = from_numpy(np.memmap(file, np.float16, "r+", shape=(len(rows), matcher.index_dim)))
    return vectors, np.concatenate(parts).argsort()


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
