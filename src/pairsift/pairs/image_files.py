"""The image files that a source names: plain paths, other forms of them, and paths of another machine."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple
from urllib.parse import unquote

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"})
LONGEST = 4096  # characters of a path; a longer name, such as the content of a file, is searched for nowhere
DRIVE = re.compile(r"(file:/{1,3})?[a-z]:[\\/]", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://|(data|file):(?=.)", re.IGNORECASE)
THIS_MACHINE = ("", "localhost", "127.0.0.1")
LABEL_STUDIO = re.compile(r"/data/local-files/?\?(?:.*&)?d=([^&]+)")  # its name for a file below its own root
MANY = 300_000  # files below a folder that are looked at
FOLDERS = 200  # folders that are tried
SOUGHT = 1000  # about as many names are sought in each of them

Place = tuple[Path | None, str]  # a file, which need not exist, or None; and the problem in one line, or nothing
Parts = tuple[str, ...]


def within(file: Path, base: Path) -> str:
    """Return the path of a file relative to a folder if the file lies in it, else its absolute path."""
    absolute, root = os.path.abspath(file), os.path.abspath(base)
    return os.path.relpath(absolute, root) if absolute.startswith(root + os.sep) else absolute


def any_image(base: Path, names: Iterable[str]) -> bool:
    """Return whether any of these image names refers to a file, also in a folder below the base."""
    places = find_below(base, find_images(base, names)).places.values()
    return any(file is not None and os.path.isfile(file) for file, _ in places)


class ImagePlaces(NamedTuple):
    """What was found for the image names of a source.

    Attributes:
        places: The file of each name, and the problem.
        note: What is unusual about the names, for `Listing.reading`; empty if nothing is.
        missing: Names without a file.
    """

    places: dict[str, Place]
    note: str
    missing: list[str]


def find_images(base: Path, names: Iterable[str]) -> ImagePlaces:
    """Return the files that the image names of a source refer to, and what is unusual about the names.

    A name is first taken as it is. Where there is no such file, `~` is the user's home, backslashes are slashes, and a
    file:// address is percent-decoded. Then a file is taken whose name differs by case alone, by the form of its
    accents, or by an extension that the name lacks, and of a path with folders or an address the longest tail that is
    such a file below `base`. Where two files fit a name equally well, and where different paths end at the same file,
    the names have a problem instead.

    Args:
        base: Folder that relative names start from.
        names: The names, without white space around them.
    """
    places = {name: _literal(base, name) for name in dict.fromkeys(names)}
    missing = [name for name, (path, _) in places.items() if path is None or not os.path.lexists(path)]
    folders = _Folders()
    cut_to = dict[Path, list[str]]()
    for name in missing:
        files, is_cut = folders.best(base, name)
        if len(files) > 1:
            fitting = " and ".join(repr(_below(base, file)) for file in files[:2])
            part = "case" if _folded(files[0].name) == _folded(files[1].name) else "their extension"
            problem = f"its image may be {fitting}, which differ by {part} alone: write the name of one of them"
            places[name] = None, problem
        elif files:
            places[name] = files[0], ""
            if is_cut:
                cut_to.setdefault(files[0], []).append(name)
    _refuse_shared(places, base, cut_to, missing)
    counts = Counter(_difference(base, name, places[name]) for name in missing)
    n_cut = sum(not places[name][1] for cut_names in cut_to.values() for name in cut_names)
    notes = [f"{kind}: {counts[kind]}" for kind in (OTHER_CASE, NO_EXTENSION) if counts[kind]]
    notes += [f"paths found by their end alone, below {base}: {n_cut}"] * bool(n_cut)
    return ImagePlaces(places, "; ".join(notes), [name for name in missing if not any_file([places[name]])])


def find_below(base: Path, found: ImagePlaces) -> ImagePlaces:
    """Seek the files of missing names in all folders below a folder.

    A file is taken by its name, of several the one with the longest common tail. Where other images were found, a name
    with folders needs a file in a folder of that name, and an address is not sought. Where two files fit a name equally
    well, and where different paths end at the same file, the names have a problem instead. A folder with more than
    300,000 files is not searched, such as the home of a user who has a table there.

    Args:
        base: The folder.
        found: What `find_images` found.
    """
    has_others = len(found.missing) < len(found.places)
    names = [name for name in found.missing if not (has_others and found.places[name][1])]
    sought = {name: parts for name in names if (parts := _split(name)[0])}
    if not sought:
        return found
    files = list(islice(_files_below(base), MANY + 1))
    if len(files) > MANY:
        return found
    by_name, by_stem = dict[str, list[Path]](), dict[str, list[Path]]()
    for file in files:
        by_name.setdefault(_folded(file.name), []).append(file)
        if stem := _stem(file.name):
            by_stem.setdefault(stem, []).append(file)
    places, cut_to = dict(found.places), dict[Path, list[str]]()
    for name, parts in sought.items():
        last = _folded(parts[-1])
        files = by_name.get(last) or ([] if os.path.splitext(last)[1] in IMAGE_SUFFIXES else by_stem.get(last, []))
        shared = [_n_shared(parts[:-1], file.parent.parts) for file in files]
        least = max([*shared, int(has_others and len(parts) > 1)])
        best = [file for file, count in zip(files, shared, strict=True) if count == least]
        if len(best) > 1:
            fitting = " or ".join(repr(_below(base, file)) for file in best[:2])
            places[name] = None, f"its image may be {fitting}: write the folder before its name"
        elif best:
            places[name] = best[0], ""
            cut_to.setdefault(best[0], []).append(name)
    _refuse_shared(places, base, cut_to, [*sought])
    count = sum(places[name][0] is not None for names in cut_to.values() for name in names)
    note = f"image names found in folders below {base}: {count}" if count else ""
    missing = [name for name in found.missing if not any_file([places[name]])]
    return ImagePlaces(places, "; ".join(filter(None, (found.note, note))), missing)


def _n_shared(parts: Parts, others: Parts) -> int:
    """Return the number of parts that two paths have in common at their ends."""
    ends = zip(reversed(parts), reversed(others), strict=False)
    return sum(1 for _ in takewhile(lambda end: _folded(end[0]) == _folded(end[1]), ends))


def image_root(roots: Sequence[Path], names: Sequence[str]) -> Path | None:
    """Return the folder that contains most of the images as they are named, the first one of equals.

    If none contains any, this is the one with most files of these names, whatever folders the names have, or else the
    first one that contains an image in another way of `find_images`; or None.
    """
    lasts = {"".join(_split(name)[0][-1:]) for name in names}
    for counts in ([_n_contained(root, names) for root in roots], [len(lasts & _names_in(root)) for root in roots]):
        if any(counts):
            return roots[counts.index(max(counts))]
    sample = names[:: max(1, len(names) // SOUGHT)]
    return next((root for root in roots if any_file(find_images(root, sample).places.values())), None)


class Walk(NamedTuple):
    """The files below a folder, and what became of its folders.

    Attributes:
        files: The files in the order of their names.
        unread: Folders that cannot be read, and why.
        linked: Number of linked folders that were followed.
        known: Number of linked folders that were not followed, because their files are read already.
    """

    files: list[Path]
    unread: list[tuple[Path, str]]
    linked: int
    known: int

    @property
    def note(self) -> str:
        """What is unusual, for `Listing.reading`."""
        counts = ("linked folders followed", self.linked), ("linked folders whose files are read already", self.known)
        return "; ".join(f"{what}: {count}" for what, count in counts if count)


def walk(path: Path) -> Walk:
    """Return all files below a folder, without hidden ones.

    Linked folders are followed after all others, so that a folder has its own name where it has one below `path`. No
    folder is read twice, and none that contains `path`.
    """
    files: list[Path] = []
    unread: list[tuple[Path, str]] = []
    ways = [path]
    seen = {_identity(folder) for folder in path.resolve().parents}
    known = 0
    for start in ways:
        known += _identity(start) in seen
        if _identity(start) in seen:
            continue
        for folder, below, names in os.walk(
            start, onerror=lambda error: unread.append((Path(error.filename), error.strerror or str(error)))
        ):
            seen.add(_identity(Path(folder)))
            visible = sorted(Path(folder, name) for name in below if not name.startswith("."))
            ways += [place for place in visible if place.is_symlink()]
            below[:] = [place.name for place in visible if not place.is_symlink() and _identity(place) not in seen]
            files += [Path(folder, name) for name in names if not name.startswith(".")]
    files.sort(key=lambda file: file.relative_to(path).parts)
    return Walk(files, unread, len(ways) - 1 - known, known)


def _identity(folder: Path) -> tuple[int, int]:
    """Return what a folder has in common with the links to it."""
    state = folder.stat()
    return state.st_dev, state.st_ino


def any_file(places: Iterable[Place]) -> bool:
    """Return whether any of these files exists."""
    return any(path is not None and os.path.isfile(path) for path, _ in places)


def subfolders(folder: Path) -> list[Path]:
    """Return the first folders within a folder in the order of their names, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []
    return [folder / name for name in names[:FOLDERS]]


def _files_below(base: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden folders and without those that are links."""
    for folder, below, names in os.walk(base):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names))


def folder_hint(base: Path, name: str) -> str:
    """Return what helps where an image is not found, by the names of the files below a folder."""
    last = _folded("".join(_split(name)[0][-1:]))
    for file in islice(_files_below(base), MANY):
        if last and last in (_folded(file.name), _stem(file.name)):
            return f"a file of this name lies in {file.parent}: name that folder with --image-folder"
    return f"no such file lies below {base}: if the images lie elsewhere, name their folder with --image-folder"


def _n_contained(root: Path, names: Iterable[str]) -> int:
    """Return how many names are those of entries below a folder, whose folders are listed once each."""
    below: dict[str, set[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        below.setdefault(folder, set()).add(last)
    listed = cache(_names_in)
    return sum(len(lasts & listed(root / folder)) for folder, lasts in below.items())


def _names_in(folder: Path) -> frozenset[str]:
    """Return the names in a folder; none if it cannot be read."""
    try:
        return frozenset(os.listdir(folder))
    except (OSError, ValueError):
        return frozenset()


def _refuse_shared(places: dict[str, Place], base: Path, cut_to: dict[Path, list[str]], missing: list[str]) -> None:
    """Give a problem to the names of different images that were cut to the same file."""
    if not cut_to:
        return
    others = places.keys() - set(missing)
    named = {os.path.normpath(path) for path, _ in map(places.__getitem__, others) if path is not None}
    for file, names in cut_to.items():
        is_named = os.path.normpath(file) in named and not all(_split(name)[1] for name in names)
        if is_named or not _same_path(names):
            problem = f"its path and another one both end at {_below(base, file)!r}: put the images into their folders"
            places |= dict.fromkeys(names, (None, problem))


OTHER_CASE, NO_EXTENSION = "image names that differ from their files by case", "image names without their extension"


def _difference(base: Path, name: str, place: Place) -> str:
    """Return how a name differs from the name of the file that was found for it; an empty string for no difference."""
    path, problem = place
    parts, _ = _split(name)
    if path is None or problem or not parts or not os.path.lexists(path):
        return ""
    if _folded(parts[-1]) != _folded(path.name):
        return NO_EXTENSION
    same = _composed("/".join(parts)).endswith(_composed(_below(base, path)).lstrip("/"))
    return "" if same else OTHER_CASE


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


class _Match(NamedTuple):
    """The files that fit a name equally well, and whether folders, a drive or a server were cut off the name."""

    files: list[Path]
    is_cut: bool = False


class _Folders:
    """The folders that are searched, each listed once."""

    def __init__(self) -> None:
        self.entries = cache(_entries)
        self.stems = cache(_stems)
        self.fitting = cache(self._fitting)

    def best(self, base: Path, name: str) -> _Match:
        """Return the files that fit a name best."""
        if len(name) > LONGEST:
            return _Match([])
        parts, is_anchored = _split(name)
        if not _is_foreign(name):
            files = self._files(Path("/") if is_anchored else base, parts)
            if files:
                return _Match(files)
        for start in range(len(parts)):
            files = [] if ".." in parts[start:] else self._files(base, parts[start:])
            if files:
                return _Match(files, bool(start or is_anchored))
        return _Match([])

    def _files(self, root: Path, parts: Parts) -> list[Path]:
        """Return the files at these parts below a folder: the one with exactly this name, else all that fit."""
        if not parts:
            return []
        folders, last = self.fitting(root, parts[:-1]), _folded(parts[-1])
        files = [folder / entry for folder in folders for entry in self.entries(folder).get(last, [])]
        if not files and os.path.splitext(last)[1] not in IMAGE_SUFFIXES:
            files = [folder / entry for folder in folders for entry in self.stems(folder).get(last, [])]
        files = [file for file in files if os.path.isfile(file)]
        exact = root.joinpath(*parts)
        return [exact] if exact in files else files

    def _fitting(self, root: Path, parts: Parts) -> list[Path]:
        """Return the folders at these parts below a folder, in any case."""
        places = [root]
        for part in parts:
            if not places:
                break
            folded = _folded(part)
            places = [
                place / entry
                for place in places
                for entry in ([part] if part == ".." else self.entries(place).get(folded, []))
            ]
        return places


def _entries(folder: Path) -> dict[str, list[str]]:
    """Return the names in a folder by their folded forms; nothing if it cannot be read."""
    names: dict[str, list[str]] = {}
    for name in sorted(_names_in(folder)):
        names.setdefault(_folded(name), []).append(name)
    return names


def _stems(folder: Path) -> dict[str, list[str]]:
    """Return the names of the images in a folder by the folded forms of what stands before their extensions."""
    names: dict[str, list[str]] = {}
    for name in sorted(_names_in(folder)):
        if stem := _stem(name):
            names.setdefault(stem, []).append(name)
    return names


def _stem(name: str) -> str:
    """Return the folded form of the name of an image without its extension; an empty string for another file."""
    stem, suffix = os.path.splitext(name)
    return _folded(stem) if suffix.lower() in IMAGE_SUFFIXES else ""


def _split(name: str) -> tuple[Parts, bool]:
    """Return the parts of a path or address, and whether it begins at a root, a drive, a server or a scheme."""
    if stored := LABEL_STUDIO.search(name):
        return _split_posix(unquote(stored[1]))[0], True
    if "\\" in name or DRIVE.match(name):
        return _windows(name)
    scheme = SCHEME.match(name)
    if scheme is None:
        return _split_posix(name)
    if scheme[0].lower().startswith("data:"):
        return (), True
    path = name[scheme.end() :]
    if scheme[0].lower().startswith("http"):
        path = re.split("[?#]", path)[0]
    return _split_posix(unquote(path))[0], True


def _split_posix(name: str) -> tuple[Parts, bool]:
    """Return the parts of a path behind its root, and whether it has one."""
    path = PurePosixPath(name)
    return path.parts[bool(path.anchor) :], bool(path.anchor)


def _is_foreign(name: str) -> bool:
    """Return whether a name is a Windows path or an address, which is no path of this machine as it stands."""
    return bool("\\" in name or DRIVE.match(name) or SCHEME.match(name) or LABEL_STUDIO.search(name))


def _windows(name: str) -> tuple[Parts, bool]:
    """Return the parts of a Windows path behind its drive or server, and whether it has one."""
    address = DRIVE.match(name)
    if address is not None and address[1]:
        name = unquote(name[len(address[1]) :])
    path = PureWindowsPath(name)
    return path.parts[bool(path.anchor) :], bool(path.anchor)


def _same_path(names: Iterable[str]) -> bool:
    """Return whether cut paths may be the same: each is a tail of the longest; the case of Windows paths is ignored."""
    paths = sorted((_comparable(name) for name in names), key=len)
    return all(paths[-1][-len(path) :] == path for path in paths)


def _comparable(name: str) -> Parts:
    """Return the parts of a path, in one case if it is a Windows path."""
    parts, _ = _split(name)
    return tuple(map(_folded, parts)) if "\\" in name or DRIVE.match(name) else parts


def _below(base: Path, file: Path) -> str:
    """Return a file's path from a folder on, with slashes."""
    return file.relative_to(base).as_posix() if file.is_relative_to(base) else file.as_posix()


def _composed(name: str) -> str:
    """Return a name with its accents composed."""
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    """Return a form of a name that does not depend on case and on the form of its accents."""
    return _composed(_composed(name).casefold())
