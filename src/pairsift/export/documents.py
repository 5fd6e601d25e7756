"""JSON files with fewer records and other captions: tables, COCO captions and files of Karpathy's splits."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairsift.export.json_text import Edit, Member, dumped, edited, members, removals, replacements, start_of
from pairsift.export.selection import Selection
from pairsift.export.source_text import OtherLayout, kept_lines, read_lines
from pairsift.pairs.readers.json_rows import rows_by_name, rows_of_columns, rows_of_split, rows_of_splits
from pairsift.pairs.source_rows import Cells, Origin
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import as_text

Extra = Mapping[str, list[object]]
PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]")


def same_lines(origin: Origin, records: Selection, extra: Extra) -> Iterator[bytes] | None:
    """Return the bytes of a file of JSON lines with the records to keep; None where its rows are no lines.

    Args:
        origin: The rows of the file.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.
    """
    assert origin.file is not None
    source = read_lines(origin.file, "\n")
    if not origin.starts or len(source.lines) != len(source.texts):
        return None
    written: dict[int, list[bytes | None]] = {}
    for row in origin.kept_rows(records.keep, records.captions, extra, lists=True):
        text = source.texts[origin.starts[row.row] - 1]
        if row.changes and not {origin.image, origin.caption} <= json.loads(text).keys():
            return None  # the reader took these from within the object
        new = source.encode(_with_cells(text, row.changes)) if row.changes else None
        written.setdefault(row.row, []).append(new)
    return kept_lines(source, list(origin.starts), written)


def _with_cells(text: str, changes: Cells) -> str:
    """Return the text of an object with these values by name."""
    start = start_of(text)
    return edited(text, list(replacements(text, members(text, start), start, changes)))


def same_document(origin: Origin, records: Selection, extra: Extra) -> Iterator[bytes] | None:
    """Return the bytes of a JSON file with the records to keep; None where it has another layout than those known here.

    Args:
        origin: The rows of the file, or its records.
        records: What becomes of each record.
        extra: New columns, by their names, with a value for each record.

    Raises:
        OtherLayout: A row of the file would become several, or belong below another key.
    """
    assert origin.file is not None
    source = read_lines(origin.file)
    text = source.content
    if origin.reader == "coco":
        edits = list(_coco_edits(text, records, extra))
    elif origin.reader == "karpathy":
        edits = list(_karpathy_edits(text, origin, records, extra))
    else:
        found = _table_edits(text, origin, records, extra)
        if found is None:
            return None
        edits = list(found)
    return iter([source.mark, source.encode(edited(text, edits))])


def _arrays_of_rows(text: str, value: object, cells: list[Cells]) -> list[list[Member]]:
    """Return the rows of a table: the members of one array, or of an array for each split; empty for other layouts."""
    start = start_of(text)
    if not isinstance(value, dict):
        return [members(text, start)] if value == cells else []
    lists = {name: rows for name, rows in value.items() if isinstance(rows, list)}
    names = [name for name, rows in lists.items() if rows == cells][:1]
    if not names:
        splits = {name: rows for name, rows in lists.items() if name.lower() in SPLIT_WORDS}
        names = list(splits) if rows_of_splits(splits) == cells else []
    place_of = {member.name: member.value for member in members(text, start)}
    return [members(text, place_of[name]) for name in names]


def _table_edits(text: str, origin: Origin, records: Selection, extra: Extra) -> Iterator[Edit] | None:
    """Return the edits of a table in one of the layouts that the reader knows, or None for another one."""
    rows_to_write = list(origin.kept_rows(records.keep, records.captions, extra, lists=True))
    kept = {row.row: row.changes for row in rows_to_write}
    if len(kept) < len(rows_to_write):
        raise OtherLayout
    cells, start, value = list(origin.rows()), start_of(text), json.loads(text)
    if arrays := _arrays_of_rows(text, value, cells):
        if len(arrays) > 1 and any("split" in changes for changes in kept.values()):
            raise OtherLayout  # a row would lie below the word for another split
        return _row_edits(text, arrays, kept)
    if isinstance(value, dict) and rows_by_name(value) == cells:
        return _row_edits(text, [members(text, start)], kept)
    if isinstance(value, dict) and rows_of_columns(value) == cells:
        return _column_edits(text, members(text, start), kept)
    if isinstance(value, dict) and rows_of_split(value) == cells:
        return _split_edits(text, {member.name: member for member in members(text, start)}, kept, origin.names)
    return None


def _row_edits(text: str, arrays: list[list[Member]], kept: Mapping[int, Cells]) -> Iterator[Edit]:
    """Yield the edits of rows that are objects, or the captions of the names before them, in the order of arrays."""
    rows: list[Member] = []
    for array in arrays:
        yield from removals(array, [row in kept for row in range(len(rows), len(rows) + len(array))])
        rows += array
    for row, changes in kept.items():
        if text[rows[row].value] == "{":
            yield from _object_edits(text, rows[row], changes)
        elif changes:
            yield from _value_edits(text, {"caption": rows[row]}, changes)


def _value_edits(text: str, places: Mapping[str, Member], changes: Cells) -> Iterator[Edit]:
    """Yield the edits of cells by their places.

    Raises:
        OtherLayout: A cell has no place.
    """
    if not changes.keys() <= places.keys():
        raise OtherLayout
    yield from ((places[name].value, places[name].end, dumped(cell, text)) for name, cell in changes.items())


def _column_edits(text: str, columns: list[Member], kept: Mapping[int, Cells]) -> Iterator[Edit]:
    """Yield the edits of columns, each of which holds the cells of all rows."""
    cells = {column.name: members(text, column.value) for column in columns}
    for found in cells.values():
        yield from removals(found, [row in kept for row in range(len(found))])
    for row, changes in kept.items():
        yield from _value_edits(text, {name: found[row] for name, found in cells.items()}, changes)


def _split_edits(
    text: str, parts: Mapping[str, Member], kept: Mapping[int, Cells], names: Sequence[str]
) -> Iterator[Edit]:
    """Yield the edits of rows without names, which lie below `data` beside their `index`."""
    rows = members(text, parts["data"].value)
    index = members(text, parts["index"].value) if "index" in parts and text[parts["index"].value] == "[" else []
    for found in (rows, *[index] * (len(index) == len(rows))):
        yield from removals(found, [row in kept for row in range(len(found))])
    for row, changes in kept.items():
        cells = members(text, rows[row].value) if changes else []
        yield from _value_edits(text, dict(zip(names, cells, strict=False)), changes)


def _object_edits(text: str, place: Member, changes: Cells) -> Iterator[Edit]:
    if changes:
        yield from replacements(text, members(text, place.value), place.value, changes)


def _array(text: str, start: int, name: str) -> list[Member]:
    """Return the members of the array that an object holds under a name."""
    return next(members(text, member.value) for member in reversed(members(text, start)) if member.name == name)


def _changes(record: int, caption: str, records: Selection, extra: Extra) -> Cells:
    """Return the new values of a record, with a new caption under this name."""
    new = {caption: records.captions[record]} if record in records.captions else {}
    return {**new, **{name: values[record] for name, values in extra.items()}}


def _coco_edits(text: str, records: Selection, extra: Extra) -> Iterator[Edit]:
    """Yield the edits of a file of COCO captions; images whose annotations are all dropped leave with them."""
    start = start_of(text)
    content: dict[str, Any] = json.loads(text)
    annotations = _array(text, start, "annotations")
    keep = records.keep.tolist()
    owners = [as_text(annotation.get("image_id")) for annotation in content["annotations"]]
    kept = {owner for owner, stays in zip(owners, keep, strict=True) if stays}
    gone = set(owners) - kept
    yield from removals(annotations, keep)
    yield from removals(
        _array(text, start, "images"), [as_text(image.get("id")) not in gone for image in content["images"]]
    )
    for record, member in enumerate(annotations):
        if keep[record]:
            yield from _object_edits(text, member, _changes(record, "caption", records, extra))


def _karpathy_edits(text: str, origin: Origin, records: Selection, extra: Extra) -> Iterator[Edit]:
    """Yield the edits of a file of Karpathy's splits; images whose sentences are all dropped leave with them."""
    images = _array(text, start_of(text), "images")
    content: list[Cells] = json.loads(text)["images"]
    stays, first = [], 0
    for member, image in zip(images, content, strict=True):
        sentences = image.get("sentences")
        n_sentences = len(sentences) if isinstance(sentences, list) else 0
        keep = records.keep[first : first + n_sentences].tolist()
        stays.append(any(keep) or not keep)
        if any(keep):
            yield from _sentence_edits(text, member, image, keep, first, records, extra)
            yield from _object_edits(text, member, origin.changed_cells(image, first + keep.index(True)))
        first += n_sentences
    yield from removals(images, stays)


def _sentence_edits(
    text: str, place: Member, image: Cells, keep: Sequence[bool], first: int, records: Selection, extra: Extra
) -> Iterator[Edit]:
    """Yield the edits of the sentences of an image, whose first record is `first`."""
    lists = {member.name: member for member in members(text, place.value)}
    sentences = members(text, lists["sentences"].value)
    yield from removals(sentences, keep)
    ids = image.get("sentids")
    if isinstance(ids, list) and len(ids) == len(keep):
        yield from removals(members(text, lists["sentids"].value), keep)
    for record, (member, stays) in enumerate(zip(sentences, keep, strict=True), first):
        if stays:
            changes = _changes(record, "raw", records, extra)
            if "raw" in changes and any(found.name == "tokens" for found in members(text, member.value)):
                changes["tokens"] = PUNCTUATION.sub("", str(changes["raw"]).lower()).split()
            yield from _object_edits(text, member, changes)
