"""The grids in benchmarks/ are options that `fit` takes, and have the rows that were measured."""

from pathlib import Path

import pytest

import rows as results
from pairsift.bench.grid import read_grid

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GRIDS = sorted(BENCHMARKS.rglob("*.yaml"))


def cells_of(path, place):
    """The cells of a grid, whose sources and lists of pairs are empty files here."""
    for name in ("partners-all-1.csv", *(f"flickr8k-{count}.csv" for count in (1000, 2000, 6000))):
        (place / name).touch()
    for name in ("verified.txt", "verified-1000.txt"):
        (place / name).write_text("0\n")
    text = path.read_text().replace("../shared/flickr8k", str(place)).replace("runs/parts", str(place))
    (place / path.name).write_text(text)
    return read_grid(place / path.name).cells


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_cell_is_a_set_of_options_of_fit(path, tmp_path):
    cells = cells_of(path, tmp_path)
    assert len({cell.id for cell in cells}) == len(cells) >= 3


@pytest.mark.parametrize("study", ["pc2", "pcsr", "one_caption", "gsc", "npc"])
def test_measured_ablations_are_cells_of_their_grid(study, tmp_path):
    cells = cells_of(BENCHMARKS / "ablations" / f"{study}.yaml", tmp_path)
    known = {(cell.method, cell.config.method.name, cell.noise, cell.seed) for cell in cells}
    measured = results.select(results.read_rows(results.RESULTS / "ablations.json"), {"study": study})
    assert measured and {(row["label"], row["method"], row["noise"], row["seed"]) for row in measured} <= known


def test_the_methods_of_the_table_are_those_of_its_grid(tmp_path):
    cells = cells_of(BENCHMARKS / "flickr8k.yaml", tmp_path)
    known = {(cell.method, cell.noise, cell.seed) for cell in cells}
    setup = {"matcher": "two_tower", "text_encoder": "wordllama", "loss": "infonce", "images": None}
    rows = results.select(results.read_rows(results.RESULTS / "flickr8k_mended.json"), setup)
    own = {(row["method"], row["noise"], row["seed"]) for row in rows if not row.get("own_options")}
    assert own and {one for one in own if one[1] or not one[0].startswith("oracle")} <= known


def test_small_matchers_train_for_ten_epochs(tmp_path):
    for cell in cells_of(BENCHMARKS / "small_matchers.yaml", tmp_path):
        assert cell.config.matcher_options.dim == 128 and cell.config.train.batch_size == 64
        assert sum(phase.epochs for phase in cell.config.method.phases()) == 10, cell
