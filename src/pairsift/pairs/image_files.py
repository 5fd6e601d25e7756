"""The image files that a source names: plain paths, other forms of them, and paths of another machine."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote

LONGEST = 4096  # characters of a path; a longer name, such as the content of a file, is searched for nowhere
DRIVE = re.compile(r"(file:/{1,3})?[a-z]:[\\/]", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://|(data|file):(?=.)", re.IGNORECASE)
THIS_MACHINE = ("", "localhost", "127.0.0.1")

Place = tuple[Path | None, str]  # a file, which need not exist, or None; and the problem in one line, or nothing
Parts = tuple[str, ...]


def folder_of(source: str | Path) -> Path:
    """Return the folder that the relative paths of a source start from.

    This is the source itself if it is a folder, else the folder that contains it.
    """
    path = Path(source)
    return path if path.is_dir() else path.parent


def within(file: Path, base: Path) -> str:
    """Return the path of a file relative to a folder if the file lies in it, else its absolute path."""
    absolute, root = os.path.abspath(file), os.path.abspath(base)
    return os.path.relpath(absolute, root) if absolute.startswith(root + os.sep) else absolute


def find_image(base: Path, name: str) -> tuple[Path | None, str]:
    """Return the file that an image name in a source refers to, or the reason why there is no such file.

    The name is first tried without changes. If there is no such file, `~` is replaced by the user's home, backslashes
    are replaced by slashes, and a file:// address is percent-decoded. Letters with accents are tried as one character
    (Windows, Linux) and as letter and accent (macOS).

    Args:
        base: Folder that relative names start from.
        name: The name, without white space around it.

    Returns:
        The path, which need not exist, or None; and the problem in one line, or an empty string.
    """
    if not name:
        return None, ""
    path = base / name
    scheme = SCHEME.match(name)
    if scheme is not None and not os.path.lexists(path):
        if scheme[0].lower().startswith("file:"):
            return _file_of_address(base, name[len("file:") :])
        kind = "a web address" if scheme[0].lower() in ("http://", "https://") else "an address"
        return None, f"its image is {kind} ({scheme[0]}…), and images must be local files: download them first"
    if ("\\" in name or name[0] == "~" or not name.isascii()) and not os.path.lexists(path):
        places = [_from_home(name), _from_home(name.replace("\\", "/"))]
        return _existing(path, *(base / form for place in places for form in _forms(place))), ""
    return path, ""


def _forms(name: str) -> list[str]:
    """Return a name as it is, with composed letters, and with letters and accents apart."""
    return [name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)]


def _from_home(name: str) -> str:
    """Replace `~` in a name by the user's folder. A name that no path can have, as with a zero byte, is unchanged."""
    try:
        return os.path.expanduser(name)
    except ValueError:
        return name


def _existing(default: Path, *candidates: Path) -> Path:
    """Return the first of `candidates` that exists, or else `default`, the path that the source names."""
    return next((path for path in candidates if os.path.lexists(path)), default)


def _file_of_address(base: Path, address: str) -> tuple[Path | None, str]:
    """Return the file of a file:// address without its scheme, and the problem in one line."""
    if address.startswith("//"):
        host, slash, address = address[2:].partition("/")
        if host.lower() not in THIS_MACHINE:
            return None, f"its image lies on another machine ({host}): copy it here and name the file"
        address = slash + address
    return (_existing(base / unquote(address), base / address), "") if address.strip("/") else (None, "")


@dataclass(frozen=True)
class Places:
    """The files that the image names of a source refer to.

    Attributes:
        of: The file of each name, and the problem, as `find_image` returns them.
        note: What is unusual about the names, for `Listing.reading`; empty if nothing is.
    """

    of: Mapping[str, Place]
    note: str


@dataclass(frozen=True)
class _Match:
    """The files that fit a name best, and whether they differ from it by case or by folders that were cut off."""

    files: list[Path]
    cased: bool = False
    cut: bool = False


def find_images(base: Path, names: Iterable[str]) -> Places:
    """Return the files that the image names of a source refer to.

    Where `find_image` finds no file, two more ways are tried. A file whose name differs by case alone is taken. Of a
    Windows path (with backslashes or a drive) the longest tail that is a file below `base` is taken, in any case of
    letters. Where two files fit a name equally well, and where different Windows paths end at the same file, the names
    have a problem instead.

    Args:
        base: Folder that relative names start from.
        names: The names, without white space around them.
    """
    places = {name: find_image(base, name) for name in dict.fromkeys(names)}
    search = _Search(base)
    cased, cut_to = 0, dict[Path, list[str]]()
    for name, (path, problem) in places.items():
        if problem or path is None or os.path.lexists(path):
            continue
        match = search.best(name)
        if len(match.files) > 1:
            fitting = " and ".join(repr(_below(base, file)) for file in match.files[:2])
            places[name] = (
                None,
                f"its image may be {fitting}, which differ by case alone: write the name of one of them",
            )
        elif match.files:
            places[name] = match.files[0], ""
            cased += match.cased
            if match.cut:
                cut_to.setdefault(match.files[0], []).append(name)
    for file, cut in cut_to.items():
        if not _same_path(cut):
            problem = f"its path and another one both end at {_below(base, file)!r}: put the images into their folders"
            places |= dict.fromkeys(cut, (None, problem))
    n_cut = sum(not places[name][1] for cut in cut_to.values() for name in cut)
    notes = [f"image names that differ from their files by case: {cased}"] * bool(cased)
    notes += [f"Windows paths found by their end alone, below {base}: {n_cut}"] * bool(n_cut)
    return Places(places, "; ".join(notes))


class _Search:
    """The search for files whose names differ; a folder is listed once.

    Args:
        base: Folder that relative names start from.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._entries = cache(_entries)

    def best(self, name: str) -> _Match:
        """Return the files that fit a name best, if any."""
        if len(name) > LONGEST:
            return _Match([])
        if "\\" not in name and not DRIVE.match(name):
            path = Path(name)
            root = Path(path.anchor) if path.is_absolute() else self.base
            files = self._files(root, path.parts[path.is_absolute() :])
            return _Match(files, cased=True)
        full, drive = _windows(name)
        for start in range(len(full)):
            tail = full[start:]
            files = [] if ".." in tail else self._files(self.base, tail)
            if files:
                cased = not any(_composed(_below(self.base, file)) == _composed("/".join(tail)) for file in files)
                return _Match(files, cased, cut=bool(start or drive))
        return _Match([])

    def _files(self, root: Path, parts: Parts) -> list[Path]:
        """Return the files at these parts below a folder: the one with exactly this name, else all in other case."""
        exact = root.joinpath(*parts)
        if os.path.isfile(exact):
            return [exact]
        places = [root]
        for part in parts:
            places = [
                place / entry
                for place in places
                for entry in ([part] if part == ".." else self._entries(place).get(_folded(part), []))
            ]
        return [place for place in places if os.path.isfile(place)]


def _entries(folder: Path) -> dict[str, list[str]]:
    """Return the names in a folder by their folded forms; nothing if it cannot be read."""
    names: dict[str, list[str]] = {}
    try:
        for name in sorted(os.listdir(folder)):
            names.setdefault(_folded(name), []).append(name)
    except OSError:
        return {}
    return names


def _windows(name: str) -> tuple[Parts, bool]:
    """Return the parts of a Windows path behind its drive or server, and whether it has one."""
    address = DRIVE.match(name)
    if address is not None and address[1]:
        name = unquote(name[len(address[1]) :])
    path = PureWindowsPath(name)
    return path.parts[bool(path.anchor) :], bool(path.anchor)


def _same_path(names: Iterable[str]) -> bool:
    """Return whether Windows paths may be the same: each is a tail of the longest, whatever its case."""
    paths = sorted((tuple(map(_folded, _windows(name)[0])) for name in names), key=len)
    return all(paths[-1][-len(path) :] == path for path in paths)


def _below(base: Path, file: Path) -> str:
    """Return a file's path from a folder on, with slashes."""
    return file.relative_to(base).as_posix() if file.is_relative_to(base) else file.as_posix()


def _composed(name: str) -> str:
    """Return a name with its accents composed."""
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    """Return a form of a name that does not depend on case and on the form of its accents."""
    return _composed(_composed(name).casefold())
