"""The suggestions for a run's pairs in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairsift.arrays import Ints
from pairsift.files import read_parquet

if TYPE_CHECKING:
    from pairsift.suggest.suggest import Suggestions  # needs torch, and reading the file does not

SUGGESTIONS_FILE = "suggestions.parquet"
SCHEMA = pa.schema(
    [
        ("pair", pa.int64()),
        ("is_image", pa.bool_()),
        ("from_pair", pa.int64()),
        ("probability", pa.float32()),
        ("fits", pa.bool_()),
    ]
)


def suggestion_table(suggestions: Suggestions, ids: Ints, owner: Ints) -> pa.Table:
    """Return suggestions as rows: `pair`, `is_image`, `from_pair`, `probability` and `fits`, in the order of the pairs.

    A row suggests the caption of `from_pair` for the image of `pair`, or, if `is_image`, the image of `from_pair` for
    its caption; the best come first. `fits` says of a first caption whether it fits well enough to be shown beside a
    flagged pair, and is null in the other rows.

    Args:
        suggestions: The suggestions, by places in the gallery.
        ids: Id of the pair at each place, ascending, (n_texts,).
        owner: Index of the image of each pair in the gallery, (n_texts,).
    """
    first_pair = np.full(int(owner.max(initial=-1)) + 1, -1, np.int64)
    first_pair[owner[::-1]] = ids[::-1]
    lists = (
        (False, np.where(suggestions.captions >= 0, ids[suggestions.captions], -1), suggestions.caption_probability),
        (True, np.where(suggestions.images >= 0, first_pair[suggestions.images], -1), suggestions.image_probability),
    )
    parts = []
    for is_image, sources, probability in lists:
        pair = np.repeat(ids[suggestions.pairs], sources.shape[1])
        kind = np.full(sources.size, is_image)
        first = np.tile(np.arange(sources.shape[1]) == 0, len(sources)) & ~kind
        fits = pa.array(np.repeat(suggestions.fits, sources.shape[1]), mask=~first)
        columns = pair, kind, sources.ravel(), probability.ravel().astype(np.float32), fits
        parts.append(pa.table(list(columns), SCHEMA))
    table = pa.concat_tables(parts).filter(pa.compute.field("from_pair") >= 0)
    return table.take(np.argsort(table["pair"].to_numpy(), kind="stable"))


def fitting_captions(folder: Path) -> dict[int, tuple[int, float]]:
    """Return the first caption that fits each pair's image, as the id of its pair and its probability, by pair.

    Args:
        folder: The run's folder.
    """
    table = read_parquet(folder / SUGGESTIONS_FILE, filters=pa.compute.field("fits"))
    columns = (table[name].to_pylist() for name in ("pair", "from_pair", "probability"))
    return {pair: (source, probability) for pair, source, probability in zip(*columns, strict=True)}
