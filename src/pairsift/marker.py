"""The marker of folders that pairsift made. Folders of others have none."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pairsift.errors import InputError
from pairsift.files import LOCK, write_json

MARKER = "pairsift.json"
VERSION = 1  # of the files in a marked folder
Kind = Literal["run", "grid", "scenes", "vectors"]


@dataclass(frozen=True)
class Marker:
    """What a marker says of its folder.

    Attributes:
        kind: `run` for a run of `fit`, `grid` for the rows of `bench`, `scenes` for the scenes of `demo`, `vectors` for
            what `encode` makes.
        version: Version of the files in the folder.
        id: 16 hex digits that no other folder has, but copies of this one.
    """

    kind: str
    version: int
    id: str


def read_marker(folder: Path) -> Marker | None:
    """Return the marker of a folder; None where it has none of pairsift's.

    Raises:
        InputError: A newer pairsift wrote it.
    """
    try:
        tree = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        marker = Marker(str(tree["kind"]), int(tree["version"]), str(tree["id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if marker.version > VERSION:
        raise InputError(f"{folder} was written by a newer pairsift: install that version to use it")
    return marker


def write_marker(folder: Path, kind: Kind) -> Marker:
    """Mark a folder, and return its marker.

    Raises:
        WriteError: It cannot be written.
    """
    marker = Marker(kind, VERSION, secrets.token_hex(8))
    write_json(folder / MARKER, asdict(marker))
    return marker


def run_id(folder: Path) -> str | None:
    """Return the id of the run in a folder; None where it holds none."""
    marker = read_marker(folder)
    return None if marker is None else marker.id


def require_own(folder: Path, kind: Kind) -> None:
    """Raise an error for a folder that is somebody else's: it has files, and no marker of this kind.

    Raises:
        InputError: The folder is not free, or a newer pairsift wrote it. Nothing in it is changed.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give another --out")
    marker = read_marker(folder)
    if marker is None and not is_free(folder):
        raise InputError(f"{folder} holds other files, which pairsift did not write: give another --out")
    if marker is not None and marker.kind != kind:
        raise InputError(f"{folder} holds a {marker.kind} of pairsift, not a {kind}: give another --out")


def is_free(folder: Path) -> bool:
    """Return whether a folder is missing or empty, but for the lock of a process and a marker that was begun."""
    begun = f".{MARKER}."
    return not folder.exists() or all(
        file.name == LOCK or (file.name.startswith(begun) and file.suffix == ".part") for file in folder.iterdir()
    )
