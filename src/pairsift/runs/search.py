"""The search over a finished run, which encodes the run again where its folder lacks vectors."""

from __future__ import annotations

from pathlib import Path

from pairsift.search.search import Search


def open_search(folder: Path, source: str | Path | None = None) -> Search:
    """Open the search over a run, and encode the images and captions if its folder lacks an index.

    Args:
        folder: The run's folder.
        source: New path of the source, if it has moved; it need not exist where nothing has to be encoded.

    Raises:
        InputError: A file is damaged, or something has to be encoded and the source is gone.
    """
    saved = Search.open(folder, source)
    if saved is None:
        from pairsift.runs.run import Run  # methods take seconds to import

        saved = Run(folder, source=source).new_search()
    return saved
