"""Readers: one for each layout that pairs come in."""

from __future__ import annotations

from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.assemble import assemble
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers.annotations import read_coco, read_karpathy
from pairsift.pairs.readers.folders import is_flickr8k, read_flickr8k, read_folder
from pairsift.pairs.readers.precomp import is_now, is_precomp, read_now, read_precomp
from pairsift.pairs.readers.tables import FORMATS, read_table
from pairsift.pairs.records import Columns, Listing, Reader, Record, one_line, read_text
from pairsift.pairs.splits import Draw

__all__ = ["READERS", "Columns", "Listing", "Reader", "Record", "choose", "load"]

READERS: dict[str, Reader] = {
    "table": read_table,
    "folder": read_folder,
    "flickr8k": read_flickr8k,
    "coco": read_coco,
    "karpathy": read_karpathy,
    "precomp": read_precomp,
    "now": read_now,
}
WITH_FOLDER = ("table", "flickr8k", "coco", "karpathy")  # whose images are named by paths


def folder_of_images(reader: str, folder: Path) -> Path:
    """The folder that the user named for relative image paths.

    Raises:
        InputError: It is no folder, or the reader takes none.
    """
    if reader not in WITH_FOLDER:
        takers = ", ".join(WITH_FOLDER)
        raise InputError(f"the reader {reader!r} takes no --image-folder, as the readers {takers} do: leave it out")
    if not folder.is_dir():
        raise InputError(f"--image-folder {folder}: is not a folder; name the one that relative image paths start from")
    return folder


def choose(path: Path) -> str:
    """Name of the reader that fits what lies at the path.

    Raises:
        InputError: No reader fits.
    """
    if is_now(path):
        return "now"
    if is_precomp(path):
        return "precomp"
    if path.is_dir():
        return "flickr8k" if is_flickr8k(path) else "folder"
    suffix = path.suffix.lower()
    if suffix == ".json":
        text = read_text(path).content
        if text.lstrip().startswith("{") and '"images"' in text:
            return "coco" if '"annotations"' in text else "karpathy"
    if suffix in FORMATS:
        return "table"
    raise InputError(
        f"{path}: no reader fits the extension '{suffix}'; it may be {', '.join(FORMATS)} or a folder, "
        f"or name the reader: {', '.join(READERS)}"
    )


def load(
    path: str | Path,
    reader: str | None = None,
    split_seed: int = 0,
    shares: tuple[float, float] = (0.1, 0.1),
    image_column: str | None = None,
    caption_column: str | None = None,
    image_folder: str | Path | None = None,
    cache: str | Path | None = None,
) -> Pairs:
    """Reads image-caption pairs.

    A record that cannot be used (no caption, no image file, a repeated row, broken text) is kept with the split
    `skipped` and listed in `Pairs.skipped`. Whether an image can be decoded is found out later, by whoever decodes it.

    Args:
        path: A table (CSV, TSV, JSON lines, Parquet), a JSON file of COCO's or Karpathy's layout, or a folder, which
            may hold features instead of images.
        reader: Name of a reader in `READERS`; by default the one that fits the path.
        split_seed: Seed of the splits that are drawn where the source has none.
        shares: Shares of the images that go to dev and to test where they are drawn, each above 0, together below 1.
        image_column: A table's image column, where it has an unusual name.
        caption_column: A table's caption column, where it has an unusual name; which token ids `now` reads.
        image_folder: Folder that relative image paths of a table or a JSON file start from, where it is another than
            the source's own.
        cache: Folder that images within a Parquet file are written into; None takes `$XDG_CACHE_HOME/pairsift` or
            `~/.cache/pairsift`.

    Returns:
        The pairs; `taken` says in one line what was read as image, caption and split.

    Raises:
        InputError: Nothing that can be used lies there; the line says what was found and what to do.
    """
    path = Path(path)
    if not (min(shares) > 0 and sum(shares) < 1):
        raise InputError(f"shares {shares[0]} of dev and {shares[1]} of test must be above 0 and together below 1")
    if reader is not None and reader not in READERS:
        raise InputError(f"unknown reader {reader!r}; the readers are {', '.join(READERS)}")
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        name = choose(path) if reader is None else reader
        folder = None if image_folder is None else folder_of_images(name, Path(image_folder))
        listing = READERS[name](
            path, Columns(image_column, caption_column, folder, None if cache is None else Path(cache))
        )
        return assemble(str(path), name, listing, Draw(split_seed, *shares))
    except InputError as error:
        raise InputError(one_line(str(error), 1000)) from error
