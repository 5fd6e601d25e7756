import csv
import io
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pair_sources import reasons, refused, touch
from pairsift.pairs.options import DataOptions
from pairsift.pairs.readers import load
from pairsift.pairs.readers.dialects import WAYS, Dialect, records, split_lines
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from pairsift.runs.config import configure
from pairsift.runs.prepare import read_pairs

NAMES = [f"{number}_ab{number}.jpg" for number in range(30)]
CAPTIONS = [f"a dog number {number} runs over the grass" for number in range(30)]


def written(path: Path, rows: list[tuple[str, ...]], **form: object) -> Path:
    """Rows as a writer of this form leaves them."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **{"lineterminator": "\n", **form}).writerows(rows)  # type: ignore[arg-type]
    return path


def captions_read(path: Path, **options: object) -> list[str]:
    touch(path.parent, *NAMES)
    return load(path, keep_empty=True, **options).captions  # type: ignore[arg-type]


def test_quotes_that_are_plain_characters_join_no_rows(tmp_path):
    meant = list(CAPTIONS)
    meant[0], meant[1], meant[7], meant[12] = (
        f'"{meant[0]}',
        f'{meant[1]}"',
        f'"Stop", {meant[7]}',
        f'27" of {meant[12]}',
    )
    text = "".join(f"{name}\t{caption}\n" for name, caption in zip(["image", *NAMES], ["caption", *meant], strict=True))
    (tmp_path / "x.tsv").write_text(text)
    assert captions_read(tmp_path / "x.tsv") == meant
    note = "quotes are plain characters (30 rows, 0 irregular; as in CSV 29 rows, 2 irregular: --quotes csv)"
    assert note in load(tmp_path / "x.tsv").description
    as_csv = load(tmp_path / "x.tsv", quotes="csv")
    assert len(as_csv) == 29 and as_csv.captions[0] == f"{CAPTIONS[0]}\n{NAMES[1]}\t{CAPTIONS[1]}"
    names = [row["caption"] for row in read_origin(tmp_path / "x.tsv", None, Columns()).rows()]
    assert names == meant


def test_joined_rows_are_found_where_images_are_ids(tmp_path):
    ids = [str(10**9 + number) for number in range(8)]
    touch(tmp_path, *ids)
    captions = ['"open', 'closed"', *CAPTIONS[:6]]
    rows = zip(["image", *ids], ["caption", *captions], strict=True)
    (tmp_path / "x.tsv").write_text("\n".join(map("\t".join, rows)))
    assert load(tmp_path / "x.tsv").captions == captions


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONE])
@pytest.mark.parametrize("separator", [",", "\t"])
def test_quotes_escaped_by_a_backslash(tmp_path, quoting, separator):
    meant = list(CAPTIONS)
    meant[2], meant[5], meant[6] = 'a sign "STOP", red', 'a 27" screen', "two\nlines, the second"
    rows = [("image", "caption", "price"), *((name, text, "7") for name, text in zip(NAMES, meant, strict=True))]
    form = {"doublequote": False, "escapechar": "\\", "quoting": quoting, "delimiter": separator}
    path = written(tmp_path / "x.csv", rows, **form)
    assert captions_read(path) == meant
    assert "quotes are escaped by a backslash (30 rows, 0 irregular; as in CSV " in load(path).description
    assert captions_read(path, quotes="backslash") == meant


def test_an_escape_before_any_other_character_is_a_backslash(tmp_path):
    rows = [("image", "caption"), *((f"pics\\{name}", 'the "new" door') for name in NAMES)]
    text = "\n".join(f"{name},{caption}" for name, caption in rows).replace('"', '\\"')
    touch(tmp_path / "pics", *NAMES)
    (tmp_path / "x.csv").write_text(text)
    pairs = load(tmp_path / "x.csv")
    assert pairs.captions == ['the "new" door'] * 30 and not pairs.skipped


def test_csv_stays_csv_where_rows_are_broken(tmp_path):
    captions = ["one\ntwo, three", 'he said ""no""', "red, green\nblue, white", "last"] * 4
    lines = [f'{name},"{caption}"' for name, caption in zip(NAMES, captions, strict=False)]
    (tmp_path / "x.csv").write_text("\n".join(["image,caption", *lines, "one field", '20_ab20.jpg,"five" feet']))
    read = captions_read(tmp_path / "x.csv")
    assert read[:16] == [caption.replace('""', '"') for caption in captions]
    assert read[17] == '"five" feet'
    assert list(reasons(load(tmp_path / "x.csv"))) == [16]


def test_rows_in_quotes_that_are_not_doubled(tmp_path):
    lines = [f'"{name}","a {number}" screen, and {number} more"' for number, name in enumerate(NAMES)]
    (tmp_path / "x.csv").write_text("\n".join(['"image","caption"', *lines]))
    assert captions_read(tmp_path / "x.csv") == [f'a {number}" screen, and {number} more' for number in range(30)]


def test_spaces_behind_the_bars_are_no_part_of_the_cells(tmp_path):
    lines = ["image_name| comment_number| comment", *(f"{name}| 0| a dog, {name} ." for name in NAMES)]
    lines[5] = "3_ab3.jpg| 4   a dog"  # as in the published results.csv
    (tmp_path / "results.csv").write_text("\n".join(lines))
    touch(tmp_path, *NAMES)
    pairs = load(tmp_path / "results.csv")
    assert pairs.captions[0] == f"a dog, {NAMES[0]} ." and pairs.columns["comment_number"][0] == "0"
    assert reasons(pairs) == {4: ("results.csv line 6", "has 2 fields where the header has 3")}


caption = st.text(
    st.one_of(st.sampled_from(' "\\,;\t|\n'), st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])),
    min_size=1,
    max_size=12,
).filter(lambda text: text.strip())


def plain_text(rows: list[tuple[str, str]], separator: str) -> str:
    return "".join(f"{separator.join(row)}\n" for row in rows)


@settings(max_examples=150, deadline=None)
@given(
    captions=st.lists(caption, min_size=3, max_size=7),
    separator=st.sampled_from(",\t;|"),
    kind=st.sampled_from(["minimal", "all", "backslash", "backslash all", "none"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
@example(['"a', 'b"', "c"], "\t", "none", "\n")
@example(['"', "a\\", 'b\\"c'], ",", "backslash", "\n")
def test_a_table_of_any_dialect_comes_back_as_it_was_or_as_csv(captions, separator, kind, end):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.csv")
        rows = [("image", "caption"), *zip(NAMES, captions, strict=False)]
        quoting = csv.QUOTE_ALL if kind in ("all", "backslash all") else csv.QUOTE_MINIMAL
        form: dict[str, object] = {"delimiter": separator, "lineterminator": end, "quoting": quoting}
        if kind.startswith("backslash"):
            form |= {"doublequote": False, "escapechar": "\\"}
        if kind == "none":
            captions = [text.replace("\n", " ").replace(separator, " ").strip() or "x" for text in captions]
            path.write_text(plain_text([rows[0], *zip(NAMES, captions, strict=False)], separator), newline="")
        else:
            written(path, rows, **form)
        read = captions_read(path)
        way = {"none": "none", "minimal": "csv", "all": "csv"}.get(kind, "backslash")
        assert captions_read(path, quotes=way) == captions
        if read != captions:  # it is CSV as well, or it is said
            assert kind not in ("minimal", "all")
            is_told = "quotes are" in load(path, keep_empty=True).description
            assert is_told or (read == captions_read(path, quotes="csv") and len(read) == len(captions))


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from('a,"\\\n\r'), max_size=40), width=st.one_of(st.none(), st.integers(1, 3)))
@pytest.mark.parametrize("way", WAYS)
def test_no_line_is_lost_and_none_is_read_twice(text, width, way):
    lines = split_lines(text)
    position = 0
    for record in records(lines, 0, way[1], width):
        assert all(not line.strip("\r\n") for line in lines[position : record.first])
        assert record.end > record.first and (record.problem or width in (None, len(record.cells)))
        position = record.end
    assert all(not line.strip("\r\n") for line in lines[position:])


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.lists(st.text('a," \n'), min_size=2, max_size=2), min_size=1, max_size=4))
def test_the_records_of_csv_are_those_of_the_standard_library(rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    assert [record.cells for record in records(split_lines(text.getvalue()), 0, Dialect(), 2)] == rows


@pytest.mark.parametrize("line", ['a","b\n', 'a,"b\n', '"a""\n', 'a,"""\n', '"\\"\n', "a,b\\\n"])
@pytest.mark.parametrize("way", WAYS)
def test_stray_quotes_take_time_that_grows_with_the_lines(line, way):
    def seconds(count: int) -> float:
        started = time.process_time()
        n_lines = sum(record.end - record.first for record in records([line] * count, 0, way[1], 2))
        assert n_lines == count
        return time.process_time() - started

    assert seconds(40_000) < 20 * max(seconds(4_000), 0.01)


def flickr8k_lines(separator: str = "\t") -> list[str]:
    return [f"{name}#{number}{separator}{CAPTIONS[number]} , seen" for name in NAMES[:6] for number in range(5)]


@pytest.mark.parametrize("name", ["Flickr8k.token.txt", "results.token", "pairs.lst", "pairs", "x.csv.txt", "X.TAB"])
def test_a_table_without_a_header_and_with_any_extension(tmp_path, name):
    touch(tmp_path, *NAMES)
    (tmp_path / name).write_text("\n".join(flickr8k_lines()))
    pairs = load(tmp_path / name)
    assert pairs.names == NAMES[:6] and len(pairs) == 30 and pairs.captions[1] == f"{CAPTIONS[1]} , seen"
    assert "no header: image from field 1, caption from field 2" in pairs.description
    assert "image names with a number of the caption behind them (#0): 30" in pairs.description
    assert read_origin(tmp_path / name, None, Columns()).names == ["image", "caption"]


def test_numbers_behind_names_under_a_header(tmp_path):
    touch(tmp_path, *NAMES)
    (tmp_path / "x.tsv").write_text("\n".join(["image\tcaption", *flickr8k_lines()]))
    assert load(tmp_path / "x.tsv").names == NAMES[:6]
    touch(tmp_path, *(line.split("\t")[0] for line in flickr8k_lines()))
    assert len(load(tmp_path / "x.tsv").names) == 30  # now there are files of these names


@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_the_columns_of_a_table_without_a_header_are_told_by_their_cells(tmp_path, separator):
    touch(tmp_path / "pics", *NAMES)
    rows = [
        (str(number), text, "train", f"pics/{name}")
        for number, (name, text) in enumerate(zip(NAMES, CAPTIONS, strict=True))
    ]
    pairs = load(written(tmp_path / "x.csv", rows, delimiter=separator))
    assert pairs.captions == CAPTIONS and pairs.paths[0] == tmp_path / "pics" / NAMES[0]
    assert pairs.columns["column 3"] == ["train"] * 30
    assert "no header: image from field 4, caption from field 2" in pairs.description


def test_images_without_an_extension_show_a_table_without_a_header(tmp_path):
    ids = [str(10**9 + number) for number in range(30)]
    touch(tmp_path / "pics", *ids)
    path = written(tmp_path / "x.tsv", list(zip(ids, CAPTIONS, strict=True)), delimiter="\t")
    assert load(path, image_folder=tmp_path / "pics").captions == CAPTIONS


@pytest.mark.parametrize("line", ["{},7", "{}", "{},{}"])
def test_data_in_the_first_line_that_does_not_show_its_columns(tmp_path, line):
    (tmp_path / "x.csv").write_text("\n".join(line.format(name, name) for name in NAMES))
    assert "first line looks like data" in refused(tmp_path / "x.csv")
    assert "no reader fits the extension '.docx'" in refused((tmp_path / "x.csv").rename(tmp_path / "x.docx"))


def test_the_option_reaches_a_run(tmp_path):
    touch(tmp_path, *NAMES)
    captions = [f'"{CAPTIONS[0]}', f'{CAPTIONS[1]}"', *CAPTIONS[2:]]
    rows = zip(["image", *NAMES], ["caption", *captions], strict=True)
    (tmp_path / "x.tsv").write_text("\n".join(map("\t".join, rows)))
    counts = {}
    for quotes in (None, "none", "csv"):
        config = configure(tmp_path / "x.tsv", data=DataOptions(quotes=quotes))
        counts[quotes] = len(read_pairs(config).pairs)
    assert counts == {None: 30, "none": 30, "csv": 29}
