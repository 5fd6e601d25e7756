"""The report's section of duplicates."""

import pyarrow as pa
import pytest
from report_helpers import HOSTILE, Page

from pairsift.report.duplicates import duplicates
from pairsift.report.findings import Findings


def findings(table, tmp_path):
    return Findings(None, table, {}, [], tmp_path)


def test_groups_are_counted_and_named_the_largest_first(tmp_path):
    table = pa.table(
        {
            "image": ["a", "a", "b", "c", "d", "e", "f", "g", "h"],
            "given_caption": ["x", "y", "z", "w", "v", HOSTILE, HOSTILE, HOSTILE, "u"],
            "verdict": ["clean"] * 5 + ["vague", "vague", "clean", "clean"],
            "image_duplicates": pa.array([1, 1, 1, 2, 2, 2, None, None, None], pa.int64()),
            "caption_duplicates": pa.array([None] * 5 + [7, 7, 7, None], pa.int64()),
        }
    )
    page = Page(duplicates(findings(table, tmp_path)))
    cells = "".join(page.texts)
    assert "3c, d, e" in cells and "2a, b" in cells and cells.index("3c") < cells.index("2a, b")
    assert "Captions of several images" in cells and "Vague captions" in cells and "script" not in page.tags


@pytest.mark.parametrize("columns", [{}, {"image_duplicates": [None], "caption_duplicates": [None]}])
def test_without_duplicates_there_is_no_section(tmp_path, columns):
    arrays = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    table = pa.table({"image": ["a"], "given_caption": ["x"], "verdict": ["clean"], **arrays})
    assert duplicates(findings(table, tmp_path)) == ""


def test_many_groups_are_cut_and_counted(tmp_path):
    n = 60
    group = pa.array([k // 3 for k in range(n)], pa.int64())
    columns = {"image": [f"{k}.png" for k in range(n)], "given_caption": ["x"] * n, "verdict": ["clean"] * n}
    text = duplicates(findings(pa.table({**columns, "image_duplicates": group}), tmp_path))
    assert "The largest 12 of 20 groups." in text and text.count("<tr><td") == 12
