"""The benchmark of text encoders at reduced size."""

from pathlib import Path

import pytest

import text_choice

pytestmark = pytest.mark.slow


def test_a_row_names_the_encoder_that_was_taken_and_how_good_verdicts_are(tmp_path):
    wanted = dict(zip(text_choice.KEY, ("scenes-40", "shuffled", 0.3, 1, "muse"), strict=True))
    row = text_choice.measure(wanted, Path("nowhere"), str(tmp_path))
    assert row["taken"] == "muse" and row["pairs"] == 200
    assert row["auroc"] > 0.8 and abs(row["estimate"] - 0.3) < 0.15
    table = text_choice.table([row, {**row, "seed": 2, "verdicts": False}])
    assert "| scenes-40 | 200 | 30% | muse |" in table and table.endswith("| none | 2 |")


def test_a_collection_of_a_folder_is_read_as_it_is(tmp_path):
    folder = tmp_path / "collections" / "mine"
    folder.mkdir(parents=True)
    (folder / "clean.csv").write_text("image,caption\na.png,one\nb.png,two\n")
    found = text_choice.true_pairs("mine", tmp_path, 1, tmp_path)
    assert found == [(str(folder / "a.png"), "one", ""), (str(folder / "b.png"), "two", "")]
