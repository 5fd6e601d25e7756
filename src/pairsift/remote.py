"""Files at other places, such as a web server or an object store, which fsspec reads by their URLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pairsift.errors import InputError, UnreachableError
from pairsift.source_path import URL, expanded

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def is_remote(source: object) -> bool:
    """Return whether a source is a URL, or several with spaces between them."""
    return isinstance(source, str) and "://" in source and URL.match(source) is not None


def remote_files(source: str, endings: Sequence[str]) -> list[str]:
    """Return the URLs of the files that a source names, in its order.

    Args:
        source: URLs with spaces between them, each of a file, of a folder, or a pattern of `*`, `[...]`, `{a,b}`,
            `{000..012}`.
        endings: How the names of the files end that are taken from a folder.

    Raises:
        InputError: There is no such file.
        UnreachableError: A place cannot be reached.
    """
    found: dict[str, None] = {}
    for url in (url for pattern in source.split() for url in expanded(pattern)):
        with _at(url) as (place, path):
            if "*" in url or "[" in urlsplit(url).path:  # not of an address such as [::1]
                names = sorted(place.glob(path))
            elif urlsplit(url).path.lower().endswith(tuple(endings)):
                names = [url]  # whether it is there shows when it is read
            else:
                names = [name for name in sorted(place.find(path)) if name.lower().endswith(tuple(endings))]
            if not names:
                raise InputError(f"{url}: found no file there that ends in {', '.join(endings)}")
            found.update(dict.fromkeys(place.unstrip_protocol(name) for name in names))
    return list(found)


def fetch(url: str, path: Path) -> None:
    """Copy a file to a path here.

    Raises:
        InputError: There is none.
        UnreachableError: The place cannot be reached.
    """
    with _at(url) as (place, name):
        place.get_file(name, str(path))


def read_range(url: str, start: int, size: int) -> bytes:
    """Return some bytes of a file.

    Raises:
        InputError: There is none.
        UnreachableError: The place cannot be reached.
    """
    with _at(url) as (place, name):
        content: bytes = place.cat_file(name, start=start, end=start + size)
        return content if len(content) <= size else content[start : start + size]  # a server without ranges sends all


@contextmanager
def _at(url: str) -> Iterator[tuple[AbstractFileSystem, Any]]:
    """Yield the place of a URL and the name of the file there, and turn what may go wrong into one line."""
    from fsspec.core import url_to_fs

    def line(error: Exception) -> str:
        return " ".join(str(error).split())[:200] or type(error).__name__

    try:
        found = url_to_fs(url)
    except (ImportError, ValueError) as error:  # no package for such URLs
        raise UnreachableError(f"{url}: cannot be opened: {line(error)}") from error
    try:
        yield found
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is nothing at {url}") from error
    except Exception as error:  # each package raises its own
        raise UnreachableError(
            f"{url}: cannot be read ({line(error)}): repeat the command, and it goes on from there"
        ) from error
