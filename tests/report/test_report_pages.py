"""The report's pages of pairs: each pair once, in order, and a file that stays small whatever is in it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from report_helpers import HOSTILE, Page, judged, make, metrics, section, shown, write

from pairsift.report import cards, report
from pairsift.report.images import SIDE, SMALL_SIDE, thumbnail


def many(folder, n, caption="wörd " * 99):
    """Pairs of images that are noise, which compresses worst, with long captions."""
    rng = np.random.default_rng(0)
    images = [folder / f"{row}.png" for row in range(20)]
    for path in images:
        Image.fromarray(rng.integers(0, 255, (160, 160, 3), np.uint8)).save(path)
    pairs, names = make(folder, n)[0], [path.name for path in images]
    (folder / "run").mkdir()
    return replace(pairs, names=names, paths=images, image_of=np.arange(n) % 20, captions=[caption] * n)


def test_pages_hold_every_pair_once(tmp_path, folder):
    pairs, table = judged(make(folder)[0], np.arange(100) / 100)
    suspects = section(write(tmp_path, pairs, table, page=20), "Suspects")
    assert shown(suspects) == list(range(50)) and "The 50 flagged pairs, worst first." in suspects
    assert re.findall(r"<summary>(.*?)<small>(.*?)</small>", suspects) == [
        ("Suspects 21 to 40", "match probability 0.200 to 0.390"),
        ("Suspects 41 to 50", "match probability 0.400 to 0.490"),
    ]
    assert [len(shown(page)) for page in suspects.split("<details")] == [20, 20, 10]
    assert "suspects.csv" not in suspects


@pytest.mark.parametrize(("page", "largest"), [(1, 7), (20, 41), (41, 41), (60, 600)])
def test_pages_hold_as_many_pairs_as_their_labels_say(tmp_path, folder, monkeypatch, page, largest):
    pairs, table = judged(make(folder)[0], np.arange(100) / 100)
    monkeypatch.setattr(cards, "PAIRS", largest)
    source = write(tmp_path, pairs, table, page=page)
    Page(source)
    suspects, n = section(source, "Suspects"), min(largest, 50)
    assert shown(suspects) == list(range(n))
    for block in suspects.split('<details class="page">')[1:]:
        first, last = re.search(r"<summary>Suspects? (\d+)(?: to (\d+))?<", block).groups()
        assert shown(block) == list(range(int(first) - 1, int(last or first)))
    rest = f'The other {50 - n} suspects: see <a href="suspects.csv">suspects.csv</a>.'
    assert (rest in suspects) == (n < 50)
    assert ('all are in <a href="suspects.csv">suspects.csv</a>. A caption beside' in suspects) == (n < 50)


def test_a_full_report_stays_below_five_megabytes(tmp_path):
    pairs = many(tmp_path, 700)
    source = write(tmp_path / "run", *judged(pairs, np.linspace(0, 0.4, 700), False))
    suspects = section(source, "Suspects")
    assert len(source.encode()) < report.MAX_BYTES == 5_000_000
    n = len(shown(suspects))
    assert shown(suspects) == list(range(n)) and 100 < n == suspects.count("<img") < 600
    assert f"The first {n} are here" in suspects and f"The other {700 - n} suspects" in suspects


@pytest.mark.parametrize("budget", [60_000, 150_000, 400_000])
@pytest.mark.parametrize("verdicts", [True, False])
def test_the_file_keeps_to_any_budget(tmp_path, monkeypatch, budget, verdicts):
    pairs = many(tmp_path, 300, caption='"' * 400)
    table = judged(pairs, np.linspace(0, 0.4, 300), False)[1]
    pairs = replace(pairs, true_image_of=None, noise=None)
    monkeypatch.setattr(report, "MAX_BYTES", 400_000 + budget)
    numbers = {**metrics(table), "verdicts_given": verdicts}
    source = write(tmp_path / "run", pairs, table, numbers, page=9)
    Page(source)
    pages = section(source, "Suspects" if verdicts else "Ranking")
    n = len(shown(pages))
    assert len(source.encode()) <= 400_000 + budget and shown(pages) == list(range(n))
    assert 0 < n < 300 and f"The other {300 - n}" in pages


def test_hostile_captions_on_folded_pages_stay_text(tmp_path, folder):
    pairs = make(folder)[0]
    pairs, table = judged(replace(pairs, captions=[HOSTILE] * 100), np.arange(100) / 100)
    page = Page(write(tmp_path, pairs, table, page=5))
    assert page.texts.count(HOSTILE) == 50 + 12 and "script" not in page.tags


def test_links_at_the_top_lead_to_the_sections(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, metrics(table))
    anchors = [value for tag, key, value in Page(source).attributes if (tag, key) == ("a", "href")]
    links = [value[1:] for value in anchors if value.startswith("#")]
    sections = re.findall(r'<section id="([^"]+)"', source)
    assert links == sections and "least-certain" in links and "run-card" in links
    empty = table.slice(0, 0)
    assert "#suspects" not in write(tmp_path, pairs, empty, metrics(empty))


def test_a_picture_stands_beside_its_pair(tmp_path, folder):
    pairs, table = judged(make(folder)[0], np.arange(100) / 100)
    suspects = section(write(tmp_path, pairs, table, page=20), "Suspects")
    sides = [SIDE] * 20 + [SMALL_SIDE] * 30
    for card, side in zip(suspects.split('<li class="card pair')[1:], sides, strict=True):
        (pair,) = shown(card)
        picture = re.search(r'<img src="([^"]*)" alt="image of pair (\d+)"', card)
        expected = thumbnail(pairs.paths[pairs.image_of[pair]], side)
        assert (picture and picture.groups()) == (expected and (expected, str(pair)))
