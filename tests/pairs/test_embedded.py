"""Images within Parquet files, and several captions in one row."""

import base64
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pair_sources import by_content, reasons, refused, touch, write_table
from pairsift.cache_folder import default_cache
from pairsift.encode.decode import open_image
from pairsift.pairs.embedded import MODIFIED, Store
from pairsift.pairs.readers import load

COLORS = ["red", "green", "blue", "white", "black"]


def picture(color: str, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), color).save(out, kind)
    return out.getvalue()


def hub_table(captions: list[object] | None = None) -> pa.Table:
    """Five images with their captions, as the library `datasets` writes them; the last two have no path."""
    kinds = ["JPEG", "PNG", "WEBP", "GIF", "TIFF"]
    cells = [
        {"bytes": picture(color, kind), "path": f"{color}.jpg" if at < 3 else None}
        for at, (color, kind) in enumerate(zip(COLORS, kinds, strict=True))
    ]
    captions = captions or [[f"{color} one", f"{color} two"] for color in COLORS]
    return pa.table({"image": cells, "caption": captions, "shop": list("abcde")})


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Time and inode of every file, which change where one is written again."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}


def test_images_and_lists_of_captions(tmp_path):
    pq.write_table(hub_table(), tmp_path / "x.parquet", row_group_size=2)
    pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert pairs.captions == [f"{color} {word}" for color in COLORS for word in ("one", "two")]
    assert pairs.image_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    nameless = [by_content(picture(*shown)) for shown in (("white", "GIF"), ("black", "TIFF"))]
    assert pairs.names == ["red.jpg", "green.jpg", "blue.jpg", *nameless]
    assert pairs.columns == {"shop": [letter for letter in "abcde" for _ in range(2)]}
    assert [path.suffix for path in pairs.paths] == [".jpg", ".png", ".webp", ".gif", ".tif"]
    for path, color in zip(pairs.paths, COLORS, strict=True):
        found = open_image(path).getpixel((4, 4))
        assert np.abs(np.subtract(found, Image.new("RGB", (1, 1), color).getpixel((0, 0)))).max() < 10
    assert "images within the file" in pairs.description and "lists of captions" in pairs.description
    assert not pairs.skipped


def test_reading_again_writes_nothing_and_reads_no_image(tmp_path, monkeypatch):
    pq.write_table(hub_table(), tmp_path / "x.parquet")
    first = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    before = files_below(tmp_path / "cache")
    monkeypatch.setattr(Store, "add", lambda *_: pytest.fail("an image was read again"))
    again = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert (again.paths, again.names, again.hash()) == (first.paths, first.names, first.hash())
    assert files_below(tmp_path / "cache") == before


def test_a_lost_image_is_written_again_with_the_same_time(tmp_path):
    pq.write_table(hub_table(), tmp_path / "x.parquet")
    first = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    before = files_below(tmp_path / "cache")
    first.paths[2].unlink()
    assert load(tmp_path / "x.parquet", cache=tmp_path / "cache").paths == first.paths
    after = files_below(tmp_path / "cache")
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} <= {str(first.paths[2]), *index_of(after)}
    assert first.paths[2].stat().st_mtime == MODIFIED


def index_of(files: dict[str, tuple[int, int]]) -> list[str]:
    return [name for name in files if name.endswith("index.json")]


def test_a_changed_source_is_read_anew(tmp_path):
    pq.write_table(hub_table(), tmp_path / "x.parquet")
    first = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    pq.write_table(hub_table().slice(1), tmp_path / "x.parquet")
    os.utime(tmp_path / "x.parquet", (1, 1))
    second = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert second.paths == first.paths[1:]
    assert second.names == first.names[1:]


def test_images_go_to_the_users_cache_unless_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    pq.write_table(hub_table(), tmp_path / "x.parquet")
    assert all(path.is_relative_to(default_cache() / "images") for path in load(tmp_path / "x.parquet").paths)
    (tmp_path / "file").touch()
    line = refused(tmp_path / "x.parquet", cache=tmp_path / "file")
    assert "cannot be written" in line and str(tmp_path / "file") in line


def test_a_column_of_bytes_and_what_else_lies_in_such_files(tmp_path):
    touch(tmp_path, "plain.jpg")
    table = pa.table(
        {
            "jpg": pa.array([picture(color) for color in COLORS], pa.binary()),
            "txt": COLORS,
            "embedding": pa.array([bytes([255, 0, at]) for at in range(5)], pa.binary()),
            "mask": [{"bytes": picture("red"), "path": None}] * 5,
            "shop": pa.array([b"a", b"b", b"c", b"d", b"e"], pa.binary()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    options = {"image_column": "jpg", "caption_column": "txt", "cache": tmp_path / "cache"}
    for _ in range(2):
        pairs = load(tmp_path / "x.parquet", **options)
        assert pairs.names == [by_content(picture(color)) for color in COLORS]
        assert pairs.captions == COLORS
        assert pairs.columns == {"shop": list("abcde")}


@pytest.mark.parametrize("third", ["image", "caption", "image.path"])
def test_columns_with_names_that_say_little_are_all_read(tmp_path, third):
    cells = [{"bytes": picture(color), "path": f"{color}.png"} for color in COLORS]
    table = pa.table([cells, COLORS, list("12345")], names=["image", "caption", third])
    pq.write_table(table, tmp_path / "x.parquet")
    for _ in range(2):
        pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
        assert pairs.names == [f"{color}.png" for color in COLORS] and pairs.captions == COLORS
        assert pairs.columns == {third if "." in third else f"{third} 2": list("12345")}


def test_rows_without_bytes_name_files_and_broken_bytes_are_kept_for_the_decoder(tmp_path):
    touch(tmp_path, "near.jpg")
    cells = [
        {"bytes": picture("red"), "path": "a.jpg"},
        {"bytes": None, "path": "near.jpg"},
        {"bytes": b"", "path": None},
        {"bytes": b"\xff\xd8 no picture", "path": "b.jpg"},
        None,
        {"bytes": picture("red"), "path": "same.jpg"},
    ]
    pq.write_table(pa.table({"image": cells, "text": list("abcdef")}), tmp_path / "x.parquet")
    for _ in range(2):
        pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
        assert pairs.image_of.tolist() == [0, 1, -1, 2, -1, 0]
        assert pairs.paths[1] == tmp_path / "near.jpg"
        assert pairs.paths[2].read_bytes() == b"\xff\xd8 no picture"
        assert {pair: reason for pair, (_, reason) in reasons(pairs).items()} == dict.fromkeys([2, 4], "holds no image")


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_captions_in_lists_count_as_records_each(tmp_path, kind):
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    rows = [
        {"image": "a.jpg", "captions": ["one", "two", "", None], "price": "1"},
        {"image": "b.jpg", "captions": [], "price": "2"},
        {"image": "b.jpg", "captions": ["three"], "price": "3"},
        {"image": "c.jpg", "captions": ["four", "four"], "price": "4"},
    ]
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if kind == "json" else "\n".join(map(json.dumps, rows)))
    pairs = load(path)
    place = {"jsonl": "line", "json": "record", "parquet": "row"}[kind]
    assert pairs.captions == ["one", "two", "", "", "", "three", "four", "four"]
    assert pairs.columns["price"] == ["1", "1", "1", "1", "2", "3", "4", "4"]
    assert reasons(pairs) == {
        2: (f"x.{kind} {place} 1 caption 3", "the caption is empty"),
        3: (f"x.{kind} {place} 1 caption 4", "the caption is empty"),
        4: (f"x.{kind} {place} 2", "the caption is empty"),
        7: (f"x.{kind} {place} 4 caption 2", f"repeats x.{kind} {place} 4 caption 1"),
    }


def test_one_row_group_is_in_memory_at_a_time(tmp_path, monkeypatch):
    cells = [{"bytes": np.random.default_rng(at).bytes(1 << 16), "path": None} for at in range(160)]
    table = pa.table({"image": cells, "caption": [str(at) for at in range(160)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=16, compression="none")
    del table
    before, held, add = pa.total_allocated_bytes(), [], Store.add

    def watched(self, data, name):
        held.append(pa.total_allocated_bytes() - before)
        return add(self, data, name)

    monkeypatch.setattr(Store, "add", watched)
    load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert len(held) == 160
    assert max(held) < 6 << 20  # a group has 1 MB, the file 10 MB; old versions of pyarrow read some groups ahead


contents = st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=3, max_size=8)


@given(contents, st.integers(1, 4))
def test_every_image_comes_back_byte_by_byte(images, group):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cells = [{"bytes": data and b"\xff" + data, "path": None} for data in [b"1", b"2", b"3", *images]]
        kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
        table = pa.table({"image": pa.array(cells, kind), "caption": [str(at) for at in range(len(cells))]})
        pq.write_table(table, folder / "x.parquet", row_group_size=group)
        for _ in range(2):
            pairs = load(folder / "x.parquet", cache=folder / "cache")
            found = [pairs.paths[row].read_bytes() if row >= 0 else None for row in pairs.image_of]
            assert found == [cell["bytes"] or None for cell in cells]


MISSING = [[None] * 12, [b""] * 12, [b"<!doctype html><title>404</title>"] * 9, [b'{"error": 404}', None, b"gone"]]


@pytest.mark.parametrize("first", MISSING)
@pytest.mark.parametrize("as_struct", [False, True])
def test_rows_without_an_image_are_skipped_one_by_one_wherever_they_are(tmp_path, first, as_struct):
    cells = [*first, *map(picture, COLORS), None]
    kind = pa.binary()
    if as_struct:
        cells, kind = [{"bytes": cell} for cell in cells], pa.struct({"bytes": pa.binary()})
    captions = [str(number) for number in range(len(cells))]
    thumbs = pa.array([None] * (len(cells) - 1) + [picture("red")], pa.binary())
    table = pa.table({"image": pa.array(cells, kind), "caption": captions, "thumb": thumbs})
    pq.write_table(table, tmp_path / "x.parquet")
    missing = [*range(len(first)), len(cells) - 1]
    for _ in range(2):
        pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
        assert reasons(pairs) == {pair: (f"x.parquet row {pair + 1}", "holds no image") for pair in missing}
        assert pairs.n_images == len(COLORS) and not pairs.columns
        assert "images within the file" in pairs.description


@pytest.mark.parametrize(("kind", "suffix"), [("AVIF", ".avif"), ("JPEG2000", ".jp2"), ("PPM", ".bin")])
def test_images_of_rarer_formats(tmp_path, kind, suffix):
    cells = pa.array([None, *(picture(color, kind) for color in COLORS)], pa.binary())
    pq.write_table(pa.table({"image": cells, "caption": list("abcdef")}), tmp_path / "x.parquet")
    pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert [path.suffix for path in pairs.paths] == [suffix] * len(COLORS) and list(reasons(pairs)) == [0]
    assert open_image(pairs.paths[0]).size == (8, 8)


def test_names_as_bytes_stay_names(tmp_path):
    touch(tmp_path, "a.jpg", "Pyramid.jpg", "c.jpg")
    names = pa.array([b"a.jpg", b"Pyramid.jpg", b"c.jpg", b"caf\xe9.jpg"], pa.binary())
    pq.write_table(pa.table({"image": names, "caption": list("abcd")}), tmp_path / "x.parquet")
    pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert pairs.names[:3] == ["a.jpg", "Pyramid.jpg", "c.jpg"] and list(reasons(pairs)) == [3]
    assert not (tmp_path / "cache").exists()


def test_images_without_a_name_keep_theirs_where_rows_go(tmp_path):
    table = pa.table({"image": [{"bytes": picture(color), "path": None} for color in COLORS], "caption": COLORS})
    names = []
    for first in (0, 1):
        pq.write_table(table.slice(first), tmp_path / "x.parquet")
        names.append(load(tmp_path / "x.parquet", cache=tmp_path / "cache").names)
    assert names[1] == names[0][1:]


def test_images_stand_behind_a_column_that_only_names_them(tmp_path):
    names = [f"{color}.jpg" for color in COLORS]
    table = pa.table({"file_name": names, "img": [{"bytes": picture(c), "path": None} for c in COLORS], "text": COLORS})
    pq.write_table(table, tmp_path / "x.parquet")
    pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert [path.read_bytes() for path in pairs.paths] == [picture(color) for color in COLORS]
    for name, color in zip(names, reversed(COLORS), strict=True):
        (tmp_path / name).write_bytes(picture(color))
    pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert pairs.names == names and pairs.paths == [tmp_path / name for name in names]


@pytest.mark.parametrize("encode", [base64.encodebytes, lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")])
def test_base64_in_lines_and_without_padding(tmp_path, encode):
    rows = [[encode(picture(color)).decode(), color] for color in COLORS]
    write_table(tmp_path / "x.csv", ["Photo", "caption"], rows)
    for options in ({}, {"image_column": "photo"}):
        pairs = load(tmp_path / "x.csv", cache=tmp_path / "cache", **options)
        assert [path.read_bytes() for path in pairs.paths] == [picture(color) for color in COLORS]


def test_files_win_over_thumbnails_as_base64(tmp_path):
    names = [f"{color}.jpg" for color in COLORS]
    rows = [[name, base64.b64encode(picture(color)).decode(), color] for name, color in zip(names, COLORS, strict=True)]
    write_table(tmp_path / "x.csv", ["image", "thumb", "caption"], rows)
    pairs = load(tmp_path / "x.csv", cache=tmp_path / "cache")  # none of the files is there
    assert pairs.names == [by_content(picture(color)) for color in COLORS]
    touch(tmp_path, *names)
    assert load(tmp_path / "x.csv", cache=tmp_path / "cache").names == names


@pytest.mark.parametrize("place", ["x.parquet", "split=train/x.parquet"])
def test_named_images_in_a_folder_below_win_over_bytes(tmp_path, place):
    names = [f"{color}.jpg" for color in COLORS]
    table = pa.table({"image": names, "thumb": [{"bytes": picture("red"), "path": None}] * 5, "caption": COLORS})
    (tmp_path / place).parent.mkdir(exist_ok=True)
    pq.write_table(table, tmp_path / place)
    touch(tmp_path, *(f"images/{name}" for name in names))
    pairs = load(tmp_path if "/" in place else tmp_path / place, cache=tmp_path / "cache", reader="table")
    assert pairs.paths == [tmp_path / "images" / name for name in names]
