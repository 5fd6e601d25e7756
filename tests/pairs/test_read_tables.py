import csv
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pair_sources import reasons, refused, touch, write_table
from pairsift.pairs.readers import load

IMAGES = ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
ROWS = [(name, f"a photo of {name[0]}", "7") for name in IMAGES]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_pairs(tmp_path, kind):
    touch(tmp_path, *IMAGES)
    pairs = load(write_table(tmp_path / f"x.{kind}", ["FilePath", "Title", "price"], ROWS))
    assert pairs.captions == [row[1] for row in ROWS]
    assert [pairs.names[row] for row in pairs.image_of] == list(IMAGES)
    assert pairs.paths == [tmp_path / name for name in IMAGES]
    assert pairs.columns == {"price": ["7"] * 4}
    assert "column 'FilePath'" in pairs.description
    assert "column 'Title'" in pairs.description
    assert "seed 0" in pairs.description
    assert "\n" not in pairs.description
    assert not pairs.skipped


caption_text = st.text(min_size=1, max_size=30).filter(str.strip)


@settings(max_examples=40, deadline=None)
@given(captions=st.lists(caption_text, min_size=3, max_size=6))
@example(captions=['a "red", round\nball', "línea\r\nuno; дом\t犬 🐕", '"', "a,b;c|d"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_captions_come_through_as_they_are(kind, captions):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(f"{number}.jpg", caption) for number, caption in enumerate(captions)]
        touch(folder, *(row[0] for row in rows))
        pairs = load(write_table(folder / f"x.{kind}", ["image", "caption"], rows), keep_empty=True)
    assert pairs.captions == captions
    assert not pairs.skipped


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separator_and_encoding_are_found(tmp_path, separator, encoding):
    touch(tmp_path, *IMAGES)
    with open(tmp_path / "x.csv", "w", newline="", encoding=encoding) as file:
        rows = [("image", "caption"), *((name, "one, two; three | é") for name in IMAGES)]
        csv.writer(file, delimiter=separator).writerows(rows)
    pairs = load(tmp_path / "x.csv")
    assert pairs.captions == ["one, two; three | é"] * 4
    assert pairs.names == list(IMAGES)


def test_bad_rows_are_skipped_and_told(tmp_path):
    touch(tmp_path, *IMAGES)
    lines = [
        b"image,caption",
        b"a.jpg,fine",
        b"b.jpg,  ",
        b"gone.jpg,no such file",
        b",no image",
        b"a.jpg,fine",
        b"b.jpg,caf\x81",
        b"c.jpg,one,too,many",
        b"c.jpg",
        b"https://x.org/y.jpg,far away",
        b"b.jpg,good",
        b"",
        b'c.jpg,"over\ntwo lines"',
        b"d.jpg,last",
    ]
    (tmp_path / "x.csv").write_bytes(b"\r\n".join(lines) + b"\r\n")
    pairs = load(tmp_path / "x.csv")
    assert len(pairs) == 12  # the blank line is no record
    assert pairs.ids("skipped").tolist() == list(range(1, 9))
    assert pairs.captions[10] == "over\ntwo lines"
    found = reasons(pairs)
    assert found[1] == ("x.csv line 3", "the caption is empty")
    assert found[2][1].startswith("no image file at ")
    assert found[3] == ("x.csv line 5", "names no image")
    assert found[4] == ("x.csv line 6", "repeats x.csv line 2")
    assert "UTF-8" in found[5][1]
    assert found[6] == ("x.csv line 8", "has 4 fields where the header has 2")
    assert found[7] == ("x.csv line 9", "has 1 fields where the header has 2")
    assert "web address" in found[8][1]
    assert pairs.image_of[3] == -1
    assert not any("\n" in skip.reason for skip in pairs.skipped)
    assert all(text.encode("utf-8") for text in pairs.captions if text)  # can be written anywhere


def test_a_stray_quote_costs_one_row(tmp_path):
    touch(tmp_path, *IMAGES)
    lines = ["image,caption,note", 'a.jpg,"open,1', "b.jpg,two,2", 'c.jpg,"three",3', "d.jpg,four,4"]
    lines += ['a.jpg,"open again,5', 'b.jpg,"five" feet,6', *(f'{name},"one, two",7' for name in IMAGES), ""]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    pairs = load(tmp_path / "x.csv")
    assert pairs.captions[1:4] == ["two", "three", "four"]
    assert pairs.captions[5:] == ['"five" feet', *["one, two"] * 4]
    assert pairs.ids("skipped").tolist() == [0, 4]
    assert "quotes that do not follow the dialect, read as they are: 1" in pairs.description


def test_json_lines_with_bad_records(tmp_path):
    touch(tmp_path, *IMAGES)
    lines = [
        '{"image": "a.jpg", "caption": "one"}',
        '{"image": "b.jpg", "caption": ',
        "[1, 2]",
        '{"image": "b.jpg"}',
        '{"image": "b.jpg", "caption": [{"odd": "x"}]}',
        '{"image": "b.jpg", "caption": "\\ud800"}',
        '{"image": "b.jpg", "caption": "two", "price": 3.5, "more": {"a": 1}}',
        '{"image": "c.jpg", "caption": "three"}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    pairs = load(tmp_path / "x.jsonl")
    assert pairs.ids("skipped").tolist() == [1, 2, 3, 4, 5]
    assert "not valid JSON" in reasons(pairs)[1][1]
    assert pairs.columns["price"][6] == "3.5"
    (tmp_path / "x.json").write_text(f"[{lines[0]},{lines[6]},{lines[7]}]")
    assert load(tmp_path / "x.json").captions == ["one", "two", "three"]


def test_parquet_with_nulls_numbers_and_categories(tmp_path):
    touch(tmp_path, *IMAGES)
    table = pa.table(
        {
            "image": pa.array([*IMAGES, "a.jpg"]).dictionary_encode(),
            "caption": pa.array(["one", "two", None, "four", b"caf\xe9"], pa.binary()),
            "price": [1.5, None, 2.0, 3.0, 4.0],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    pairs = load(tmp_path / "x.parquet")
    assert pairs.columns["price"][:2] == ["1.5", ""]
    assert reasons(pairs)[2] == ("x.parquet row 3", "the caption is empty")
    assert "UTF-8" in reasons(pairs)[4][1]


def test_columns_can_be_named(tmp_path):
    touch(tmp_path, *IMAGES)
    path = write_table(tmp_path / "x.csv", ["Pic", "Words", "image"], [(n, "c " + n, "z") for n in IMAGES])
    pairs = load(path, image_column="pic", caption_column="Words", keep_empty=True)
    assert pairs.names == list(IMAGES)
    assert pairs.columns == {"image": ["z"] * 4}
    assert "'Pic', 'Words', 'image'" in refused(path)
    assert "no column 'nope'" in refused(path, caption_column="nope")


def test_splits_of_a_column(tmp_path):
    names = [f"{number}.jpg" for number in range(8)]
    touch(tmp_path, *names)
    words = ["train", "restval", "Validation", "TEST", "", "train", "bogus", "train"]
    rows = [(name, name, word) for name, word in zip(names, words, strict=True)]
    path = write_table(tmp_path / "x.csv", ["image", "caption", "Split"], rows)
    pairs = load(path, keep_empty=True)
    assert pairs.split.tolist() == ["train", "train", "dev", "test", "unused", "train", "skipped", "train"]
    assert "'bogus'" in reasons(pairs)[6][1]


def test_an_image_in_two_splits_stays_in_the_first(tmp_path):
    touch(tmp_path, *IMAGES)
    rows = [("a.jpg", "1", "train"), ("b.jpg", "2", "dev"), ("c.jpg", "3", "test"), ("a.jpg", "4", "test")]
    pairs = load(write_table(tmp_path / "x.csv", ["image", "caption", "split"], rows))
    assert reasons(pairs) == {3: ("x.csv line 5", "its image is in train already")}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\xff\xfe", "empty"),
        (b"image,caption\n", "no rows"),
        (b"url,alt\nhttp://x,y\n", "'url', 'alt'"),
        (b"image,caption\na.jpg,x\nb.jpg,y\n", "2 images can be used"),
        (b"image,caption\nu.jpg,x\nv.jpg,y\nw.jpg,z\n", "no image file"),
        (b"\xff\xfea", "UTF-16"),
        (b"\x00\x01\x02\n\x03", "no image column"),
        (b"q,z\n\x03,zz", "no image column"),
    ],
)
def test_a_csv_that_cannot_be_used(tmp_path, content, part):
    touch(tmp_path, *IMAGES)
    (tmp_path / "x.csv").write_bytes(content)
    line = refused(tmp_path / "x.csv")
    assert part in line
    assert "x.csv" in line


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("x.parquet", b"PAR1 no", "Parquet"),
        ("x.jsonl", b"nothing\n", "no row can be read"),
        ("x.json", b"[1,", "not valid JSON"),
        ("x.docx", b"words", "no reader fits"),
    ],
)
def test_other_files_that_cannot_be_used(tmp_path, name, content, part):
    (tmp_path / name).write_bytes(content)
    assert part in refused(tmp_path / name)


def test_what_was_asked_for_cannot_be_had(tmp_path):
    touch(tmp_path, "x.csv")
    assert "there is nothing at" in refused(tmp_path / "y\n.csv")
    assert "there is no reader 'excel'" in refused(tmp_path / "x.csv", reader="excel")
    assert "shares 0.6 of dev" in refused(tmp_path / "x.csv", shares=(0.6, 0.5))
    assert "holds no Parquet file; name the table in it" in refused(tmp_path, reader="table")


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.json", "x.parquet"])
def test_rubbish_never_ends_in_a_traceback(name, content):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        assert name in refused(Path(folder) / name)


@pytest.mark.parametrize("before", ["", "\r\n", "sep=;\r\n", '"SEP=;"\r\n\r\n'])
def test_what_stands_before_the_header_is_passed_over_and_counted(tmp_path, before):
    touch(tmp_path, *IMAGES)
    lines = ["image;caption", *(f"{name};one, two" for name in IMAGES), "gone.jpg;one"]
    (tmp_path / "x.csv").write_bytes((before + "\r\n".join(lines)).encode("utf-8-sig"))
    pairs = load(tmp_path / "x.csv")
    assert pairs.captions[:4] == ["one, two"] * 4 and len(pairs.skipped) == 1
    assert pairs.skipped[0].where == f"x.csv line {6 + before.count(chr(10))}"


def test_both_columns_that_are_missing_are_named_at_once(tmp_path):
    path = write_table(tmp_path / "x.csv", ["Nummer", "Preis"], [("17", "2.50")])
    said = refused(path)
    assert "no image column and no caption column among the columns 'Nummer', 'Preis'; " in said
    assert said.index("--image-column") < said.index("--caption-column")
    assert "no caption column among" in refused(path, image_column="Nummer")
    assert "no column 'Foto' and no caption column" in refused(path, image_column="Foto")
