"""The check of a source and its columns before anything slow is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pairsift.source_path import places_of, require_source


def check_source(source: Path, options: Mapping[str, str]) -> None:
    """Raise an error if the source does not exist, or if its table lacks a column.

    Args:
        source: The file or folder of pairs.
        options: Options as on the command line, such as `--reader`, with their values.

    Raises:
        InputError: The source or a column does not exist.
    """
    source = source.expanduser()
    require_source(source)
    source = places_of(source)[0]
    if source.is_file() and "--config" not in options and options.get("--reader", "table") == "table":
        from pairsift.pairs.readers.tables import check_columns
        from pairsift.pairs.records import Columns

        folder = options.get("--image-folder")
        columns = Columns(
            options.get("--image-column"),
            options.get("--caption-column"),
            None if folder is None else Path(folder),
            quotes=options.get("--quotes"),
            split=options.get("--split-column"),
            lists=options.get("--lists"),
        )
        check_columns(source, columns)
