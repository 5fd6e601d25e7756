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
    dev_share: float = 0.1,
    test_share: float = 0.1,
    image_column: str | None = None,
    caption_column: str | None = None,
) -> Pairs:
    """Reads image-caption pairs.

    A record that cannot be used (no caption, no image file, a repeated row, broken text) is kept with the split
    `skipped` and listed in `Pairs.skipped`. Whether an image can be decoded is found out later, by whoever decodes it.

    Args:
        path: A table (CSV, TSV, JSON lines, Parquet), a JSON file of COCO's or Karpathy's layout, or a folder, which
            may hold features instead of images.
        reader: Name of a reader in `READERS`; by default the one that fits the path.
        split_seed: Seed of the splits that are drawn where the source has none.
        dev_share: Share of the images that go to dev where it is drawn, above 0.
        test_share: The same for test. Both together are below 1.
        image_column: A table's image column, where it has an unusual name.
        caption_column: A table's caption column, where it has an unusual name; which token ids `now` reads.

    Returns:
        The pairs; `taken` says in one line what was read as image, caption and split.

    Raises:
        InputError: Nothing that can be used lies there; the line says what was found and what to do.
    """
    path = Path(path)
    if not (dev_share > 0 and test_share > 0 and dev_share + test_share < 1):
        raise InputError(f"dev_share {dev_share} and test_share {test_share} must be above 0 and together below 1")
    if reader is not None and reader not in READERS:
        raise InputError(f"unknown reader {reader!r}; the readers are {', '.join(READERS)}")
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        name = choose(path) if reader is None else reader
        listing = READERS[name](path, Columns(image_column, caption_column))
        return assemble(str(path), name, listing, Draw(split_seed, dev_share, test_share))
    except InputError as error:
        raise InputError(one_line(str(error), 1000)) from error
