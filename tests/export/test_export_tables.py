"""Cleaned data, written as tables and read again."""

import json

import numpy as np
import pyarrow.parquet
import pytest
from export_helpers import CAPTIONS, ROWS, N, cleaned, rows_of, with_pictures, written
from PIL import Image

import pairsift
from pairsift.export.cleaned import export
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin


@pytest.fixture
def place(tmp_path):
    return with_pictures(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_table_keeps_its_columns_their_order_and_their_types(place, suffix):
    source = written(place / f"mine.{suffix}")
    columns = Columns("photo")
    pairs = pairsift.load(source, image_column="photo")
    out = place / f"cleaned.{suffix}"
    export(read_origin(source, None, columns), pairs, cleaned(pairs, place, drop_below=0.22), out)
    expected = [dict(row) for row in rows_of(source)]
    expected[1]["caption"] = "=NEW, and better"
    assert rows_of(out) == [row for k, row in enumerate(expected) if k not in (2, 3)]  # 2 is below, 3 is dropped
    assert list(rows_of(out)[0]) == list(ROWS[0])
    if suffix == "parquet":
        assert pyarrow.parquet.read_schema(out).types == pyarrow.parquet.read_schema(source).types
    again = pairsift.load(out, image_column="photo")
    kept = [pair for pair in range(N) if pair not in (2, 3)]
    assert again.split.tolist() == [pairs.split[pair] for pair in kept]
    assert [again.names[row] for row in again.image_of] == [pairs.names[pairs.image_of[pair]] for pair in kept]
    assert again.columns == {name: [values[pair] for pair in kept] for name, values in pairs.columns.items()}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "json"])
def test_weights_are_asked_for_and_are_one_where_a_person_decided(place, suffix):
    source = written(place / "mine.csv", [{**row, "weight": "heavy"} for row in ROWS])
    pairs = pairsift.load(source, image_column="photo")
    selection, origin = cleaned(pairs, place), read_origin(source, None, Columns("photo"))
    export(origin, pairs, selection, place / f"out.{suffix}", weights=True)
    path = place / f"out.{suffix}"
    rows = json.loads(path.read_text())["annotations"] if suffix == "json" else rows_of(path)
    kept = [pair for pair in range(N) if pair != 3]
    expected = [1.0 if pair < 2 else (pair + 0.5) / N for pair in kept]
    assert [float(row["weight 2"]) for row in rows] == pytest.approx(expected)
    assert {row["weight"] for row in rows} == {"heavy"}  # a column of theirs


def test_lists_of_captions_stay_lists(place):
    rows = [{"image": f"pictures/{k}.png", "captions": CAPTIONS[2 * k : 2 * k + 2], "n": k} for k in range(N // 2)]
    source = written(place / "mine.parquet", rows)
    pairs = pairsift.load(source)
    selection = cleaned(pairs, place, drop_below=0.22)
    export(read_origin(source, None, Columns()), pairs, selection, place / "out.parquet")
    assert rows_of(place / "out.parquet") == [{**rows[0], "captions": ["caption 0", "=NEW, and better"]}, *rows[2:]]


@pytest.mark.parametrize("source", ["mine.parquet", "mine.jsonl"])
@pytest.mark.parametrize("out", ["out.csv", "out.tsv", "out.parquet", "out.jsonl"])
def test_lists_of_captions_keep_their_weights_and_are_rows_where_there_are_no_lists(place, source, out):
    """A table of text, and a Parquet file made from a source without types, have no lists."""
    rows = [{"image": f"pictures/{k}.png", "captions": CAPTIONS[2 * k : 2 * k + 2], "n": k} for k in range(N // 2)]
    source = written(place / source, rows)
    pairs = pairsift.load(source)
    selection = cleaned(pairs, place, drop_below=0.22)
    export(read_origin(source, None, Columns()), pairs, selection, place / out, weights=True)
    again, kept = pairsift.load(place / out), np.flatnonzero(selection.keep).tolist()
    assert list(again.captions) == [selection.captions.get(pair, pairs.captions[pair]) for pair in kept]
    assert [again.names[row] for row in again.image_of] == [pairs.names[pairs.image_of[pair]] for pair in kept]
    found = [row["weight"] for row in rows_of(place / out)]
    found = [weight for weights in found for weight in (weights if isinstance(weights, list) else [weights])]
    assert [float(weight) for weight in found] == pytest.approx(selection.weight[kept].tolist())
    is_list = isinstance(rows_of(place / out)[0]["captions"], list)
    assert is_list == (out == "out.jsonl" or source.suffix == out[3:] == ".parquet")


@pytest.mark.parametrize("out", ["out.csv", "out.jsonl"])
def test_a_table_names_images_that_lie_in_the_source(place, out):
    def image(k):
        return {"bytes": (place / "pictures" / f"{k}.png").read_bytes(), "path": f"photos/{k}.png"}

    rows = [{"image": image(k), "captions": CAPTIONS[2 * k : 2 * k + 2]} for k in range(N // 2)]
    source = written(place / "mine.parquet", rows)
    pairs = pairsift.load(source, cache=place / "cache")
    selection = cleaned(pairs, place)
    export(read_origin(source, None, Columns()), pairs, selection, place / out)
    kept = np.flatnonzero(selection.keep).tolist() if out == "out.csv" else range(0, N, 2)
    assert [row["image"] for row in rows_of(place / out)] == [f"photos/{pair // 2}.png" for pair in kept]


def test_lists_of_captions_have_one_split(place):
    rows = [{"image": f"pictures/{k}.png", "captions": CAPTIONS[2 * k : 2 * k + 2]} for k in range(N // 2)]
    source = written(place / "mine.parquet", rows)
    pairs = pairsift.load(source)
    export(read_origin(source, None, Columns()), pairs, cleaned(pairs, place), place / "out.parquet", splits=True)
    assert [row["split"] for row in rows_of(place / "out.parquet")] == pairs.split[::2].tolist()


def bytes_of(place, k):
    return {"bytes": (place / f"pictures/{k}.png").read_bytes(), "path": f"pictures/{k}.png"}


SEVERAL = {  # rows of two pairs each
    "text.csv": lambda place, k: {"image": f"pictures/{k}.png", "captions": repr(CAPTIONS[2 * k : 2 * k + 2])},
    "columns.csv": lambda place, k: {
        "image": f"pictures/{k}.png",
        "caption_1": CAPTIONS[2 * k],
        "caption_2": CAPTIONS[2 * k + 1],
    },
    "columns.parquet": lambda place, k: {
        "image": f"pictures/{k}.png",
        "caption_1": CAPTIONS[2 * k],
        "caption_2": CAPTIONS[2 * k + 1],
    },
    "images.jsonl": lambda place, k: {
        "images": [f"pictures/{2 * k}.png", f"pictures/{2 * k + 1}.png"],
        "caption": f"both {CAPTIONS[k]}",
    },
    "images.parquet": lambda place, k: {
        "images": [bytes_of(place, 2 * k), bytes_of(place, 2 * k + 1)],
        "caption": f"both {CAPTIONS[k]}",
    },
    "turns.parquet": lambda place, k: {
        "image": f"pictures/{k}.png",
        "texts": [{"user": "What is it?", "assistant": text} for text in CAPTIONS[2 * k : 2 * k + 2]],
    },
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("out", ["out.csv", "out.jsonl", "out.parquet"])
def test_rows_of_several_pairs_are_written_with_the_pairs_that_are_kept(place, name, out):
    for k in range(N):
        Image.new("RGB", (9, 8), (k, 0, 0)).save(place / f"pictures/{k}.png")
    rows = [{**SEVERAL[name](place, k), "subset": f"web {k}"} for k in range(N // 2)]
    source, cache = written(place / name, rows), place / "cache"
    pairs = pairsift.load(source, cache=cache)
    assert len(pairs) == N and not pairs.skipped
    selection = cleaned(pairs, place, drop_below=0.22)
    export(read_origin(source, None, Columns(cache=cache)), pairs, selection, place / out, splits=True)
    again, kept = pairsift.load(place / out, cache=cache), np.flatnonzero(selection.keep).tolist()
    assert list(again.captions) == [selection.captions.get(pair, pairs.captions[pair]) for pair in kept]
    assert [again.names[row] for row in again.image_of] == [pairs.names[pairs.image_of[pair]] for pair in kept]
    assert again.columns["subset"] == [pairs.columns["subset"][pair] for pair in kept]
    assert {row["split"] for row in rows_of(place / out)} == set(pairs.split[kept])
