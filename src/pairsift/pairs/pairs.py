"""The pairs themselves: what every other room speaks of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairsift.pairs.precomputed import Precomputed

Ints = NDArray[np.int64]

SPLITS = ("train", "dev", "test")
ADDED = "added"  # came into the source after the run was made
UNUSED = "unused"  # the source's splits leave this pair out
SKIPPED = "skipped"  # unusable; the reason is in `Pairs.skipped`
JUDGED = (*SPLITS, ADDED)


@dataclass(frozen=True)
class Skip:
    """One pair or image that was left out.

    Attributes:
        where: The record as the user knows it, such as `captions.csv line 17` or an image's name.
        reason: One line, without a final stop.
        pair: Id of the pair, or -1 where a whole image is meant.
    """

    where: str
    reason: str
    pair: int = -1


@dataclass(frozen=True)
class Noise:
    """What injected noise did, so that the truth stays known.

    Attributes:
        ratio: Share of the training captions that was picked, in [0, 1].
        seed: Seed of the permutation; -1 where the index came from a file.
        granularity: `caption` or `image`.
        rate: Share of the training captions that really point at another image now; a hair below `ratio`.
        index_hash: First 16 hex digits of the SHA-256 of the training captions' image rows (int64, little endian).
    """

    ratio: float
    seed: int
    granularity: str
    rate: float
    index_hash: str


@dataclass(frozen=True)
class Pairs:
    """Image-caption pairs. Images are stored once and pairs point at them.

    A pair's id is its row in these arrays, which is the record's position in the source, counted from 0. It never
    changes: a pair that cannot be used keeps its row, with the split `skipped`.

    Attributes:
        source: Path of what was read.
        names: Images as the source names them, (n_images,).
        paths: Image files, (n_images,); where there are features instead, the file that each image's row lies in.
        captions: (n_pairs,).
        image_of: Row of the image each caption is paired with, (n_pairs,); -1 where the source names none.
        split: `train`, `dev`, `test`, `added`, `unused` or `skipped` for each pair, (n_pairs,).
        columns: The source's other columns, each (n_pairs,).
        taken: One line that says what was read as image, caption and split.
        skipped: What was left out and why.
        true_image_of: `image_of` before noise was injected, or None where the truth is not known.
        noise: What the injection did, or None.
        features: The images' features, where the source has them instead of image files.
        seen: Whether a finished run was trained on each pair with this very caption, (n_pairs,); None where nothing has
            changed since, and the split says it.
    """

    source: str
    names: list[str]
    paths: list[Path]
    captions: list[str]
    image_of: Ints
    split: NDArray[np.str_]
    columns: dict[str, list[str]] = field(default_factory=dict)
    taken: str = ""
    skipped: tuple[Skip, ...] = ()
    true_image_of: Ints | None = None
    noise: Noise | None = None
    features: Precomputed | None = None
    seen: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def n_images(self) -> int:
        """Number of images, usable or not."""
        return len(self.names)

    @property
    def n_skipped(self) -> int:
        """Number of pairs left out; `skipped` has one entry for all pairs of an image that cannot be read."""
        return int(np.count_nonzero(self.split == SKIPPED))

    def ids(self, *splits: str) -> Ints:
        """Return the ids of the pairs in these splits (default: train, dev, test and added), ascending, (n,)."""
        return np.flatnonzero(np.isin(self.split, splits or JUDGED)).astype(np.int64)

    def images(self, *splits: str) -> Ints:
        """Rows of the images that these splits' pairs point at, ascending, (n,)."""
        return np.unique(self.image_of[self.ids(*splits)])

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Whether a network that was trained on the training split has seen each pair as it is now, (n_pairs,)."""
        in_train = np.equal(self.split, "train")
        return in_train if self.seen is None else in_train & self.seen

    def mismatched(self) -> NDArray[np.bool_]:
        """Whether each pair was re-pointed to another image, (n_pairs,); needs the truth."""
        if self.true_image_of is None:
            raise ValueError("the truth is not known: no noise was injected into these pairs")
        return np.not_equal(self.image_of, self.true_image_of)

    def skip_images(self, reasons: Mapping[int, str]) -> Pairs:
        """These pairs without the images in `reasons` (image row to reason): their pairs become `skipped`."""
        if not reasons:
            return self
        split = self.split.astype("<U7")  # a copy with room for `skipped`
        split[np.isin(self.image_of, list(reasons)) & np.isin(split, JUDGED)] = SKIPPED
        skips = tuple(Skip(self.names[row], reason) for row, reason in sorted(reasons.items()))
        return replace(self, split=split, skipped=self.skipped + skips)

    def hash(self) -> str:
        """16 hex digits over the images' names, the captions and the splits, before any injected noise.

        Of precomputed features the shape and the rows count, not the values.
        """
        truth = self.image_of if self.true_image_of is None else self.true_image_of
        digest = hashlib.sha256()
        for part in (self.names, self.captions, self.split.tolist()):
            digest.update("\0".join(part).encode("utf-8", "surrogateescape") + b"\1")
        digest.update(truth.astype("<i8").tobytes())
        if self.features is not None:
            digest.update(f"{self.features.shape}".encode() + self.features.rows.astype("<i8").tobytes())
        return digest.hexdigest()[:16]
