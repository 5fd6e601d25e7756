"""Search over a finished run by the files in its folder: no source, no image and no method is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode import Features, NgramEncoder, Table, read_numbering, text_encoder, text_parts
from pairsift.encode.encoder import TextEncoder
from pairsift.encode.front import Front
from pairsift.errors import InputError
from pairsift.match import MATCHERS, Codes, Matcher
from pairsift.options import Options
from pairsift.pairs.pairs import JUDGED, UNUSED, Pairs
from pairsift.pairs.stored import folder_of, within
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.codes import KEPT_BYTES, Gallery, find_images
from pairsift.runs.folder import CONFIG, FRONT, NGRAMS, VOCABULARY, weights
from pairsift.train.checkpoint import read_tensors, with_prefix, write_tensors

INDEX = Path("model") / "images.safetensors"


@dataclass(frozen=True)
class Index:
    """The images of a run with their global vectors.

    Attributes:
        files: File of each image, relative to the source's folder if it is inside; name of each image where the source
            has features, (n,).
        rows: Row of each image among the features, (n,).
        vectors: Each network's global vectors, float32, (n, d) each.
        facts: `sizes`, the sizes of the data for the matcher's constructor; `text_encoder`, its name; `features`, the
            file of the images' features in the cache, or None; `images`, whether images are files; `folder`, whether
            the source is a folder.
    """

    files: list[str]
    rows: Ints
    vectors: list[Tensor]
    facts: Mapping[str, Any]

    def write(self, folder: Path) -> None:
        """Write the index into a run's folder, with vectors in half precision.

        Raises:
            WriteError: The file cannot be written.
        """
        tensors = {f"network_{k}": vectors.half() for k, vectors in enumerate(self.vectors)}
        names = np.frombuffer(json.dumps(self.files).encode(), np.uint8).copy()
        tensors |= {"files": torch.from_numpy(names), "rows": torch.from_numpy(self.rows)}
        write_tensors(folder / INDEX, tensors, dict(self.facts))

    @staticmethod
    def load(folder: Path) -> Index:
        """Read the index of a run's folder.

        Raises:
            InputError: The file is damaged.
        """
        tensors, facts = read_tensors(folder / INDEX)
        vectors = [tensors[f"network_{k}"].float() for k in range(len(tensors) - 2)]
        return Index(json.loads(tensors["files"].numpy().tobytes()), tensors["rows"].numpy(), vectors, facts)


def make_index(matchers: list[Matcher], pairs: Pairs, features: Features, facts: Mapping[str, Any]) -> Index:
    """Encode all images of a run that are in a pair that is not skipped.

    Args:
        matchers: The trained matchers.
        pairs: The run's pairs.
        features: Features of all pairs.
        facts: `sizes` and `text_encoder`, as in `Index`.
    """
    rows = pairs.images(*JUDGED, UNUSED)
    banks = [Bank.encode_table(matcher, features.images, rows, False, 0) for matcher in matchers]
    base = folder_of(pairs.source)
    images = pairs.features is None
    files = [within(pairs.paths[row], base) if images else pairs.names[row] for row in rows]
    values = features.images.values
    cached = str(Path(values.filename).absolute()) if isinstance(values, np.memmap) and values.filename else None
    vectors = [bank.vectors.half().float().cpu() for bank in banks]  # the same values as from a file
    return Index(
        files, rows, vectors, {**facts, "features": cached, "images": images, "folder": base == Path(pairs.source)}
    )


class Search:
    """A search over the images of a run by text.

    Args:
        texts: The run's text encoder.
        matchers: The matcher of each of its networks.
        index: The run's images.
        source: Path of the source, from which the paths of images are shown; it need not exist.
        features: The images' features, where similarities need more than global vectors.
    """

    def __init__(
        self, texts: TextEncoder, matchers: Sequence[Matcher], index: Index, source: str, features: Table | None = None
    ) -> None:
        self.texts, self.matchers, self.index = texts, matchers, index
        missing = not Path(source).exists()
        self.base = Path(source) if missing and index.facts["folder"] else folder_of(source)
        self.images = []
        for matcher, vectors in zip(matchers, index.vectors, strict=True):
            on_device = vectors.to(next(matcher.parameters()).device)
            if features is None:
                self.images.append(Bank.from_codes(Codes(on_device)))
            else:
                no_tokens = np.zeros(len(vectors), np.int64)
                self.images.append(Bank(on_device, no_tokens, [], [], _encoder(matcher, features, index.rows)))

    @staticmethod
    def open(folder: Path, source: str | Path | None = None) -> Search | None:
        """Open the search over a run's index; None where there is no index, or its features are no longer in the cache.

        Args:
            folder: The run's folder.
            source: New path of the source, if it has moved; it need not exist.

        Raises:
            InputError: A file is damaged.
        """
        if not (folder / INDEX).exists():
            return None
        tree = yaml.load((folder / CONFIG).read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        place = tree["source"] if source is None else str(Path(source).expanduser().resolve())
        matcher_type = MATCHERS.find(tree["matcher"])
        index, features = Index.load(folder), None
        if not matcher_type.factorises:
            features = _cached(index)
            if features is None:
                return None
        options = matcher_type.options(**tree[matcher_type.name])
        texts, make = query_side(folder, matcher_type, options, index.facts)
        device = "cuda" if tree["device"] != "cpu" and torch.cuda.is_available() else "cpu"
        matchers = [make() for _ in index.vectors]
        for k, matcher in enumerate(matchers):
            matcher.load_state_dict(with_prefix(read_tensors(weights(folder, k))[0], "matcher."))
            matcher.to(device).eval()
        return Search(texts, matchers, index, place, features)

    def find(self, query: str, k: int) -> list[tuple[str, float]]:
        """Find images by a text, best first; see `Run.search`.

        Raises:
            InputError: The query is empty, or k is below 1.
        """
        if not query.strip():
            raise InputError("the query is empty: give some words")
        items = Table.from_items(self.texts.encode([query]))
        texts = [
            Bank.encode_table(matcher, items, np.zeros(1, np.int64), True, KEPT_BYTES) for matcher in self.matchers
        ]
        rows, scores = find_images(Gallery(self.matchers, self.images, texts), k)
        files = [self.index.files[row] for row in rows]
        paths = [str(self.base / file) for file in files] if self.index.facts["images"] else files
        return [(name, float(score)) for name, score in zip(paths, scores, strict=True)]


def query_side(
    folder: Path, matcher: type[Matcher], options: Options, facts: Mapping[str, Any]
) -> tuple[TextEncoder, Callable[[], Matcher]]:
    """Return the text encoder of a run and a function that makes its matcher, from the files in its folder.

    Raises:
        InputError: The vocabulary is damaged, or a package is missing.
    """
    if matcher.image_kind == "pixels":
        front = Front(str(folder / FRONT), pretrained=False)
        return front, partial(matcher.make, options.replaced(checkpoint=front.place), pretrained=False)
    file = folder / VOCABULARY
    numbering = read_numbering(file.read_text(encoding="utf-8")) if file.exists() else None
    name = facts["text_encoder"]
    ngrams = NgramEncoder.load(folder / NGRAMS) if "ngrams" in text_parts(name) else None
    texts = text_encoder(name, tokens=matcher.text_kind == "tokens", vocabulary=numbering, ngrams=ngrams)
    return texts, partial(matcher.make, options, **facts["sizes"])


def _encoder(matcher: Matcher, features: Table, rows: Ints) -> Callable[[Ints], Codes]:
    """Return a function that encodes the images at some places of an index."""

    def encode(places: Ints) -> Codes:
        device = next(matcher.parameters()).device
        with torch.no_grad():
            return matcher.encode_images(features.batch(rows[places]).to(device))

    return encode


def _cached(index: Index) -> Table | None:
    """Return the images' features if they are still in the cache, else None."""
    file = index.facts["features"]
    values: NDArray[Any] | None = None
    if file is not None:
        with suppress(OSError, ValueError, EOFError):
            values = np.load(file, mmap_mode="r", allow_pickle=False)
    return Table(values) if values is not None and len(values) > index.rows.max(initial=-1) else None
