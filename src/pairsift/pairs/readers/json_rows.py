"""The rows of JSON files: an object a line, a list of objects, and the layouts of other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.readers.cells import IMAGE_NAME, caption_of
from pairsift.pairs.readers.rows import CAPTION_COLUMNS, IMAGE_COLUMNS, Row, SourceTable, find_column, unique
from pairsift.pairs.records import Columns
from pairsift.pairs.splits import SPLIT_WORDS
from pairsift.pairs.text import as_text, how_read, one_line, quoted, read_text

Fields = dict[str, object]
LINES = (".jsonl", ".ndjson")
NEEDED = "needed is a list of objects with an image and a caption each"


def read_json_rows(path: Path, _: Columns) -> SourceTable:
    """Read the rows of a file with one JSON object per line, or with one JSON value that holds the rows.

    Such a value is a list of objects, also under a key of an object, or what pandas, kohya's scripts and Label Studio
    write.

    Raises:
        InputError: The file is not valid JSON, or holds no rows.
    """
    decoded = read_text(path)
    text = decoded.content
    whole, note = _whole(path, text), ""
    if whole is None:
        rows = [
            _row_of_line(f"{path.name} line {number}", line)
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    else:
        values, note = rows_of(path, whole[0])
        rows = [json_row(f"{path.name} record {number}", value) for number, value in enumerate(values, 1)]
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    return SourceTable(names, rows, "; ".join(filter(None, (how_read([decoded]), note))))


def _whole(path: Path, text: str) -> tuple[object] | None:
    """Return the value that a text is as a whole; None for a text of one object a line.

    Raises:
        InputError: The text is neither.
    """
    first = next((line for line in text.split("\n") if line.strip()), "")
    is_line = path.suffix.lower() in LINES and text.lstrip()[:1] != "["
    if is_line and _is_json(first):
        return None
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError) as error:
        if is_line or (text.lstrip()[:1] != "[" and _is_json(first)):
            return None
        raise InputError(f"{path}: is not valid JSON: {one_line(str(error))}") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _row_of_line(where: str, line: str) -> Row:
    try:
        return json_row(where, json.loads(line))
    except (ValueError, RecursionError) as error:
        return Row(where, {}, one_line(f"is not valid JSON: {error}"))


def json_row(where: str, value: object) -> Row:
    """Return a JSON value as a row."""
    return Row(where, flat(value)) if isinstance(value, dict) else Row(where, {}, "is not a JSON object")


def flat(row: Fields) -> Fields:
    """Return a row with the fields of an object within it that has the image, and with the captions of annotations.

    Label Studio has the image below `data`, and what people typed below `annotations`.
    """
    if find_column(list(row), IMAGE_COLUMNS) is None:
        inner = next((key for key, value in row.items() if _has(value, IMAGE_COLUMNS)), None)
        if inner is not None:
            fields = row[inner]
            assert isinstance(fields, dict)
            row = {**{key: value for key, value in row.items() if key != inner}, **fields}
    if find_column(list(row), CAPTION_COLUMNS) is None and (typed := _typed(row.get("annotations"))):
        row = {**row, "caption": typed}
    return row


def _has(value: object, columns: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and find_column(list(value), columns) is not None


def _typed(annotations: object) -> list[object]:
    """Return the texts that people typed in Label Studio."""
    found: list[object] = []
    for annotation in annotations if isinstance(annotations, list) else []:
        results = annotation.get("result") if isinstance(annotation, dict) else None
        for result in results if isinstance(results, list) else []:
            value = result.get("value") if isinstance(result, dict) else None
            text = value.get("text") if isinstance(value, dict) else None
            found += text if isinstance(text, list) else [] if text is None else [text]
    return found


def rows_of(path: Path, value: object) -> tuple[list[object], str]:
    """Return the rows that a JSON value holds, and a note on where they are if they are no plain list.

    Raises:
        InputError: It holds none; the message says what it looks like.
    """
    if isinstance(value, list):
        if value and all(isinstance(row, list) and len(row) == len(value[0]) for row in value):
            return [dict(zip(unique([""] * len(row)), row, strict=True)) for row in value], ""
        if not value or any(isinstance(row, dict) for row in value):
            return value, ""
        raise InputError(f"{path}: is a list of values such as {_shown(value[0])}; {NEEDED}")
    if not isinstance(value, dict):
        raise InputError(f"{path}: is the single value {_shown(value)}; {NEEDED}")
    for rows, note in (
        (rows_of_columns(value), "the keys are columns"),
        (rows_of_split(value), "rows of the key 'data'"),
        (rows_by_name(value), "a row for each key"),
    ):
        if rows:
            return rows, note
    rows, keys = _under_keys(path, value)
    if rows:
        return rows, f"rows of the key{'s' * (len(keys) > 1)} {quoted(keys)}"
    if _has(value, IMAGE_COLUMNS) or _has(value, CAPTION_COLUMNS):
        return [value], ""
    raise InputError(f"{path}: is an object with the keys {quoted(value, 6)}; {NEEDED}")


def _shown(value: object) -> str:
    return one_line(as_text(value), 60)


def rows_of_columns(value: Fields) -> list[object]:
    """Return the rows of columns: each an object with the same keys, or a list, as pandas writes them."""
    columns = list(value.values())
    if len(columns) < 2 or (not _has(value, IMAGE_COLUMNS) and not _has(value, CAPTION_COLUMNS)):
        return []
    if all(isinstance(column, dict) for column in columns):
        keys = {tuple(column) for column in columns if isinstance(column, dict)}
        cells = [list(column.values()) for column in columns if isinstance(column, dict)] if len(keys) == 1 else []
    else:
        cells = [column for column in columns if isinstance(column, list)]
    if len(cells) < len(columns) or len(set(map(len, cells))) > 1:
        return []
    return [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)]


def rows_of_split(value: Fields) -> list[object]:
    """Return the rows below the names of their columns, as pandas writes them with `orient="split"`."""
    names, data = value.get("columns"), value.get("data")
    if not isinstance(names, list) or not isinstance(data, list):
        return []
    names = unique(list(map(as_text, names)))
    return [dict(zip(names, row, strict=False)) if isinstance(row, list) else row for row in data]


def rows_by_name(value: Fields) -> list[object]:
    """Return the rows of an object whose keys are images, or numbers of rows."""
    are_images = 2 * sum(bool(IMAGE_NAME.search(key)) for key in value) > len(value)
    rows: list[object] = []
    for key, content in value.items():
        if isinstance(content, dict) and (are_images or _is_row(key, content)):
            rows.append(content if find_column(list(content), IMAGE_COLUMNS) else {"image": key, **content})
        elif are_images and isinstance(content, str | list):
            rows.append({"image": key, "caption": content})
        else:
            return []
    return rows


def _is_row(key: str, content: Mapping[str, object]) -> bool:
    return key.isdigit() or isinstance(caption_of(dict(content)), str | list) or _has(content, CAPTION_COLUMNS)


def _under_keys(path: Path, value: Fields) -> tuple[list[object], list[str]]:
    """Return the list of objects among the values of an object, or such lists under words for splits, and their keys.

    Raises:
        InputError: Several other lists have images.
    """
    lists = {key: rows for key, rows in value.items() if isinstance(rows, list) and _of_objects(rows)}
    keys = [key for key, rows in lists.items() if _has(flat(rows[0]), IMAGE_COLUMNS)]
    keys = keys or (list(lists) if len(lists) == 1 else [])
    if len(keys) == 1:
        return lists[keys[0]], keys
    if any(key.lower() not in SPLIT_WORDS for key in keys):
        raise InputError(f"{path}: lists of images lie under the keys {quoted(keys)}; write one of them alone")
    return rows_of_splits({key: lists[key] for key in keys}), keys


def rows_of_splits(lists: Mapping[str, list[object]]) -> list[object]:
    """Return the rows of lists of objects, each with the word for its split."""
    return [{**row, "split": key} for key, rows in lists.items() for row in rows if isinstance(row, dict)]


def _of_objects(rows: list[object]) -> bool:
    return bool(rows) and all(isinstance(row, dict) for row in rows)
