"""Images of which a source holds features instead of pictures."""

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
    """Where the features of images lie; nothing here reads them.

    Attributes:
        parts: Files of `.npy` format, each (rows, dim) or (rows, regions, dim), alike in all but the number of rows.
        shape: What one row holds, (dim,) or (regions, dim).
        rows: Row of each image in the parts laid end to end, (n_images,); a reader leaves it empty, and the rows that
            its records name are filled in.
        vocabulary: The file that numbers the captions' words, where the source has one.
        ids: Whether a caption is a list of token ids joined by blanks instead of words.
    """

    parts: tuple[Path, ...]
    shape: tuple[int, ...]
    rows: NDArray[np.int64]
    vocabulary: Path | None = None
    ids: bool = False


def open_rows(file: Path) -> np.memmap[Any, Any]:
    """Opens a file of features memory-mapped, row after row: (rows, dim) or (rows, regions, dim).

    Raises:
        InputError: It is not such a file, or it is cut short.
    """
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{file}: is no whole .npy file of numbers ({error}); copy or make it again") from error
    if not isinstance(values, np.memmap) or values.dtype.kind != "f" or values.ndim not in (2, 3) or not values.size:
        found = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else "an archive"
        raise InputError(f"{file}: holds {found}; features are floats of shape (images, regions, dim) or (images, dim)")
    if not values.flags.c_contiguous:
        raise InputError(f"{file}: is stored column by column; save it again with np.ascontiguousarray")
    return values
