"""The image-caption pairs, the data structure that all other packages use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.precomputed import Precomputed
from pairsift.pairs.text import quoted

SPLITS = ("train", "dev", "test")
ADDED = "added"  # the pair came into the source after the run was made
UNUSED = "unused"  # the splits of the source leave this pair out
SKIPPED = "skipped"  # the pair is unusable; the reason is in `Pairs.skipped`
JUDGED = (*SPLITS, ADDED)


@dataclass(frozen=True)
class Skip:
    """A pair or an image that was left out.

    Attributes:
        where: The record as the user knows it, such as `captions.csv line 17`, or the name of an image.
        reason: Reason in one line, without a full stop.
        pair: Id of the pair, or -1 for a whole image.
    """

    where: str
    reason: str
    pair: int = -1


@dataclass(frozen=True)
class Noise:
    """The record of planted noise.

    Attributes:
        ratio: Share of the training captions, or of the training images if `granularity` is `image`, that was picked,
            in [0, 1].
        seed: Seed of the permutation; -1 if the index came from a file.
        granularity: `caption` or `image`.
        rate: Share of the training captions that really are mismatched now, usually slightly below `ratio`.
        index_hash: First 16 hex digits of the SHA-256 of the training captions' image rows (int64, little endian), or
            of the captions themselves where noise replaced some.
        kind: `random` (captions of any images are exchanged), `near` (captions with near texts), `edit` (one word of
            a caption is made wrong), `vague` (captions are replaced by ones that fit many images), or `index` (a file
            says it).
        splits: `train`, or `all` if the captions of dev and test were moved too, each within its split. `ratio` then
            holds for each; `rate` is about train.
    """

    ratio: float
    seed: int
    granularity: str
    rate: float
    index_hash: str
    kind: str = "random"
    splits: str = "train"


@dataclass(frozen=True)
class Pairs:
    """A set of image-caption pairs. Each image is stored once, and pairs point at it.

    The id of a pair is its row in these arrays. When a source is loaded, this is the position of the record in the
    source, counted from 0. The id never changes: a pair that cannot be used keeps its row and gets the split `skipped`.

    Attributes:
        source: Path of the source.
        names: Names of the images in the source, (n_images,).
        paths: Image files, (n_images,). With precomputed features, the file that contains the row of each image.
        captions: Captions, (n_pairs,).
        image_of: Row of the image that each caption is paired with, (n_pairs,); -1 if the record has no image.
        split: `train`, `dev`, `test`, `added`, `unused` or `skipped` for each pair, (n_pairs,).
        columns: Other columns of the source, each (n_pairs,).
        description: One line that says what was read as image, caption and split.
        skipped: Pairs and images that were left out, with the reasons.
        true_image_of: `image_of` before noise was planted; -1 for a caption that noise replaced, which belongs to no
            image. None if the truth is unknown.
        noise: Record of the planted noise, or None.
        features: Precomputed features of the images, or None if the images are files.
        seen_in_training: Whether a finished run was trained on each pair with exactly this caption, (n_pairs,).
            None means that `split` alone decides.
        source_rows: Position in the source of the record of each pair, (n_pairs,); -1 for a pair that is gone. None
            means that it is the id.
        source_captions: Captions before planted noise replaced some, (n_pairs,). None if it replaced none.
        verified: Whether each pair of the source is known to match, (n_pairs,); None where nobody says so.
        row_ids: Value of the column that identifies the rows of the source, (n_pairs,); None without such a column.
        own_names: Name that the record of each pair gives its image, (n_pairs,), where records have several names for
            one image, such as for one picture under two names; None where each image has one name.
    """

    source: str
    names: list[str]
    paths: list[Path]
    captions: list[str]
    image_of: Ints
    split: NDArray[np.str_]
    columns: dict[str, list[str]] = field(default_factory=dict)
    description: str = ""
    skipped: tuple[Skip, ...] = ()
    true_image_of: Ints | None = None
    noise: Noise | None = None
    features: Precomputed | None = None
    seen_in_training: NDArray[np.bool_] | None = None
    source_rows: Ints | None = None
    source_captions: list[str] | None = None
    verified: NDArray[np.bool_] | None = None
    row_ids: list[str] | None = None
    own_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def n_images(self) -> int:
        """The number of images, usable or not."""
        return len(self.names)

    @property
    def n_skipped(self) -> int:
        """The number of pairs that were left out.

        `skipped` has a single entry for all pairs of an image that cannot be read.
        """
        return int(np.count_nonzero(self.split == SKIPPED))

    @property
    def n_gone(self) -> int:
        """The number of pairs that are no longer in the source; the split of these is `skipped` too."""
        return 0 if self.source_rows is None else int(np.count_nonzero(self.source_rows < 0))

    def column(self, name: str, holds: str) -> list[str]:
        """Return the cells of a further column of the source, (n_pairs,).

        Args:
            name: Name of the column.
            holds: What the user expects in it, for the message.

        Raises:
            InputError: There is no such column.
        """
        if name not in self.columns:
            has = f"its further columns are {quoted(self.columns)}" if self.columns else "it has no further columns"
            raise InputError(f"{self.source}: has no column {name!r} with {holds}; {has}")
        return self.columns[name]

    def image_name(self, pair: int) -> str:
        """Return the name of a pair's image, as the pair's own record has it; empty for no image."""
        row = int(self.image_of[pair])
        moved = self.true_image_of is not None and self.true_image_of[pair] not in (row, -1)
        own = "" if self.own_names is None or moved else self.own_names[pair]
        return own or (self.names[row] if row >= 0 else "")

    def ids(self, *splits: str) -> Ints:
        """Return the ids of the pairs in these splits (default: train, dev, test and added), ascending, (n,)."""
        return np.flatnonzero(np.isin(self.split, splits or JUDGED)).astype(np.int64)

    def images(self, *splits: str) -> Ints:
        """Return the rows of the images that the pairs of these splits point at, ascending, (n,)."""
        return np.unique(self.image_of[self.ids(*splits)])

    def only(self, *splits: str) -> Pairs:
        """Return the pairs of these splits; the others that could be used are `unused`, and all ids stay."""
        split = self.split.astype("<U7")
        split[np.setdiff1d(self.ids(), self.ids(*splits))] = UNUSED
        return replace(self, split=split)

    def verified_ids(self) -> Ints:
        """Return the training pairs that are known to match, ascending, without pairs that planted noise moved."""
        ids = self.ids("train")
        if self.verified is None:
            return ids[:0]
        kept = self.verified if self.true_image_of is None else self.verified & ~self.mismatched()
        return ids[kept[ids]]

    @property
    def trained(self) -> NDArray[np.bool_]:
        """A mask of the pairs that a network trained on the training split has seen as they are now, (n_pairs,)."""
        in_train = np.equal(self.split, "train")
        return in_train if self.seen_in_training is None else in_train & self.seen_in_training

    @property
    def source_image_of(self) -> Ints:
        """The row of the image that each caption's record has in the source, before any noise, (n_pairs,)."""
        if self.true_image_of is None:
            return self.image_of
        return np.where(self.true_image_of >= 0, self.true_image_of, self.image_of)

    def mismatched(self) -> NDArray[np.bool_]:
        """Return whether each caption was moved to another image or replaced, (n_pairs,).

        Raises:
            ValueError: The truth is unknown.
        """
        if self.true_image_of is None:
            raise ValueError("the truth is not known: no noise was planted in these pairs")
        return np.not_equal(self.image_of, self.true_image_of)

    def skip_images(self, reasons: Mapping[int, str]) -> Pairs:
        """Return the pairs without the images in `reasons`: their pairs get the split `skipped`.

        Args:
            reasons: Reason for each image, by image row.
        """
        if not reasons:
            return self
        split = self.split.astype("<U7")  # a copy with room for `skipped`
        split[np.isin(self.image_of, list(reasons)) & np.isin(split, JUDGED)] = SKIPPED
        skips = tuple(Skip(self.names[row], reason) for row, reason in sorted(reasons.items()))
        return replace(self, split=split, skipped=self.skipped + skips)

    def skip_pairs(self, skips: Sequence[Skip]) -> Pairs:
        """Return the pairs without those that these entries name: they get the split `skipped`."""
        split = self.split.astype("<U7")
        split[[skip.pair for skip in skips]] = SKIPPED
        return replace(self, split=split, skipped=(*self.skipped, *skips))

    def hash(self) -> str:
        """Return 16 hex digits over the image names, the captions and the splits, before any planted noise.

        The image of each caption also counts, and so do values that identify rows. Of precomputed features the shape
        and the rows count, not the values.
        """
        truth, captions = self.source_image_of, self.source_captions or self.captions
        digest = hashlib.sha256()
        for part in (self.names, captions, self.split.tolist()):
            digest.update("\0".join(part).encode("utf-8", "surrogateescape") + b"\1")
        digest.update(truth.astype("<i8").tobytes())
        if self.features is not None:
            digest.update(f"{self.features.shape}".encode() + self.features.rows.astype("<i8").tobytes())
            if self.features.captions is not None:
                digest.update(f"{self.features.captions.shape}".encode())
        if self.row_ids is not None:
            digest.update("\0".join(self.row_ids).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:16]
