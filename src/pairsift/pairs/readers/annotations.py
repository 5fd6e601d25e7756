"""The `coco` reader (COCO captions JSON) and the `karpathy` reader (dataset_coco.json and similar files)."""

from __future__ import annotations

import re
from pathlib import Path

from pairsift.errors import InputError
from pairsift.pairs.image_files import folder_hint, image_root, subfolders
from pairsift.pairs.records import Columns, Listing, Record
from pairsift.pairs.text import Text, as_text, how_read, other_columns, parse_json, quoted


def folder_of_annotated(file: Path, names: list[str], folder: Path | None) -> Path:
    """Return the folder that contains most of the images of an annotation file.

    The folders are tried in this order: the file's folder, `images/` in it, `images/` beside it, the folder above, in
    each of them the folder whose name is part of the file's name (`train2014`, ...), and then all other folders beside
    the file. If the user sets a folder, only this folder and the folders in it are tried.

    Args:
        file: The annotation file.
        names: Names of the images.
        folder: Folder set by the user, or None.

    Raises:
        InputError: None of these folders contains any of the images.
    """
    base = file.parent
    roots = [folder] if folder is not None else [base, base / "images", base.parent / "images", base.parent]
    roots += [root / part for part in re.findall(r"(?:train|val|test)\d{4}", file.name) for root in list(roots)]
    root = image_root([*roots, *subfolders(folder or base)], names)
    if root is not None:
        return root
    if not names:
        raise InputError(f"{file}: names no images")
    tried = ", ".join(str(root) for root in roots)
    hint = folder_hint(folder or base, names[0])
    raise InputError(f"{file}: found none of its {len(names)} images, such as {names[0]!r}; {hint}; tried: {tried}")


def objects(value: object, key: str, path: Path) -> list[dict[str, object]]:
    """Return the list of objects under a key.

    Raises:
        InputError: The key is missing, its value is not a list, or the list contains other values than objects.
    """
    entries = value.get(key) if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        keys = quoted(value) if isinstance(value, dict) else type(value).__name__
        raise InputError(f"{path}: needs a list of objects under {key!r}; found {keys}")
    return entries


def caption_problem(caption: object) -> str:
    """Return the problem of a caption as a JSON value, or an empty string."""
    return "" if caption is None or isinstance(caption, str) else "the caption is not text"


def _reading(text: Text, bare: int) -> str:
    """Describe what is unusual about an annotation file, in which so many images have no caption."""
    return "; ".join(filter(None, (how_read([text]), f"images without a caption: {bare}" * bool(bare))))


def read_coco(path: Path, columns: Columns) -> Listing:
    """Read a COCO captions file: `images` with id and file_name, `annotations` with image_id and caption.

    Raises:
        InputError: The file is not such JSON, or its images are not in the folders that are searched.
    """
    value, text = parse_json(path)
    names: dict[str, str] = {}
    ambiguous = set()
    for image in objects(value, "images", path):
        image_id, name = as_text(image.get("id")), as_text(image.get("file_name"))
        if names.setdefault(image_id, name) != name:
            ambiguous.add(image_id)
    root = folder_of_annotated(path, [name for name in names.values() if name], columns.folder)
    records = []
    annotations = objects(value, "annotations", path)
    for number, annotation in enumerate(annotations, 1):
        image_id = as_text(annotation.get("image_id"))
        problem = caption_problem(annotation.get("caption"))
        if image_id not in names:
            problem = f"image id {image_id or 'none'} is not among the images"
        elif image_id in ambiguous:
            problem = f"image id {image_id or 'none'} is of several images"
        records.append(
            Record(
                where=f"{path.name} annotation {number}",
                image=names.get(image_id, ""),
                path=None,
                caption=as_text(annotation.get("caption")),
                extra=other_columns(annotation, "caption"),
                problem=problem,
            )
        )
    bare = len(names.keys() - {as_text(annotation.get("image_id")) for annotation in annotations})
    return Listing(records, f"file_name in {root}", "annotations' caption", reading=_reading(text, bare), folder=root)


def read_karpathy(path: Path, columns: Columns) -> Listing:
    """Read a file of Karpathy's splits: `images` with filename, perhaps filepath, split and sentences' raw text.

    Raises:
        InputError: The file is not such JSON, or its images are not in the folders that are searched.
    """
    value, text = parse_json(path)
    images = objects(value, "images", path)
    names = [
        "/".join(filter(None, (as_text(image.get(part)) for part in ("filepath", "filename")))) for image in images
    ]
    root = folder_of_annotated(path, [name for name in names if name], columns.folder)
    records = []
    for number, (image, name) in enumerate(zip(images, names, strict=True), 1):
        sentences = image.get("sentences")
        for position, sentence in enumerate(sentences if isinstance(sentences, list) else [], 1):
            cells = sentence if isinstance(sentence, dict) else {}
            raw = cells.get("raw")
            records.append(
                Record(
                    where=f"{path.name} image {number} sentence {position}",
                    image=name,
                    path=None,
                    caption=as_text(raw),
                    split=as_text(image.get("split")),
                    extra=other_columns(image, "filepath", "filename", "split") | other_columns(cells, "raw"),
                    problem=caption_problem(raw),
                )
            )
    return Listing(
        records,
        f"filename in {root}",
        "sentences' raw text",
        "the images' split",
        reading=_reading(text, sum(not image.get("sentences") for image in images)),
        folder=root,
    )
