"""The list of the records and images that a run could not use, as a file and as a line on the console."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from pairsift.errors import writing
from pairsift.files import replacing
from pairsift.pairs.pairs import UNUSED, Pairs
from pairsift.pairs.text import one_line
from pairsift.spreadsheet import harmless


def write_skipped(pairs: Pairs, path: Path) -> None:
    """Write the skipped records and images as CSV with the columns where, reason, pair.

    An apostrophe is put before text that a spreadsheet would run as a formula.
    """
    with (
        writing(path),
        replacing(path) as part,
        part.open("w", newline="", encoding="utf-8", errors="replace") as stream,
    ):
        writer = csv.writer(stream)
        writer.writerow(("where", "reason", "pair"))
        for skip in pairs.skipped:
            writer.writerow((harmless(skip.where), harmless(skip.reason), skip.pair if skip.pair >= 0 else ""))


def skipped_line(pairs: Pairs, path: Path) -> str:
    """Return the console's line on skipped pairs, which `path` lists. Empty if no pair was skipped."""
    if not pairs.skipped:
        return ""
    first = pairs.skipped[0]
    example = one_line(f"{first.where}: {first.reason}", 200)
    return f"{pairs.n_skipped:,} of {len(pairs):,} pairs were skipped, the first: {example}; the full list: {path}"


def unused_line(pairs: Pairs) -> str:
    """Return the console's line on pairs outside the source's splits. Empty if there are none."""
    count = int((pairs.split == UNUSED).sum())
    if not count:
        return ""
    return f"{count:,} of {len(pairs):,} pairs have no split in the source: they are not trained on and not judged"


def list_skipped(pairs: Pairs, path: Path, progress: bool) -> None:
    """Write the list of skipped pairs and print its line, if pairs were skipped."""
    if line := skipped_line(pairs, path):
        write_skipped(pairs, path)
        if progress:
            print(line, file=sys.stderr)
