"""The grids in benchmarks/ are options that `fit` takes, and that of Flickr8k has the methods of its script."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import flickr8k
from pairsift.bench.grid import read_grid
from pairsift.methods import METHODS
from pairsift.runs.config import flattened

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


def test_the_grid_has_methods_and_variants_of_the_script_with_their_options(tmp_path):
    cells = grid("flickr8k", tmp_path).cells
    labels = {cell.method for cell in cells}
    assert labels <= {*METHODS, *flickr8k.VARIANTS} and labels >= {"plain", "sift", *flickr8k.VARIANTS}
    assert len(cells) == 3 * sum(4 if label.startswith("oracle") else 5 for label in labels)
    for label, (method, options) in flickr8k.VARIANTS.items():
        config = next(cell.config for cell in cells if cell.method == label)
        shown = {f"{name}={str(value).lower()}" for name, value in flattened(config.tree()).items()}
        assert config.method.name == method and set(options) <= shown
