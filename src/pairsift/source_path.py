"""The path of a source of pairs: a file, a folder, or a pattern that names several."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from pairsift.errors import InputError

BRACES = re.compile(r"\{([^{}]*)\}")
URL = re.compile(r"([a-z][a-z0-9+.-]+):/+")  # two letters at least: C:/ is a drive; in a path one slash is left
RANGE = re.compile(r"(\d+)\.\.(\d+)")
NOT_IN_LISTS = re.compile(r"[{},*?\[]")  # characters that names in a joined source cannot have


def is_pattern(source: str | Path) -> bool:
    """Return whether a source names files by `*`, `?`, `[...]`, `**`, `{a,b}` or `{000..012}`, and is none itself."""
    text = str(source)
    return (has_magic(text) or any(_alternatives(found[1]) for found in BRACES.finditer(text))) and not exists(source)


def exists(source: str | Path) -> bool:
    """Return whether there is a file or a folder at a path, which may be a pattern that is too long for one."""
    return os.path.exists(source)  # `Path.exists` raises where a name is too long


def places_of(source: Path) -> list[Path]:
    """Return the files and folders that a source names, in its order; matches of `*` in the order of their names.

    A name without `*`, `?` and `[` need not exist.
    """
    if not is_pattern(source):
        return [source]
    found: dict[Path, None] = {}
    for text in expanded(str(source)):
        names = [text] if exists(text) or not has_magic(text) else sorted(glob(text, recursive=True))
        found.update(dict.fromkeys(map(Path, names)))
    return list(found)


def root_of(source: str | Path) -> Path:
    """Return the folder that the relative paths of a source start from.

    This is the source itself if it is a folder, else the folder that contains it or everything that it may name.
    """
    text = str(source)
    if os.path.isdir(text):
        return Path(text)
    return Path(re.split(r"[{*?\[]", text)[0] + "x" if is_pattern(text) else text).parent


def stem_of(source: str | Path) -> str:
    """Return a short name of a source: that of its first file without `*` and the like, or that of its folder."""
    if not is_pattern(source):
        return Path(source).stem
    first = next(expanded(str(source)))
    stem = re.sub(r"\[[^\]]*\]|[*?]", "", Path(first).stem).strip("-_. ")
    return stem or root_of(source).absolute().name or "pairs"


def require_path(source: object) -> Path:
    """Return a source of pairs as a path, or several as a pattern.

    Raises:
        InputError: It is something else, such as a table in memory.
    """
    if isinstance(source, list | tuple) and source and all(isinstance(part, str | os.PathLike) for part in source):
        return Path(source[0]) if len(source) == 1 else _joined([Path(part) for part in source])
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"a source is the path of a file or a folder, and this is a {type(source).__name__}: write the pairs to a "
            "file, such as a CSV with the columns image and caption"
        )
    return Path(source)


def require_source(
    source: str | Path, advice: str = "give a file or a folder of image-caption pairs", run: Path | None = None
) -> None:
    """Raise an error if there is nothing at the path of a source of pairs, or nothing at one of several.

    Args:
        source: The path.
        advice: What to do about it, for the message.
        run: Folder of the run whose source it is; None for no run.

    Raises:
        InputError: There is nothing.
    """
    places = places_of(Path(source))
    missing = next((place for place in places if not exists(place)), None if places else Path(source))
    if missing is not None and URL.match(str(missing)):
        url = URL.sub(r"\1://", str(missing))
        raise InputError(
            f"{url} is not on this machine: copy it here, or encode its tar or Parquet files with `pairsift encode URL "
            "--out FOLDER`"
        )
    if missing is not None:
        of_run = "" if run is None else f", the source of {run}"
        raise InputError(f"there is nothing at {missing}{of_run}: {advice}")


def _joined(paths: Sequence[Path]) -> Path:
    """Return several paths as a pattern of braces.

    Raises:
        InputError: There is nothing at one of them, or its name cannot stand in braces.
    """
    for path in paths:
        require_source(path.expanduser())
    places = [place.absolute() for path in paths for place in places_of(path.expanduser())]
    for place in places:
        if NOT_IN_LISTS.search(str(place)):
            raise InputError(f"{place}: such a name cannot be one of several sources: rename it, or give it alone")
    root = os.path.commonpath([place.parent for place in places])
    return Path(root, f"{{{','.join(os.path.relpath(place, root) for place in places)}}}")


def expanded(pattern: str) -> Iterator[str]:
    """Yield the texts that the braces of a pattern mean, in their order."""
    for found in BRACES.finditer(pattern):
        alternatives = _alternatives(found[1])
        if alternatives:
            for text in alternatives:
                yield from expanded(pattern[: found.start()] + text + pattern[found.end() :])
            return
    yield pattern


def _alternatives(content: str) -> list[str]:
    """Return what a pair of braces stands for; nothing where it is no list and no range."""
    bounds = RANGE.fullmatch(content)
    if bounds:
        first, last = int(bounds[1]), int(bounds[2])
        return [f"{number:0{len(bounds[1])}}" for number in range(first, last + 1)]
    return content.split(",") if "," in content else []
