"""The approximate indexes of a run of a million images or captions, kept in its folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from pairsift.errors import WriteError
from pairsift.retrieve.approximate import Approximate, mark_of
from pairsift.train.checkpoint import read_tensors, write_tensors

LEAST = 1_000_000  # items from which an exact search is slow


def approximation(
    folder: Path | None, items: str, vectors: Sequence[Tensor], queries: Sequence[Tensor] | None
) -> Approximate | None:
    """Return the approximate index of a run's images or captions; it is built and kept at the first call.

    Args:
        folder: The run's folder.
        items: `images` or `captions`.
        vectors: Each network's vectors of the items, (n, d) each.
        queries: Each network's vectors of the other side, (m, d) each, on which recall is measured.

    Returns:
        The index; None where there are fewer than `LEAST` items, no queries or no folder, or faiss is not installed.

    Raises:
        InputError: The file of the index is damaged.
    """
    if folder is None or queries is None or len(vectors[0]) < LEAST or find_spec("faiss") is None:
        return None
    path = folder / "model" / f"{items}_approximate.safetensors"
    if path.exists():
        import faiss

        tensors, facts = read_tensors(path)
        if facts.get("mark") == mark_of(vectors):
            return Approximate(faiss.deserialize_index(tensors["index"].numpy()), facts)
    print(f"building an index of {len(vectors[0]):,} {items}, once", file=sys.stderr)
    built = Approximate.build(vectors, queries)
    print(built.line, file=sys.stderr)
    with suppress(WriteError):  # a read-only folder can be searched too
        write_tensors(path, {"index": torch.from_numpy(built.serialized())}, built.facts)
    return built
