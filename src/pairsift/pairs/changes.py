"""The merge of a changed source into the ids, splits and image rows of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.kept import Kept, feature_shape, folder_of
from pairsift.pairs.match_rows import match_rows
from pairsift.pairs.pairs import ADDED, SKIPPED, UNUSED, Noise, Pairs, Skip

GONE = "is gone from the source"


@dataclass(frozen=True)
class Changes:
    """The differences between a source and the data of a run, as numbers of pairs.

    Attributes:
        captions: Number of pairs whose caption has changed.
        new: Number of pairs that are new or usable only now, those with the split `added`.
        gone: Number of usable pairs of the run that are no longer in the source.
    """

    captions: int = 0
    new: int = 0
    gone: int = 0

    def __str__(self) -> str:
        """Return the changes in words, such as `12 captions changed, 3 rows new, 1 gone`."""
        return (
            f"{self.captions} caption{'s' * (self.captions != 1)} changed, "
            f"{self.new} row{'s' * (self.new != 1)} new, {self.gone} gone"
        )


def unchanged(kept: Kept, now: Pairs, noise: Noise | None) -> Pairs:
    """Return the pairs of an unchanged source, with the training record of the run and its planted noise.

    The noise is the one that was stored with the run. It is not drawn again.
    """
    if noise is not None:
        now = replace(now, image_of=kept.planted, true_image_of=now.image_of, noise=noise)
    return replace(now, seen=kept.trained)


def merge(kept: Kept, now: Pairs, noise: Noise | None) -> tuple[Pairs, Changes]:
    """Merge a changed source into the ids, splits and image rows of the run.

    A pair that is still in the source keeps its id, its split and its planted noise, even if its row has moved. If its
    caption has changed, it no longer counts as trained on. A pair that is gone keeps its id and is skipped. New pairs
    get the ids after the last id of the run, and the split `added`.

    Args:
        kept: The pairs of the run, as they were stored.
        now: The source as it is read now, without noise.
        noise: The noise that was planted in the run, or None.

    Returns:
        The pairs and the changes.

    Raises:
        InputError: No image of the run is left, or its features have another shape.
    """
    if feature_shape(now) != kept.shape:
        raise InputError(
            f"{now.source} has changed since the run was made: its rows of features are "
            f"{feature_shape(now) or 'images'} and were {kept.shape or 'images'}; "
            "give the run's own data with --source, or fit again"
        )
    matching = match_rows(kept, now)
    if not (matching.rows >= 0).any():
        raise InputError(
            f"{now.source}: names none of the images that this run was made of, such as "
            f"{next(iter(kept.names), '')!r}; give the run's own data with --source"
        )
    size = len(kept.captions)
    added = np.setdiff1d(np.arange(len(now)), matching.rows)
    where = np.concatenate([matching.rows, added])  # source row of every id; -1 for a pair that is gone
    there = where >= 0
    truth = np.full(len(where), -1, np.int64)
    truth[:size] = kept.image_of
    owner = now.image_of[where[there]]
    truth[there] = np.where(owner >= 0, matching.images[owner], -1)
    captions = [now.captions[row] if row >= 0 else kept.captions[pair] for pair, row in enumerate(where.tolist())]
    edited = np.zeros(len(where), np.bool_)
    edited[:size] = [captions[pair] != kept.captions[pair] for pair in range(size)]
    split = _split(kept, now, where)
    count = max([len(kept.names) - 1, *matching.images.tolist()]) + 1
    pairs = replace(
        now,
        captions=captions,
        image_of=truth,
        split=split,
        columns={
            name: [values[row] if row >= 0 else "" for row in where.tolist()] for name, values in now.columns.items()
        },
        skipped=_skipped(kept, now, where),
        seen=np.concatenate([kept.trained, np.zeros(len(added), np.bool_)]) & ~edited,
    )
    pairs = _with_images(pairs, kept, now, matching.images, count)
    gone = int((~there[:size] & (kept.split != SKIPPED)).sum())
    changes = Changes(int(edited.sum()), int((split == ADDED).sum()), gone)
    return _with_noise(pairs, kept, noise), changes


def _split(kept: Kept, now: Pairs, where: Ints) -> NDArray[np.str_]:
    """Return the split of each id.

    A pair keeps the split of the run, unless it is gone, new, no longer usable, or usable only now.
    """
    split = np.full(len(where), ADDED, "<U7")
    split[: len(kept.split)] = np.where(kept.split == SKIPPED, ADDED, kept.split)
    today = now.split[where]  # arbitrary for pairs that are gone, which are skipped
    split[(split == ADDED) & (today == UNUSED)] = UNUSED
    split[(where < 0) | (today == SKIPPED)] = SKIPPED
    return split


def _skipped(kept: Kept, now: Pairs, where: Ints) -> tuple[Skip, ...]:
    """Return what is skipped: the skips of the source's reader, with the run's ids, and the pairs that are gone."""
    id_of = {row: pair for pair, row in enumerate(where.tolist()) if row >= 0}
    skips = [replace(skip, pair=id_of.get(skip.pair, -1)) for skip in now.skipped]
    lost = np.flatnonzero((where[: len(kept.split)] < 0) & (kept.split != SKIPPED))
    return (*skips, *(Skip(f"pair {pair}", GONE, pair) for pair in lost.tolist()))


def _with_images(pairs: Pairs, kept: Kept, now: Pairs, rows: Ints, count: int) -> Pairs:
    """Return the pairs with the run's images in their old rows and the new images after them.

    Args:
        pairs: The pairs, whose images are still those of the source.
        kept: The pairs of the run, as they were stored.
        now: The source.
        rows: Row in the result of each image of the source, (now.n_images,).
        count: Number of images in the result.
    """
    base = folder_of(now.source)
    names, paths = [*kept.names, *[""] * (count - len(kept.names))], [base / file for file in kept.files]
    paths += [base] * (count - len(paths))
    for row, name, path in zip(rows.tolist(), now.names, now.paths, strict=True):
        names[row], paths[row] = name, path
    features = now.features
    if features is not None:
        feature_rows = np.zeros(count, np.int64)
        feature_rows[rows] = features.rows
        features = replace(features, rows=feature_rows)
    return replace(pairs, names=names, paths=paths, features=features)


def _with_noise(pairs: Pairs, kept: Kept, noise: Noise | None) -> Pairs:
    """Return the pairs with the planted noise of the pairs that are still in the source.

    A pair is skipped if its planted image is gone.
    """
    if noise is None:
        return pairs
    planted = pairs.image_of.copy()
    size = len(kept.planted)
    alive = pairs.split[:size] != SKIPPED
    planted[:size][alive] = kept.planted[alive]
    split = pairs.split.copy()
    while (lost := (split != SKIPPED) & ~np.isin(planted, pairs.image_of[split != SKIPPED])).any():
        split[lost] = SKIPPED  # an image stays only while a usable pair has it in the source
    reason = "the image that planted noise gave it is gone from the source"
    skips = tuple(Skip(f"pair {pair}", reason, pair) for pair in np.flatnonzero(split != pairs.split).tolist())
    given = replace(pairs, split=split, skipped=pairs.skipped + skips)
    return replace(given, image_of=planted, true_image_of=pairs.image_of, noise=noise)
