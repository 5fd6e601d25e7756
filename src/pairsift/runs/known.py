"""The pairs that a run knows: those that it was made of, and those that an audit found in its source later."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from pairsift.errors import InputError
from pairsift.pairs import Pairs, read_stored_pairs, write_known_pairs
from pairsift.pairs.stored import StoredPairs, with_judged_pairs
from pairsift.run_folder import KNOWN, PAIRS_FILE, SOURCE


def known_pairs(folder: Path) -> StoredPairs:
    """Return the pairs that have ids in a run.

    Args:
        folder: The run's folder.

    Raises:
        InputError: The record of the run's pairs is missing or damaged.
    """
    fitted = read_stored_pairs(folder / SOURCE)
    if fitted is None:
        raise InputError(f"{folder / SOURCE} is missing: take it from a copy of the run, or fit again")
    known = read_stored_pairs(folder / KNOWN, fitted.captions)
    if known is not None:
        return known
    table, added = folder / PAIRS_FILE, [("pair", ">=", len(fitted.captions))]
    if not table.exists() or not len(pq.read_table(table, columns=["pair"], filters=added)):
        return fitted
    return with_judged_pairs(fitted, pq.read_table(table, columns=["pair", "image", "given_caption"], filters=added))


def keep_ids(folder: Path, pairs: Pairs) -> None:
    """Store the ids of a run's pairs, if its source has changed, so that no later change of the source moves them.

    This comes before anything that names pairs by their ids is written into the folder.

    Args:
        folder: The run's folder.
        pairs: The run's pairs, as they are about to be judged.

    Raises:
        InputError: Another call has given more ids meanwhile.
        WriteError: The file cannot be written.
    """
    if pairs.source_rows is None:
        return
    known = known_pairs(folder)
    if len(known.captions) > len(pairs):
        raise InputError(f"{folder} was audited by another call since it was opened: open it again")
    write_known_pairs(pairs, known, folder / KNOWN)
