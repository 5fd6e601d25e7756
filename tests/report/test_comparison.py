"""The page of runs side by side is one sound HTML page, whatever the names hold and whatever is missing."""

import re

from report_helpers import HOSTILE, KEYS, Page

from pairsift.report.comparison import write_comparison


def estimate(value):
    return {"value": value, "low": value - 2, "high": value + 3}


def compared(name, shift=None, **more):
    recall = {key: estimate(40.5 + place) for place, key in enumerate((*KEYS, "rsum"))}
    difference = {} if shift is None else {key: estimate(shift) for key in recall}
    audit = {"noise_rate": {"estimated": 0.31, "low": 0.28, "high": 0.33}, "suspects": 1234, "judged": 8000}
    return {"run": name, "images": 9, "captions": 45, "recall": recall, "difference": difference, **audit, **more}


def tree(*runs, **more):
    facts = {"split": "test", "images": 9, "captions": 45, "samples": 1000, "seed": 0, "level": 0.95}
    return {**facts, "notes": [], "runs": list(runs), "options": {}, **more}


def page_of(tmp_path, comparison):
    write_comparison(tmp_path / "c.html", comparison)
    source = (tmp_path / "c.html").read_text(encoding="utf-8")
    page = Page(source)
    assert not {"script", "link", "iframe", "object", "base", "img"} & set(page.tags)
    assert not re.search(r"https?:|@import", source) and not page.values("src") + page.values("href")
    return page


def test_a_page_shows_every_number_with_its_interval(tmp_path):
    found = {"auroc": {"value": 0.97, "low": 0.95, "high": 0.99}}
    runs = compared("runs/mine", detection=found), compared("runs/clean", -1.5, detection={})
    words = " ".join(page_of(tmp_path, tree(*runs, options={"method": ["plain", None]})).texts)
    for expected in ("9 images and 45 captions", "1,000 resamples", "seed 0", "46.5", "[44.5, 49.5]", "-1.5"):
        assert expected in words, expected
    for expected in ("[-3.5, +1.5]", "31.0%", "[28.0, 33.0]", "1,234", "8,000", "0.970", "[0.950, 0.990]", "plain"):
        assert expected in words, expected


def test_hostile_names_stay_text_and_missing_numbers_are_dashes(tmp_path):
    nothing = {"noise_rate": {}, "suspects": None, "judged": None, "detection": {}}
    runs = compared(HOSTILE, **nothing), compared(f"runs/{HOSTILE}", 0.0, **nothing)
    page = page_of(tmp_path, tree(*runs, notes=[HOSTILE], options={"loss": [HOSTILE, "hinge"]}))
    assert HOSTILE in page.texts and "–" in page.texts
    assert "Note" in page.texts


def test_equal_runs_have_a_scale_too(tmp_path):
    """Without any spread, the dot lies in the middle."""
    flat = {key: {"value": 0.0, "low": 0.0, "high": 0.0} for key in (*KEYS, "rsum")}
    runs = compared("a", detection={}), {**compared("b", 0.0, detection={}), "difference": flat}
    page = page_of(tmp_path, tree(*runs))
    assert "left: 50.00%" in page.values("style")
