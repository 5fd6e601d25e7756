"""The list of the records and images that a run could not use, as a file and as a line on the console."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pyarrow as pa

from pairsift.pairs.pairs import UNUSED, Pairs
from pairsift.pairs.skips import count_reasons
from pairsift.pairs.text import one_line
from pairsift.table import write_csv

KINDS = 3  # reasons that the console's line counts


def write_skipped(pairs: Pairs, path: Path) -> None:
    """Write the skipped records and images as CSV with the columns where, reason, pair."""
    texts = {
        name: [getattr(skip, name).encode("utf-8", "replace").decode() for skip in pairs.skipped]
        for name in ("where", "reason")
    }
    ids = pa.array([skip.pair if skip.pair >= 0 else None for skip in pairs.skipped], pa.int64())
    columns = {name: pa.array(cells, pa.string()) for name, cells in texts.items()}
    write_csv(path, pa.table({**columns, "pair": ids}))


def read_skipped(path: Path) -> list[tuple[str, int]]:
    """Return the kinds of reasons in a list that `write_skipped` wrote, and how often each occurs."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8-sig", newline="") as file:
        return count_reasons(row["reason"] for row in csv.DictReader(file))


def skipped_line(pairs: Pairs, path: Path) -> str:
    """Return the console's line on skipped pairs, which `path` lists. Empty if no pair was skipped."""
    if not pairs.skipped:
        return ""
    first = pairs.skipped[0]
    example = one_line(f"{first.where}: {first.reason}", 200)
    line = f"{pairs.n_skipped:,} of {len(pairs):,} pairs were skipped{_kinds(pairs)}, the first: {example}"
    return f"{line}; the full list: {path}"


def _kinds(pairs: Pairs) -> str:
    """Return the most frequent reasons in brackets, or nothing where there is a single one."""
    counts = count_reasons(skip.reason for skip in pairs.skipped)
    if len(counts) == 1:
        return ""
    kinds = [f"{count:,}: {one_line(reason, 60)}" for reason, count in counts[:KINDS]]
    others = sum(count for _, count in counts[KINDS:])
    return f" ({'; '.join([*kinds, *[f'{others:,} for other reasons'] * bool(others)])})"


def unused_line(pairs: Pairs) -> str:
    """Return the console's line on pairs outside the source's splits. Empty if there are none."""
    count = int((pairs.split == UNUSED).sum())
    if not count:
        return ""
    return f"{count:,} of {len(pairs):,} pairs have no split in the source: they are not trained on and not judged"


def list_skipped(pairs: Pairs, path: Path, progress: bool) -> None:
    """Write the list of skipped pairs and print its line, if pairs were skipped; else remove an earlier list."""
    line = skipped_line(pairs, path)
    if not line:
        path.unlink(missing_ok=True)
        return
    write_skipped(pairs, path)
    if progress:
        print(line, file=sys.stderr)
