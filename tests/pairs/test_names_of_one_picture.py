"""One picture under several names: it is one image, and each pair keeps the name that its own record has."""

import csv
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pair_sources import by_content
from pairsift.export.cleaned import export
from pairsift.export.selection import Selection
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.readers import load
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from pairsift.table import pair_table
from shard_sources import picture, write_tar

SHOWN = [n // 2 for n in range(24)]  # the picture of each row: two variants of a product each


def name_of(row):
    return f"{SHOWN[row]}_{'red' if row % 2 == 0 else 'blue'}.jpg"


def write(folder, kind, rows=range(24)):
    if kind == "tar":
        files = []
        for row in rows:
            key = name_of(row).removesuffix(".jpg")
            files += [(f"{key}.jpg", picture(SHOWN[row])), (f"{key}.txt", f"caption {row}".encode())]
        return write_tar(folder / "mine.tar", files)
    cells = [{"bytes": picture(SHOWN[row]), "path": name_of(row)} for row in rows]
    table = pa.table({"image": cells, "caption": [f"caption {row}" for row in rows], "sku": [str(row) for row in rows]})
    pq.write_table(table, folder / "mine.parquet")
    return folder / "mine.parquet"


def table_of(pairs):
    ids = pairs.ids()
    values = np.full(len(ids), 0.9)
    table = pair_table(pairs, ids, values, values < 0.5, np.full(len(ids), "clean"), np.full(len(ids), -1))
    return dict(zip(table["given_caption"].to_pylist(), table["image"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_each_pair_keeps_the_name_of_its_own_image(tmp_path, kind):
    path = write(tmp_path, kind)
    pairs = load(path, cache=tmp_path / "cache")
    expected = {f"caption {row}": name_of(row) for row in range(24)}
    assert table_of(pairs) == expected and pairs.n_images == 12
    for row in range(12):
        assert len({*pairs.split[pairs.image_of == row]}) == 1  # both names are in one split
    kept = Selection(np.ones(24, np.bool_), {}, np.ones(24), {}, None)
    export(read_origin(path, None, Columns(cache=tmp_path / "cache")), pairs, kept, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as stream:
        assert {row["caption"]: row["image"] for row in csv.DictReader(stream)} == expected


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_names_follow_their_pairs_where_the_source_changes(tmp_path, kind):
    first = load(write(tmp_path, kind), cache=tmp_path / "cache")
    write_stored_pairs(first, first.split, tmp_path / "stored.parquet")
    rows = [*range(23, 3, -2), *range(2, 24, 2)]  # in another order, and some are gone
    changed = load(write(tmp_path, kind, rows), cache=tmp_path / "cache")
    merged, _ = merge(read_stored_pairs(tmp_path / "stored.parquet"), changed)
    assert table_of(merged) == {f"caption {row}": name_of(row) for row in rows}
    assert len(merged) >= 24 and merged.image_name(1) in ("0_blue.jpg", "0_red.jpg")


def test_a_moved_caption_has_the_name_of_the_image_that_it_was_given(tmp_path):
    pairs = load(write(tmp_path, "parquet"), cache=tmp_path / "cache")
    image_of = pairs.image_of.copy()
    image_of[[1, 3]] = image_of[[3, 1]]
    noisy = replace(pairs, image_of=image_of, true_image_of=pairs.image_of)
    assert [noisy.image_name(pair) for pair in range(4)] == ["0_red.jpg", "1_red.jpg", "1_red.jpg", "0_red.jpg"]


def test_rows_without_names_that_show_one_picture_have_one_name(tmp_path):
    cells = [{"bytes": picture(shown), "path": None} for shown in SHOWN]
    pq.write_table(pa.table({"image": cells, "caption": [str(row) for row in range(24)]}), tmp_path / "x.parquet")
    for _ in range(2):
        pairs = load(tmp_path / "x.parquet", cache=tmp_path / "cache")
        assert pairs.own_names is None and pairs.names == [by_content(picture(shown)) for shown in dict.fromkeys(SHOWN)]
