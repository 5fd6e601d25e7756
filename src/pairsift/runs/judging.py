"""The table of a run's judged pairs, and the suggestions for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.judgement import Judgement
from pairsift.match.base import Matcher
from pairsift.mismatches import references_of
from pairsift.retrieve.gallery import Gallery
from pairsift.runs.prepare import Prepared
from pairsift.runs.thumbnails import find_copies
from pairsift.sharding.tables import SUGGESTED
from pairsift.suggest.duplicates import repeated, vague_captions, word_numbers
from pairsift.suggest.suggest import GalleryPairs, Suggestions, suggest
from pairsift.suggest.table import suggestion_table
from pairsift.table import pair_table, verdict_names

MAX_PROBABILITY = 0.9  # match probability below which a pair gets suggestions
MANY = 200_000  # pairs from which on the worst alone get suggestions, and no check of vectors has all in memory


def judged_tables(
    prepared: Prepared,
    matchers: Sequence[Matcher],
    judgement: Judgement,
    folder: Path,
    seed: int,
    copies: Ints | None = None,
    requested: Bools | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Return the table of judged pairs and the table of suggestions.

    Beside the columns of `pairsift.table.pair_table`, the table has `suggestion_probability`, `image_duplicates`, the
    number of a group of copies of an image, and `caption_duplicates`, the number of a caption that several images have.

    Args:
        prepared: The run's pairs and features.
        matchers: The trained matchers.
        judgement: Held-out evidence on the pairs.
        folder: The run's folder.
        seed: Seed of the samples.
        copies: Group of copies of each image, see `image_copies`; by default, near-duplicates count as copies.
        requested: Whether each pair may get suggestions, (n,); by default, all pairs may.
    """
    pairs = prepared.pairs
    ids, rows = pairs.ids(), pairs.images()
    owner = np.searchsorted(rows, pairs.image_of[ids]).astype(np.int64)
    text = word_numbers([pairs.captions[pair] for pair in ids])
    copies = _near_duplicates(judgement, owner) if copies is None else copies
    flagged: Bools = (judgement.probability < 0.5) & judgement.verdicts
    vague = vague_captions(text, copies[owner], flagged)
    flagged &= ~vague
    trained = pairs.trained[ids]
    believed = judgement.probability >= 0.5
    if (believed & ~trained).any():
        believed &= ~trained
    gallery = Gallery.encode(matchers, prepared.features, rows, ids)
    known = GalleryPairs(owner, text, judgement.probability, believed)
    doubtful: Bools = flagged | (judgement.probability < MAX_PROBABILITY)
    if requested is not None:
        doubtful &= requested
    references = None
    if len(ids) > MANY:
        worst = np.argsort(np.where(doubtful, judgement.probability, np.inf), kind="stable")[:SUGGESTED]
        doubtful &= np.isin(np.arange(len(ids)), worst)
        references = references_of(np.flatnonzero(believed), seed)
    suggestions = suggest(gallery, known, doubtful, seed, references=references)
    suggested, probability = _first(suggestions, ids, flagged)
    extra: dict[str, Any] = {
        "suggestion_probability": pa.array(probability, from_pandas=True),
        "image_duplicates": _numbers(repeated(copies[owner], owner)),
        "caption_duplicates": _numbers(repeated(text, copies[owner])),
    }
    verdicts = verdict_names(ids, flagged, vague, folder, judgement.verdicts)
    table = pair_table(pairs, ids, judgement.probability, flagged, verdicts, suggested, extra)
    return table, suggestion_table(suggestions, ids, owner)


def _first(suggestions: Suggestions, ids: Ints, flagged: Bools) -> tuple[Ints, Reals]:
    """Return the first suggested caption of each flagged pair, as its pair's id or -1, and its probability."""
    pair, probability = np.full(len(ids), -1, np.int64), np.full(len(ids), np.nan)
    rows = flagged[suggestions.pairs] & suggestions.fits & (suggestions.captions[:, 0] >= 0)
    places = suggestions.pairs[rows]
    pair[places] = ids[suggestions.captions[rows, 0]]
    probability[places] = suggestions.caption_probability[rows, 0]
    return pair, probability


def image_copies(prepared: Prepared, judgement: Judgement, cache: Path | None, progress: bool) -> Ints | None:
    """Return the group of copies of each image; None where the source has features instead of images.

    Images that cannot be read any more have no copies.

    Args:
        prepared: The run's pairs and features.
        judgement: Held-out evidence on the pairs.
        cache: Folder of the feature cache, where the thumbnails are kept.
        progress: Whether to show a progress bar.
    """
    pairs = prepared.pairs
    if pairs.features is not None:
        return None
    rows = pairs.images()
    owner = np.searchsorted(rows, pairs.image_of[pairs.ids()]).astype(np.int64)
    group = _near_duplicates(judgement, owner)
    return find_copies(pairs, rows, group, cache, bar="thumbnails" if progress else None)


def _near_duplicates(judgement: Judgement, owner: Ints) -> Ints:
    """Return the group of near-duplicates of each image by the encoder's vectors, (n_images,)."""
    group = np.arange(int(owner.max(initial=-1)) + 1)
    if judgement.group is not None:
        group[owner] = judgement.group
    return group


def _numbers(group: Ints) -> pa.Array:
    """Return groups as numbers from 1 in the order of the pairs, null for -1."""
    present = group >= 0
    first, place = np.unique(group[present], return_index=True, return_inverse=True)[1:]
    number = np.zeros(len(group), np.int64)
    number[present] = np.argsort(np.argsort(first))[place] + 1
    return pa.array(number, mask=~present)
