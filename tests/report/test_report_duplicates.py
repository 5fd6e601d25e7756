"""The report's section of duplicates."""

import pyarrow as pa
import pytest
from report_helpers import HOSTILE, Page, make, section, write


def duplicates(columns, tmp_path, folder):
    """The section of a report on pairs, the first of which have other values in some columns."""
    pairs, table = make(folder)
    for name, values in columns.items():
        kind = pa.int64() if name.endswith("_duplicates") else pa.string()
        rest = [None] * (len(table) - len(values)) if kind == pa.int64() else table[name].to_pylist()[len(values) :]
        column = pa.array([*values, *rest], kind)
        place = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(name, column) if place is None else table.set_column(place, name, column)
    source = write(tmp_path, pairs, table)
    return section(source, "Duplicates") if "<h2>Duplicates" in source else ""


def test_groups_are_counted_and_named_the_largest_first(tmp_path, folder):
    columns = {
        "image": ["a", "a", "b", "c", "d", "e", "f", "g", "h"],
        "given_caption": ["x", "y", "z", "w", "v", HOSTILE, HOSTILE, HOSTILE, "u"],
        "verdict": ["clean"] * 5 + ["vague", "vague", "clean", "clean"],
        "image_duplicates": [1, 1, 1, 2, 2, 2, None, None, None],
        "caption_duplicates": [None] * 5 + [7, 7, 7, None],
    }
    page = Page(duplicates(columns, tmp_path, folder))
    cells = "".join(page.texts)
    assert "3c, d, e" in cells and "2a, b" in cells and cells.index("3c") < cells.index("2a, b")
    assert "Captions of several images" in cells and "Vague captions" in cells and "script" not in page.tags


@pytest.mark.parametrize("columns", [{}, {"image_duplicates": [None], "caption_duplicates": [None]}])
def test_without_duplicates_there_is_no_section(tmp_path, folder, columns):
    assert duplicates(columns, tmp_path, folder) == ""


def test_many_groups_are_cut_and_counted(tmp_path, folder):
    columns = {"image": [f"{k}.png" for k in range(60)], "image_duplicates": [k // 3 for k in range(60)]}
    text = duplicates(columns, tmp_path, folder)
    assert "The largest 12 of 20 groups." in text and text.count("<tr><td") == 12
