"""The report is one sound HTML page, whatever the data holds and whatever is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_helpers import HOSTILE, Page, log, make, metrics, recalls, section, write

from pairsift.errors import WriteError
from pairsift.pairs.pairs import Skip
from pairsift.report.cards import LONGEST
from pairsift.report.html import interval, middle_cut, number, percent
from pairsift.report.report import write_report
from pairsift.table import pair_table


def test_a_full_report_is_sound_and_needs_nothing_else(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, metrics(table), log(), {"method": "ncr"})
    page = Page(source)
    references = [*page.values("src"), *page.values("href"), *page.values("xlink:href")]
    assert references
    inside = [one for one in references if one.startswith(("data:image/jpeg;base64,", "#"))]
    links = {
        f"../{folder.name}/{row}.jpg"
        for row in pairs.image_of[[int(pair) for pair in re.findall(r"<b>pair (\d+)", source)]]
    } | {"skipped.csv"}
    assert set(page.values("href")) - set(inside) == links and all(one in inside or one in links for one in references)
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    assert not re.search(r"https?:|@import|#0a0b", source)
    assert all(one.startswith("url(#") for one in re.findall(r"url\([^)]*\)", source))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {one[5:-1] for one in re.findall(r"url\(#[^)]*\)", source)} <= set(ids)
    assert page.tags.count("svg") == 4
    words = " ".join(page.texts)
    expected = [
        "shop & co/captions.csv",
        "Method: ncr.",
        "41.0%",
        "true: 38.0%",
        "214.5",
        "warm-up",
        "robust",
        "epoch 3",
        "counted from 0",
    ]
    total = float((1 - table["match_probability"].to_numpy()).sum())
    expected.append(f"By the probabilities, {total:,.0f} of all {len(table)} judged pairs")
    for found in [*expected, "empty caption", "00ff00ff00ff00ff", "uncertain", "2.13.0", "best 190.0"]:
        assert found in words, found
    assert re.findall(r'scope="row">(\w+ ?\d?)<', source) == ["ensemble", "network 0", "network 1", "ensemble"]


def test_recall_tells_how_many_of_its_right_answers_are_doubted(tmp_path, folder):
    pairs, table = make(folder, truth=False)
    assert "count as correct" not in write(tmp_path, pairs, table, metrics(table))
    held = replace(pairs, split=np.array(["train"] * 60 + ["dev"] * 20 + ["test"] * 20))
    ids = np.arange(100)
    flag = np.isin(ids, [3, 70, 80, 99])
    table = pair_table(
        held, ids, np.where(flag, 0.1, 0.9), flag, np.where(flag, "mismatched", "clean"), -flag.astype(int)
    )
    assert "including the 3 of 40 that are flagged" in write(tmp_path, held, table, metrics(table))
    known = replace(held, true_image_of=held.image_of)
    table = pair_table(
        known, ids, np.where(flag, 0.1, 0.9), flag, np.where(flag, "mismatched", "clean"), -flag.astype(int)
    )
    assert "count as correct" not in write(tmp_path, known, table, metrics(table))


def test_the_same_inputs_give_the_same_bytes(tmp_path, folder):
    pairs, table = make(folder)
    first = write(tmp_path, pairs, table, metrics(table), log(), {"seed": 1})
    make_other = make(folder, 50)
    write(tmp_path, *make_other)
    assert write(tmp_path, pairs, table, metrics(table), log(), {"seed": 1}) == first


def test_hostile_text_stays_text(tmp_path, folder):
    pairs, _ = make(folder, 20)
    pairs = replace(
        pairs,
        source=f"/data/{HOSTILE.replace('/', '|')}",
        names=[HOSTILE] * 4,
        captions=[HOSTILE] * 19 + ["\udcff broken"],
        description=HOSTILE,
        skipped=(Skip(HOSTILE, HOSTILE),),
    )
    score = np.linspace(0, 1, 20)
    table = pair_table(pairs, np.arange(20), score, score < 0.5, [HOSTILE] * 20, np.full(20, 19) - np.arange(20) % 2)
    numbers = {"test": {"ensemble": recalls(1), HOSTILE: recalls(1)}, "versions": {HOSTILE: HOSTILE}}
    loss = {"network_0": {HOSTILE: 1.0}}
    events = [{"event": "epoch", "epoch": 0, "phase": HOSTILE, "loss": loss, "dev": recalls(1)}]
    source = write(tmp_path, pairs, table, numbers, events, {"method": HOSTILE, "other": HOSTILE})
    page = Page(source)
    assert "script" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.texts.count(HOSTILE) >= 40


PARTS = ["test", "dev", "detection", "detectors", "noise_rate", "pairs", "best", "seconds", "versions"]


@pytest.mark.parametrize("part", PARTS)
def test_any_part_may_be_missing(tmp_path, folder, part):
    pairs, table = make(folder, 20)
    numbers = metrics(table)
    del numbers[part]
    whole, without = (write(tmp_path, pairs, table, known, page=1) for known in (metrics(table), numbers))
    assert without != whole
    Page(without)


def test_detectors_show_their_auroc(tmp_path, folder):
    pairs, table = make(folder, 20)
    source = write(tmp_path, pairs, table, metrics(table))
    assert "AUROC of each kind of evidence alone" in source and "<dd>0.931</dd>" in source


def test_with_nothing_known(tmp_path, folder):
    pairs, table = make(folder, 20, truth=False)
    source = write(tmp_path, replace(pairs, skipped=(), description=""), table)
    Page(source)
    for absent in ("Retrieval", "Training", "Skipped", "Planted noise", "✓", "AUROC", "noise rate<"):
        assert absent not in source
    empty = table.slice(0, 0)
    page = Page(write(tmp_path, pairs, empty, metrics(empty), log()))
    assert page.tags.count("svg") == 2


def test_odd_logs_are_drawn(tmp_path, folder):
    pairs, table = make(folder, 20)
    nan = float("nan")
    losses = {"network_0": {"a": nan}, "network_1": {}}, {"network_0": {"a": nan, "b": 2}}
    events = [
        {"event": "epoch", "epoch": 3, "phase": "one", "dev": {"rsum": rsum}, "loss": loss}
        for rsum, loss in zip((nan, 7.0), losses, strict=True)
    ]
    source = write(tmp_path, pairs, table, {"best": {"epoch": 3}}, [*events, {"event": "other"}])
    assert "best 7.0" in source
    assert not re.search(r"\bnan\b", " ".join(Page(source).texts))


def test_a_long_caption_is_cut(tmp_path, folder):
    pairs, _ = make(folder, 20)
    pairs = replace(pairs, captions=["wörd " * 10**4] * 20)
    table = pair_table(pairs, np.arange(20), np.zeros(20), np.ones(20, bool), ["x"] * 20, np.full(20, 3))
    source = write(tmp_path, pairs, table)
    assert len(source) < 200_000 and f"{('wörd ' * 100)[: LONGEST - 1]}…</p>" in source


def test_a_failed_write_leaves_the_old_report(tmp_path, folder, monkeypatch):
    pairs, table = make(folder, 20)
    before = write(tmp_path, pairs, table)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(WriteError, match="disk full"):
        write_report(tmp_path / "report.html", pairs, table, {}, [], {"other": 1})
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert len(list(tmp_path.iterdir())) == 1


def test_warnings_come_first_and_then_what_was_skipped(tmp_path, folder):
    pairs, table = make(folder)
    skips = (
        *(Skip(f"captions.csv line {line}", f"no image file at /data/the shop/{line}.jpg", line) for line in range(9)),
        *(Skip(f"captions.csv line {line}", "the caption is empty", line) for line in range(9, 15)),
        *(Skip(f"captions.csv line {line}", f"repeats 'day{line}.csv' line {line}", line) for line in (20, 21)),
        Skip("captions.csv line 30", "names no image", 30),
        Skip("3.jpg", "the image is broken or truncated (only (2 bytes) left)"),
    )
    split = np.array(["skipped"] * 24 + ["train"] * 76)
    said = ["Only 7 pairs & <b>no more</b>.", "Dev recall still rose."]
    numbers = {**metrics(table), "warnings": [{"code": "a", "text": text} for text in said]}
    source = write(tmp_path, replace(pairs, skipped=skips, split=split), table, numbers)
    words = " ".join(" ".join(Page(source).texts).split())
    lines = [*said, "24 of 100 pairs were skipped"]
    places = [words.index(line) for line in [*lines, "Pairs judged", "Retrieval"]]
    assert places == sorted(places)
    assert "9 no image file 6 the caption is empty 2 repeats … line …" in words
    assert "1 the image is broken or truncated (only (2 bytes) left) " in words.split("By reason")[1].split("Each")[0]


def test_without_warnings_there_is_no_box(tmp_path, folder):
    pairs, table = make(folder, 20)
    source = write(tmp_path, replace(pairs, skipped=()), table, {"warnings": []})
    assert "Warning" not in source and "skipped" not in " ".join(Page(source).texts)
    assert "<b>0 of 20 pairs were skipped</b>: see" in write(tmp_path, replace(pairs, skipped=pairs.skipped[:1]), table)


def test_the_interval_of_the_noise_rate(tmp_path, folder):
    pairs, table = make(folder, 20)
    noise = {"estimated": 0.297, "low": 0.26, "high": 0.33}
    source = write(tmp_path, pairs, table, {"noise_rate": noise})
    assert source.count("29.7% <small>(26 to 33%)</small>") == 1
    assert interval({"estimated": 0.01, "low": 0.0012, "high": 0.0213}) == "(0.1 to 2.1%)"
    assert [interval(known) for known in ({}, {"low": None, "high": None})] == [""] * 2


def test_the_threshold_line_lies_at_one_half(tmp_path, folder):
    pairs, table = make(folder)
    before = write(tmp_path, pairs, table)
    raised = table.set_column(table.column_names.index("is_mismatch"), "is_mismatch", [[True] * 100])
    drawn, moved = (
        re.search(r"<svg.*?</svg>", one, re.DOTALL).group() for one in (before, write(tmp_path, pairs, raised))
    )
    assert drawn == moved
    line = re.search(r'd="M ([\d.]+) [\d.]+ \nL \1 [\d.]+ \n"[^>]*stroke-dasharray', drawn)
    first, last = (re.search(rf'x="([\d.]+)"[^>]*>{tick}<', drawn) for tick in ("0.0", "1.0"))
    assert float(line[1]) == pytest.approx((float(first[1]) + float(last[1])) / 2, abs=0.01)


def test_epochs_are_counted_from_one(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, metrics(table), log())
    words = " ".join(" ".join(Page(source).texts).split())
    assert "ensemble, epoch 3 " in words
    dev = re.search(r'<svg[^>]*aria-label="dev rSum.*?</svg>', source, re.DOTALL).group()
    marks = [found.strip() for found in re.findall(r"<text[^>]*>([^<]*)</text>", dev)]
    assert [mark for mark in marks if re.fullmatch(r"\d", mark)] == ["1", "2", "3", "4"]
    assert "best 190.0" in marks


def test_rsum_is_told(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, metrics(table))
    assert "rSum is the sum of the six R@K: 600 is perfect." in source
    assert "214.5 <small>of 600</small>" in source


def test_long_paths_are_cut_in_the_middle():
    assert middle_cut("folder/name.jpg", 15) == "folder/name.jpg"
    cut = middle_cut(f"{'deep/' * 99}name.jpg", 40)
    assert len(cut) == 40 and cut.startswith("deep/deep/") and cut.endswith("/name.jpg") and cut.count("…") == 1


def test_numbers():
    assert [number(1234.56), number(None), number(float("nan"))] == ["1,234.6", "–", "–"]
    assert [percent(0.4123), percent(None)] == ["41.2%", "–"]


def test_pairs_that_are_gone_are_not_skipped(tmp_path, folder):
    pairs, table = make(folder, 20)
    split, rows = pairs.split.astype("<U7"), np.arange(20)
    split[:3], rows[1:3] = "skipped", -1
    skips = (Skip("x.csv line 2", "names no image", 0),)
    page = write(tmp_path, replace(pairs, split=split, source_rows=rows, skipped=skips), table)
    assert "<b>1 of 18 pairs were skipped, and 2 pairs of the run are no longer in the source</b>" in page


def test_a_check_has_no_choices_of_a_training(tmp_path, folder):
    pairs, table = make(folder, 20)
    page = write(tmp_path, pairs, table, config={"method": "linear", "loss": "infonce", "seed": 5})
    assert "Judged without training." in page and "Method: linear" not in page
    options = section(page, "Run card")
    assert options.count("infonce") == 1  # in the whole configuration, which is folded
