"""Search over a finished run by the files in its folder: no source, no image and no method is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Floats, Ints
from pairsift.encode.clip_preprocessor import ClipPreprocessor
from pairsift.encode.decode import BadImage, decode_image, open_image
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.features import Items, Table
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.registry import image_encoder, text_encoder, text_parts
from pairsift.encode.vocabularies import read_numbering
from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.base import Matcher, unit
from pairsift.options import Options
from pairsift.retrieve.bank import Bank, codes_of
from pairsift.retrieve.gallery import KEPT_BYTES, Gallery, most_similar
from pairsift.retrieve.nearest import ApproximateIndex, closest
from pairsift.run_folder import CONFIG, FRONT, NGRAMS, VOCABULARY, weights
from pairsift.search.index import CAPTIONS, INDEX, Captions, Index, approximate_index
from pairsift.source_path import exists, root_of
from pairsift.train.checkpoint import read_tensors, with_prefix

FIRST = np.zeros(1, np.int64)
ROUNDING = 5e-3  # how far half precision moves the length of a unit vector at most


@dataclass(frozen=True)
class Hit:
    """A result of a search: an image, and a caption of it.

    Attributes:
        file: Path of the image; its name where the source has features instead of images.
        pair: Id of the caption's pair.
        caption: The caption, or for a search for images the caption of the image's first pair.
        score: The similarity, see `Run.search`.
    """

    file: str
    pair: int
    caption: str
    score: float


class Search:
    """A search over the images and captions of a run.

    Args:
        texts: The run's text encoder.
        matchers: The matcher of each of its networks.
        index: The run's images and captions.
        source: Path of the source, the base of the paths of images; it need not exist.
        features: The images' features, where similarities need more than global vectors.
        folder: The run's folder, where approximate indexes are kept; without it, search is exact.
    """

    def __init__(
        self,
        texts: TextEncoder,
        matchers: Sequence[Matcher],
        index: Index,
        source: str,
        features: Table | None = None,
        folder: Path | None = None,
    ) -> None:
        self.texts, self.matchers, self.index, self.folder = texts, matchers, index, folder
        missing = not exists(source)
        self.base = Path(source) if missing and index.facts["folder"] else root_of(source)
        self._features = features
        self.images = self._token_banks(index.vectors, self._gather_images, False)

    @staticmethod
    def open(folder: Path, source: str | Path | None = None) -> Search | None:
        """Open the search over a run's index.

        Args:
            folder: The run's folder.
            source: New path of the source, if it has moved; it need not exist.

        Returns:
            The search; None where the folder lacks the index or its captions, or where features that similarities need
            are no longer in the cache.

        Raises:
            InputError: A file is damaged.
        """
        if not (folder / INDEX).exists() or not (folder / CAPTIONS).exists():
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
        return Search(texts, matchers, index, place, features, folder)

    def by_text(self, query: str, k: int) -> list[Hit]:
        """Find images by a text, best first; see `Run.search`.

        Raises:
            InputError: The query is empty, or k is below 1.
        """
        if not query.strip():
            raise InputError("the query is empty: give some words")
        texts = self._banks(Table.from_items(self.texts.encode([query])), True)
        gallery = Gallery(self.matchers, self.images, texts)
        return self._image_hits(*most_similar(gallery, True, _positive(k), index=self.approximate_images))

    def by_image(self, image: Path | bytes, k: int) -> list[Hit]:
        """Find captions by an image, best first; see `Run.captions_for`.

        Args:
            image: A file, or the content of a file that somebody sent: see `decode_image`.
            k: Number of captions.

        Raises:
            InputError: The image cannot be used, the run has no encoder for images, or k is below 1.
        """
        images = self._banks(encode_query_image(image, self._image_encoder), False)
        gallery = Gallery(self.matchers, images, self._caption_banks)
        places, scores = most_similar(gallery, False, _positive(k), index=self.approximate_captions)
        return [self._hit(int(self.captions.images[place]), place, score) for place, score in _rows(places, scores)]

    def by_pair(self, pair: int, k: int) -> list[Hit]:
        """Find images by the image of a pair, best first; see `Run.images_like`.

        Raises:
            InputError: The run has no such pair, or k is below 1.
        """
        image = int(self.captions.images[self.captions.place(pair)])
        query = [of_images[image : image + 1] for of_images in self._directions]
        rows, scores = closest(query, self._directions, _positive(k) + 1, self.approximate_images)
        others = rows != image
        return self._image_hits(rows[others][:k], scores[others][:k])

    @property
    def captions(self) -> Captions:
        """The captions of the index."""
        return self.index.captions

    @cached_property
    def _directions(self) -> list[Tensor]:
        """Each network's global vectors of the images, of unit length, as wide as the vectors of the index.

        In the index a matcher may have scaled them, or put entries behind them, for the similarity with captions.
        """
        directions = []
        for matcher, bank in zip(self.matchers, self.images, strict=True):
            vectors, lengths = bank.vectors, bank.vectors[:, : matcher.dim].float().norm(dim=1)
            if vectors.shape[1] > matcher.dim or ((lengths - 1).abs() > ROUNDING).any():
                vectors = torch.zeros_like(vectors, dtype=torch.float32)
                vectors[:, : matcher.dim] = unit(bank.vectors[:, : matcher.dim].float())
            directions.append(vectors)
        return directions

    @cached_property
    def approximate_images(self) -> ApproximateIndex | None:
        """The approximate index of the images; None where an exact search is fast, see `approximate_index`."""
        return approximate_index(self.folder, "images", self.index.vectors, self.captions.vectors)

    @cached_property
    def approximate_captions(self) -> ApproximateIndex | None:
        """The approximate index of the captions, as for the images."""
        return approximate_index(self.folder, "captions", self.captions.vectors, self.index.vectors)

    @cached_property
    def _image_encoder(self) -> ImageEncoder | ClipPreprocessor:
        """The run's encoder of image files."""
        if isinstance(self.texts, ClipPreprocessor):
            return self.texts
        if not self.index.facts["images"]:
            raise InputError(
                "the run's source has features instead of images, so no image can be searched by: give a text or a pair"
            )
        return image_encoder(self.index.facts["image_encoder"], regions=self.matchers[0].image_kind == "regions")

    @cached_property
    def _caption_banks(self) -> list[Bank]:
        """Each network's codes of the captions; tokens are encoded again when a similarity needs them."""
        return self._token_banks(self.captions.vectors, self._gather_captions, True)

    def _token_banks(self, vectors: Sequence[Tensor], gather: Callable[[Ints], Items], texts: bool) -> list[Bank]:
        """Return each network's global vectors; the codes of gathered items are encoded when they are needed."""

        def bank(matcher: Matcher, of_items: Tensor) -> Bank:
            of_items, lengths = of_items.to(next(matcher.parameters()).device), np.zeros(len(of_items), np.int64)
            return Bank(of_items, lengths, [], [], lambda places: codes_of(matcher, gather(places), texts))

        return [bank(matcher, of_items) for matcher, of_items in zip(self.matchers, vectors, strict=True)]

    def _gather_images(self, places: Ints) -> Items:
        assert self._features is not None
        return self._features.batch(self.index.rows[places])

    def _gather_captions(self, places: Ints) -> Items:
        texts = self.texts.encode([self.captions.texts[place] for place in places.tolist()])
        return Table.from_items(texts).batch(np.arange(len(places)))

    def _banks(self, table: Table, texts: bool) -> list[Bank]:
        """Return each network's codes of the query, the only row of a table."""
        return [Bank.encode_table(matcher, table, FIRST, texts, KEPT_BYTES) for matcher in self.matchers]

    def _image_hits(self, places: Ints, scores: Floats) -> list[Hit]:
        first = self.captions.first[places].tolist()
        return [
            self._hit(image, place, score) for (image, score), place in zip(_rows(places, scores), first, strict=True)
        ]

    def _hit(self, image: int, caption: int, score: float) -> Hit:
        """Return a result from the places of its image and of its caption."""
        file = self.index.files[image]
        path = str(self.base / file) if self.index.facts["images"] else file
        return Hit(path, int(self.captions.pairs[caption]), self.captions.texts[caption], score)


def encode_query_image(image: Path | bytes, encoder: ImageEncoder | ClipPreprocessor) -> Table:
    """Encode an image as `encode_pairs` encodes the images of pairs, without the cache.

    Args:
        image: A file, or the content of a file that somebody sent: see `decode_image`.
        encoder: Encoder from `image_encoder(...)`, or the preprocessing of a matcher that reads pixels.

    Returns:
        A table of one row.

    Raises:
        InputError: The image cannot be used.
    """
    side = 2 * (max(encoder.size) if isinstance(encoder, ClipPreprocessor) else encoder.size)
    try:
        decoded = decode_image(image, side) if isinstance(image, bytes) else open_image(image, side)
    except BadImage as error:
        name = "" if isinstance(image, bytes) else f"{image}: "
        raise InputError(f"{name}{error.reason}") from error
    if isinstance(encoder, ClipPreprocessor):
        return Table(encoder.crop(decoded)[None])
    values = encoder.encode(encoder.prepare(decoded)[None]).float().numpy()
    if not np.isfinite(values).all():
        raise InputError(f"{encoder.name} gives values for the image that are not finite: give another image")
    return Table(values)


def query_side(
    folder: Path, matcher: type[Matcher], options: Options, facts: Mapping[str, Any]
) -> tuple[TextEncoder, Callable[[], Matcher]]:
    """Return the text encoder of a run and a function that makes its matcher, from the files in its folder.

    Raises:
        InputError: The vocabulary is damaged, or a package is missing.
    """
    if matcher.image_kind == "pixels":
        preprocessor = ClipPreprocessor(str(folder / FRONT), pretrained=False)
        checkpoint = options.replaced(checkpoint=preprocessor.place)
        return preprocessor, partial(matcher.make, checkpoint, pretrained=False)
    file = folder / VOCABULARY
    numbering = read_numbering(file.read_text(encoding="utf-8")) if file.exists() else None
    name = facts["text_encoder"]
    ngrams = NgramEncoder.load(folder / NGRAMS) if "ngrams" in text_parts(name) else None
    texts = text_encoder(name, tokens=matcher.text_kind == "tokens", vocabulary=numbering, ngrams=ngrams)
    return texts, partial(matcher.make, options, **facts["sizes"])


def _rows(places: Ints, scores: Floats) -> list[tuple[int, float]]:
    return list(zip(places.tolist(), scores.tolist(), strict=True))


def _positive(k: int) -> int:
    """Return the number of results that is asked for.

    Raises:
        InputError: It is below 1.
    """
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1")
    return k


def _cached(index: Index) -> Table | None:
    """Return the images' features if they are still in the cache, else None."""
    file = index.facts["features"]
    values: NDArray[Any] | None = None
    if file is not None:
        with suppress(Exception):  # for broken headers, numpy raises nearly any exception
            values = np.load(file, mmap_mode="r", allow_pickle=False)
    return Table(values) if values is not None and len(values) > index.rows.max(initial=-1) else None
