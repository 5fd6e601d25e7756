"""Sources of several files: Parquet files as hubs write them, tables by a pattern, and tar files by braces."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pair_sources import by_content, refused, touch, write_table
from pairsift.pairs.embedded import Store
from pairsift.pairs.readers import load
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from shard_sources import write_tar

PARTS = {"train-00000-of-00002": 5, "train-00001-of-00002": 4, "validation-00000-of-00001": 2, "test-00000-of-00001": 3}


def picture(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 40, 90)).save(out, "PNG")
    return out.getvalue()


def write_hub(folder, parts=PARTS, **columns):
    """Images and two captions each, as the library `datasets` uploads them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "README.md").write_text("---\n")
    number = 0
    for name, count in parts.items():
        numbers = range(number, number + count)
        number += count
        cells = [{"bytes": picture(at), "path": None if at % 2 else f"{at}.png"} for at in numbers]
        captions = [[f"caption {at}", f"again {at}"] for at in numbers]
        table = pa.table({"image": cells, "caption": captions, "shelf": [f"s{at}" for at in numbers], **columns})
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("way", ["folder", "folder above", "pattern", "list", "folders of splits"])
def test_parquet_files_as_hubs_write_them_are_one_source(tmp_path, way):
    parts = PARTS
    if way == "folders of splits":
        parts = {"train/0000": 5, "train/0001": 4, "validation/0000": 2, "test/0000": 3}
    data = write_hub(tmp_path / "hub" / "data", parts)
    source = {
        "folder above": tmp_path / "hub",
        "pattern": data / "*.parquet",
        "list": [data / f"{n}.parquet" for n in parts],
    }
    for _ in range(2):
        pairs = load(source.get(way, data), cache=tmp_path / "cache")
        assert pairs.n_images == 14 and len(pairs) == 28 and pairs.n_skipped == 0
        assert {name: len(pairs.images(name)) for name in ("train", "dev", "test")} == {"train": 9, "dev": 2, "test": 3}
        assert "split from the files' names; 4 files" in pairs.description
        assert len(set(pairs.names)) == 14
        for caption, row, shelf in zip(pairs.captions, pairs.image_of, pairs.columns["shelf"], strict=True):
            number = int(caption.split()[1])
            assert pairs.paths[row].read_bytes() == picture(number) and shelf == f"s{number}"
            assert pairs.names[row] == f"{number}.png" or (number % 2 and pairs.names[row].startswith("image "))


def test_a_part_of_a_hubs_files_has_the_names_of_its_place(tmp_path):
    data = write_hub(tmp_path / "data")
    pairs = load(data / "{train-*,test-*}.parquet", cache=tmp_path / "cache")
    assert pairs.names[1] == by_content(picture(1)) and pairs.n_images == 12
    assert "split from the files' names; dev drawn from train" in pairs.description and "3 files" in pairs.description


def test_files_without_train_or_with_a_column_of_splits(tmp_path):
    data = write_hub(tmp_path / "one", {"test-00000-of-00002": 7, "test-00001-of-00002": 7})
    assert "split drawn by image" in load(data, cache=tmp_path / "cache").description
    for name, split in (("train", "test"), ("test", "train")):
        rows = [[f"{name}{number}.jpg", f"dog {number}", split] for number in range(4)]
        touch(tmp_path, *(row[0] for row in rows))
        write_table(tmp_path / f"{name}.csv", ["image", "caption", "split"], rows)
    for name in "abc":
        write_table(tmp_path / f"{name}.jsonl", ["image", "caption"], [[f"{name}.jpg", "a dog"]])
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    pairs = load(tmp_path / "{train,test}.csv")
    assert "split from column 'split'" in pairs.description
    assert {pairs.names[row] for row in pairs.images("test")} == {f"train{number}.jpg" for number in range(4)}
    pairs = load(tmp_path / "?.jsonl")
    assert pairs.names == ["a.jpg", "b.jpg", "c.jpg"] and "split drawn by image" in pairs.description


def test_skipped_rows_are_named_with_their_file(tmp_path):
    touch(tmp_path, *(f"{name}.jpg" for name in "abcd"))
    for place, rows in (("north", ["a.jpg", "b.jpg"]), ("south", ["c.jpg", "gone.jpg", "d.jpg"])):
        (tmp_path / place).mkdir()
        write_table(tmp_path / place / "x.csv", ["image", "caption", place], [[row, "a dog", "1"] for row in rows])
    assert "south/x.csv: has not the columns of" in refused(tmp_path / "*" / "x.csv")
    write_table(
        tmp_path / "south" / "x.csv", ["image", "caption", "north"], [["c.jpg", "", "1"], ["gone.jpg", "b", "2"]]
    )
    write_table(tmp_path / "north" / "x.csv", ["north", "caption", "image"], [["1", "b", f"{n}.jpg"] for n in "abd"])
    pairs = load(tmp_path / "*" / "x.csv", image_folder=tmp_path)
    assert [skip.where for skip in pairs.skipped] == ["south/x.csv line 2", "south/x.csv line 3"]
    assert pairs.columns["north"] == ["1", "1", "1", "1", "2"]


def test_what_does_not_belong_together_is_refused_in_one_line(tmp_path):
    data = write_hub(tmp_path / "data")
    pq.write_table(pa.table({"image": ["a"], "caption": ["b"], "price": [1]}), data / "train-extra.parquet")
    assert "('price', 'shelf' in only one of them); give files of one table" in refused(data, cache=tmp_path / "cache")
    write_table(tmp_path / "a.csv", ["image", "caption"], [["a.jpg", "b"]])
    write_tar(tmp_path / "b.tar", [("a.jpg", b"1"), ("a.txt", b"a dog")])
    assert "names sources of several kinds, such as a.csv (table) and b.tar (shards)" in refused(
        tmp_path / "{a.csv,b.tar}"
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert "the reader 'folder' reads one file or folder" in refused(tmp_path / "{one,two}")
    assert "there is nothing at" in refused(tmp_path / "{one,three}")


def test_a_changed_file_is_read_anew(tmp_path, monkeypatch):
    data = write_hub(tmp_path / "data")
    first = load(data, cache=tmp_path / "cache")
    monkeypatch.setattr(Store, "add", lambda *_: pytest.fail("an image was read again"))
    assert load(data, cache=tmp_path / "cache").hash() == first.hash()
    monkeypatch.undo()
    table = pq.read_table(data / "test-00000-of-00001.parquet")
    pq.write_table(table.slice(1), data / "test-00000-of-00001.parquet")
    second = load(data, cache=tmp_path / "cache")
    assert second.n_images == 13 and second.hash() != first.hash()


def test_the_rows_of_several_files_are_read_again_for_an_export(tmp_path):
    data = write_hub(tmp_path / "data")
    origin = read_origin(data, None, Columns(cache=tmp_path / "cache"))
    rows = list(origin.rows())
    assert [row["shelf"] for row in rows] == [f"s{number}" for number in [11, 12, 13, *range(9), 9, 10]]
    assert origin.splits == ["test"] * 6 + ["train"] * 18 + ["validation"] * 4 and origin.split_column == "split"
    assert rows[0]["image"]["bytes"] == picture(11) and origin.names == ["image", "caption", "shelf"]


@pytest.mark.parametrize("source", ["{00000..00001}.tar", "*.tar", "{train,test}"])
def test_tar_files_by_a_pattern(tmp_path, source):
    for number, place in enumerate(["00000", "00001", "train/a", "test/b"]):
        samples = {f"{number}{at}.{ending}": f"{number} {at}".encode() for at in range(4) for ending in ("jpg", "txt")}
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write_tar(tmp_path / f"{place}.tar", samples.items())
    pairs = load(tmp_path / source, cache=tmp_path / "cache")
    assert len(pairs) == pairs.n_images == 8 and "2 tar files" in pairs.description
    first = "train/a/20.jpg" if source == "{train,test}" else "00000/00.jpg"
    assert pairs.names[0] == first
    assert ("the folders' or tar files' names" in pairs.description) == (source == "{train,test}")
