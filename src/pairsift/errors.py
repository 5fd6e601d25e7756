"""Errors that a person can act on."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path


class InputError(ValueError):
    """An error for input or a request of the user that cannot be used.

    The message is one line: what was found, where, and what to do. The command line prints it and exits with code 2.
    """


class WriteError(InputError):
    """A file cannot be written: the disk is full, or the place is not open to this user. Nothing else is wrong."""


class SourceError(InputError):
    """No part of a source can be used."""


class UnreachableError(InputError):
    """A file at another place cannot be read now. Nothing is known of the file itself."""


class LostProcessError(InputError):
    """Another process of the job was lost or has stopped, and so this one cannot go on."""


class ToldElsewhereError(InputError):
    """The job ends for a reason that another process on this machine says."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what writing a file may raise into one line.

    Args:
        path: The file that the block writes.

    Raises:
        WriteError: The block raised an OSError, or an error of a library that names a number of the system.
    """
    try:
        yield
    except WriteError:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else system_number(error)
        if number is None and not isinstance(error, OSError):
            raise
        reason = os.strerror(number) if number else str(error)
        raise WriteError(
            f"{path}: cannot be written ({reason}); free space or make it writable, and repeat the command; "
            "fit goes on with --resume"
        ) from error


def similar(name: str, names: Collection[str], otherwise: str | None = None, least: float = 0.6) -> str:
    """Return a hint at the most similar name. If none is similar, return another hint or list the names."""
    matches = get_close_matches(name, names, 1, least)
    if matches:
        return f"did you mean {matches[0]}?"
    return otherwise or f"choose from {', '.join(names)}"


def dashed(*names: str) -> str:
    """Return an option as it is typed: `--pc2.epochs.warmup` of the names that lead to it."""
    return "--" + ".".join(names).replace("_", "-")


def system_number(error: Exception) -> int | None:
    """Return the system's error number that the text of a library's error names, such as `(os error 28)`."""
    match = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    return int(match[1]) if match else None
