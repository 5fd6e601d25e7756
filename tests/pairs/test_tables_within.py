"""Folders of images whose captions lie in a single table or annotation file, as data sets are downloaded."""

import json

import pytest

from pair_sources import refused, touch, write_table
from pairsift.pairs.readers import load, table_within
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from pairsift.runs.config import configure

CAPTIONS = [f"a dog number {number} runs over the grass" for number in range(12)]


def write(folder, kind):
    """A data set in the layout of its download, and where its captions are."""
    images = {"flickr8k": "Images", "flickr30k": "images/images", "coco": "val2017"}.get(kind, "pics")
    touch(folder / images, *(f"{number}.jpg" for number in range(12)))
    (folder / "README.txt").write_text("Some photographs.\n")
    (folder / ".hidden.csv").write_text("image,caption\n")
    if kind == "flickr8k":
        rows = [(f"{number}.jpg", text) for number, text in enumerate(CAPTIONS)]
        return write_table(folder / "captions.csv", ["image", "caption"], rows).rename(folder / "captions.txt")
    if kind == "flickr30k":
        lines = [f"{number}.jpg| 0| {text}" for number, text in enumerate(CAPTIONS)]
        (folder / "images/results.csv").write_text("\n".join(["image_name| comment_number| comment", *lines]))
        return folder / "images/results.csv"
    if kind == "coco":
        place = folder / "annotations" / "captions_val2017.json"
        place.parent.mkdir()
        files = [{"id": number, "file_name": f"{number}.jpg"} for number in range(12)]
        texts = [{"id": number, "image_id": number, "caption": text} for number, text in enumerate(CAPTIONS)]
        place.write_text(json.dumps({"images": files, "annotations": texts}))
        boxes = {"images": files, "annotations": [{"id": 1, "image_id": 1, "bbox": [1, 2, 3, 4]}]}
        (place.parent / "instances_val2017.json").write_text(json.dumps(boxes))
        return place
    rows = [(f"{number}.jpg", text) for number, text in enumerate(CAPTIONS)]
    return write_table(folder / "labels.tsv", ["file", "title"], rows)


@pytest.mark.parametrize("kind", ["flickr8k", "flickr30k", "coco", "shop"])
def test_the_only_table_of_a_folder_is_read(tmp_path, kind):
    table = write(tmp_path / "data", kind)
    pairs = load(tmp_path / "data")
    assert pairs.captions == CAPTIONS and pairs.n_images == 12 and pairs.source == str(table)
    assert configure(tmp_path / "data").source == str(table)
    origin = read_origin(tmp_path / "data", None, Columns())
    assert [row[origin.caption].strip() for row in origin.rows()] == CAPTIONS


def test_of_several_tables_none_is_taken_and_all_are_named(tmp_path):
    write(tmp_path, "shop")
    rows = [(f"{number}.jpg", text) for number, text in enumerate(CAPTIONS)]
    (tmp_path / "more").mkdir()
    write_table(tmp_path / "more" / "new.csv", ["image", "caption"], rows)
    assert table_within(tmp_path) == tmp_path
    assert refused(tmp_path).endswith("or read one of its tables: 'labels.tsv', 'more/new.csv'")


def test_captions_beside_the_images_come_first(tmp_path):
    write(tmp_path, "shop")
    for number, text in enumerate(CAPTIONS):
        (tmp_path / "pics" / f"{number}.txt").write_text(text)
    assert table_within(tmp_path) == tmp_path and load(tmp_path).description.startswith("folder: ")
    texts = tmp_path / "other" / "texts"
    texts.mkdir(parents=True)
    for number in range(12):
        (tmp_path / "pics" / f"{number}.txt").rename(texts / f"{number}.txt")
    assert table_within(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("x.csv.gz", "unpack it, and give the file or the folder"),
        ("x.xlsx", "save its sheet as CSV"),
        ("x.h5", "as CSV or Parquet"),
    ],
)
def test_files_that_hold_a_table_are_refused_with_what_helps(tmp_path, name, advice):
    (tmp_path / name).write_bytes(b"PK\x03\x04\x1f\x8b")
    assert advice in refused(tmp_path / name)
