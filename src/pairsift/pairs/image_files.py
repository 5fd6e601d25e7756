"""The image files that a source names: plain paths, other forms of them, and paths of another machine."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote

LONGEST = 4096  # characters of a path; a longer name, such as the content of a file, is searched for nowhere
DRIVE = re.compile(r"(file:/{1,3})?[a-z]:[\\/]", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://|(data|file):(?=.)", re.IGNORECASE)
THIS_MACHINE = ("", "localhost", "127.0.0.1")

Place = tuple[Path | None, str]  # a file, which need not exist, or None; and the problem in one line, or nothing
Parts = tuple[str, ...]
Entries = Callable[[Path], dict[str, list[str]]]  # the names in a folder by their folded forms


def within(file: Path, base: Path) -> str:
    """Return the path of a file relative to a folder if the file lies in it, else its absolute path."""
    absolute, root = os.path.abspath(file), os.path.abspath(base)
    return os.path.relpath(absolute, root) if absolute.startswith(root + os.sep) else absolute


def find_images(base: Path, names: Iterable[str]) -> tuple[dict[str, Place], str]:
    """Return the files that the image names of a source refer to, and what is unusual about the names.

    A name is first taken as it is. Where there is no such file, `~` is the user's home, backslashes are slashes, and a
    file:// address is percent-decoded. Then a file is taken whose name differs by case alone, or by the form of its
    accents, and of a Windows path (with backslashes or a drive) the longest tail that is a file below `base`, in any
    case of letters. Where two files fit a name equally well, and where different Windows paths end at the same file,
    the names have a problem instead.

    Args:
        base: Folder that relative names start from.
        names: The names, without white space around them.

    Returns:
        The file of each name, and the problem; and a note for `Listing.reading`, empty if nothing is unusual.
    """
    places = {name: _literal(base, name) for name in dict.fromkeys(names)}
    entries = cache(_entries)
    cased, cut_to = 0, dict[Path, list[str]]()
    for name, (path, problem) in places.items():
        if problem or path is None or os.path.lexists(path):
            continue
        files, cut = _best(base, name, entries)
        if len(files) > 1:
            fitting = " and ".join(repr(_below(base, file)) for file in files[:2])
            problem = f"its image may be {fitting}, which differ by case alone: write the name of one of them"
            places[name] = None, problem
        elif files:
            places[name] = files[0], ""
            cased += not _composed("/".join(_windows(name)[0])).endswith(_composed(_below(base, files[0])).lstrip("/"))
            if cut:
                cut_to.setdefault(files[0], []).append(name)
    for file, cut_names in cut_to.items():
        if not _same_path(cut_names):
            problem = f"its path and another one both end at {_below(base, file)!r}: put the images into their folders"
            places |= dict.fromkeys(cut_names, (None, problem))
    n_cut = sum(not places[name][1] for cut_names in cut_to.values() for name in cut_names)
    notes = [f"image names that differ from their files by case: {cased}"] * bool(cased)
    notes += [f"Windows paths found by their end alone, below {base}: {n_cut}"] * bool(n_cut)
    return places, "; ".join(notes)


def _literal(base: Path, name: str) -> Place:
    """Return the file that a name says, in any way of writing it."""
    if not name:
        return None, ""
    path = base / name
    scheme = SCHEME.match(name)
    if scheme is not None and not os.path.lexists(path):
        if scheme[0].lower().startswith("file:"):
            return _file_of_address(base, name[len("file:") :])
        kind = "a web address" if scheme[0].lower() in ("http://", "https://") else "an address"
        return None, f"its image is {kind} ({scheme[0]}…), and images must be local files: download them first"
    form = re.sub("^~(?=/)", lambda _: os.path.expanduser("~"), name.replace("\\", "/"))
    if form != name and not os.path.lexists(path) and os.path.lexists(base / form):
        path = base / form
    return path, ""


def _file_of_address(base: Path, address: str) -> Place:
    """Return the file of a file:// address without its scheme."""
    if address.startswith("//"):
        host, slash, address = address[2:].partition("/")
        if host.lower() not in THIS_MACHINE:
            return None, f"its image lies on another machine ({host}): copy it here and name the file"
        address = slash + address
    return (base / unquote(address) if address.strip("/") else None), ""


def _best(base: Path, name: str, entries: Entries) -> tuple[list[Path], bool]:
    """Return the files that fit a name best, if any, and whether folders or a drive were cut off."""
    if len(name) > LONGEST:
        return [], False
    if "\\" not in name and not DRIVE.match(name):
        path = Path(name)
        root = Path(path.anchor) if path.is_absolute() else base
        return _files(root, path.parts[path.is_absolute() :], entries), False
    full, drive = _windows(name)
    for start in range(len(full)):
        files = [] if ".." in full[start:] else _files(base, full[start:], entries)
        if files:
            return files, bool(start or drive)
    return [], False


def _files(root: Path, parts: Parts, entries: Entries) -> list[Path]:
    """Return the files at these parts below a folder: the one with exactly this name, else all in other case."""
    exact = root.joinpath(*parts)
    if os.path.isfile(exact):
        return [exact]
    places = [root]
    for part in parts:
        places = [
            place / entry
            for place in places
            for entry in ([part] if part == ".." else entries(place).get(_folded(part), []))
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
