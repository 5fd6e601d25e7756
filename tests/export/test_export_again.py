"""A source that is exported in its own format: what nobody decided stays as it was, byte by byte or value by value."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_helpers import judged, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import pairsift
from pairsift.errors import InputError
from pairsift.export.cleaned import export, folder_of_names
from pairsift.export.selection import choose_pairs
from pairsift.pairs.readers.cells import Reading
from pairsift.pairs.readers.dialects import Dialect
from pairsift.pairs.readers.rows import Roles
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from pairsift.review.decisions import Decision, Decisions

N = 8
NAMES = [f"{'-@=+'[k % 4]}{k}.png" for k in range(N)]


@pytest.fixture
def place(tmp_path):
    return with_images(tmp_path)


def with_images(folder):
    for k, name in enumerate(NAMES):
        Image.new("RGB", (4, 3), (k, 0, 0)).save(folder / name)
    return folder


def trip(source, out, drop=(), rewrite=None, **options):
    """Load a source, decide, export; return the pairs that were loaded."""
    columns = Columns(cache=source.parent / "cache")
    pairs = pairsift.load(source, cache=columns.cache)
    with tempfile.TemporaryDirectory() as folder:
        decisions = Decisions(Path(folder), pairs.ids())
        new = [Decision(pair, "replace", caption) for pair, caption in (rewrite or {}).items()]
        decisions.decide([*(Decision(pair, "drop") for pair in drop), *new])
        selection = choose_pairs(pairs, judged(pairs), decisions.table())
    export(read_origin(source, None, columns), pairs, selection, out, **options)
    return pairs


TABLES = {
    "plain.csv": b"image,caption,note\n"
    + b"".join(b"%s,cat %d,%d.50\n" % (n.encode(), k, k) for k, n in enumerate(NAMES)),
    "crlf.csv": b"image,caption,@id\r\n"
    + b"".join(b"%s,- cat %d,-%d\r\n" % (n.encode(), k, k) for k, n in enumerate(NAMES)),
    "quoted.csv": b'\xef\xbb\xbf"image";"caption";" note "\n'
    + b"".join(b'"%s";"cat, ""%d""";"%d,5"\n' % (n.encode(), k, k) for k, n in enumerate(NAMES)),
    "tabs.tsv": b"image\tcaption\n" + b"".join(b"%s\ta ,cat %d\n" % (n.encode(), k) for k, n in enumerate(NAMES)),
    "wide.csv": "image;caption\r\n".encode("utf-16")
    + "".join(f"{n};Größe {k}\r\n" for k, n in enumerate(NAMES)).encode("utf-16-le"),
    "western.csv": b"image,caption\n"
    + b"".join(b"%s,caf\xe9 du coin %d\n" % (n.encode(), k) for k, n in enumerate(NAMES)),
    "lines.csv": b"sep=,\nimage,caption\n\n"
    + b"".join(b'%s,"two\nlines %d"\n%s' % (n.encode(), k, b"\n" * (k == 4)) for k, n in enumerate(NAMES)),
    "rows.jsonl": b"".join(
        b'{"n": 1.50, "big": 12345678901234567890, "x":{"y":[ 1]},"image":"%s" ,"caption":"cat \\u00e9%d"}\n'
        % (n.encode(), k)
        for k, n in enumerate(NAMES)
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_dropped_rows_are_gone_and_all_other_bytes_are_those_of_the_source(place, name):
    source, out = place / name, place / f"out.{name}"
    source.write_bytes(TABLES[name])
    pairs = trip(source, out, drop=(2, 5))
    gone = [row for k, row in enumerate(NAMES) if k in (2, 5)]
    again = pairsift.load(out)
    assert again.captions == [caption for k, caption in enumerate(pairs.captions) if k not in (2, 5)]
    assert [path.name for path in again.paths] == [image for image in NAMES if image not in gone]
    encoding = "utf-16" if name == "wide.csv" else "latin-1"
    old, new = (file.read_bytes().decode(encoding).splitlines(keepends=True) for file in (source, out))
    n_lines = 4 if name == "lines.csv" else 2
    assert len(old) - len(new) == n_lines and [line for line in new if line not in old] == []
    trip(source, place / f"all.{name}")
    assert (place / f"all.{name}").read_bytes() == TABLES[name]


@pytest.mark.parametrize("name", TABLES)
def test_a_new_caption_changes_one_row_and_is_written_as_the_row_was(place, name):
    source, out = place / name, place / f"out.{name}"
    source.write_bytes(TABLES[name])
    caption = '=1, "naïve"; new'
    pairs = trip(source, out, rewrite={3: caption})
    again = pairsift.load(out)
    assert again.captions == [caption if k == 3 else old for k, old in enumerate(pairs.captions)]
    assert again.columns == pairs.columns and list(map(str, again.paths)) == list(map(str, pairs.paths))
    encoding = "utf-16" if name == "wide.csv" else "latin-1"
    old, new = (file.read_bytes().decode(encoding).splitlines(keepends=True) for file in (source, out))
    changed = 2 if name == "lines.csv" else 1
    assert len([line for line in old if line not in new]) == changed
    assert len([line for line in new if line not in old]) == 1


@pytest.mark.parametrize("name", TABLES)
def test_new_columns_are_written_as_the_others_are(place, name):
    source, out = place / name, place / f"out.{name}"
    source.write_bytes(TABLES[name])
    pairs = trip(source, out, drop=(2,), splits=True, weights=True)
    again = pairsift.load(out)
    kept = [k for k in range(N) if k != 2]
    assert again.captions == [pairs.captions[k] for k in kept]
    assert again.split.tolist() == pairs.split[kept].tolist()
    assert list(again.columns) == [*pairs.columns, "weight"]
    assert [float(weight) for weight in again.columns["weight"]] == pytest.approx([(k + 0.5) / N for k in kept])
    assert all(again.columns[name] == [cells[k] for k in kept] for name, cells in pairs.columns.items())
    if name == "quoted.csv":
        line = out.read_bytes().decode("utf-8-sig").splitlines()[1]
        assert line == f'"{NAMES[0]}";"cat, ""0""";"0,5";"{pairs.split[0]}";"{0.5 / N}"'


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cc", "Cs"]), max_size=9)
words = st.builds("{}x{}".format, cells, st.sampled_from(["", "\n", '"', ",", ";y", "\ty", "' ", "\\"]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(words, cells), min_size=4, max_size=8),
    st.sampled_from(",;\t|"),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.data(),
)
def test_kept_rows_of_any_csv_are_copied(rows, separator, quoting, line_end, encoding, data):
    dropped = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=len(rows) - 3))

    def written(chosen):
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator=line_end)
        writer.writerow(["image", "caption", "a note"])
        writer.writerows([NAMES[k], f"{k} {rows[k][0]}", rows[k][1]] for k in chosen)
        return stream.getvalue().encode(encoding)

    with tempfile.TemporaryDirectory() as folder:
        source, out = with_images(Path(folder)) / "x.csv", Path(folder) / "out.csv"
        source.write_bytes(written(range(len(rows))))
        pairs = pairsift.load(source)
        used = [k for k in range(len(rows)) if pairs.split[k] != "skipped"]
        trip(source, out, drop=dropped & set(used))
        assert out.read_bytes() == written([k for k in used if k not in dropped])
        rewritten = next(k for k in used if k not in dropped)
        out.unlink()
        trip(source, out, drop=dropped & set(used), rewrite={rewritten: 'new, "one"; here'})
        captions = [pairs.captions[k] for k in used if k not in dropped]
        captions[0] = 'new, "one"; here'
        assert pairsift.load(out).captions == captions


@pytest.mark.parametrize(
    ("dialect", "row", "values"),
    [
        (Dialect(",", '"', "\\"), r'a,"say \"hi\", you",""', ["a", 'say "hi", you', ""]),
        (Dialect("\t", ""), '"a"\tb "q"\t', ['"a"', 'b "q"', ""]),
        (Dialect("|", "", "\\"), r'"a"|b\|c|\\', ['"a"', "b|c", "\\"]),
        (Dialect(";", '"', spaced=True), 'a; "x;y"; z', ["a", "x;y", "z"]),
        (Dialect(",", "'"), "'a,b','it''s',", ["a,b", "it's", ""]),
        (Dialect(","), '"a ""b""","x\ny",5" long', ['a "b"', "x\ny", '5" long']),
    ],
)
def test_fields_of_any_dialect_are_told_and_written_alike(dialect, row, values):
    fields = dialect.fields(row)
    assert [dialect.value(field) for field in fields] == values
    new = "a \"b\"; c, d|e 'f' \\"
    written = dialect.separator.join(dialect.written(new, field) for field in fields)
    assert [dialect.value(field) for field in dialect.fields(written)] == [new] * len(fields)
    quoted = [bool(dialect.quote) and field.lstrip(" ").startswith(dialect.quote) for field in fields]
    again = zip(dialect.fields(written), quoted, strict=True)
    assert all(field.lstrip(" ").startswith(dialect.quote) for field, is_quoted in again if is_quoted)


@pytest.mark.parametrize(
    ("separator", "old", "new"),
    [("", "['x', 'y']", "['a', 'é']"), ("", '["x"]', '["a", "é"]'), ("|", "x | y; z", "a | é")],
)
def test_a_list_of_captions_in_a_cell_keeps_its_notation(separator, old, new):
    reading = Reading(Roles("image", "caption", None), written=not separator, separator=separator)
    assert reading.with_captions({0: "a", 1: "é"}, {"caption": old}) == {"caption": new}


LISTS = {"bars": " | ".join, "list": repr, "json": json.dumps}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("out", ["out.csv", "out.tsv", "out.jsonl", "out.parquet"])
@pytest.mark.parametrize("lost", [[4], [3, 4, 5], [9, 10, 20], []])
def test_captions_that_texts_list_come_back(place, kind, out, lost):
    """Of 12 rows of three captions some are dropped, one is new, and the other rows of the same format stay."""
    captions = [f"a cat {k} sits on chair {k}" for k in range(36)]
    lines = [[f"{k}.png", LISTS[kind](captions[3 * k : 3 * k + 3])] for k in range(12)]
    for name, _ in lines:
        Image.new("RGB", (9, 8), "red").save(place / name)
    source = place / "lists.csv"
    with source.open("w", newline="") as stream:
        csv.writer(stream).writerows([["image", "caption"], *lines])
    assert trip(source, place / out, lost, {33: "a dog in a new place"}).captions == captions
    wanted = [caption if k != 33 else "a dog in a new place" for k, caption in enumerate(captions) if k not in lost]
    lists = None if out in ("out.csv", "out.jsonl") else "keep"  # as `compare --train-on` reads an export
    again = pairsift.load(place / out, lists=lists)
    assert again.captions == wanted and not again.skipped
    if out == "out.csv":
        old, new = (path.read_text().splitlines() for path in (source, place / out))
        assert len(set(old) - set(new)) == 1 + len({pair // 3 for pair in lost} - {11})


def test_the_rows_of_a_json_array_keep_their_text(place):
    rows = [f'  {{"id": {k}.0, "image": "{name}",\n   "caption": "cat {k}"}}' for k, name in enumerate(NAMES)]
    source = place / "rows.json"
    source.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    trip(source, place / "all.json")
    assert (place / "all.json").read_bytes() == source.read_bytes()
    trip(source, place / "out.json", drop=(0, 3, 7), rewrite={2: "é"})
    rows[2] = rows[2].replace("cat 2", "\\u00e9")
    assert (place / "out.json").read_text() == "[\n" + ",\n".join(rows[k] for k in (1, 2, 4, 5, 6)) + "\n]\n"
    trip(source, place / "new.coco.json", drop=(0,))
    assert [image["file_name"] for image in json.loads((place / "new.coco.json").read_text())["images"]] == NAMES[1:]


def test_rows_below_words_for_splits_stay_below_them(place):
    rows = [{"image": name, "caption": f"cat {k}"} for k, name in enumerate(NAMES)]
    source = place / "rows.json"
    source.write_text(json.dumps({"info": [1.50], "train": rows[:5], "val": [], "Test": rows[5:]}, indent=1))
    trip(source, place / "all.json")
    assert (place / "all.json").read_bytes() == source.read_bytes()
    trip(source, place / "out.json", drop=(1, 5), rewrite={7: "dog"})
    content = {"info": [1.5], "train": [rows[0], *rows[2:5]], "val": [], "Test": rows[6:]}
    content["Test"][1] |= {"caption": "dog"}
    assert json.loads((place / "out.json").read_text()) == content
    with pytest.raises(InputError, match="COCO captions have no splits"):  # some below "train" would be for dev
        trip(source, place / "split.json", splits=True)
    pairs = trip(source, place / "split.jsonl", splits=True)
    assert pairsift.load(place / "split.jsonl").split.tolist() == pairs.split.tolist()


def test_coco_captions_keep_ids_fields_licences_and_their_text(place):
    images = [{"license": 3, "file_name": name, "height": 3, "id": 900 - k} for k, name in enumerate(NAMES)]
    images.append({"file_name": "never.png", "id": 7})  # has no annotation
    annotations = [
        {"image_id": 900 - k // 2, "id": 70 + 5 * k, "caption": f"cat {k}", "area": 1.50} for k in range(2 * N)
    ]
    content = {
        "info": {"year": 2014},
        "images": images,
        "annotations": annotations,
        "licenses": [{"id": 3}],
        "categories": [],
    }
    source = place / "captions.json"
    for indent in (None, 1):
        source.write_text(json.dumps(content, indent=indent))
        trip(source, place / f"all{indent}.json")
        assert (place / f"all{indent}.json").read_bytes() == source.read_bytes()
        trip(source, place / f"out{indent}.json", drop=(0, 1, 5, 15), rewrite={4: "naïve"}, weights=indent is None)
        kept = [dict(row) for k, row in enumerate(annotations) if k not in (0, 1, 5, 15)]
        kept[2]["caption"] = "naïve"
        for row in kept if indent is None else ():
            row["weight"] = 1.0 if row["id"] == 90 else ((row["id"] - 70) / 5 + 0.5) / (2 * N)
        text = (place / f"out{indent}.json").read_text()
        assert json.loads(text) == {**content, "images": images[1:], "annotations": kept}
        if indent:
            assert text == json.dumps({**content, "images": images[1:], "annotations": kept}, indent=indent)


def test_karpathy_splits_keep_ids_and_the_tokens_follow_a_new_caption(place):
    images = [
        {
            "filename": name,
            "imgid": k,
            "sentids": [2 * k, 2 * k + 1],
            "split": ("train", "val", "test")[k % 3],
            "cocoid": 5 * k,
            "sentences": [
                {"tokens": ["cat", str(j)], "raw": f"Cat {j}.", "imgid": k, "sentid": j} for j in (2 * k, 2 * k + 1)
            ],
        }
        for k, name in enumerate(NAMES)
    ]
    source = place / "dataset_mine.json"
    source.write_text(json.dumps({"images": images, "dataset": "mine"}))
    trip(source, place / "all.json", splits=True)
    assert (place / "all.json").read_bytes() == source.read_bytes()
    trip(source, place / "out.json", drop=(0, 1, 5), rewrite={6: "It's a Dog, now."})
    images[2]["sentences"].pop(1)
    images[2]["sentids"].pop(1)
    images[3]["sentences"][0] |= {"raw": "It's a Dog, now.", "tokens": ["its", "a", "dog", "now"]}
    assert json.loads((place / "out.json").read_text()) == {"images": images[1:], "dataset": "mine"}


def parquet_rows(lists):
    rows = [
        {"image": {"bytes": bytes([k]) * 9, "path": f"{k}.png"}, "mask": {"bytes": b"\xff", "path": None}}
        for k in range(N)
    ]
    captions = [[f"cat {k}", f"dog {k}"] if lists else f"cat {k}" for k in range(N)]
    table = pa.Table.from_pylist(rows).append_column("caption", pa.array(captions))
    table = table.append_column("kind", pa.array(["a", "b"] * (N // 2)).dictionary_encode())
    table = table.append_column("taken", pa.array([10**18 + 1000 * k for k in range(N)], pa.timestamp("ns")))
    table = table.append_column(
        pa.field("n", pa.int8(), nullable=False, metadata={"unit": "m"}), pa.array(range(N), pa.int8())
    )
    return table.replace_schema_metadata({"huggingface": '{"info": {}}', "mine": "é"})


@pytest.mark.parametrize("lists", [False, True])
def test_a_parquet_file_keeps_its_schema_its_row_groups_and_all_other_values(place, lists):
    table = parquet_rows(lists)
    images = [{"bytes": (place / name).read_bytes(), "path": name} for name in NAMES]
    table = table.set_column(0, "image", pa.array(images))
    source, out = place / "x.parquet", place / "out.parquet"
    pq.write_table(table, source, row_group_size=3, compression="zstd")
    table = pq.read_table(source)  # Parquet has another name for the values of lists
    trip(source, place / "all.parquet")
    assert pq.read_table(place / "all.parquet").equals(table, check_metadata=True)
    if lists:
        trip(source, out, drop=(2, 6, 7), rewrite={0: "new"})
        captions, kept = [["new", "dog 0"], ["dog 1"], ["cat 2", "dog 2"]], [0, 1, 2, *range(4, N)]
        captions += table["caption"].to_pylist()[4:]
    else:
        trip(source, out, drop=(3,), rewrite={1: "new"})
        captions, kept = ["cat 0", "new", "cat 2", *table["caption"].to_pylist()[4:]], [0, 1, 2, *range(4, N)]
    expected = table.take(kept).set_column(2, table.schema.field("caption"), pa.array(captions))
    file = pq.ParquetFile(out)
    assert file.schema_arrow.equals(table.schema, check_metadata=True)
    assert file.read().equals(expected.replace_schema_metadata(table.schema.metadata), check_metadata=True)
    assert [file.metadata.row_group(k).num_rows for k in range(3)] == [3, 2, 2]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    trip(source, place / "more.parquet", splits=True, weights=True)
    more = pq.read_table(place / "more.parquet")
    assert more.drop(["split", "weight"]).equals(table, check_metadata=True)


@pytest.mark.parametrize("out", ["out.csv", "out.jsonl"])
def test_a_second_image_is_named_and_other_bytes_are_left_out(place, out):
    images = [{"bytes": (place / name).read_bytes(), "path": name} for name in NAMES]
    masks = [{"bytes": b"\xff\0", "path": f"mask {k}.png" if k else None} for k in range(N)]
    columns = {
        "image": images,
        "mask": masks,
        "raw": [b"\xff\0"] * N,
        "n": range(N),
        "caption": [f"cat {k}" for k in range(N)],
    }
    pq.write_table(pa.table({name: pa.array(cells) for name, cells in columns.items()}), place / "x.parquet")
    trip(place / "x.parquet", place / out)
    text = (place / out).read_text()
    rows = (
        [json.loads(line) for line in text.splitlines()]
        if out == "out.jsonl"
        else list(csv.DictReader(io.StringIO(text)))
    )
    assert [row["mask"] for row in rows] == [
        None if out == "out.jsonl" else "",
        *(f"mask {k}.png" for k in range(1, N)),
    ]
    assert {row["raw"] for row in rows} == ({None} if out == "out.jsonl" else {""})
    assert [row["image"] for row in rows] == NAMES
    assert [row["n"] for row in rows] == (list(range(N)) if out == "out.jsonl" else list(map(str, range(N))))


def test_numbers_of_json_stay_numbers_in_parquet(place):
    rows = [
        {"image": name, "caption": f"cat {k}", "n": k, "price": k / 4, "tags": ["a"], "mixed": [k, "x"][k % 2]}
        for k, name in enumerate(NAMES)
    ]
    (place / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trip(place / "x.jsonl", place / "out.parquet")
    assert pq.read_table(place / "out.parquet").to_pylist() == [row | {"mixed": str(row["mixed"])} for row in rows]


def test_a_table_without_a_last_line_end_and_lists_in_its_cells(place):
    lines = [f"{name},\"['cat {k}', 'dog {k}']\"" for k, name in enumerate(NAMES)]
    (place / "x.csv").write_text("\n".join(["image,caption", *lines]))
    trip(place / "x.csv", place / "all.csv")
    assert (place / "all.csv").read_bytes() == (place / "x.csv").read_bytes()


def test_sizes_in_coco_captions_are_those_of_the_upright_image(place):
    sizes = []
    for k, name in enumerate(NAMES):
        exif = Image.Exif()
        exif[0x0112] = k + 1
        Image.new("RGB", (8, 5), (k, 0, 0)).save(place / name.replace("png", "jpg"), exif=exif)
        sizes.append((5, 8) if k + 1 > 4 else (8, 5))
    rows = "".join(f"{name.replace('png', 'jpg')},cat {k}\n" for k, name in enumerate(NAMES))
    (place / "x.csv").write_text("image,caption\n" + rows)
    trip(place / "x.csv", place / "out.json")
    images = json.loads((place / "out.json").read_text())["images"]
    assert [(image["width"], image["height"]) for image in images] == sizes
    assert len(set(sizes)) == 2


def test_a_row_without_an_image_shifts_no_other(place):
    """Also where each row has two captions."""
    images = [None if k == 2 else {"bytes": (place / name).read_bytes(), "path": name} for k, name in enumerate(NAMES)]
    captions = [[f"cat {k}", f"dog {k}"] for k in range(N)]
    pq.write_table(pa.table({"image": images, "caption": captions}), place / "x.parquet")
    pairs = trip(place / "x.parquet", place / "out.parquet", [0], {15: "a new dog"})
    assert [skip.pair for skip in pairs.skipped] == [4, 5]
    rows = pq.read_table(place / "out.parquet")["caption"].to_pylist()
    assert rows == [["dog 0"], captions[1], *captions[3:7], ["cat 7", "a new dog"]]


@pytest.mark.parametrize("other", ["tags", "later"])
def test_the_array_of_the_rows_is_told_from_others_of_its_length(place, other):
    rows = [{"image": name, "caption": f"a cat {k}"} for k, name in enumerate(NAMES)]
    arrays = {"tags": list("abcdefgh")} | {"rows": rows} if other == "tags" else {"rows": rows, "later": [0] * N}
    (place / "x.json").write_text(json.dumps(arrays))
    trip(place / "x.json", place / "out.json", [1], {3: "a dog"})
    new = [{**row, "caption": "a dog"} if k == 3 else row for k, row in enumerate(rows) if k != 1]
    assert json.loads((place / "out.json").read_text()) == {**arrays, "rows": new}


def test_a_layout_that_cannot_be_edited_is_not_written_half(place):
    """Its rows are made of other values, so that they are written as COCO captions, which have no splits."""
    typed = ([{"result": [{"value": {"text": [f"a cat {k}"]}}]}] for k in range(N))
    tasks = [{"data": {"image": name}, "annotations": one} for name, one in zip(NAMES, typed, strict=True)]
    (place / "x.json").write_text(json.dumps(tasks))
    trip(place / "x.json", place / "out.json", [1], {3: "a dog"})
    found = json.loads((place / "out.json").read_text())["annotations"]
    assert [one["caption"] for one in found] == [f"a cat {k}" if k != 3 else "a dog" for k in range(N) if k != 1]
    with pytest.raises(InputError, match="COCO captions have no splits"):
        trip(place / "x.json", place / "again.json", [1], splits=True)


def test_several_parquet_files_of_one_schema_keep_it(place):
    data = place / "data"
    data.mkdir()
    schema = pa.schema(
        [("image", pa.string()), ("caption", pa.string()), ("n", pa.int16())], metadata={"huggingface": "{}"}
    )
    for first in (0, 4):
        cells = [NAMES[first : first + 4], [f"a cat {k}" for k in range(first, first + 4)], range(first, first + 4)]
        names = [str(place / name) for name in cells[0]]
        table = pa.table([names, cells[1], pa.array(cells[2], pa.int16())], schema=schema)
        pq.write_table(table, data / f"part-{first}.parquet")
    trip(data, place / "out.parquet", [1, 6], {5: "a dog"})
    table = pq.read_table(place / "out.parquet")
    assert table.schema.equals(schema, check_metadata=True) and table["n"].to_pylist() == [0, 2, 3, 4, 5, 7]
    assert table["caption"].to_pylist()[4] == "a dog"


def test_names_without_an_extension_tell_their_folder(place):
    lines = ["image,caption", *(f"{name.removesuffix('.png')},a cat {k}" for k, name in enumerate(NAMES))]
    (place / "x.csv").write_text("\n".join(lines))
    assert folder_of_names(pairsift.load(place / "x.csv"), place / "elsewhere" / "out.csv") == place


def answers(*texts):
    turns = [
        [{"from": "human", "value": "<image>\nWhat?", "n": 0}, {"from": "gpt", "value": text, "n": 1}] for text in texts
    ]
    return [turn for two in turns for turn in two]


SEVERAL = {
    "images": [{"images": NAMES[2 * k : 2 * k + 2], "caption": f"cat {k}"} for k in range(N // 2)],
    "paired": [{"images": NAMES[2 * k : 2 * k + 2], "captions": [f"cat {k}", f"dog {k}"]} for k in range(N // 2)],
    "columns": [{"image": NAMES[k], "caption_1": f"cat number {k}", "caption_2": f"dog number {k}"} for k in range(N)],
    "objects": [
        {"image": NAMES[k], "captions": [{"id": 1, "raw": f"cat {k}"}, {"id": 2, "raw": f"dog {k}"}]} for k in range(N)
    ],
    "conversations": [{"image": NAMES[k], "conversations": answers(f"cat {k}", f"dog {k}")} for k in range(N)],
}
DROPPED = {  # what is left of the second row without its second pair, and with another text in its first
    "images": {"images": NAMES[2:3]},
    "paired": {"images": NAMES[2:3], "captions": ["cat 1"]},
    "columns": {"caption_2": ""},
    "objects": {"captions": [{"id": 1, "raw": "cat 1"}]},
}
REWRITTEN = {
    "paired": {"captions": ["a new one", "dog 1"]},
    "columns": {"caption_1": "a new one"},
    "objects": {"captions": [{"id": 1, "raw": "a new one"}, {"id": 2, "raw": "dog 1"}]},
    "conversations": {"conversations": answers("a new one", "dog 1")},
}


def read_rows_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return json.loads(path.read_text()) if path.suffix == ".json" else list(map(json.loads, path.open()))


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("kind", SEVERAL)
def test_rows_of_several_pairs_stay_rows_in_the_format_of_their_source(place, kind, suffix):
    rows, source = SEVERAL[kind], place / f"x.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        source.write_text(json.dumps(rows) if suffix == "json" else "".join(f"{json.dumps(row)}\n" for row in rows))
    pairs = trip(source, place / f"all.{suffix}")
    assert len(pairs) == 2 * len(rows)
    assert read_rows_of(place / f"all.{suffix}") == rows
    if suffix != "parquet":
        assert (place / f"all.{suffix}").read_bytes() == source.read_bytes()
    for name, options, changes in (
        ("less", {"drop": [3]}, DROPPED.get(kind)),
        ("new", {"rewrite": {2: "a new one"}}, REWRITTEN.get(kind)),
    ):
        out = place / f"{name}.{suffix}"
        trip(source, out, **options)
        if changes is not None:
            assert read_rows_of(out) == [rows[0], {**rows[1], **changes}, *rows[2:]]
        else:
            again = pairsift.load(out, cache=place / "cache")
            assert len(again) == len(pairs) - len(options.get("drop", ()))


def test_an_export_of_images_in_several_folders_names_the_folder_above_them(tmp_path):
    for k, name in enumerate(NAMES):
        (tmp_path / "images" / str(k % 2)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (k, 0, 0)).save(tmp_path / "images" / str(k % 2) / name)
    (tmp_path / "x.csv").write_text("image,caption\n" + "".join(f"{name},cat {k}\n" for k, name in enumerate(NAMES)))
    pairs = trip(tmp_path / "x.csv", tmp_path / "elsewhere" / "out.csv", [1])
    folder = folder_of_names(pairs, tmp_path / "elsewhere" / "out.csv")
    assert folder == tmp_path / "images"
    again = pairsift.load(tmp_path / "elsewhere" / "out.csv", image_folder=folder)
    assert again.captions == [caption for pair, caption in enumerate(pairs.captions) if pair != 1]


TEXTS = [f"cat number {k}" for k in range(N)]
WHOLE = {
    "kohya": {name: {"caption": text, "tags": "a, b"} for name, text in zip(NAMES, TEXTS, strict=True)},
    "names": dict(zip(NAMES, TEXTS, strict=True)),
    "columns": {"image": dict(enumerate(NAMES)), "caption": dict(enumerate(TEXTS)), "n": dict(enumerate(range(N)))},
    "lists": {"image": NAMES, "caption": TEXTS, "n": [k / 2 for k in range(N)]},
    "split": {"columns": ["image", "caption"], "index": [*range(N)], "data": [*zip(NAMES, TEXTS, strict=True)]},
    "key": {"info": {"by": "me"}, "rows": [{"image": NAMES[k], "caption": TEXTS[k]} for k in range(N)]},
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_json_file_of_another_tool_keeps_its_layout(place, kind):
    """Of eight pairs the second and the last are dropped, and the third has a new caption."""
    text = json.dumps(WHOLE[kind], indent=1)
    (place / "x.json").write_text(text)
    trip(place / "x.json", place / "all.json")
    assert (place / "all.json").read_text() == text
    pairs = trip(place / "x.json", place / "out.json", [1, N - 1], {2: "a new one"})
    found, again = json.loads((place / "out.json").read_text()), pairsift.load(place / "out.json")
    assert found.keys() <= WHOLE[kind].keys() and "annotations" not in found
    texts = ["a new one" if pair == 2 else TEXTS[pair] for pair in range(N) if pair not in (1, N - 1)]
    assert again.captions == texts and len(pairs) == N and again.columns.keys() == pairs.columns.keys()
    old, new = text.splitlines(), (place / "out.json").read_text().splitlines()
    assert len([line for line in new if line.strip(" ,") not in {line.strip(" ,") for line in old}]) <= 1


SINGLE = {
    "conversations": lambda text: [{"from": "human", "value": "what is it?"}, {"from": "gpt", "value": text}],
    "sentences": lambda text: [{"raw": text, "sentid": 7}],
    "caption": lambda text: {"text": text, "lang": "en"},
    "captions": lambda text: [text],
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("weights", [False, True])
def test_a_cell_with_one_caption_keeps_its_structure(place, name, ending, weights):
    rows = [{"image": image, name: SINGLE[name](f"a brown dog runs {k}")} for k, image in enumerate(NAMES)]
    source, out = place / f"x{ending}", place / f"out{ending}"
    if ending == ".jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), source)
    trip(source, out, drop=[0], rewrite={2: "a cat"}, weights=weights)
    found = rows_of(out)
    if weights:
        values = [row.pop("weight") for row in found]
        assert all(isinstance(value, list) == isinstance(rows[0][name], list) for value in values)
    assert found == [{**row, name: SINGLE[name]("a cat")} if k == 2 else row for k, row in enumerate(rows)][1:]


def test_a_caption_that_plain_quotes_cannot_hold_makes_another_layout(place):
    lines = [f'{name}\ta 5" dog {k}' for k, name in enumerate(NAMES)]
    (place / "x.tsv").write_text("image\tcaption\n" + "\n".join(lines) + "\n")
    new = 'a dog,\ta cat, "and" a bird'
    trip(place / "x.tsv", place / "out.tsv", rewrite={1: new})
    assert pairsift.load(place / "out.tsv").captions[1] == new


def test_lists_in_bytes_stay_beside_their_images(place):
    names = [f"more{k}.png" for k in range(12)]
    for k, name in enumerate(names):
        Image.new("RGB", (4, 3), (k, 9, 0)).save(place / name)
    cells = [f"dog {k} runs on the grass|cat {k} sleeps on two mats".encode() for k in range(12)]
    pq.write_table(pa.table({"image": names, "caption": pa.array(cells, pa.binary())}), place / "x.parquet")
    pairs = trip(place / "x.parquet", place / "out.csv", drop=[3])
    assert len(pairs) == 24
    found = [(row["image"], row["caption"]) for row in rows_of(place / "out.csv")]
    assert found == [(pairs.image_name(k), pairs.captions[k]) for k in range(24) if k != 3]


def test_lists_of_a_fixed_size_get_weights(place):
    kind = pa.list_(pa.string(), 2)
    cells = [[f"dog {k}", f"cat {k}"] for k in range(N)]
    pq.write_table(pa.table({"image": NAMES, "caption": pa.array(cells, kind)}), place / "x.parquet")
    trip(place / "x.parquet", place / "out.parquet", weights=True)
    table = pq.read_table(place / "out.parquet")
    assert table["caption"].to_pylist() == cells and all(len(row) == 2 for row in table["weight"].to_pylist())


def test_json_lines_have_no_numbers_that_json_lacks(place):
    scores = [float("nan"), float("inf"), *map(float, range(N - 2))]
    pq.write_table(
        pa.table({"image": NAMES, "caption": [f"cat {k}" for k in range(N)], "score": scores}), place / "x.parquet"
    )
    trip(place / "x.parquet", place / "out.jsonl")
    lines = (place / "out.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=pytest.fail)["score"] for line in lines]
    assert found == [None, None, *scores[2:]]


def test_images_of_one_stem_have_files_of_their_own(place):
    names = ["x_2.png", "x.png", "x.gif", *NAMES[3:]]
    for k, name in enumerate(names[:3]):
        Image.new("RGB", (4, 3), (0, k, 0)).save(place / name)
    source = place / "x.csv"
    source.write_text("image,caption\n" + "".join(f"{name},the picture {name} shows a cat\n" for name in names))
    pairs = trip(source, place / "out")
    again = pairsift.load(place / "out")
    expected = {pairs.paths[row].read_bytes(): text for text, row in zip(pairs.captions, pairs.image_of, strict=True)}
    assert {again.paths[row].read_bytes(): text for text, row in zip(again.captions, again.image_of, strict=True)} == (
        expected
    )
