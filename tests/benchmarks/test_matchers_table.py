"""The table of matchers in the docs is the one that the benchmark would write."""

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import matchers  # noqa: E402
from pairsift.match import MATCHERS  # noqa: E402


def test_documented_parameters_are_those_of_the_matchers() -> None:
    text = (ROOT / "docs" / "matchers.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- table -->")[2].partition("<!-- end -->")[0].splitlines()
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    assert [row[0] for row in cells] == list(MATCHERS)
    for name, _, dim, parameters, *_ in cells:
        with torch.device("meta"):
            matcher = matchers.make(name)
        assert matcher.dim == int(dim)
        assert f"{sum(one.numel() for one in matcher.parameters()) / 1e6:.1f}" == parameters


def test_counted_operations_are_those_of_the_formula() -> None:
    row = matchers.row("scan")
    words = matchers.WORDS
    products = 2 * matchers.REGIONS * 1024 * words  # every region with every word
    grams = 2 * matchers.REGIONS**2 * words  # and the length of what each word attends to
    shared = 2 * 1024 * (matchers.REGIONS**2 + words**2) / matchers.BLOCK  # Gram matrices, once an item
    assert abs(row["pair_mflop"] * 1e6 - products - grams - shared) < 0.05 * products
