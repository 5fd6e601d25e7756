"""A run whose source has a column that identifies its rows: pairs keep their ids whatever becomes of the rows."""

import csv

import pytest

from pairsift.errors import InputError
from pairsift.pairs.changes import write_stored_pairs
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import read_finished, read_pairs
from pairsift.runs.source_changes import keep_ids
from pairsift.web.images import Images


@pytest.fixture
def source(tmp_path):
    """The options of a run on 12 rows of four images, the rows, and a function that writes other rows."""
    rows = [{"image": f"{n // 3}.jpg", "caption": f"caption {n}", "sku": f"s{n}"} for n in range(12)]
    for number in range(5):
        (tmp_path / f"{number}.jpg").touch()

    def write(rows):
        with (tmp_path / "mine.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["image", "caption", "sku"])
            writer.writeheader()
            writer.writerows(rows)

    write(rows)
    (tmp_path / "run").mkdir()
    options = {"source": str(tmp_path / "mine.csv"), "out": str(tmp_path / "run"), "id_column": "sku"}
    return from_tree(options), rows, write


def test_pairs_keep_their_ids_by_the_column(source, tmp_path):
    config, rows, write = source
    pairs, folder = read_pairs(config).pairs, tmp_path / "run"
    write_stored_pairs(pairs, pairs.split, folder / "source.parquet")
    facts = {"noise": None, "data": {"hash": pairs.hash()}}
    same = read_finished(config, folder, facts)
    assert same.changes is None and same.pairs.source_rows is None and (same.pairs.split == pairs.split).all()
    keep_ids(folder, same.pairs)
    assert not (folder / "known.parquet").exists()
    rows[0]["caption"], rows[1]["caption"], rows[2]["image"] = "edited", "edited too", "4.jpg"
    write([{"image": "1.jpg", "caption": "new", "sku": "x"}, *rows[::-1]])
    for _ in range(2):  # by the record of the fit, and by the record of an audit
        read = read_finished(config, folder, facts)
        again = read.pairs
        assert str(read.changes) == "2 captions changed, 1 row new, 0 gone, 1 image changed"
        assert again.captions == [*(row["caption"] for row in rows), "new"] and again.split[12] == "added"
        assert (again.split[:12] == pairs.split).all()
        keep_ids(folder, again)
        images = Images(folder, tmp_path)
        assert images.exist and images.path(2) == tmp_path / "4.jpg" and images.path(12) == tmp_path / "1.jpg"


def test_a_value_that_is_missing_is_refused_before_anything_is_encoded(source):
    config, rows, write = source
    rows[3]["sku"] = ""
    write(rows)
    with pytest.raises(InputError, match=r"mine.csv: column sku is empty for '1.jpg'"):
        read_pairs(config)
