"""The index of a run: its images and captions with their global vectors, in the run's folder."""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode.features import Features, Table
from pairsift.errors import InputError, WriteError, writing
from pairsift.match.base import Matcher
from pairsift.pairs.image_files import within
from pairsift.pairs.pairs import JUDGED, UNUSED, Pairs
from pairsift.pairs.text import printable
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.nearest import ApproximateIndex, mark_of
from pairsift.source_path import root_of
from pairsift.train.checkpoint import read_tensors, with_prefix, write_tensors

INDEX = Path("model") / "images.safetensors"
CAPTIONS = Path("model") / "captions.safetensors"
APPROXIMATE_FROM = 1_000_000  # items; below this number an exact search is fast


@dataclass(frozen=True)
class Captions:
    """The captions of a run with their global vectors.

    Attributes:
        pairs: Id of the pair of each caption, ascending, (m,).
        images: Place of each caption's image in the index, (m,).
        first: Place of the caption that stands for each image of the index, the caption of its first judged pair, (n,).
        texts: The captions, (m,).
        vectors: Each network's global vectors, float16, (m, d) each.
    """

    pairs: Ints
    images: Ints
    first: Ints
    texts: list[str]
    vectors: list[Tensor]

    def place(self, pair: int) -> int:
        """Return the place of a pair's caption.

        Raises:
            InputError: The run has no usable pair with this id.
        """
        place = bisect_left(self.pairs, pair)  # any number, however large
        if place == len(self.pairs) or self.pairs[place] != pair:
            raise InputError(f"the run has no usable pair {pair}: give an id from the column pair of pairs.parquet")
        return place

    def write(self, folder: Path) -> None:
        """Write the captions into a run's folder.

        Raises:
            WriteError: The file cannot be written.
        """
        arrays = {"pairs": self.pairs, "images": self.images, "first": self.first}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        write_tensors(folder / CAPTIONS, tensors | {"texts": _as_json(self.texts)} | _named_vectors(self.vectors))

    @staticmethod
    def load(folder: Path) -> Captions:
        """Read the captions of a run's folder.

        Raises:
            InputError: The file is damaged.
        """
        tensors, _ = read_tensors(folder / CAPTIONS)
        arrays = {name: tensors[name].numpy() for name in ("pairs", "images", "first")}
        return Captions(**arrays, texts=_from_json(tensors["texts"]), vectors=_vectors(tensors))


@dataclass(frozen=True)
class Index:
    """The images of a run with their global vectors.

    Attributes:
        files: File of each image, relative to the source's folder if it is inside; name of each image where the source
            has features, (n,).
        rows: Row of each image among the features, (n,).
        vectors: Each network's global vectors, float16, (n, d) each.
        facts: `sizes`, the sizes of the data for the matcher's constructor; `text_encoder` and `image_encoder`, their
            names; `features`, the file of the images' features in the cache, or None; `images`, whether images are
            files; `folder`, whether the source is a folder.
        captions: The captions of these images.
    """

    files: list[str]
    rows: Ints
    vectors: list[Tensor]
    facts: Mapping[str, Any]
    captions: Captions

    def write(self, folder: Path) -> None:
        """Write the index into a run's folder.

        The old captions are removed first, so that captions are never beside the images of another index.

        Raises:
            WriteError: A file cannot be written.
        """
        tensors = _named_vectors(self.vectors) | {"files": _as_json(self.files), "rows": torch.from_numpy(self.rows)}
        with writing(folder / CAPTIONS):
            (folder / CAPTIONS).unlink(missing_ok=True)
        write_tensors(folder / INDEX, tensors, dict(self.facts))
        self.captions.write(folder)

    @staticmethod
    def load(folder: Path) -> Index:
        """Read the index of a run's folder.

        Raises:
            InputError: A file is damaged.
        """
        tensors, facts = read_tensors(folder / INDEX)
        files, rows = _from_json(tensors["files"]), tensors["rows"].numpy()
        return Index(files, rows, _vectors(tensors), facts, Captions.load(folder))


def make_index(matchers: Sequence[Matcher], pairs: Pairs, features: Features, facts: Mapping[str, Any]) -> Index:
    """Encode all images and captions of a run that are in a pair that is not skipped.

    Args:
        matchers: The trained matchers.
        pairs: The run's pairs.
        features: Features of all pairs.
        facts: `sizes`, `text_encoder` and `image_encoder`, as in `Index`.
    """
    rows = pairs.images(*JUDGED, UNUSED)
    base = root_of(pairs.source)
    images = pairs.features is None
    files = [within(pairs.paths[row], base) if images else pairs.names[row] for row in rows]
    values = features.images.values
    cached = str(Path(values.filename).absolute()) if isinstance(values, np.memmap) and values.filename else None
    more = {"features": cached, "images": images, "folder": base == Path(pairs.source)}
    vectors = _encoded(matchers, features.images, rows, False)
    return Index(files, rows, vectors, {**facts, **more}, _make_captions(matchers, pairs, features.texts, rows))


def approximate_index(
    folder: Path | None, items: str, vectors: Sequence[Tensor], queries: Sequence[Tensor]
) -> ApproximateIndex | None:
    """Return the approximate index of a run's images or captions; it is built and kept at the first call.

    Args:
        folder: The run's folder.
        items: `images` or `captions`.
        vectors: Each network's vectors of the items, (n, d) each.
        queries: Each network's vectors of the other side, (m, d) each, on which recall is measured.

    Returns:
        The index; None where there are fewer than `APPROXIMATE_FROM` items or no folder, or faiss is not installed.

    Raises:
        InputError: The file of the index is damaged.
    """
    if folder is None or len(vectors[0]) < APPROXIMATE_FROM or find_spec("faiss") is None:
        return None
    path = folder / "model" / f"{items}_approximate.safetensors"
    if path.exists():
        import faiss

        tensors, facts = read_tensors(path)
        if facts.get("mark") == mark_of(vectors):
            return ApproximateIndex(faiss.deserialize_index(tensors["index"].numpy()), facts)
    print(f"building an index of {len(vectors[0]):,} {items}, once", file=sys.stderr)
    built = ApproximateIndex.build(vectors, queries)
    print(built.line, file=sys.stderr)
    with suppress(WriteError):  # a read-only folder can be searched too
        write_tensors(path, {"index": torch.from_numpy(built.serialized())}, built.facts)
    return built


def _make_captions(matchers: Sequence[Matcher], pairs: Pairs, texts: Table, rows: Ints) -> Captions:
    """Encode the captions of the images at these rows."""
    ids = pairs.ids(*JUDGED, UNUSED)
    images = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
    judged_first = np.argsort(pairs.split[ids] == UNUSED, kind="stable")
    _, first = np.unique(images[judged_first], return_index=True)
    captions = [printable(pairs.captions[pair]) for pair in ids]
    return Captions(ids, images, judged_first[first], captions, _encoded(matchers, texts, ids, True))


def _encoded(matchers: Sequence[Matcher], table: Table, rows: Ints, texts: bool) -> list[Tensor]:
    """Return each network's global vectors of these rows in half precision, (n, d) each, on the CPU."""
    return [Bank.encode_table(matcher, table, rows, texts, 0).vectors.half().cpu() for matcher in matchers]


def _as_json(texts: list[str]) -> Tensor:
    """Return texts as a tensor of the bytes of their JSON."""
    return torch.from_numpy(np.frombuffer(json.dumps(texts).encode(), np.uint8).copy())


def _from_json(content: Tensor) -> list[str]:
    return list(json.loads(content.numpy().tobytes()))


def _named_vectors(vectors: Sequence[Tensor]) -> dict[str, Tensor]:
    return {f"network_{k}": rows for k, rows in enumerate(vectors)}


def _vectors(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    return [tensors[f"network_{k}"].half() for k in range(len(with_prefix(dict(tensors), "network_")))]
