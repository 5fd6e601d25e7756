"""Precomputed features, which a source may have instead of image files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsift.errors import InputError

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Precomputed:
    """The location of the precomputed features of images; this class does not read them.

    Attributes:
        parts: Files of `.npy` format, each (rows, dim) or (rows, regions, dim), with equal shapes except for the number
            of rows.
        shape: Shape of one row, (dim,) or (regions, dim).
        rows: Row of each image in the concatenated parts, (n_images,). A reader leaves it empty; `assemble` fills it
            with the rows that the records name.
        vocabulary: File that numbers the words of the captions, or None if the source has no such file.
        ids: Whether a caption is a list of token ids joined by spaces instead of words.
    """

    parts: tuple[Path, ...]
    shape: tuple[int, ...]
    rows: NDArray[np.int64]
    vocabulary: Path | None = None
    ids: bool = False


def open_rows(file: Path) -> np.memmap[Any, Any]:
    """Open a file of features memory-mapped: (rows, dim) or (rows, regions, dim), stored row after row.

    Raises:
        InputError: The file cannot be read, is not such a file, is truncated, or is stored column by column.
    """
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{file}: is no whole .npy file of numbers ({error}); copy or make it again") from error
    if not isinstance(values, np.memmap) or values.dtype.kind != "f" or values.ndim not in (2, 3) or not values.size:
        contents = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else "an archive"
        raise InputError(
            f"{file}: holds {contents}; features are floats of shape (images, regions, dim) or (images, dim)"
        )
    if not values.flags.c_contiguous:
        raise InputError(f"{file}: is stored column by column; save it again with np.ascontiguousarray")
    return values
