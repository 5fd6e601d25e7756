"""Cleaned data in the formats that people use."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pairsift.encode.decode import BadImage, image_size
from pairsift.errors import InputError, similar, writing
from pairsift.export.fiftyone import ENDING, export_fiftyone
from pairsift.export.selection import Selection, pairs_of_records, selection_of_records
from pairsift.export.shards import ChosenRecords, image_bytes, samples_of_rows, samples_of_shards, write_shards
from pairsift.export.tables import is_format_of_source, write_again, write_table
from pairsift.files import make_folder, only_writer, remove_parts, replacing, write_text
from pairsift.pairs.pairs import JUDGED, UNUSED, Pairs
from pairsift.pairs.source_rows import Origin
from pairsift.pairs.splits import SPLIT_WORDS, splits_of_images

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
SHARDS = "shards"  # ending of the name of a folder for tar files
COCO = "coco.json"  # ending of the name of a file that has COCO captions whatever the source is
FORMATS = (*TABLES, ".json", ".txt", ENDING, "a folder", "a folder whose name ends in shards")


def with_run_splits(origin: Origin, pairs: Pairs) -> Origin:
    """Return the rows of the source with the split that each image has in the run."""
    split_of = splits_of_images(pairs)
    return replace(origin, splits=[split_of.get(row, UNUSED) for row in _images_of_records(pairs)])


def with_image_names(origin: Origin, pairs: Pairs) -> Origin:
    """Return the rows of the source with names in the place of images that lie in the source itself."""
    names = [pairs.image_name(pair) if pair >= 0 else "" for pair in pairs_of_records(pairs).tolist()]
    return replace(origin, images=names)


def _images_of_records(pairs: Pairs) -> list[int]:
    """Return the row of the image of each record of the source, -1 for none."""
    of_records = pairs_of_records(pairs)
    return [row if pair >= 0 else -1 for row, pair in zip(pairs.image_of[of_records].tolist(), of_records, strict=True)]


def export(
    origin: Origin,
    pairs: Pairs,
    selection: Selection,
    out: Path,
    weights: bool = False,
    splits: bool = False,
) -> None:
    """Write the selected pairs.

    The ending of the path decides on the format: a table (`.csv`, `.tsv`, `.jsonl`, `.parquet`) with the columns of
    the source, `.json` for the layout of a source that is such a file and for COCO captions otherwise, `coco.json` for
    COCO captions, `.txt` for the ids of the pairs, one per line, `.fiftyone` for a folder that FiftyOne opens (see
    `pairsift.export.fiftyone`), `shards` (such as `clean-shards`) for a folder of tar files with an image, its caption
    and the other columns as JSON for each pair, and no ending for a folder of images with a text file of captions
    beside each. In the format of the source, all that was not decided stays as it was: byte by byte in text, value by
    value in Parquet.

    Args:
        origin: The rows of the source.
        pairs: The pairs; the id of a pair is the position of its record in the source.
        selection: The pairs to export and their captions.
        out: The file or folder, which must not exist.
        weights: Whether tables, COCO captions, shards and the samples of FiftyOne get a column `weight`, and lists of
            ids a weight behind each id.
        splits: Whether tables, folders and shards say the split that each image has in the run, also where it was
            drawn. The samples of FiftyOne always do.

    Raises:
        InputError: The format is unknown or has no splits or no weights, the path exists already, the source has no
            images for a folder, for shards or for FiftyOne, or an image is gone.
        WriteError: The file cannot be written.
    """
    suffix = format_of(out)
    again = suffix in (*TABLES, ".json") and is_format_of_source(out, origin)
    if out.name.lower().endswith(COCO) and origin.reader != "coco":
        again = False
    if out.exists():
        raise InputError(f"{out} exists already: name another file, or move it away")
    if splits and (suffix == ".txt" or (suffix == ".json" and (not again or origin.reader == "coco"))):
        raise InputError(f"{out}: a {suffix} file has no splits: choose {', '.join(TABLES)} or a folder for --splits")
    if weights and not suffix:
        raise InputError(f"{out}: a folder of images has no weights: choose {', '.join(FORMATS[:-2])} or shards")
    if suffix in (ENDING, SHARDS, "") and pairs.features is not None:
        raise InputError(f"{pairs.source} has features instead of images: export a table")
    make_folder(out.parent)
    with only_writer(out):
        remove_parts(out.parent, out.name)
        origin = with_run_splits(origin, pairs) if splits else origin
        records = selection_of_records(selection, pairs)
        extra: dict[str, list[object]] = {origin.weight_column: records.weight.tolist()} if weights else {}
        if again and write_again(out, origin, records, extra):
            return
        if suffix in TABLES:
            holds_images = suffix == ".parquet" and origin.reader == "table"
            write_table(out, origin if holds_images else with_image_names(origin, pairs), records, extra)
        elif suffix == ".json":
            extra = {origin.weight_column: selection.weight.tolist()} if weights else {}
            _write_coco(out, coco(pairs, selection, extra), splits)
        elif suffix == ".txt":
            ids = np.flatnonzero(selection.keep).tolist()
            write_text(out, "".join(f"{pair} {selection.weight[pair]}\n" if weights else f"{pair}\n" for pair in ids))
        elif suffix == ENDING:
            export_fiftyone(pairs, selection, out, weights)
        elif suffix == SHARDS:
            _write_shards(out, origin, pairs, records, extra)
        else:
            _write_folder(out, origin, pairs, selection)


def _write_coco(out: Path, captions: Mapping[str, Any], splits: bool) -> None:
    if splits:
        raise InputError(f"{out}: COCO captions have no splits: choose {', '.join(TABLES)} or a folder for --splits")
    write_text(out, json.dumps(captions, ensure_ascii=False) + "\n")


def format_of(out: Path) -> str:
    """Return the format that the ending of a path decides on: its extension, `shards`, or an empty string for a folder.

    Raises:
        InputError: There is no such format.
    """
    suffix = out.suffix.lower()
    if out.name.lower().endswith(SHARDS):
        return SHARDS
    if suffix == ".tar":
        raise InputError(f"{out}: tar files are written into a folder whose name ends in {SHARDS}: name one with --out")
    if suffix and suffix not in FORMATS:
        raise InputError(f"{out}: there is no format {suffix!r}; {similar(suffix, FORMATS)}")
    return suffix


def folder_of_names(pairs: Pairs, out: Path) -> Path | None:
    """Return the folder that the images' names in an exported file start from; None where they need no other folder."""
    if format_of(out) not in (*TABLES, ".json") or pairs.features is not None:
        return None
    ends = ((str(path), _end(name, path)) for name, path in zip(pairs.names, pairs.paths, strict=True))
    bases = {os.path.abspath(path.removesuffix(end) or ".") for path, end in ends if end}
    base = Path(os.path.commonpath(bases)) if bases else None  # several where names were found in folders below
    return None if base == out.absolute().parent else base


def _end(name: str, path: Path) -> str:
    """Return the end of a path that an image's name ends with too; a relative name must be that end as a whole."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if parts and parts[-1] == path.stem:  # a name without its extension
        parts = (*parts[:-1], path.name)
    pairs = zip(reversed(parts), reversed(path.parts), strict=False)
    shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    if path.is_absolute() and len(shared) >= len(path.parts) - 1:
        return ""
    is_foreign = "\\" in name or name.startswith("/") or ":/" in name
    return "/".join(reversed(shared)) if is_foreign or len(shared) == len(parts) else ""


COCO_FIELDS = ("id", "image_id", "caption")  # of an annotation


def coco(pairs: Pairs, selection: Selection, extra: Mapping[str, list[object]] | None = None) -> dict[str, Any]:
    """Return the selected pairs as COCO captions; the id of an annotation is the id of its pair.

    `_given` is appended to columns of the source with the name of a field of COCO, so that none is lost. Images have
    their width and height in pixels, as they are shown, and a name. Other tools ask for both, and find images by the
    name.
    """
    kept = np.flatnonzero(selection.keep).tolist()
    images = dict.fromkeys(int(pairs.image_of[pair]) for pair in kept)
    columns: dict[str, Sequence[object]] = {**(extra or {})}
    for column, values in pairs.columns.items():
        if column in COCO_FIELDS and f"{column}_given" in pairs.columns:
            continue  # these are of an earlier export, which kept the first ones
        while column in (*COCO_FIELDS, *columns):
            column += "_given"
        columns[column] = values
    annotations = [
        {
            **{name: values[pair] for name, values in columns.items()},
            "id": pair,
            "image_id": int(pairs.image_of[pair]),
            "caption": selection.captions.get(pair, pairs.captions[pair]),
        }
        for pair in kept
    ]
    files = [{"id": row, **_file(pairs, row)} for row in images]
    return {"info": {}, "licenses": [], "images": files, "annotations": annotations}


def _file(pairs: Pairs, row: int) -> dict[str, object]:
    """Return the name of an image, and its width and height from the header of its file where there is one."""
    name, path = pairs.names[row], pairs.paths[row]
    if pairs.features is not None:
        return {"file_name": name}
    place = {"file_name": _end(name, path) or os.path.abspath(path)}
    try:
        return {**place, **dict(zip(("width", "height"), image_size(path), strict=True))}
    except BadImage:
        return {**place}


def _write_folder(out: Path, origin: Origin, pairs: Pairs, selection: Selection) -> None:
    """Copy every image that keeps a caption, and write its captions beside it.

    Where the source has splits, they become folders, and pairs outside the splits are left out.
    """
    has_splits = origin.split_column is not None
    captions: dict[int, list[str]] = {}
    kept = selection.keep & (np.isin(pairs.split, JUDGED) if has_splits else np.ones(len(pairs), np.bool_))
    for pair in np.flatnonzero(kept).tolist():
        captions.setdefault(int(pairs.image_of[pair]), []).append(selection.captions.get(pair, pairs.captions[pair]))
    split_of = splits_of_images(pairs) if has_splits else {}
    with writing(out), replacing(out) as part:
        part.mkdir(parents=True)
        for row, name in zip(captions, _file_names(pairs, captions, split_of), strict=True):
            place = part / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(image_bytes(pairs.paths[row]))
            lines = (" ".join(caption.split()) for caption in captions[row])
            place.with_suffix(".txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _write_shards(
    out: Path, origin: Origin, pairs: Pairs, records: Selection, extra: Mapping[str, list[object]]
) -> None:
    """Write tar files of samples, below folders for the splits where the source has splits.

    A source of tar files keeps its samples as they are, but for what was changed in them.
    """
    rows = _images_of_records(pairs)
    split_of = splits_of_images(pairs) if origin.split_column is not None else {}
    chosen = ChosenRecords(
        records.keep,
        records.captions,
        extra,
        [pairs.paths[row] for row in rows],
        [split_of.get(row, "") for row in rows],
    )
    samples = samples_of_rows if origin.samples is None else samples_of_shards
    write_shards(out, samples(with_image_names(origin, pairs), chosen))


def _file_names(pairs: Pairs, rows: Iterable[int], split_of: Mapping[int, str]) -> Iterator[str]:
    """Yield a relative path below its split for each image: its own name if that is relative. No stem is used twice."""
    taken: set[str] = set()
    for row in rows:
        place = PurePosixPath(_end(pairs.names[row], pairs.paths[row]) or pairs.names[row])
        if place.is_absolute() or ".." in place.parts or not place.name:
            place = PurePosixPath(pairs.paths[row].name)
        word = SPLIT_WORDS.get(place.parts[0].lower()) if len(place.parts) > 1 else None
        if row in split_of and word != split_of[row]:
            place = PurePosixPath(split_of[row], *place.parts[word is not None :])
        stem = str(place.with_suffix(""))
        while stem.casefold() in taken:
            stem = f"{stem}_{row}"
        taken.add(stem.casefold())
        yield stem + (pairs.paths[row].suffix or ".jpg")
