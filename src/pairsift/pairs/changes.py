"""The merge of a changed source into the ids, splits and image rows of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.match_rows import match_rows
from pairsift.pairs.pairs import ADDED, SKIPPED, UNUSED, Noise, Pairs, Skip
from pairsift.pairs.stored import StoredPairs, content_marks, feature_shape, folder_of

GONE = "is gone from the source"
SINCE = "has changed since the run was begun"


@dataclass(frozen=True)
class Changes:
    """The differences between a source and the data of a run, as numbers of pairs.

    Attributes:
        captions: Number of pairs whose caption has changed since the run was made.
        new: Number of pairs that are new or usable only since then, those with the split `added`.
        gone: Number of usable pairs that the run knew and that are no longer in the source.
        images: Number of images whose content has changed, where a run goes on (`since_begun`); else 0.
    """

    captions: int = 0
    new: int = 0
    gone: int = 0
    images: int = 0

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.captions or self.new or self.gone or self.images)

    def __str__(self) -> str:
        """Return the changes in words, such as `12 captions changed, 3 rows new, 1 gone`."""
        images = f", {self.images} image{'s' * (self.images != 1)} changed" if self.images else ""
        return (
            f"{self.captions} caption{'s' * (self.captions != 1)} changed, "
            f"{self.new} row{'s' * (self.new != 1)} new, {self.gone} gone{images}"
        )


def unchanged(stored: StoredPairs, source: Pairs, noise: Noise | None) -> Pairs:
    """Return the pairs of an unchanged source, with the training record of the run and its planted noise.

    The noise is the one that was stored with the run. It is not drawn again.
    """
    if noise is not None:
        truth = source.image_of
        source = _with_captions(replace(source, image_of=stored.planted, true_image_of=truth, noise=noise), stored)
    return replace(source, seen_in_training=stored.trained)


def merge(stored: StoredPairs, source: Pairs, noise: Noise | None) -> tuple[Pairs, Changes]:
    """Merge a changed source into the ids, splits and image rows of the run.

    A pair that is still in the source keeps its id, its split and its planted noise, even if its row has moved. If its
    caption has changed, it no longer counts as trained on; a caption that planted noise had replaced stays replaced. A
    pair that is gone keeps its id and is skipped; it has the same id when it comes back. New pairs get the ids after
    the last stored id, and the split `added`. They keep these ids if they are stored (`write_known_pairs`).

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now, without noise.
        noise: The noise that was planted in the run, or None.

    Returns:
        The pairs and the changes.

    Raises:
        InputError: No image of the run is left, or its features have another shape.
    """
    if feature_shape(source) != stored.shape:
        raise InputError(
            f"{source.source} has changed since the run was made: its rows of features are "
            f"{feature_shape(source) or 'images'} and were {stored.shape or 'images'}; "
            "give the run's own data with --source, or fit again"
        )
    matching = match_rows(stored, source)
    if not (matching.rows >= 0).any():
        raise InputError(
            f"{source.source}: names none of the images that this run was made of, such as "
            f"{next(iter(stored.names), '')!r}; give the run's own data with --source"
        )
    size = len(stored.captions)
    added = np.setdiff1d(np.arange(len(source)), matching.rows)
    row_of = np.concatenate([matching.rows, added])  # source row of every id; -1 for a pair that is gone
    present = row_of >= 0
    truth = np.full(len(row_of), -1, np.int64)
    truth[:size] = stored.image_of
    owner = source.image_of[row_of[present]]
    truth[present] = np.where(owner >= 0, matching.images[owner], -1)
    captions = [source.captions[row] if row >= 0 else stored.captions[pair] for pair, row in enumerate(row_of.tolist())]
    edited = np.zeros(len(row_of), np.bool_)
    fitted = stored.captions if stored.fitted is None else stored.fitted
    edited[: len(fitted)] = [captions[pair] != caption for pair, caption in enumerate(fitted)]
    edited[list(stored.planted_captions)] = False
    split = _split_of_ids(stored, source, row_of)
    count = max([len(stored.names) - 1, *matching.images.tolist()]) + 1
    pairs = replace(
        source,
        captions=captions,
        image_of=truth,
        split=split,
        columns={
            name: [values[row] if row >= 0 else "" for row in row_of.tolist()]
            for name, values in source.columns.items()
        },
        skipped=_skipped(stored, source, row_of),
        seen_in_training=np.concatenate([stored.trained, np.zeros(len(added), np.bool_)]) & ~edited,
        source_rows=row_of,
    )
    pairs = _with_images(pairs, stored, source, matching.images, count)
    gone = int((~present[:size] & (stored.split != SKIPPED)).sum())
    changes = Changes(int(edited.sum()), int((split == ADDED).sum()), gone)
    return _with_noise(pairs, stored, noise), changes


def since_begun(stored: StoredPairs, source: Pairs) -> tuple[Pairs, Changes]:
    """Return the pairs of an unfinished run that are as they were, and what else has changed in its source.

    Ids, splits, image rows and planted noise are those of the run, so that its checkpoint fits. A pair whose caption or
    image has changed or is gone is skipped, and new ones are left out.

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now, without noise.

    Raises:
        InputError: No image of the run is left, or its features have another shape.
    """
    merged, changes = merge(stored, source, stored.noise)
    pairs = _without_new(merged, len(stored.captions), len(stored.names))
    usable = stored.split != SKIPPED
    gone = int((usable & (pairs.split == SKIPPED)).sum())
    captions, marks = pairs.source_captions or pairs.captions, content_marks(pairs)
    edited = [pair for pair, caption in enumerate(stored.captions) if captions[pair] != caption and usable[pair]]
    other = [row for row, mark in enumerate(stored.marks) if marks[row] and mark and marks[row] != mark]
    pairs = pairs.skip_pairs([Skip(f"pair {pair}", f"its caption {SINCE}", pair) for pair in edited])
    pairs = pairs.skip_images(dict.fromkeys(other, f"the image {SINCE}"))
    if pairs.noise is not None:
        train = pairs.ids("train")
        rate = float(pairs.mismatched()[train].mean()) if len(train) else 0.0
        pairs = replace(pairs, noise=replace(pairs.noise, rate=rate))
    return pairs, replace(changes, gone=gone, images=len(other))


def _without_new(pairs: Pairs, size: int, n_images: int) -> Pairs:
    """Return merged pairs without those that are new or usable only since the run was made, and without new images."""
    features, assigned = pairs.features, pairs.source_rows
    assert assigned is not None
    split = np.where(pairs.split == ADDED, SKIPPED, pairs.split)
    if features is not None:
        features = replace(features, rows=features.rows[:n_images])
        if features.captions is not None:
            features = replace(features, captions=replace(features.captions, rows=features.captions.rows[:size]))
    truth, originals, seen = pairs.true_image_of, pairs.source_captions, pairs.seen_in_training
    return replace(
        pairs,
        names=pairs.names[:n_images],
        paths=pairs.paths[:n_images],
        captions=pairs.captions[:size],
        image_of=pairs.image_of[:size],
        split=split[:size],
        columns={name: values[:size] for name, values in pairs.columns.items()},
        skipped=tuple(skip for skip in pairs.skipped if skip.pair < size),
        true_image_of=None if truth is None else truth[:size],
        features=features,
        seen_in_training=None if seen is None else seen[:size],
        source_rows=assigned[:size],
        source_captions=None if originals is None else originals[:size],
    )


def _split_of_ids(stored: StoredPairs, source: Pairs, row_of: Ints) -> NDArray[np.str_]:
    """Return the split of each id.

    A pair keeps the split of the run, unless it is gone, new, no longer usable, or usable only now.
    """
    split = np.full(len(row_of), ADDED, "<U7")
    split[: len(stored.split)] = np.where(stored.split == SKIPPED, ADDED, stored.split)
    source_split = source.split[row_of]  # arbitrary for pairs that are gone, which are skipped
    split[(split == ADDED) & (source_split == UNUSED)] = UNUSED
    split[(row_of < 0) | (source_split == SKIPPED)] = SKIPPED
    return split


def _skipped(stored: StoredPairs, source: Pairs, row_of: Ints) -> tuple[Skip, ...]:
    """Return what is skipped: the skips of the source's reader, with the run's ids, and the pairs that are gone."""
    id_of = {row: pair for pair, row in enumerate(row_of.tolist()) if row >= 0}
    skips = [replace(skip, pair=id_of.get(skip.pair, -1)) for skip in source.skipped]
    lost = np.flatnonzero((row_of[: len(stored.split)] < 0) & (stored.split != SKIPPED))
    return (*skips, *(Skip(f"pair {pair}", GONE, pair) for pair in lost.tolist()))


def _with_images(pairs: Pairs, stored: StoredPairs, source: Pairs, rows: Ints, count: int) -> Pairs:
    """Return the pairs with the run's images in their old rows and the new images after them.

    Args:
        pairs: The pairs, whose images are still those of the source.
        stored: The pairs of the run, as they were stored.
        source: The source.
        rows: Row in the result of each image of the source, (source.n_images,).
        count: Number of images in the result.
    """
    base = folder_of(source.source)
    names, paths = [*stored.names, *[""] * (count - len(stored.names))], [base / file for file in stored.files]
    paths += [base] * (count - len(paths))
    for row, name, path in zip(rows.tolist(), source.names, source.paths, strict=True):
        names[row], paths[row] = name, path
    features, source_rows = source.features, pairs.source_rows
    assert source_rows is not None
    if features is not None:
        feature_rows = np.zeros(count, np.int64)
        feature_rows[rows] = features.rows
        features = replace(features, rows=feature_rows)
        if features.captions is not None:
            caption_rows = features.captions.rows[np.maximum(source_rows, 0)]  # pairs that are gone are skipped
            features = replace(features, captions=replace(features.captions, rows=caption_rows))
    return replace(pairs, names=names, paths=paths, features=features)


def _with_noise(pairs: Pairs, stored: StoredPairs, noise: Noise | None) -> Pairs:
    """Return the pairs with the planted noise of the pairs that are still in the source.

    A pair is skipped if its planted image is gone.
    """
    if noise is None:
        return pairs
    planted = pairs.image_of.copy()
    size = len(stored.planted)
    alive = pairs.split[:size] != SKIPPED
    planted[:size][alive] = stored.planted[alive]
    split = pairs.split.copy()
    while (lost := (split != SKIPPED) & ~np.isin(planted, pairs.image_of[split != SKIPPED])).any():
        split[lost] = SKIPPED  # an image stays only while a usable pair has it in the source
    reason = "the image that planted noise gave it is gone from the source"
    skips = tuple(Skip(f"pair {pair}", reason, pair) for pair in np.flatnonzero(split != pairs.split).tolist())
    remaining = replace(pairs, split=split, skipped=pairs.skipped + skips)
    return _with_captions(replace(remaining, image_of=planted, true_image_of=pairs.image_of, noise=noise), stored)


def _with_captions(pairs: Pairs, stored: StoredPairs) -> Pairs:
    """Return pairs with planted noise with the captions that it gave them; these belong to no image."""
    if not stored.planted_captions or pairs.true_image_of is None:
        return pairs
    captions, true_image_of = list(pairs.captions), pairs.true_image_of.copy()
    for pair, caption in stored.planted_captions.items():
        captions[pair], true_image_of[pair] = caption, -1
    return replace(pairs, captions=captions, source_captions=pairs.captions, true_image_of=true_image_of)
