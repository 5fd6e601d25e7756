"""Precomputed features, which a source may have instead of image files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.errors import InputError
from pairsift.pairs.text import one_line

Floats = NDArray[np.floating[Any]]

SHAPES = {2: "(rows, dim)", 3: "(rows, regions, dim)"}


@dataclass(frozen=True)
class FeatureFiles:
    """The location of the precomputed features of items; this class does not read them.

    Attributes:
        parts: Files of `.npy` format, each (rows, dim) or (rows, regions, dim), with equal shapes except for the number
            of rows.
        shape: Shape of one row, (dim,) or (regions, dim).
        rows: Row of each item in the concatenated parts, (n,).
    """

    parts: tuple[Path, ...]
    shape: tuple[int, ...]
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Precomputed(FeatureFiles):
    """The location of the precomputed features of images, and of captions where the source has them too.

    Attributes:
        parts: Files of `.npy` format.
        shape: Shape of one row, (dim,) or (regions, dim).
        rows: Row of each image in the concatenated parts, (n_images,). A reader leaves it empty; `assemble` fills it
            with the rows that the records name.
        vocabulary: File that numbers the words of the captions, or None if the source has no such file.
        ids: Whether a caption is a list of token ids joined by spaces instead of words.
        captions: Vectors of the captions, with a row for each record, or None if the source has only the captions.
    """

    vocabulary: Path | None = None
    ids: bool = False
    captions: FeatureFiles | None = None


def load_array(file: Path, mapped: bool) -> NDArray[Any]:
    """Load a `.npy` file of numbers, perhaps memory-mapped.

    Raises:
        InputError: The file cannot be read, or is not such a file.
    """
    try:
        values = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # for broken headers, numpy raises nearly any exception
        reason = one_line(str(error), 200) or type(error).__name__
        raise InputError(f"{file}: is no whole .npy file of numbers ({reason}); copy or make it again") from error
    if not isinstance(values, np.ndarray):
        raise InputError(f"{file}: holds an archive; give a single array as a .npy file")
    return values


def open_rows(file: Path, axes: tuple[int, ...] = (2, 3)) -> np.memmap[Any, Any]:
    """Open a file of features memory-mapped: (rows, dim) or (rows, regions, dim), stored row after row.

    Args:
        file: The file.
        axes: Numbers of axes that are accepted, of 2 and 3.

    Raises:
        InputError: The file cannot be read, is not such a file, is truncated, or is stored column by column.
    """
    values = load_array(file, mapped=True)
    if not isinstance(values, np.memmap) or values.dtype.kind != "f" or values.ndim not in axes or not values.size:
        shapes = " or ".join(SHAPES[number] for number in axes)
        raise InputError(f"{file}: holds {values.dtype} of shape {values.shape}; features are floats of shape {shapes}")
    if not values.flags.c_contiguous:
        raise InputError(f"{file}: is stored column by column; save it again with np.ascontiguousarray")
    return values
