"""What the site takes from the code, from measured and published rows, and from files beside its pages."""

import re
from pathlib import Path

import pytest
from pydantic import Field

import links
import published
import tables
from benchmark_rows import row
from pairsift.cli.fit import flags_of
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.options import Options

ROOT = Path(__file__).parents[2]
PUBLISHED = published.published()


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
    presets = {"fast": {"inner": {"share": 0.2}, "whole": True}}
    found = {one.name: one for one in tables.options_of(Outer, ("x",), presets)}
    assert list(found) == ["--x.number", "--x.inner.share", "--x.whole"]
    assert found["--x.number"].default == "–" and found["--x.number"].takes == "a whole number, at least 1"
    assert found["--x.inner.share"].default == "0.5; `fast`: 0.2"
    assert found["--x.whole"].default == "true"
    assert "A share\\_of \\| all." in tables.options_table(Outer)


@pytest.mark.parametrize("method", METHODS)
def test_the_names_are_those_that_fit_takes(method):

    kind = METHODS[method]
    shown = [one.name for one in tables.options_of(kind, (method,))]
    assert shown == [flag.opts[0] for flag in flags_of(kind, "", (method,))]


def test_the_options_that_pages_name_are_there():
    kinds = [*METHODS.values(), *RANKING_LOSSES.values(), *MATCHERS.values()]
    parts = {kind.name: kind.options if kind in MATCHERS.values() else kind for kind in kinds}
    flags = {one.name for name, kind in parts.items() for one in tables.options_of(kind, (name,))}
    groups = {name[:end] for name in flags for end, letter in enumerate(name) if letter == "."}
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs.glob("*.md"), *docs.glob("[!_]*/*.md")]
    pattern = r"--[a-z0-9-]+\.[a-z0-9.-]*[a-z0-9]"
    named = {(page.name, option) for page in pages for option in re.findall(pattern, page.read_text())}
    own = {"--small-loss.keep"}  # of the method that the guide writes
    assert len(named) > 30 and not {one for one in named if one[1] not in flags | groups | own}


def test_every_method_and_matcher_has_a_page_with_its_tables():
    for what, names in (("method", METHODS), ("matcher", MATCHERS)):
        for name in names:
            page = (ROOT / "docs" / f"{what}s" / f"{name}.md").read_text()
            wanted = (f"options}} {what} {name}", *((f"glance}} {name}", f"published}} {name}") * (what == "method")))
            assert all(f"{{{one}\n" in page for one in wanted), name


def test_a_methods_rows_are_means_beside_plain_at_the_same_place():
    rows = [row("plain", 1, 200), row("oracle", 1, 250), row("ncr", 1, 240), row("ncr", 2, 230), row("pc2", 1, 999)]
    head, _, line = cells(tables.method_scores("ncr", rows))
    found = dict(zip(head, line, strict=True))
    assert found["rSum"] == "235.0" and found["seeds"] == "2" and found["spread"] == "10.0"
    assert found["`plain`"] == "200.0" and found["recovery"] == "0.80" and found["AUROC"] == "0.900"


def test_rows_with_options_of_their_own_stand_apart():
    other = row("ncr", 1, 220) | {"own_options": ["ncr.division.threshold=0.7"]}
    lines = cells(tables.method_scores("ncr", [row("ncr", 1, 240), other, row("ncr", 1, 270, noise=0.0)]))[2:]
    setups = ["two_tower, wordllama"] * 2 + ["two_tower, wordllama, `ncr.division.threshold=0.7`"]
    assert [line[0] for line in lines] == setups and [line[2] for line in lines] == ["0%", "40%", "40%"]


def test_older_rows_stand_where_a_method_has_no_newer_ones():
    newer = [row("plain", 1, 210), row("ncr", 1, 250), row("oracle, as many steps", 1, 260)]
    same = [row("plain", 1, 200), row("ncr", 2, 240), row("oracle", 1, 250)]
    assert tables.older_rows(same, newer) == []
    more = [row("plain", 1, 200, noise=0.2), row("ncr", 1, 240, noise=0.2)]
    assert tables.older_rows([*same, *more], newer) == more
    also = [*same, row("npc", 1, 220)]
    assert tables.older_rows(also, newer) == also


def test_a_glance_has_means_over_seeds_beside_plain_at_the_same_seeds():
    measured = [row("plain", 1, 200), row("plain", 2, 210), row("ncr", 1, 240), row("ncr", 2, 230)]
    measured += [row("ncr", 1, 100, noise=0.6), row("ncr", 1, 999) | {"own_options": ["ncr.networks=1"]}]
    found = tables.reached("ncr", measured)
    assert found == {0.4: (230.0, 235.0, (200.0, 205.0), 2), 0.6: (95.0, 100.0, None, 1)}
    text = published.glance("ncr", measured)
    assert "rSum 230.0 with a single network, 235.0 with two (`plain`: 200.0 and 205.0); 2 seeds" in text
    assert tables.reached("ncr", [one | {"networks": 1} for one in measured])[0.4][1] is None


def test_published_rows_are_consistent():
    for one in PUBLISHED:
        assert one.data in published.DATA and one.protocol in published.PROTOCOLS and one.source in published.SOURCES
        assert one.family in published.FAMILIES and (one.noise is None) == (one.family == "web" or one.data == "CC152K")
        assert 0 < one.rsum < 600 and (one.comparable or one.reason), one
        assert not (one.comparable and one.family in ("image", "")), one
        assert len(one.recalls) in (0, 6), one
        for part in (one.recalls[:3], one.recalls[3:]):
            assert list(part) == sorted(part), one
        if one.recalls:
            total = round(sum(one.recalls), 1)
            assert abs(total - one.rsum) <= 0.15 or f"recalls sum to {total}" in one.reason, one
    places = [(one.method, one.data, one.noise, one.backbone, one.networks, one.source) for one in PUBLISHED]
    assert len(places) == len(set(places)) > 50


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_assumes_and_has_published_rows_or_a_reason(method):
    about = published.described()[method]
    assert about["assumes"]
    assert bool(published.published_table(method, PUBLISHED)) != ("unpublished" in about)


@pytest.mark.parametrize(
    ("link", "site"),
    [
        ("[x](../benchmarks/results/verdicts.md)", "[x](/_staged/results/verdicts.md)"),
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
    links.relink("page", source)
    assert source == [site]


@pytest.mark.parametrize("log", sorted(ROOT.glob("benchmarks/re*/*.md")), ids=lambda log: log.stem)
def test_a_log_links_pages_of_the_site(log):
    source = [log.read_text()]
    links.relink("_staged/log", source)
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", source[0]):
        place = ROOT / "docs" / target[1:] if target.startswith("/") else log.parent / target
        if target.startswith("/_staged"):
            place = ROOT / "benchmarks" / Path(target).relative_to("/_staged")
        assert place.suffix == ".md" and place.is_file(), target
