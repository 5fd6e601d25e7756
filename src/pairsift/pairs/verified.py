"""Pairs that are known to match, as a file or a column declares them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairsift.errors import InputError
from pairsift.pairs.options import DataOptions
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.text import read_text

MARKS = {"1": True, "true": True, "yes": True, "": False, "0": False, "false": False, "no": False}


def check_verified_options(data: DataOptions) -> None:
    """Raise an error for two declarations of verified pairs, or for a file that is not there.

    Raises:
        InputError: There are two, or there is no file.
    """
    if data.verified and data.verified_column:
        raise InputError("--verified and --verified-column exclude each other: give one of them")
    if data.verified and not Path(data.verified).is_file():
        raise InputError(f"--verified {data.verified} cannot be read: there is no such file")


def read_verified(pairs: Pairs, data: DataOptions) -> NDArray[np.bool_] | None:
    """Return which pairs of a source are declared to match, (n_pairs,); None where nothing is declared.

    Args:
        pairs: The pairs, without planted noise.
        data: The options.

    Raises:
        InputError: The file or the column is missing or cannot be read, or no training pair is declared.
    """
    check_verified_options(data)
    if data.verified is not None:
        verified, declared = _of_file(pairs, data.verified), data.verified
    elif data.verified_column is not None:
        verified, declared = _of_column(pairs, data.verified_column), f"column {data.verified_column}"
    else:
        return None
    if not verified[pairs.ids("train")].any():
        raise InputError(f"{declared} verifies no pair of train: verify some, or leave it out")
    return verified


def _of_file(pairs: Pairs, name: str) -> NDArray[np.bool_]:
    """Return the mask of the ids that a file lists."""
    try:
        lines = read_text(Path(name)).content.split("\n")
    except InputError as error:
        raise InputError(f"--verified {error}") from None
    mask = np.zeros(len(pairs), np.bool_)
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < len(pairs)):
            raise InputError(f"{name} line {number}: {text!r} is no id of a pair, which go from 0 to {len(pairs) - 1}")
        mask[int(text)] = True
    return mask


def _of_column(pairs: Pairs, column: str) -> NDArray[np.bool_]:
    """Return the mask of the pairs that a column marks."""
    cells = pairs.column(column, "the pairs that are known to match")
    marks = [MARKS.get(cell.strip().lower()) for cell in cells]
    if None in marks:
        wrong = cells[marks.index(None)]
        raise InputError(f"{pairs.source}: column {column} has {wrong!r}; mark verified pairs by 1 and others by 0")
    return np.array(marks, np.bool_)
