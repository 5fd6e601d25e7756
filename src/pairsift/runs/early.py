"""What can be refused at once: a source or a column that is not there, before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pairsift.errors import InputError


def check_source(source: Path, given: Mapping[str, str]) -> None:
    """Refuse a source that is not there, or a table that lacks a column.

    Args:
        source: What is read.
        given: Options as they are typed, with their values.

    Raises:
        InputError: It is not there, or lacks one.
    """
    source = source.expanduser()
    demand_source(source)
    if source.is_file() and "--config" not in given and given.get("--reader", "table") == "table":
        from pairsift.pairs.readers.tables import check_columns
        from pairsift.pairs.records import Columns

        check_columns(source, Columns(given.get("--image-column"), given.get("--caption-column")))


def demand_source(source: Path) -> None:
    """Refuse a source that is not there.

    Raises:
        InputError: It is not.
    """
    if not source.exists():
        raise InputError(f"there is nothing at {source}: give a file or a folder of image-caption pairs")
