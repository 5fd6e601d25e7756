"""The notebooks of `examples/` run from their first cell to their last, and are kept without outputs."""

import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def cells_of(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(name):
    """Run a notebook's cells in order in one namespace, which is returned."""
    names: dict = {}
    [notebook] = [one for one in NOTEBOOKS if one.stem == name]
    for number, cell in enumerate(cells_of(notebook), 1):
        exec(compile("".join(cell["source"]), f"{notebook.name} cell {number}", "exec"), names)
    return names


@pytest.fixture
def _plain_display(quickly, tmp_path_factory, tmp_path, monkeypatch):
    """Draw without a screen, and put temporary folders and features where the tests have theirs."""
    matplotlib.use("Agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    yield
    plt.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_kept_without_outputs(notebook):
    for cell in cells_of(notebook):
        assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_display")
def test_the_table_is_cleaned(capsys):
    names = run("clean_your_own_pairs")
    flagged = {row["pair"] for row in names["suspects"].to_pylist()}
    wrong = set(names["wrong"])
    assert len(flagged & wrong) > 0.7 * len(wrong) and len(flagged - wrong) < len(wrong) / 2
    assert 300 < len(names["after"]) < len(names["before"]) == 400
    assert capsys.readouterr().out.count(".jpg") == 3
    assert len(plt.get_fignums()) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("_plain_display")
def test_methods_are_compared_on_the_same_pairs(capsys):
    names = run("compare_methods")
    said = capsys.readouterr().out
    assert all(f"\n{name:10}" in said for name in ("plain", "ncr", "crossfit")) and said.count("AUROC") == 3
    assert len({run.metrics["noise"]["index_hash"] for run in names["runs"].values()}) == 1
    assert names["runs"]["crossfit"].metrics["detection"]["auroc"] > 0.8
