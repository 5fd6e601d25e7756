"""The search over a finished run, whether its folder holds all vectors or not."""

from __future__ import annotations

from pathlib import Path

from pairsift.search.search import Search


def open_search(folder: Path, source: str | Path | None = None, captions: bool = True) -> Search:
    """Open the search over a run, and encode what its folder lacks.

    Args:
        folder: The run's folder.
        source: New path of the source, if it has moved; it need not exist where nothing has to be encoded.
        captions: Whether captions are needed too.

    Raises:
        InputError: A file is damaged, or something has to be encoded and the source is gone.
    """
    saved = Search.open(folder, source)
    if saved is not None and (saved.index.captions is not None or not captions):
        return saved
    from pairsift.runs.run import Run  # methods take seconds to import

    return Run(folder, source=source).new_search()
