"""Columns of times in Parquet, which travel along as text, also where Python has no type for them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import touch
from pairsift.pairs.readers import load
from pairsift.pairs.readers.parquet import plain_cells
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin

NANO = 1_700_000_000_123_456_789
TIMES = [
    (pa.timestamp("ns"), NANO, "2023-11-14 22:13:20.123456789"),
    (pa.timestamp("ns", "Europe/Berlin"), NANO, "2023-11-14 22:13:20.123456789Z"),
    (pa.timestamp("s"), 1_700_000_000, "2023-11-14 22:13:20"),
    (pa.timestamp("ms"), 999_999_999_999_999, "33658-09-27 01:46:39.999"),
    (pa.timestamp("us", "UTC"), 999_999_999_999_999_999, "33658-09-27 01:46:39.999999Z"),
    (pa.duration("ns"), 1_234_567, "1234567 nanoseconds"),
    (pa.duration("s"), 90, "0:01:30"),
    (pa.date32(), 5_000_000, "15659-07-15"),
    (pa.date32(), 19_675, "2023-11-14"),
    (pa.time64("ns"), 1_234_567, "00:00:00.001234567"),
]


def write(folder, kind, value):
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    touch(folder, *names)
    when = pa.array([value, None, value, value], pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    table = pa.table({"image": names, "caption": list("abcd"), "when": when, "all": [[time] for time in when]})
    pq.write_table(table, folder / "x.parquet")
    return folder / "x.parquet"


@pytest.mark.parametrize(("kind", "value", "text"), TIMES)
def test_times_travel_along_as_text(tmp_path, kind, value, text):
    pairs = load(write(tmp_path, kind, value))
    assert pairs.columns["when"] == [text, "", text, text] and pairs.n_skipped == 0
    assert pairs.columns["all"][0] == json.dumps([text])


@pytest.mark.parametrize(("kind", "value", "text"), TIMES)
def test_times_are_read_again(tmp_path, kind, value, text):
    origin = read_origin(write(tmp_path, kind, value), None, Columns())
    cells = [row["when"] for row in origin.rows()]
    assert [None if cell is None else str(cell) for cell in cells] == [text, None, text, text]


@given(
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1)),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from([None, "UTC"]),
)
def test_no_time_is_too_far_away(values, unit, zone):
    for kind in (pa.timestamp(unit, zone), pa.duration(unit)):
        cells = plain_cells(pa.array(values, pa.int64()).cast(kind))
        assert len(cells) == len(values) and None not in cells
