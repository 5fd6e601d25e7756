"""Tables that a spreadsheet saved in a code page of Windows."""

from __future__ import annotations

from collections.abc import Iterable

from pairsift.pairs.text import undecodable

CODE_PAGES = (  # of Windows, in which Excel saves CSV files: Western, East Asian, Central European, Cyrillic, and so on
    *("cp1252", "cp932", "cp936", "cp949", "cp950"),
    *("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
)


def original_text(text: str, page: str | None) -> str:
    """Return the text of a cell of a file in a code page, which was read without knowing it."""
    raw = None if page is None else _bytes(text)
    return text if page is None or raw is None else raw.decode(page, "replace")


def code_page(cells: Iterable[tuple[str, str]]) -> str | None:
    """Return the code page in which a spreadsheet wrote cells whose text is known; None where none fits most of them.

    Args:
        cells: The texts of cells as they were read and as they were. A question mark stands for what the code page does
            not have.
    """
    changed = [(raw, known) for text, known in cells if text != known and (raw := _bytes(text)) is not None]
    for page in CODE_PAGES:
        if 2 * sum(raw == known.encode(page, "replace") for raw, known in changed) > len(changed):
            return page
    return None


def _bytes(text: str) -> bytes | None:
    """Return the bytes of a cell that is not UTF-8 and was read by `pairsift.pairs.text.decode`; None for others."""
    try:
        return text.encode("utf-8", "surrogateescape") if undecodable(text) else text.encode("cp1252")
    except UnicodeEncodeError:
        return None
