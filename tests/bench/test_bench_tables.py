"""The tables of a grid: means and intervals against plain sums, what is bold, and what LaTeX needs escaped."""

import csv
from types import SimpleNamespace

import pytest

from pairsift.bench.tables import KEYS, Mean, csv_text, escape_latex, latex, markdown, sheets, write_tables

T = {2: 12.7062, 3: 4.30265, 4: 3.18245, 5: 2.77645}  # quantiles of Student's t at 0.975 by the number of seeds


def grid_of(rsums, noise=0.4, networks=2, truth=()):
    """A grid with one matcher and its rows: rSum of the ensemble by method, one number for each seed."""
    cells, rows = [], {}
    for method, values in rsums.items():
        for seed, value in enumerate(values):
            name = f"{method}-{noise}-{seed}"
            recall = {key: value / 6 for key in KEYS[:-1]} | {"rsum": value}
            single = {key: number - 1 for key, number in recall.items()}
            cells.append(SimpleNamespace(id=name, method=method, matcher="two_tower", noise=noise, kind="random"))
            rows[name] = {"recall": recall, "recall_single": single, "networks": networks, "trust_auroc": None}
    return SimpleNamespace(cells=tuple(cells), without_truth=frozenset(set(rsums) - set(truth))), rows


def naive(values):
    """Mean and half of the interval, by sums."""
    n, mean = len(values), sum(values) / len(values)
    if n < 3:
        return mean, None if n == 1 else (max(values) - min(values)) / 2
    spread = (sum((value - mean) ** 2 for value in values) / (n - 1)) ** 0.5
    return mean, T[n] * spread / n**0.5


@pytest.mark.parametrize("values", [[3.0], [3.0, 7.0], [3.0, 7.0, 4.5], [1, 2, 4, 8], [2.0, 2.5, 9.0, -1.0, 4.0]])
def test_means_and_intervals_are_those_of_plain_sums(values):
    found, (mean, half) = Mean.of(values), naive(values)
    assert found.value == pytest.approx(mean) and found.seeds == len(values)
    assert found.half == (None if half is None else pytest.approx(half, rel=1e-5))


def best(rsums, **more):
    [sheet] = sheets(*grid_of(rsums, **more))
    return {line.method for block in sheet.blocks for line in block.lines if "rsum" in line.best}


def test_the_best_is_bold_only_beyond_the_intervals():
    narrow, wide = [300.0, 300.5, 301.0], [290.0, 300.0, 310.0]
    assert best({"a": narrow, "b": [280.0, 280.5, 281.0]}) == {"a"}
    assert best({"a": narrow, "b": wide}) == set()  # a's mean lies within the interval of b
    assert best({"a": wide, "b": [299.0, 299.1, 299.2]}) == set()
    assert best({"a": narrow, "b": [280.0, 280.5, 281.0], "c": [300.2, 300.4, 300.9]}) == set()
    assert best({"a": [300.0], "b": [100.0]}) == set()  # of one seed nobody knows how much it means
    assert best({"a": [300.0, 301.0], "b": [100.0, 101.0]}) == {"a"}
    assert best({"a": [300.0, 301.0]}) == set()
    assert best({"a": [300.0, 301.0], "b": [200.0, 201.0], "t": [400.0, 401.0]}, truth=["t"]) == {"a"}


def test_methods_of_two_networks_have_two_lines_and_rivals_of_the_same_kind():
    grid, rows = grid_of({"a": [300.0, 301.0]})
    more, more_rows = grid_of({"one": [250.0, 251.0]}, networks=1)
    both = SimpleNamespace(cells=grid.cells + more.cells, without_truth=frozenset(["a", "one"]))
    [sheet] = sheets(both, rows | more_rows)
    lines = {(line.method, line.view): line for line in sheet.blocks[0].lines}
    assert list(lines) == [("a", "single"), ("a", "ensemble"), ("one", "single")]
    assert lines["a", "single"].means["rsum"].value == 299.5 and lines["a", "ensemble"].means["rsum"].value == 300.5
    assert lines["one", "single"].means["rsum"].value == 250.5  # of the network, not of a mean of several
    assert "rsum" in lines["a", "single"].best and lines["a", "ensemble"].best == frozenset()  # which is alone


def test_cells_without_a_row_are_left_out():
    grid, rows = grid_of({"a": [300.0, 301.0], "b": [1.0]})
    del rows["b-0.4-0"], rows["a-0.4-1"]
    [sheet] = sheets(grid, rows)
    assert {line.method: line.means["rsum"].seeds for line in sheet.blocks[0].lines} == {"a": 1}
    assert sheets(grid, {}) == []


def test_the_csv_has_every_number_in_full():
    grid, rows = grid_of({"a, b": [1 / 3, 2 / 3, 10.0], "c": [5.0]})
    table = list(csv.DictReader(csv_text(sheets(grid, rows)).splitlines()))
    ensemble = next(line for line in table if line["view"] == "ensemble" and line["method"] == "a, b")
    mean, half = naive([1 / 3, 2 / 3, 10.0])
    assert float(ensemble["rsum"]) == pytest.approx(mean, rel=1e-12)
    assert float(ensemble["rsum_half"]) == pytest.approx(half, rel=1e-5)
    assert (ensemble["seeds"], ensemble["noise"], ensemble["noise_kind"]) == ("3", "0.4", "random")
    assert next(line for line in table if line["method"] == "c")["rsum_half"] == ""


def test_markdown_has_a_line_for_every_view_and_says_what_its_intervals_are():
    grid, rows = grid_of({"a|b": [300.0, 302.0], "c": [200.0, 201.0]})
    text = markdown(sheets(grid, rows))
    lines = [line for line in text.splitlines() if line.startswith("| 0.4")]
    assert len(lines) == 4 and "| a\\|b | 2 | 2 |" in lines[1] and lines[1].endswith("| **301.0 ± 1.0** |  |")
    assert "**" not in lines[3] and "Student's t" in text


def test_the_auroc_of_the_trust_is_a_mean_where_each_seed_has_one():
    grid, rows = grid_of({"a": [300.0, 302.0], "b": [1.0, 2.0]})
    for name, value in {"a-0.4-0": 0.9, "a-0.4-1": 0.8, "b-0.4-0": 0.7}.items():
        rows[name]["trust_auroc"] = value
    table = csv.DictReader(csv_text(sheets(grid, rows)).splitlines())
    found = {line["method"]: line["trust_auroc"] for line in table}
    assert float(found["a"]) == pytest.approx(0.85) and found["b"] == ""
    lines = [line for line in markdown(sheets(grid, rows)).splitlines() if line.startswith("| 0.4")]
    assert [line.endswith("| 0.850 |") for line in lines] == [True, True, False, False]


def test_lines_without_noise_are_in_all_tables_and_once_in_the_csv():
    noisy, rows = grid_of({"a": [300.0, 302.0]})
    clean, more = grid_of({"a": [310.0, 312.0]}, noise=0.0)
    near = [SimpleNamespace(**{**vars(cell), "kind": "near", "id": f"near-{cell.id}"}) for cell in noisy.cells]
    cells = [SimpleNamespace(**{**vars(cell), "kind": None}) for cell in clean.cells]
    grid = SimpleNamespace(cells=(*noisy.cells, *near, *cells), without_truth=frozenset("a"))
    found = sheets(grid, rows | more | {f"near-{name}": row for name, row in rows.items()})
    assert [[block.noise for block in sheet.blocks] for sheet in found] == [[0.0, 0.4], [0.0, 0.4]]
    table = list(csv.DictReader(csv_text(found).splitlines()))
    single = [(line["noise_kind"], line["noise"]) for line in table if line["view"] == "single"]
    assert single == [("", "0.0"), ("random", "0.4"), ("near", "0.4")]


def test_latex_escapes_what_it_would_read_as_a_command():
    assert escape_latex("50% & $x_1$ #{a}") == r"50\% \& \$x\_1\$ \#\{a\}"
    assert escape_latex("\\~^<|>") == (
        r"\textbackslash{}\textasciitilde{}\textasciicircum{}\textless{}\textbar{}\textgreater{}"
    )
    grid, rows = grid_of({"x_1 & y": [300.0, 302.0], "c": [200.0, 201.0]})
    lines = [line for line in latex(sheets(grid, rows)).splitlines() if line.endswith(r"\\")]
    assert all(line.replace(r"\&", "").count("&") == 10 for line in lines if r"\multicolumn" not in line)
    assert any(r"x\_1 \& y & 2 & 2" in line and r"\textbf{301.0} $\pm$ 1.0" in line for line in lines)
    assert sum(line.startswith(r"40\% & ") for line in lines) == 1  # once for the block


def test_the_three_files_are_written(tmp_path):
    paths = write_tables(tmp_path, sheets(*grid_of({"a": [1.0]})))
    assert [path.name for path in paths] == ["table.md", "table.csv", "table.tex"]
    assert all(path.read_text().strip() for path in paths)
