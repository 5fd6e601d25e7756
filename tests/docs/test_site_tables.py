"""What the site takes from the code and from measured rows: every option, presets beside defaults, means over seeds."""

import re
import sys
from pathlib import Path

import pytest
from pydantic import Field

from benchmark_rows import row

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))

import outside
import published
import tables
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.options import Options

ROOT = Path(__file__).parents[2]


class Inner(Options):
    """A group."""

    share: float = Field(default=0.5, ge=0, le=1, description="A share_of | all.")


class Outer(Options):
    """Options with a group."""

    number: int | None = Field(default=None, ge=1, description="A number.")
    inner: Inner = Inner()
    whole: bool = Field(default=True, description="Whether.")


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def test_every_option_is_a_row_with_what_presets_change():
    found = {
        one.name: one for one in tables.options_of(Outer, ("x",), {"fast": {"inner": {"share": 0.2}, "whole": True}})
    }
    assert list(found) == ["--x.number", "--x.inner.share", "--x.whole"]
    assert found["--x.number"].default == "–" and found["--x.number"].takes == "a whole number, at least 1"
    assert found["--x.inner.share"].default == "0.5; `fast`: 0.2"
    assert found["--x.whole"].default == "true"


def test_marks_within_a_description_stay_text():
    assert "A share\\_of \\| all." in tables.options_table(Outer)


@pytest.mark.parametrize("method", METHODS)
def test_the_names_are_those_that_fit_takes(method):
    from pairsift.cli.fit import flags_of

    kind = METHODS[method]
    assert [one.name for one in tables.options_of(kind, (method,))] == [
        f.opts[0] for f in flags_of(kind, "", (method,))
    ]


def test_the_options_that_pages_name_are_there():
    kinds = [*METHODS.values(), *RANKING_LOSSES.values(), *MATCHERS.values()]
    parts = {kind.name: kind.options if kind in MATCHERS.values() else kind for kind in kinds}
    flags = {one.name for name, kind in parts.items() for one in tables.options_of(kind, (name,))}
    groups = {name[:end] for name in flags for end, letter in enumerate(name) if letter == "."}
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs").glob("[!_]*/*.md"),
    ]
    named = {
        (page.name, option)
        for page in pages
        for option in re.findall(r"--[a-z0-9-]+\.[a-z0-9.-]*[a-z0-9]", page.read_text())
    }
    assert len(named) > 30
    own = {"--small-loss.keep"}  # of the method that the guide writes
    assert not {(page, option) for page, option in named if option not in flags | groups | own}


def test_a_methods_rows_are_means_beside_plain_at_the_same_place():
    rows = [row("plain", 1, 200), row("oracle", 1, 250), row("ncr", 1, 240), row("ncr", 2, 230), row("pc2", 1, 999)]
    head, _, line = cells(tables.method_scores("ncr", rows))
    found = dict(zip(head, line, strict=True))
    assert found["rSum"] == "235.0" and found["seeds"] == "2" and found["spread"] == "10.0"
    assert found["`plain`"] == "200.0" and found["recovery"] == "0.80" and found["AUROC"] == "0.900"


def test_rows_with_options_of_their_own_stand_apart():
    rows = [row("ncr", 1, 240), row("ncr", 1, 220, options=["ncr.threshold=0.7"]), row("ncr", 1, 270, noise=0.0)]
    lines = cells(tables.method_scores("ncr", rows))[2:]
    assert [line[0] for line in lines] == ["two_tower, wordllama"] * 2 + [
        "two_tower, wordllama, `ncr.division.threshold=0.7`"
    ]
    assert [line[2] for line in lines] == ["0%", "40%", "40%"] and lines[0][-1] == ""


def test_older_rows_stand_where_a_method_has_no_newer_ones():
    newer = [row("plain", 1, 210), row("ncr", 1, 250), row("oracle, as many steps", 1, 260)]
    same = [row("plain", 1, 200), row("ncr", 2, 240), row("oracle", 1, 250)]
    assert tables.older(same, newer) == []
    more = [row("plain", 1, 200, noise=0.2), row("ncr", 1, 240, noise=0.2)]
    assert tables.older([*same, *more], newer) == more
    also = [*same, row("npc", 1, 220)]
    assert tables.older(also, newer) == also


def test_the_pages_have_the_rows_of_the_readme():
    rows = [one for one in tables.results("flickr8k_mended") if not tables.flickr8k.own_options(one)]
    wanted = {"matcher": "two_tower", "method": "ncr", "text_encoder": "wordllama", "noise": 0.4}
    group = tables.flickr8k.having(rows, wanted)
    found = f"{sum(one['rsum'] for one in group) / len(group):.1f}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [line] = [line for line in readme.splitlines() if line.startswith("| `ncr` |")]
    assert line.split("|")[4].split()[0] == found
    assert f"{found} with two" in published.glance("ncr", rows)
    assert f"| {found} |" in tables.method_scores("ncr", rows)


def test_what_is_not_measured_has_no_table():
    assert tables.method_scores("ncr", [row("plain", 1, 200)]) == ""
    assert tables.matcher_scores("sgr", [row("plain", 1, 200)]) == ""


def test_a_matchers_rows_are_methods_by_columns_without_empty_lines():
    table = cells(
        tables.matcher_scores("two_tower", [row("plain", 1, 200), row("ncr", 1, 240), row("ncr", 1, 280, noise=0.0)])
    )
    assert table[0] == ["", "wordllama, infonce, 0%", "wordllama, infonce, 40%"]
    assert [line[0] for line in table[2:]] == ["`plain`", "`ncr`"] and table[3][1] == "280.0"


@pytest.mark.parametrize("matcher", MATCHERS)
def test_every_matcher_has_counted_costs(matcher):
    assert len(cells(tables.matcher_costs(matcher))) == 3


def test_every_method_and_matcher_has_a_page_that_shows_its_options():
    for what, names in (("method", METHODS), ("matcher", MATCHERS)):
        for name in names:
            assert f"{{options}} {what} {name}\n" in (ROOT / "docs" / f"{what}s" / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("link", "site"),
    [
        ("[x](../benchmarks/results/verdicts.md)", "[x](/_staged/results/verdicts.md)"),
        ("[x](../README.md#methods)", "[x](/methods/index.md)"),
        ("[x](design.md)", "[x](/design.md)"),
        ("[x](../../docs/verdicts.md#placeholders)", "[x](/verdicts.md#placeholders)"),
        ("[x](run.md#threads)", "[x](/run.md#threads)"),
        ("[x](../CONTRIBUTING.md#add-a-method)", "[x](/contributing.md#add-a-method)"),
        ("[x](../matchers/scan.md)", "[x](../matchers/scan.md)"),
        ("[x](https://example.org/design.md)", "[x](https://example.org/design.md)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(link, site):
    source = [link]
    outside.relink("page", source)
    assert source == [site]


@pytest.mark.parametrize("log", sorted(ROOT.glob("benchmarks/re*/*.md")), ids=lambda log: log.stem)
def test_a_log_links_pages_of_the_site(log):
    source = [log.read_text()]
    outside.relink("_staged/log", source)
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", source[0]):
        place = ROOT / "docs" / target[1:] if target.startswith("/") else log.parent / target
        if target.startswith("/_staged"):
            place = ROOT / "benchmarks" / Path(target).relative_to("/_staged")
        assert place.suffix == ".md" and place.is_file(), target


def test_notebooks_and_results_are_brought_in_anew(tmp_path):
    for place in ("docs/_staged/examples/old.ipynb", "examples/new.ipynb", "benchmarks/results/a.md", "examples/x.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("x")
    outside.stage(tmp_path / "docs")
    staged = {str(file.relative_to(tmp_path / "docs")) for file in (tmp_path / "docs").rglob("*.*") if file.is_file()}
    assert staged == {"_staged/examples/new.ipynb", "_staged/results/a.md"}


def test_an_accent_keeps_its_index_beside_it():
    pytest.importorskip("sphinx")
    import mathml

    assert "munderover" not in mathml.formula(r"\hat q_i + \bar{p}_k", block=True)
    assert "munder" in mathml.formula(r"\max_j x_j", block=True)
