"""Published numbers: sums of recalls, what is said of rows that cannot be compared, and every method has its own."""

import json
import sys
from pathlib import Path

import pytest

from benchmark_rows import row

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))

import published
import tables
from pairsift.methods import METHODS

ROWS = published.published()
METHOD_PAGES = Path(__file__).parents[2] / "docs" / "methods"


def test_every_sum_is_that_of_its_recalls_or_says_that_it_is_not():
    differing = 0
    for one in ROWS:
        assert len(one.recalls) in (0, 6), one
        if one.recalls:
            total = round(sum(one.recalls), 1)
            assert abs(total - one.rsum) <= 0.15 or f"recalls sum to {total}" in one.reason, one
            differing += abs(total - one.rsum) > 0.15
            recalls = one.recalls
            assert sorted(recalls[:3]) == list(recalls[:3]) and sorted(recalls[3:]) == list(recalls[3:]), one
    assert differing == 14


def test_rows_have_known_protocols_and_reasons():
    for one in ROWS:
        assert one.data in published.DATA and one.protocol in published.PROTOCOLS and one.source in published.SOURCES
        assert one.family in published.FAMILIES and (one.noise is None) == (one.family == "web" or one.data == "CC152K")
        assert 0 < one.rsum < 600 and (one.comparable or one.reason), one
        assert not (one.comparable and one.family in ("image", "")), one
    places = [(one.method, one.data, one.noise, one.backbone, one.networks, one.source) for one in ROWS]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("method", "data", "noise", "rsum"),
    [  # of the grids that were collected from the tables by hand
        ("gsc", "F30K", 0.4, 497.3),
        ("gsc", "COCO-1K", 0.6, 511.7),
        ("pc2", "F30K", 0.5, 483.7),
        ("pcsr", "F30K", 0.8, 437.5),
        ("bicro", "F30K", 0.0, 513.4),
        ("bicro", "COCO-1K", 0.8, 460.5),
        ("cream", "COCO-1K", 0.2, 523.0),
        ("l2rm", "F30K", 0.6, 467.6),
        ("decl", "F30K", 0.8, 394.4),
        ("rince", "CC152K", None, 348.7),
        ("npc", "F30K", 0.6, 529.4),
        ("osa", "COCO-1K", 0.5, 531.0),
        ("ncr", "F30K", 0.2, 496.7),
    ],
)
def test_numbers_are_those_of_their_sources(method, data, noise, rsum):
    assert any((one.method, one.data, one.noise, one.rsum) == (method, data, noise, rsum) for one in ROWS)


def test_what_speaks_against_comparing_is_said_where_it_is_known():
    def rows(**wanted):
        return [one for one in ROWS if all(getattr(one, name) == value for name, value in wanted.items())]

    assert all("inflated" in one.reason and not one.comparable for one in rows(method="npc", data="COCO-1K"))
    assert all("extra clean pairs" in one.reason and not one.comparable for one in rows(method="mscn"))
    assert not any(one.comparable for one in rows(method="l2rm") if one.noise)
    assert any("conflict" in one.reason for one in rows(method="cream", noise=0.8))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_assumes_and_has_published_rows_or_a_reason(method):
    about = published.described()[method]
    assert about["assumes"]
    assert bool(published.published_table(method, ROWS)) != ("unpublished" in about)
    page = (METHOD_PAGES / f"{method}.md").read_text()
    assert f"{{glance}} {method}\n" in page and f"{{published}} {method}\n" in page


def test_all_rows_are_shown_somewhere():
    shown = "".join(page.read_text() for page in METHOD_PAGES.glob("*.md"))
    assert all(f"{{published}} {method}\n" in shown for method in {one.method for one in ROWS})
    assert set(published.described()) <= {*METHODS, *(one.method for one in ROWS)}


def test_rows_that_can_be_compared_come_first():
    lines = published.published_table("cream", ROWS).splitlines()[2:]
    comparable = ["| yes" in line for line in lines]
    assert comparable == sorted(comparable, reverse=True) and not all(comparable)
    assert any("**no**; sources conflict: 407.8 in UCPM" in line for line in lines)


def test_a_glance_has_means_over_seeds_beside_plain_at_the_same_seeds():
    measured = [row("plain", 1, 200), row("plain", 2, 210), row("ncr", 1, 240), row("ncr", 2, 230)]
    measured += [row("ncr", 1, 100, noise=0.6), row("ncr", 1, 999, options=["ncr.networks=1"])]
    found = tables.reached("ncr", measured)
    assert found == {0.4: (230.0, 235.0, (200.0, 205.0), 2), 0.6: (95.0, 100.0, None, 1)}
    text = published.glance("ncr", measured)
    assert "rSum 230.0 with a single network, 235.0 with two (`plain`: 200.0 and 205.0); 2 seeds" in text
    runs = json.loads((tables.RESULTS / "epochs.json").read_text())["runs"]
    costs = [one["costs"]["all"] for run in runs if not run["options"] for one in run["rows"] if one["method"] == "ncr"]
    assert f"| an epoch | {min(costs):.2f} to {max(costs):.2f} times the seconds of one of `plain`" in text
    single = [one | {"networks": 1} for one in measured]
    assert tables.reached("ncr", single)[0.4][1] is None


def test_the_networks_are_those_of_the_defaults_and_of_presets_that_differ():
    for name, method in METHODS.items():
        presets = {preset.method.get("networks") for preset in method.presets.values()} - {None}
        numbers = {str(number) for number in {method.model_fields["networks"].default, *presets}}
        text = tables.networks_of(name)
        assert all(number in text for number in numbers) and text.startswith(
            str(method.model_fields["networks"].default)
        )
