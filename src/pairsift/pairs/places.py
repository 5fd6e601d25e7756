"""The image files that a source names: plain paths, `~`, backslashes, file:// addresses, accents in two forms."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://|(data|file):(?=.)", re.IGNORECASE)
THIS_MACHINE = ("", "localhost", "127.0.0.1")


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
    """Return a name whose `~` is the folder of its user; as it is where no path can have it, as with a zero byte."""
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
