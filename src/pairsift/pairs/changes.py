"""What has changed in a source since a run was made of it, and the record of the run's pairs that tells.

One rule tells which row of the source is which pair of the run. Rows and pairs belong together by the column that the
user names (`--id-column`), or else by the name of their image. Among these, the caption decides; equal ones are matched
in their order. Where one pair and one row are left over together, the caption was edited. Every other pair that is
left over is gone, and every other row is new.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairsift.arrays import Bools, Ints
from pairsift.errors import InputError
from pairsift.files import write_parquet
from pairsift.pairs.image_files import within
from pairsift.pairs.pairs import ADDED, SKIPPED, UNUSED, Noise, Pairs, Skip
from pairsift.pairs.readers.embeddings import IMAGE_PLACE, images_root
from pairsift.pairs.same_pairs import image_names, numbered, without_folders
from pairsift.source_path import root_of

BLOCK, BLOCKS = 4096, 16  # bytes of a large file that its mark is made of
GONE = "is gone from the source"
SINCE = "has changed since the run was begun"


def with_row_ids(pairs: Pairs, column: str | None) -> Pairs:
    """Return pairs with the values of the column that identifies their rows.

    A row whose caption cell is a list is several pairs with one value, so that captions of one image may share one.

    Args:
        pairs: Pairs of a source.
        column: Name of the column; None for none.

    Raises:
        InputError: There is no such column, a pair that can be used has no value, or pairs of two images have the same.
    """
    if column is None:
        return pairs
    ids = [cell.strip() for cell in pairs.column(column, "the values that identify rows")]
    image_of: dict[str, int] = {}
    for pair in np.flatnonzero(pairs.split != SKIPPED).tolist():
        image = int(pairs.image_of[pair])
        name, first = pairs.names[image], pairs.names[image_of.setdefault(ids[pair], image)]
        problem = ""
        if not ids[pair]:
            problem = f"is empty for {name!r}"
        elif image_of[ids[pair]] != image:
            problem = f"has {ids[pair]!r} for {first!r} and for {name!r}"
        if problem:
            raise InputError(
                f"{pairs.source}: column {column} {problem}; give each row a value of its own, or leave --id-column out"
            )
    return replace(pairs, row_ids=ids)


@dataclass(frozen=True)
class StoredPairs:
    """The pairs of a run, as they were in its source when the run was made, or when its pairs were last judged.

    The first n_fitted pairs are those that the run was made of. The others came later.

    Attributes:
        names: Names of the images in the source, (n_images,).
        files: Files of the images, relative to the source's folder if they lie in it, (n_images,).
        captions: Captions, (n_pairs,).
        image_of: Row of the image of each caption in the source, (n_pairs,); -1 for a caption without an image.
        split: Split of each pair as it was read, (n_pairs,).
        rows: Position of each pair in the source, (n_pairs,); -1 for a pair that is gone. None means that it is the id,
            and that no change of the source was stored (`write_known_pairs`).
        row_ids: Value of the column that identifies rows, (n_pairs,); None without such a column.
        fitted: Captions when the run was made, (n_fitted,).
        fitted_image_of: `image_of` when the run was made, (n_fitted,).
        trained: Whether the networks were trained on each pair, (n_fitted,).
        planted: Row of the image of each caption with planted noise, (n_fitted,).
        planted_captions: Captions that planted noise gave to pairs in place of theirs, by pair.
        shape: Shape of a row of precomputed features, such as `36 x 2048`; empty if the images are files.
        marks: Mark of the content of each image of the run, see `content_marks`.
        hash: Hash of the pairs as they were read when the run was made.
        noise: Record of the planted noise, or None.
    """

    names: list[str]
    files: list[str]
    captions: list[str]
    image_of: Ints
    split: NDArray[np.str_]
    rows: Ints | None
    row_ids: list[str] | None
    fitted: list[str]
    fitted_image_of: Ints
    trained: Bools
    planted: Ints
    planted_captions: dict[int, str] = field(default_factory=dict)
    shape: str = ""
    marks: list[str] = field(default_factory=list)
    hash: str = ""
    noise: Noise | None = None


def write_stored_pairs(pairs: Pairs, split: NDArray[np.str_], path: Path) -> None:
    """Write the pairs that a run is made of as Parquet, one row per pair.

    The columns are `pair`, `image`, `file` (bytes of the path), `caption`, `split`, `image_row`, `planted_row` (the
    image with planted noise; equal to `image_row` without noise), `trained`, `mark` (see `content_marks`), and `id`
    with a column that identifies rows. Where noise replaced captions, `planted_caption` has the new ones, and null
    elsewhere; `caption` has the old ones.

    Args:
        pairs: Pairs of the run, with noise and without images that failed.
        split: Split of each pair as it was read, (n_pairs,).
        path: File to write. It appears either complete or not at all.

    Raises:
        WriteError: The file cannot be written.
    """
    marks = content_marks(pairs)
    of_pairs = [marks[row] if row >= 0 else "" for row in pairs.source_image_of.tolist()]
    columns: dict[str, Any] = {"trained": pairs.trained, "mark": of_pairs}
    if pairs.source_captions is not None and pairs.true_image_of is not None:
        replaced = (pairs.true_image_of < 0) & (pairs.image_of >= 0)
        texts = [text if planted else None for text, planted in zip(pairs.captions, replaced, strict=True)]
        columns["planted_caption"] = pa.array(texts, pa.string())
    noise = "" if pairs.noise is None else json.dumps(asdict(pairs.noise))
    _write(path, pairs, split, columns, hash=replace(pairs, split=split).hash(), noise=noise)


def write_known_pairs(pairs: Pairs, stored: StoredPairs, path: Path) -> None:
    """Write the pairs of a changed source, so that those that were added keep their ids too.

    The columns are `pair`, `image`, `file`, `caption`, `split`, `image_row`, `planted_row` and `id` as in
    `write_stored_pairs`, and `row`, the position of each pair in the source, -1 for a pair that is gone.

    Args:
        pairs: The pairs as `merge` returns them, perhaps without images that failed.
        stored: The stored pairs that the source was merged into.
        path: File to write. It appears either complete or not at all.

    Raises:
        WriteError: The file cannot be written.
    """
    assert pairs.source_rows is not None
    size = len(stored.captions)
    split = np.where(pairs.split == SKIPPED, SKIPPED, ADDED)
    kept = (pairs.source_rows[:size] < 0) | (np.arange(size) < len(stored.fitted))
    split[:size][kept] = stored.split[kept]
    _write(path, pairs, split, {"row": pairs.source_rows})


def _write(path: Path, pairs: Pairs, split: NDArray[np.str_], columns: dict[str, Any], **facts: str) -> None:
    """Write the columns of pairs that both files have, further columns, and facts."""
    image_of, base = pairs.source_image_of, root_of(pairs.source)
    files = [os.fsencode(within(file, base)) for file in pairs.paths]
    ids = {} if pairs.row_ids is None else {"id": pa.array(pairs.row_ids, pa.string())}
    root = images_root(Path(pairs.source)) if IMAGE_PLACE.keys() <= pairs.columns.keys() else ""
    if root:  # where the images lie whose vectors these are
        columns |= {
            f"image_{name}": pa.array([cell or None for cell in pairs.columns[name]], pa.string()).cast(kind)
            for name, kind in IMAGE_PLACE.items()
        }
        facts["images"] = root
    table = pa.table(
        {
            "pair": np.arange(len(pairs)),
            "image": pa.array([pairs.names[row] if row >= 0 else "" for row in image_of], pa.string()),
            "file": pa.array([files[row] if row >= 0 else b"" for row in image_of], pa.binary()),
            "caption": pa.array(pairs.source_captions or pairs.captions, pa.string()),
            "split": pa.array(split.tolist(), pa.string()),
            "image_row": image_of,
            "planted_row": pairs.image_of,
            **columns,
            **ids,
        }
    )
    write_parquet(path, table.replace_schema_metadata({"shape": feature_shape(pairs), **facts}))


def read_stored_pairs(path: Path, known: Path | None = None) -> StoredPairs | None:
    """Read a file of `write_stored_pairs`; return None if it does not exist.

    Args:
        path: The file.
        known: File of `write_known_pairs`, which may not exist; None for none.

    Raises:
        InputError: A file is damaged.
    """
    if not path.exists():
        return None
    made, facts = _read(path, "trained", "planted_row", "mark")
    last = made if known is None or not known.exists() else _read(known, "row")[0]
    n_images = max(int(table["image_row"].max(initial=-1)) for table in (made, last)) + 1
    names, files, marks = ([""] * n_images for _ in range(3))
    for table in (made, last):
        rows, first = np.unique(table["image_row"], return_index=True)
        for row, pair in zip(rows[rows >= 0].tolist(), first[rows >= 0].tolist(), strict=True):
            names[row], files[row] = table["image"][pair], os.fsdecode(table["file"][pair])
            marks[row] = made["mark"][pair] if table is made else marks[row]
    captions = enumerate(made.get("planted_caption", ()))
    return StoredPairs(
        names=names,
        files=files,
        captions=last["caption"],
        image_of=last["image_row"],
        split=np.array(last["split"], "<U7"),
        rows=last.get("row"),
        row_ids=last.get("id"),
        fitted=made["caption"],
        fitted_image_of=made["image_row"],
        trained=made["trained"].astype(np.bool_),
        planted=made["planted_row"],
        planted_captions={pair: caption for pair, caption in captions if caption is not None},
        shape=facts["shape"],
        marks=marks,
        hash=facts["hash"],
        noise=Noise(**json.loads(facts["noise"])) if facts["noise"] else None,
    )


def _read(path: Path, *needed: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of a file of stored pairs, numbers as arrays and the others as lists, and its facts.

    Raises:
        InputError: The file is damaged.
    """
    try:
        table = pq.read_table(path)
        for name in ("image", "file", "caption", "split", "image_row", *needed):
            table[name]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: cannot be read ({error}); take it from a copy of the run, or fit again") from error
    numbers = ("image_row", "planted_row", "row", "trained")
    columns = {
        name: table[name].to_numpy() if name in numbers else table[name].to_pylist() for name in table.schema.names
    }
    return columns, {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}


@dataclass(frozen=True)
class Changes:
    """The differences between a source and the data of a run, as numbers of pairs.

    Attributes:
        captions: Number of pairs whose caption has changed since the run was made.
        new: Number of pairs that are new or usable only since then, those with the split `added`.
        gone: Number of usable pairs that the run knew and that are no longer in the source.
        images: Number of pairs that have another image now, where a column identifies rows. Where a run goes on
            (`since_begun`), images with other content count too.
    """

    captions: int = 0
    new: int = 0
    gone: int = 0
    images: int = 0

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.captions or self.new or self.gone or self.images)

    def __str__(self) -> str:
        """Return the changes in words, such as `12 captions changed, 3 rows new, 1 gone`."""
        images = f", {self.images} image{'s' * (self.images != 1)} changed" if self.images else ""
        return (
            f"{self.captions} caption{'s' * (self.captions != 1)} changed, "
            f"{self.new} row{'s' * (self.new != 1)} new, {self.gone} gone{images}"
        )


def match_rows(stored: StoredPairs, source: Pairs) -> tuple[Ints, Ints]:
    """Match the pairs of a run to the rows of a source, by the rule of this module.

    Images are known by their names. If no name is the same, for example after absolute paths have moved, the file names
    without folders decide, provided that each of them is unique.

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now.

    Returns:
        The row in the source of each pair, (n_pairs,), -1 for a pair that is gone; and the row among the run's images
        of each image of the source, (source.n_images,), where new images get the rows after the last.
    """
    short = without_folders([stored.names, source.names])
    row_of = {name: row for row, name in enumerate(numbered(image_names(stored.names, short)))}
    names = numbered(image_names(source.names, short))
    images = np.array([row_of.setdefault(name, len(row_of)) for name in names], np.int64)
    groups: list[Any] = stored.image_of.tolist()
    source_groups: list[Any] = np.append(images, -1)[source.image_of].tolist()  # -1 stays -1
    if stored.row_ids is not None and source.row_ids is not None:
        groups, source_groups = stored.row_ids, source.row_ids
    # Equal captions of the same image or id
    place = {key: row for row, key in enumerate(numbered(zip(source_groups, source.captions, strict=True)))}
    keys = numbered(zip(groups, stored.captions, strict=True))
    rows = np.array([place.get(key, -1) for key in keys], np.int64)
    # One pair and one row that are left over: an edited caption. A pair that was gone before takes no other caption.
    was_there = np.ones(len(rows), np.bool_) if stored.rows is None else stored.rows >= 0
    left_pairs = _by_group(groups, np.flatnonzero((rows < 0) & was_there))
    left_rows = _by_group(source_groups, np.setdiff1d(np.arange(len(source)), rows))
    for group, pairs in left_pairs.items():
        if len(pairs) == len(left_rows.get(group, ())) == 1:
            rows[pairs[0]] = left_rows[group][0]
    return rows, images


def _by_group(groups: list[Hashable], places: Ints) -> dict[Hashable, list[int]]:
    """Return the places of each image or id, without those that have none."""
    found: dict[Hashable, list[int]] = {}
    for place in places.tolist():
        if groups[place] not in (-1, ""):
            found.setdefault(groups[place], []).append(place)
    return found


def merge(stored: StoredPairs, source: Pairs) -> tuple[Pairs, Changes]:
    """Merge a source into the ids, splits and image rows of a run.

    A pair that is still in the source keeps its id, its split and its planted noise, even if its row has moved. If its
    caption or its image has changed, it no longer counts as trained on; a caption that planted noise had replaced stays
    replaced. A pair that is gone keeps its id and is skipped; it has the same id when it comes back. New pairs get the
    ids after the last stored id, and the split `added`. They keep these ids if they are stored (`write_known_pairs`).

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now, without noise.

    Returns:
        The pairs and the changes.

    Raises:
        InputError: No image of the run is left, or its features have another shape.
    """
    pairs, changes, _ = _merged(stored, source, with_new=True)
    return pairs, changes


def since_begun(stored: StoredPairs, source: Pairs) -> tuple[Pairs, Changes]:
    """Return the pairs of an unfinished run that are as they were, and what else has changed in its source.

    Ids, splits, image rows and planted noise stay as the run has them, so that its checkpoint fits. A pair is skipped
    if its caption or image has changed or is gone, and new ones are left out.

    Args:
        stored: The stored pairs of the run.
        source: The source as it is read now, without noise.

    Raises:
        InputError: No image of the run is left, or its features have another shape.
    """
    pairs, changes, edited = _merged(stored, source, with_new=False)
    usable = stored.split != SKIPPED
    gone = int((usable & (pairs.split == SKIPPED)).sum())
    marks = content_marks(pairs)
    other = [row for row, mark in enumerate(stored.marks) if marks[row] and mark and marks[row] != mark]
    what = "caption" if stored.row_ids is None else "row"
    skips = [Skip(f"pair {pair}", f"its {what} {SINCE}", pair) for pair in np.flatnonzero(edited & usable).tolist()]
    pairs = pairs.skip_pairs(skips).skip_images(dict.fromkeys(other, f"the image {SINCE}"))
    if pairs.noise is not None:
        train = pairs.ids("train")
        rate = float(pairs.mismatched()[train].mean()) if len(train) else 0.0
        pairs = replace(pairs, noise=replace(pairs.noise, rate=rate))
    return pairs, replace(changes, gone=gone, images=changes.images + len(other))


def _merged(stored: StoredPairs, source: Pairs, with_new: bool) -> tuple[Pairs, Changes, Bools]:
    """Merge a source into the ids of a run, with or without pairs and images that are new.

    Returns:
        The pairs, the changes, and which pairs have another caption or image than in training, (n_pairs,).
    """
    if feature_shape(source) != stored.shape:
        raise InputError(
            f"{source.source} has changed since the run was made: its rows of features are "
            f"{feature_shape(source) or 'images'} and were {stored.shape or 'images'}; "
            "give the run's own data with --source, or fit again"
        )
    rows, images = match_rows(stored, source)
    if not (rows >= 0).any():
        raise InputError(
            f"{source.source}: names none of the images that this run was made of, such as "
            f"{next(iter(stored.names), '')!r}; give the run's own data with --source"
        )
    size, n_fitted = len(stored.captions), len(stored.fitted)
    source_rows = np.concatenate([rows, np.setdiff1d(np.arange(len(source)), rows)])
    present = source_rows >= 0
    # Image and caption of each pair; a pair that is gone has its last ones
    image_of = np.append(stored.image_of, np.full(len(source_rows) - size, -1))
    owner = source.image_of[source_rows[present]]
    image_of[present] = np.where(owner >= 0, images[owner], -1)
    captions = _of_rows(source.captions, source_rows, stored.captions)
    # What differs from what the networks were trained on
    edited, moved = np.zeros((2, len(source_rows)), np.bool_)
    edited[:n_fitted] = [caption != old for caption, old in zip(captions, stored.fitted, strict=False)]
    edited[list(stored.planted_captions)] = False
    moved[:n_fitted] = image_of[:n_fitted] != stored.fitted_image_of
    trained = np.zeros(len(source_rows), np.bool_)
    trained[:n_fitted] = stored.trained
    trained &= ~(edited | moved)
    split = _split_of_ids(stored, source, source_rows)
    gone = ~present[:size] & (stored.split != SKIPPED)
    changes = Changes(int(edited.sum()), int((split == ADDED).sum()), int(gone.sum()), int(moved.sum()))
    n_images = max([len(stored.names) - 1, *images.tolist()]) + 1
    if not with_new:
        n_images, split = len(stored.names), np.where(split == ADDED, SKIPPED, split)
        image_of = np.where(image_of < n_images, image_of, -1)
    last = len(source_rows) if with_new else size
    source_rows = source_rows[:last]
    pairs = replace(
        source,
        captions=captions[:last],
        image_of=image_of[:last],
        split=split[:last],
        columns={name: _of_rows(cells, source_rows) for name, cells in source.columns.items()},
        skipped=_skipped(source, source_rows, np.flatnonzero(gone)),
        seen_in_training=trained[:last],
        source_rows=source_rows,
        own_names=None if source.own_names is None else _of_rows(source.own_names, source_rows),
        row_ids=None if source.row_ids is None else _of_rows(source.row_ids, source_rows, stored.row_ids or ()),
    )
    pairs = _with_noise(_with_images(pairs, stored, source, images, n_images), stored)
    if stored.rows is None and not changes and np.array_equal(source_rows, np.arange(n_fitted)):
        pairs = replace(pairs, source_rows=None)  # nothing has changed
    return pairs, changes, (edited | moved)[:last]


def _of_rows(cells: list[str], rows: Ints, known: Sequence[str] = ()) -> list[str]:
    """Return the cell of each pair; for a pair that is gone, the one in `known`, or an empty one."""
    return [cells[row] if row >= 0 else known[pair] if known else "" for pair, row in enumerate(rows.tolist())]


def _split_of_ids(stored: StoredPairs, source: Pairs, source_rows: Ints) -> NDArray[np.str_]:
    """Return the split of each id.

    A pair keeps the split of the run, unless it is gone, new, no longer usable, or usable only now.
    """
    split = np.full(len(source_rows), ADDED, "<U7")
    split[: len(stored.split)] = np.where(stored.split == SKIPPED, ADDED, stored.split)
    source_split = source.split[source_rows]  # arbitrary for pairs that are gone, which are skipped
    split[(split == ADDED) & (source_split == UNUSED)] = UNUSED
    split[(source_rows < 0) | (source_split == SKIPPED)] = SKIPPED
    return split


def _skipped(source: Pairs, source_rows: Ints, gone: Ints) -> tuple[Skip, ...]:
    """Return what the source's reader skipped, with the run's ids, and the pairs that are gone."""
    id_of = {row: pair for pair, row in enumerate(source_rows.tolist()) if row >= 0}
    skips = [
        replace(skip, pair=id_of.get(skip.pair, -1)) for skip in source.skipped if skip.pair < 0 or skip.pair in id_of
    ]
    return (*skips, *(Skip(f"pair {pair}", GONE, pair) for pair in gone.tolist()))


def _with_images(pairs: Pairs, stored: StoredPairs, source: Pairs, rows: Ints, n_images: int) -> Pairs:
    """Return merged pairs with the run's images in their old rows and the new images after them.

    Args:
        pairs: The pairs, with the images of the source.
        stored: The pairs of the run, as they were stored.
        source: The source.
        rows: Row in the result of each image of the source, (source.n_images,).
        n_images: Number of images in the result; images of the source beyond it are left out.
    """
    base, more = root_of(source.source), n_images - len(stored.names)
    names, paths = [*stored.names, *[""] * more], [*(base / file for file in stored.files), *[base] * more]
    for row, name, path in zip(rows.tolist(), source.names, source.paths, strict=True):
        if row < n_images:
            names[row], paths[row] = name, path
    features = source.features
    if features is not None:
        feature_rows = np.zeros(n_images, np.int64)
        feature_rows[rows[rows < n_images]] = features.rows[rows < n_images]
        features = replace(features, rows=feature_rows)
        if features.captions is not None and pairs.source_rows is not None:
            caption_rows = features.captions.rows[np.maximum(pairs.source_rows, 0)]  # pairs that are gone are skipped
            features = replace(features, captions=replace(features.captions, rows=caption_rows))
    return replace(pairs, names=names, paths=paths, features=features)


def _with_noise(pairs: Pairs, stored: StoredPairs) -> Pairs:
    """Return merged pairs with the run's planted noise, as far as they are still in the source.

    A pair is skipped if its planted image is gone. A caption that noise gave a pair belongs to no image.
    """
    if stored.noise is None:
        return pairs
    planted, size = pairs.image_of.copy(), len(stored.planted)
    moved = (pairs.split[:size] != SKIPPED) & (stored.planted != stored.fitted_image_of)
    planted[:size][moved] = stored.planted[moved]
    split = pairs.split.copy()
    while (lost := (split != SKIPPED) & ~np.isin(planted, pairs.image_of[split != SKIPPED])).any():
        split[lost] = SKIPPED  # an image stays only while a usable pair has it in the source
    reason = "the image that planted noise gave it is gone from the source"
    skips = tuple(Skip(f"pair {pair}", reason, pair) for pair in np.flatnonzero(split != pairs.split).tolist())
    captions, true_image_of = list(pairs.captions), pairs.image_of.copy()
    for pair, caption in stored.planted_captions.items():
        captions[pair], true_image_of[pair] = caption, -1
    return replace(
        pairs,
        split=split,
        skipped=pairs.skipped + skips,
        captions=captions,
        source_captions=pairs.captions if stored.planted_captions else None,
        image_of=planted,
        true_image_of=true_image_of,
        noise=stored.noise,
    )


def content_marks(pairs: Pairs) -> list[str]:
    """Return marks that tell the contents of images wherever their files lie, (n_images,).

    With precomputed features, the content of each image is the content of the files of all features.
    """
    if pairs.features is None:
        return [file_mark(path) for path in pairs.paths]
    captions = pairs.features.captions
    parts = (*pairs.features.parts, *(() if captions is None else captions.parts))
    return [" ".join(file_mark(part) for part in parts)] * pairs.n_images


def file_mark(path: Path) -> str:
    """Return the size and a checksum of a file as text; an empty string where it cannot be read.

    The checksum is over the whole of a small file, and over blocks of a large one at equal distances.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size <= BLOCKS * BLOCK:
                return f"{size:x}-{zlib.crc32(stream.read()):x}"
            crc = 0
            for place in np.linspace(0, size - BLOCK, BLOCKS).astype(int).tolist():
                stream.seek(place)
                crc = zlib.crc32(stream.read(BLOCK), crc)
            return f"{size:x}-{crc:x}"
    except OSError:
        return ""


def feature_shape(pairs: Pairs) -> str:
    """Return the shape of a row of precomputed features as text, or an empty string if the images are files."""
    if pairs.features is None:
        return ""
    shape, captions = " x ".join(map(str, pairs.features.shape)), pairs.features.captions
    return shape if captions is None else f"{shape} with {captions.shape[0]} for captions"
