"""Which columns are read, what their cells hold, and what is said of it."""

import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from pair_sources import reasons, refused, touch, write_table
from pairsift.pairs.readers import load
from pairsift.pairs.readers.cells import written_list
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin

THINGS = ("a red ball", "two dogs in snow", "the long road", "a boat at sea", "one tall tree", "some green apples")
NAMES = [f"{number}.jpg" for number in range(12)]
TEXTS = [f"{THINGS[number % 6]} number {number}" for number in range(12)]
SECOND = [f"another view of {text}" for text in TEXTS]


def table(folder, columns, name="x.csv"):
    touch(folder, *NAMES)
    return write_table(folder / name, list(columns), list(zip(*columns.values(), strict=True)))


def test_a_subset_that_is_no_split_travels_along(tmp_path):
    path = table(tmp_path, {"image": NAMES, "caption": TEXTS, "subset": ["laion", "cc12m", "redcaps"] * 4})
    pairs = load(path)
    assert pairs.columns == {"subset": ["laion", "cc12m", "redcaps"] * 4}
    assert set(pairs.split) == {"train", "dev", "test"} and not pairs.skipped
    assert "column 'subset' holds no splits ('laion', 'cc12m', 'redcaps')" in pairs.description


@pytest.mark.parametrize("words", [["fold0", "fold1", "fold2"], ["0", "1", "2"], ["train", "web", "web"]])
def test_few_words_for_splits_make_no_split_column(tmp_path, words):
    pairs = load(table(tmp_path, {"image": NAMES, "caption": TEXTS, "split": words * 4}))
    assert pairs.columns["split"] == words * 4 and not pairs.skipped


def test_an_evaluation_is_dev_and_words_that_are_unknown_are_counted(tmp_path):
    words = ["train"] * 7 + ["eval"] * 3 + ["extra"] * 2
    pairs = load(table(tmp_path, {"image": NAMES, "caption": TEXTS, "split": words}))
    assert pairs.split.tolist()[7:] == ["dev"] * 3 + ["skipped"] * 2
    assert "split 'eval' read as dev; rows left out because 'extra' is no word for a split: 2" in pairs.description
    words = ["train"] * 7 + ["eval"] * 3 + ["val"] * 2
    pairs = load(table(tmp_path, {"image": NAMES, "caption": TEXTS, "split": words}))
    assert pairs.split.tolist()[7:] == ["test"] * 3 + ["dev"] * 2


def test_the_split_column_can_be_named_and_left_out(tmp_path):
    words = ["train"] * 8 + ["val", "val", "test", "test"]
    path = table(tmp_path, {"image": NAMES, "caption": TEXTS, "part": words, "split": words[::-1]})
    named = load(path, split_column="Part")
    assert named.split.tolist() == ["train"] * 8 + ["dev"] * 2 + ["test"] * 2
    assert named.columns == {"split": words[::-1]}
    drawn = load(path, split_column="none")
    assert "drawn by image" in drawn.description and drawn.columns == {"part": words, "split": words[::-1]}
    assert "no column 'fold'" in refused(path, split_column="fold")
    only_test = table(tmp_path, {"image": NAMES, "caption": TEXTS, "split": ["test"] * 12}, "y.csv")
    assert "--split-column none" in refused(only_test)
    assert len(load(only_test, split_column="none").ids("train")) == 10


def test_folders_called_after_splits_can_be_ignored(tmp_path):
    for folder in ("train", "test"):
        for name, text in zip(NAMES, TEXTS, strict=True):
            touch(tmp_path, f"d/{folder}/{name}")
            (tmp_path / "d" / folder / name).with_suffix(".txt").write_text(text)
    assert len(load(tmp_path / "d").ids("test")) == 12
    assert len(load(tmp_path / "d", split_column="none").ids("test")) == 2


LISTS = [[first, second] for first, second in zip(TEXTS, SECOND, strict=True)]
BOTH = [text for texts in LISTS for text in texts]


@pytest.mark.parametrize("write", [json.dumps, repr, lambda texts: str(np.array(texts)), "|".join, "\n".join, ";".join])
def test_lists_in_text_are_several_captions(tmp_path, write):
    path = table(tmp_path, {"image": NAMES, "caption": list(map(write, LISTS))})
    pairs = load(path)
    assert pairs.captions == BOTH and pairs.n_images == 12
    assert "--lists keep" in pairs.description and "12 rows hold 24 pairs" in pairs.description
    assert load(path, lists="keep").captions == list(map(write, LISTS))


caption_text = st.text(min_size=1, max_size=20).filter(str.strip)


@settings(max_examples=50, deadline=None)
@given(lists=st.lists(st.lists(caption_text, min_size=1, max_size=4), min_size=3, max_size=6))
@example(lists=[["it's", 'a "b"'], ["\\", "['a']"], ["a,\n b", "']"]])
@pytest.mark.parametrize("write", [json.dumps, repr])
def test_any_list_of_texts_comes_back_as_it_was(write, lists):
    lists = [list(dict.fromkeys(texts)) for texts in lists]
    assert [written_list(write(texts)) for texts in lists] == lists
    with tempfile.TemporaryDirectory() as name:
        names = [f"{number}.jpg" for number in range(len(lists))]
        touch(Path(name), *names)
        path = write_table(Path(name) / "x.csv", ["image", "caption"], list(zip(names, map(write, lists), strict=True)))
        pairs = load(path, keep_empty=True)
    assert pairs.captions == [text for texts in lists for text in texts] and not pairs.skipped


@pytest.mark.parametrize(
    "texts",
    [
        [f"A page about {text} | My Shop" for text in TEXTS],
        [f"{text}; cotton; blue" for text in TEXTS],
        [f"[{text}]" for text in TEXTS],
        [f"{text} | {second}" if number < 6 else text for number, (text, second) in enumerate(LISTS)],
        [*TEXTS[:-1], repr(["a list", "of texts"])],
        ["[]", "[1, 2]", "['a', 2]", "[a]", "('a'", "['a'] b", *TEXTS[6:]],
    ],
)
def test_other_texts_stay_whole(tmp_path, texts):
    path = table(tmp_path, {"image": NAMES, "caption": texts})
    assert load(path).captions == texts


def test_lists_in_few_cells_are_told_and_can_be_split(tmp_path):
    path = table(tmp_path, {"image": NAMES, "caption": [*TEXTS[:-1], repr(["a list", "of texts"])]})
    assert "captions written like lists, which stay whole: 1 (--lists split)" in load(path).description
    assert load(path, lists="split").captions == [*TEXTS[:-1], "a list", "of texts"]
    shop = table(tmp_path, {"image": NAMES, "caption": [f"{text} | Shop" for text in TEXTS]})
    assert load(shop, lists="split").captions[:3] == [TEXTS[0], "Shop", TEXTS[1]]


def test_an_image_with_several_rows_has_no_lists_between_bars(tmp_path):
    path = table(tmp_path, {"image": NAMES[:6] * 2, "caption": list(map("|".join, LISTS))})
    assert load(path).captions == list(map("|".join, LISTS))


def test_a_list_of_images_is_a_pair_for_each(tmp_path):
    touch(tmp_path, *NAMES)
    rows = [{"image": NAMES[k : k + 3], "caption": TEXTS[k], "sku": k} for k in range(0, 12, 3)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = load(tmp_path / "x.jsonl")
    assert [pairs.names[row] for row in pairs.image_of] == NAMES
    assert pairs.captions == [TEXTS[k - k % 3] for k in range(12)]
    assert pairs.columns["sku"][:4] == ["0", "0", "0", "3"]
    assert "4 rows hold 12 pairs" in pairs.description and "(lists of images)" in pairs.description


@pytest.mark.parametrize("write", [repr, json.dumps, "|".join, ";".join])
def test_a_list_of_images_in_text_is_found(tmp_path, write):
    touch(tmp_path, *NAMES)
    rows = [(write(NAMES[k : k + 3]), TEXTS[k]) for k in range(0, 12, 3)]
    pairs = load(write_table(tmp_path / "x.tsv", ["image", "caption"], rows))
    assert [pairs.names[row] for row in pairs.image_of] == NAMES


def test_as_many_images_as_captions_belong_together_in_their_order(tmp_path):
    touch(tmp_path, *NAMES)
    rows = [{"image": NAMES[k : k + 2], "caption": TEXTS[k : k + 2]} for k in range(0, 12, 2)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = load(tmp_path / "x.jsonl")
    assert pairs.captions == TEXTS and [pairs.names[row] for row in pairs.image_of] == NAMES
    assert "the first caption for the first image" in pairs.description
    rows[0]["caption"] = TEXTS[:1] + SECOND[:2]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert len(load(tmp_path / "x.jsonl")) == 5 * 4 + 6  # now each caption is of each image


def test_lists_of_images_within_parquet(tmp_path):
    cells = []
    for number, name in enumerate(NAMES):
        Image.new("RGB", (2, 2), (20 * number, 0, 0)).save(tmp_path / name)
        cells.append({"bytes": (tmp_path / name).read_bytes(), "path": name})
    rows = pa.table({"images": [cells[k : k + 3] for k in range(0, 12, 3)], "caption": TEXTS[::3]})
    pq.write_table(rows, tmp_path / "x.parquet")
    for _ in range(2):  # the second time from the cache
        pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
        assert pairs.names == NAMES and pairs.captions == [TEXTS[k - k % 3] for k in range(12)]
        assert [path.read_bytes() for path in pairs.paths] == [cell["bytes"] for cell in cells]
    turns = [[{"user": "What is it?", "assistant": text}] for text in TEXTS[::3]]
    pq.write_table(rows.set_column(1, "texts", pa.array(turns)), tmp_path / "y.parquet")
    assert load(tmp_path / "y.parquet", cache=tmp_path / "cache").captions == pairs.captions


def test_the_column_whose_files_exist_is_the_image(tmp_path):
    addresses = [f"https://cdn.example/{name}" for name in NAMES]
    path = table(tmp_path, {"image": addresses, "image_path": NAMES, "caption": TEXTS})
    pairs = load(path)
    assert pairs.names == NAMES and "column 'image' holds web addresses" in pairs.description
    path = table(tmp_path, {"file": [f"DSC{name}" for name in NAMES], "bildpfad": NAMES, "caption": TEXTS})
    assert load(path).names == NAMES
    assert "by their end alone" in load(table(tmp_path, {"image": addresses, "caption": TEXTS})).description
    elsewhere = [f"https://cdn.example/other-{name}" for name in NAMES]
    assert "web address" in refused(table(tmp_path, {"image": elsewhere, "caption": TEXTS}))
    assert "column 'url' holds web addresses: download" in refused(table(tmp_path, {"url": elsewhere, "text": TEXTS}))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_in_other_languages_are_found_by_their_values(tmp_path, kind):
    path = table(tmp_path, {"nr": list(map(str, range(12))), "bild": NAMES, "satz": TEXTS}, f"x.{kind}")
    pairs = load(path)
    assert pairs.names == NAMES and pairs.captions == TEXTS and list(pairs.columns) == ["nr"]
    path = table(tmp_path, {"bild": NAMES, "satz": ["一只狗在雪地里奔跑"] * 12}, f"y.{kind}")
    assert load(path).captions == ["一只狗在雪地里奔跑"] * 12


def test_several_columns_that_could_be_it_are_named(tmp_path):
    said = refused(table(tmp_path, {"bild": NAMES, "foto": NAMES[::-1], "satz": TEXTS}))
    assert "columns 'bild', 'foto' all name images: say which by --image-column" in said
    said = refused(table(tmp_path, {"bild": NAMES, "satz": TEXTS, "notiz": SECOND}))
    assert "columns 'satz', 'notiz' all hold texts: say which by --caption-column" in said


def test_a_title_with_few_texts_gives_way_to_a_caption(tmp_path):
    columns = {"image": NAMES, "title": ["My shop"] * 12, "alt_text": SECOND, "caption_en": TEXTS}
    pairs = load(table(tmp_path, columns))
    assert pairs.captions == TEXTS
    assert "column 'title' holds only 1 different texts; not read as captions: 'title', 'alt_text'" in pairs.description
    assert load(tmp_path / "x.csv", caption_column="title").captions == ["My shop"] * 12


def test_numbered_columns_are_captions_of_one_image(tmp_path):
    third = [text if number % 2 else "" for number, text in enumerate(TEXTS[::-1])]
    columns = {"image": NAMES, "caption_1": TEXTS, "caption_2": SECOND, "caption_3": third, "caption_ocr": TEXTS[::-1]}
    pairs = load(table(tmp_path, columns))
    assert pairs.captions[:5] == [TEXTS[0], SECOND[0], TEXTS[1], SECOND[1], TEXTS[10]]
    assert len(pairs) == 30 and list(pairs.columns) == ["caption_ocr"]
    assert "columns 'caption_1', 'caption_2', 'caption_3'" in pairs.description
    assert "not read as captions: 'caption_ocr'" in pairs.description
    assert load(tmp_path / "x.csv", caption_column="caption_1").captions == TEXTS


LAYOUTS = {
    "kohya": {name: {"caption": text, "tags": "a, b"} for name, text in zip(NAMES, TEXTS, strict=True)},
    "names": dict(zip(NAMES, TEXTS, strict=True)),
    "llava": [
        {"image": name, "conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": text}]}
        for name, text in zip(NAMES, TEXTS, strict=True)
    ],
    "messages": [
        {
            "images": [name],
            "messages": [
                {"role": "user", "content": "Describe it."},
                {"role": "assistant", "content": [{"type": "text", "text": text}]},
            ],
        }
        for name, text in zip(NAMES, TEXTS, strict=True)
    ],
    "label studio": [
        {"id": 1, "data": {"image": f"/data/local-files/?d={name}", "caption": text}, "annotations": []}
        for name, text in zip(NAMES, TEXTS, strict=True)
    ],
    "typed": [
        {"data": {"image": f"/data/upload/1/{name}"}, "annotations": [{"result": [{"value": {"text": [text]}}]}]}
        for name, text in zip(NAMES, TEXTS, strict=True)
    ],
    "label studio min": [
        {"id": 1, "image": f"/data/upload/1/{name}", "caption": text} for name, text in zip(NAMES, TEXTS, strict=True)
    ],
    "columns": {"image": dict(enumerate(NAMES)), "caption": dict(enumerate(TEXTS))},
    "lists": {"image": NAMES, "caption": TEXTS},
    "index": {k: {"image": name, "caption": text} for k, (name, text) in enumerate(zip(NAMES, TEXTS, strict=True))},
    "split": {
        "columns": ["image", "caption"],
        "index": list(range(12)),
        "data": list(map(list, zip(NAMES, TEXTS, strict=True))),
    },
    "key": {
        "version": 1,
        "licenses": [{"id": 1}],
        "data": [{"image": name, "caption": text} for name, text in zip(NAMES, TEXTS, strict=True)],
    },
    "rows": list(map(list, zip(NAMES, TEXTS, strict=True))),
    "sentences": [{"filename": n, "sentences": [{"raw": text}]} for n, text in zip(NAMES, TEXTS, strict=True)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_other_tools(tmp_path, layout, indent):
    touch(tmp_path, *NAMES)
    (tmp_path / "x.json").write_text(json.dumps(LAYOUTS[layout], indent=indent))
    pairs = load(tmp_path / "x.json")
    assert pairs.captions == TEXTS and not pairs.skipped
    assert pairs.paths == [tmp_path / name for name in NAMES]
    assert read_origin(tmp_path / "x.json", None, Columns()).caption in pairs.description


def test_lists_under_words_for_splits_are_these_splits(tmp_path):
    touch(tmp_path, *NAMES)
    rows = [{"image": name, "caption": text} for name, text in zip(NAMES, TEXTS, strict=True)]
    (tmp_path / "x.json").write_text(json.dumps({"train": rows[:8], "val": rows[8:10], "test": rows[10:]}))
    assert load(tmp_path / "x.json").split.tolist() == ["train"] * 8 + ["dev"] * 2 + ["test"] * 2
    (tmp_path / "x.json").write_text(json.dumps({"old": rows[:8], "new": rows[8:]}))
    assert "lists of images lie under the keys 'old', 'new'" in refused(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"a": 1, "b": [2]}, "is an object with the keys 'a', 'b'; needed is a list of objects"),
        (["a.jpg", "b.jpg"], "is a list of values such as a.jpg; needed is a list of objects"),
        (7, "is the single value 7; needed"),
        ({"info": {}, "x": [{"id": 1}], "y": [{"id": 2}]}, "'info', 'x', 'y'"),
    ],
)
def test_json_of_another_kind_is_described(tmp_path, value, part):
    (tmp_path / "x.json").write_text(json.dumps(value, indent=1))
    said = refused(tmp_path / "x.json")
    assert part in said and "not valid JSON" not in said


def test_a_row_whose_image_is_an_odd_list_costs_itself_alone(tmp_path):
    touch(tmp_path, *NAMES)
    rows = [{"image": name, "caption": text} for name, text in zip(NAMES, TEXTS, strict=True)]
    rows[3]["image"], rows[4]["caption"] = [{"odd": 1}], [{"odd": 1}]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    assert {pair: where for pair, (where, _) in reasons(load(tmp_path / "x.json")).items()} == {
        3: "x.json record 4",
        4: "x.json record 5",
    }
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *zip(NAMES, TEXTS, strict=True)])
    assert not load(tmp_path / "x.csv").skipped


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found_where_no_name_of_a_column_is_known(tmp_path, separator):
    touch(tmp_path, *(f"{number}.jpg" for number in range(12)))
    lines = [separator.join(line) for line in [("Nr", "Bild", "Beschreibung"), *rows_of_a_shop(12)]]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    pairs = load(tmp_path / "x.csv")
    assert len(pairs.names) == 12
    assert pairs.captions == [caption for _, _, caption in rows_of_a_shop(12)] and not pairs.n_skipped
    assert list(pairs.columns) == ["Nr"]


def rows_of_a_shop(count):
    return [(str(number), f"{number}.jpg", f"a chair of kind {number} in a room") for number in range(count)]
