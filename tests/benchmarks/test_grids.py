"""The grids in benchmarks/ are options that `fit` takes, and that of Flickr8k has the methods of its script."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import flickr8k
from pairsift.methods import METHODS
from pairsift.runs.bench.grid import read_grid

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GRIDS = ("flickr8k", "noise_kinds")


def grid(name, place):
    path = place / f"{name}.yaml"
    path.write_text((BENCHMARKS / path.name).read_text().replace("../shared/flickr8k", str(place)))
    return read_grid(path)


@pytest.mark.parametrize("name", GRIDS)
def test_every_cell_is_a_set_of_options_of_fit(name, tmp_path):
    cells = grid(name, tmp_path).cells
    assert len({cell.id for cell in cells}) == len(cells) > 50
    assert not {cell.config.encode.text_encoder for cell in cells} - {"wordllama"}


def test_the_grid_has_the_rows_of_the_script(tmp_path):
    cells = grid("flickr8k", tmp_path).cells
    usual = {name for name in METHODS if name not in flickr8k.PRETRAINED}
    assert {cell.method for cell in cells} == {*usual, *flickr8k.VARIANTS}
    wanted = sum(
        1
        for method in (*usual, *flickr8k.VARIANTS)
        for noise in (0.0, 0.2, 0.4, 0.6, 0.8)
        if noise or not method.startswith("oracle")
    )
    assert len(cells) == 3 * wanted
