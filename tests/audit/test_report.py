"""The report is one sound HTML page, whatever the data holds and whatever is missing."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pairsift.audit import detection, issue_table, write_report
from pairsift.audit.report import _boundary
from pairsift.audit.report_images import SIDE, thumbnail
from pairsift.audit.report_parts import LONGEST, lookup, number, percent, text
from pairsift.pairs import Precomputed
from pairsift.pairs.pairs import Noise, Pairs, Skip

VOID = {"meta", "img", "br", "link", "input", "hr"}
HOSTILE = "<script>alert('x')</script> \"onerror=\"alert(1) & </p></main> $body"
KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


class Page(HTMLParser):
    """Reads a page and fails where a tag is not closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *one) for one in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *one) for one in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def values(self, name):
        return [value for _, key, value in self.attributes if key == name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for row in range(20):
        Image.new("RGB", (300, 150), (12 * row, 80, 120)).save(folder / f"{row}.jpg")
    (folder / "3.jpg").write_bytes(b"no image")
    return folder


def make(folder, n=100, truth=True):
    rng = np.random.default_rng(0)
    true = np.arange(n) // 5
    image_of = np.where(rng.random(n) < 0.4, rng.permutation(true), true)
    pairs = Pairs(
        source="/data/shop & co/captions.csv",
        names=[f"{row}.jpg" for row in range(n // 5)],
        paths=[folder / f"{row}.jpg" for row in range(n // 5)],
        captions=[f"caption number {one}" for one in range(n)],
        image_of=image_of,
        split=np.array(["train"] * n),
        taken="image and caption from their columns",
        skipped=(Skip("captions.csv line 9", "empty caption", 7), Skip("3.jpg", "cannot be read")),
        true_image_of=true if truth else None,
        noise=Noise(0.4, 1, "caption", 0.38, "00ff00ff00ff00ff") if truth else None,
    )
    score = np.clip(np.where(image_of != true, 0.2, 0.8) + rng.normal(0, 0.15, n), 0, 1)
    flag = score < 0.5
    verdict = np.where(score < 0.4, "mismatched", np.where(score < 0.6, "uncertain", "clean"))
    return pairs, issue_table(pairs, np.arange(n), score, flag, verdict, np.where(flag, 5 * image_of, -1))


def recalls(base):
    values = [base + row for row in range(6)]
    return {**dict(zip(KEYS, values, strict=True)), "rsum": sum(values)}


def metrics(table):
    return {
        "test": {"network_0": recalls(30.5), "ensemble": recalls(33.25), "network_1": recalls(31.0)},
        "dev": {"ensemble": recalls(34)},
        "detection": detection(table),
        "noise_rate": {"estimated": 0.41, "true": 0.38},
        "pairs": {"train": 100, "skipped": 2},
        "best": {"epoch": 2, "dev_rsum": 219.0},
        "seconds": {"encode": 240.0, "train": 31.5},
        "versions": {"torch": "2.13.0"},
    }


def log():
    loss = {f"network_{k}": {"correspondence": 2.0 + k, "entropy": -0.3} for k in (0, 1)}
    phases = ["warm-up", "warm-up", "robust", "robust"]
    epochs = [
        {"event": "epoch", "epoch": epoch, "phase": phase, "loss": loss, "dev": {"rsum": 150.0 + 20 * epoch}}
        for epoch, phase in enumerate(phases)
    ]
    return [{"event": "start"}, *epochs, {"event": "end"}]


def write(tmp_path, pairs, table, numbers=None, events=(), config=None, **more):
    path = tmp_path / "report.html"
    write_report(path, pairs, table, numbers or {}, list(events), config or {}, **more)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def test_a_full_report_is_sound_and_needs_nothing_else(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, metrics(table), log(), {"method": {"class_path": "pairsift.methods.NCR"}})
    page = Page(source)
    references = [*page.values("src"), *page.values("href"), *page.values("xlink:href")]
    assert references
    assert all(one.startswith(("data:image/jpeg;base64,", "#")) for one in references)
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    assert not re.search(r"https?:|@import|#0a0b", source)
    assert all(one.startswith("url(#") for one in re.findall(r"url\([^)]*\)", source))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {one[5:-1] for one in re.findall(r"url\(#[^)]*\)", source)} <= set(ids)
    assert page.tags.count("svg") == 3
    words = " ".join(page.texts)
    expected = ["shop & co/captions.csv", "Judged by NCR.", "41.0%", "true: 38.0%", "214.5", "warm-up", "robust"]
    for found in [*expected, "empty caption", "00ff00ff00ff00ff", "uncertain", '"torch": "2.13.0"', "best 190.0"]:
        assert found in words, found
    assert re.findall(r'scope="row">(\w+ ?\d?)<', source) == ["ensemble", "network 0", "network 1", "ensemble"]


def test_recall_tells_how_many_of_its_right_answers_are_doubted(tmp_path, folder):
    pairs, table = make(folder, truth=False)
    assert "count as right" not in write(tmp_path, pairs, table, metrics(table))
    held = replace(pairs, split=np.array(["train"] * 60 + ["dev"] * 20 + ["test"] * 20))
    ids = np.arange(100)
    flag = np.isin(ids, [3, 70, 80, 99])
    table = issue_table(
        held, ids, np.where(flag, 0.1, 0.9), flag, np.where(flag, "mismatched", "clean"), -flag.astype(int)
    )
    assert "also the 3 of 40 that are flagged" in write(tmp_path, held, table, metrics(table))
    known = replace(held, true_image_of=held.image_of)
    table = issue_table(
        known, ids, np.where(flag, 0.1, 0.9), flag, np.where(flag, "mismatched", "clean"), -flag.astype(int)
    )
    assert "count as right" not in write(tmp_path, known, table, metrics(table))


def test_cards_show_the_worst_and_the_least_certain_pairs(tmp_path, folder):
    pairs, table = make(folder)
    source = write(tmp_path, pairs, table, worst=7)
    shown = [int(one) for one in re.findall(r"<b>pair (\d+)</b>", source)]
    ids, score = table["pair"].to_pylist(), table["mismatch_score"].to_numpy()
    assert shown[:7] == ids[:7]
    edge = (score[score < 0.5].max() + score[score >= 0.5].min()) / 2
    assert shown[7:] == [ids[row] for row in sorted(range(100), key=lambda row: abs(score[row] - edge))[:12]]
    images = [pairs.image_of[one] for one in shown]
    assert source.count("image cannot be read") == images.count(3)
    truth = pairs.mismatched()
    flag = dict(zip(ids, table["is_mismatch"].to_pylist(), strict=True))
    assert source.count("✓ right") == sum(truth[one] == flag[one] for one in shown)
    assert source.count("✗ wrong") == sum(flag[one] and not truth[one] for one in shown)
    assert source.count("✗ missed") == sum(truth[one] and not flag[one] for one in shown)


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
        taken=HOSTILE,
        skipped=(Skip(HOSTILE, HOSTILE),),
    )
    score = np.linspace(0, 1, 20)
    table = issue_table(pairs, np.arange(20), score, score < 0.5, [HOSTILE] * 20, np.full(20, 19) - np.arange(20) % 2)
    numbers = {"test": {HOSTILE: recalls(1)}, "versions": {HOSTILE: HOSTILE}, "best": {"epoch": HOSTILE}}
    events = [{"event": "epoch", "epoch": 0, "phase": HOSTILE, "loss": {"network_0": {HOSTILE: 1.0}}}]
    source = write(tmp_path, pairs, table, numbers, events, {"method": HOSTILE, "other": HOSTILE})
    page = Page(source)
    assert "script" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.texts.count(HOSTILE) >= 40


@pytest.mark.parametrize("part", ["test", "dev", "detection", "noise_rate", "pairs", "best", "seconds", "versions"])
def test_any_part_may_be_missing(tmp_path, folder, part):
    pairs, table = make(folder, 20)
    numbers = metrics(table)
    del numbers[part]
    whole, without = (write(tmp_path, pairs, table, known, worst=1) for known in (metrics(table), numbers))
    assert without != whole and without == write(tmp_path, pairs, table, {**numbers, part: None}, worst=1)
    Page(without)


def test_with_nothing_known(tmp_path, folder):
    pairs, table = make(folder, 20, truth=False)
    source = write(tmp_path, replace(pairs, skipped=(), taken=""), table)
    Page(source)
    for absent in ("Retrieval", "Training", "Skipped", "re-pointed", "✓", "AUROC", "noise rate<"):
        assert absent not in source
    empty = table.slice(0, 0)
    page = Page(write(tmp_path, pairs, empty, metrics(empty), log()))
    assert page.tags.count("svg") == 2


def test_odd_logs_are_drawn(tmp_path, folder):
    pairs, table = make(folder, 20)
    nan = float("nan")
    events = [
        {"event": "epoch", "epoch": 3, "dev": {"rsum": nan}, "loss": {"network_0": {"a": nan}, "network_1": {}}},
        {"event": "epoch", "epoch": 3, "dev": {"rsum": 7.0}, "loss": {"network_0": {"a": None, "b": 2}}},
        {"event": "epoch"},
        {"event": "other", "epoch": 9},
    ]
    numbers = {"best": {"epoch": 3}, "noise_rate": {"estimated": nan, "true": None}, "test": {"ensemble": None}}
    source = write(tmp_path, pairs, table, numbers, events)
    assert "best 7.0" in source
    assert not re.search(r"\bnan\b", " ".join(Page(source).texts))


def test_a_long_caption_is_cut(tmp_path, folder):
    pairs, _ = make(folder, 20)
    pairs = replace(pairs, captions=["wörd " * 10**4] * 20)
    table = issue_table(pairs, np.arange(20), np.zeros(20), np.ones(20, bool), ["x"] * 20, np.full(20, 3))
    assert len(write(tmp_path, pairs, table)) < 200_000
    assert text("a" * 400, LONGEST) == "a" * (LONGEST - 1) + "…"


def test_a_failed_write_leaves_the_old_report(tmp_path, folder, monkeypatch):
    pairs, table = make(folder, 20)
    before = write(tmp_path, pairs, table)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path / "report.html", pairs, table, {}, [], {"other": 1})
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert len(list(tmp_path.iterdir())) == 1


def opened(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/jpeg;base64,"))))


def test_images_that_are_features_only_show_their_name(tmp_path, folder):
    pairs, table = make(folder)
    features = Precomputed((folder / "train_ims.npy",), (36, 2048), np.arange(20))
    names = table["image"].to_pylist()
    table = table.set_column(
        table.column_names.index("image"), "image", [[f"train/{name} {HOSTILE}" for name in names]]
    )
    source = write(tmp_path, replace(pairs, features=features), table, worst=7)
    Page(source)
    assert "<img" not in source and "cannot be read" not in source.replace("<td>cannot be read</td>", "")
    assert source.count(f"features only: train/{names[0]}") >= 1 and "<script" not in source


def test_thumbnails(tmp_path, folder):
    assert opened(thumbnail(folder / "1.jpg")).size == (SIDE, SIDE // 2)
    Image.new("RGBA", (50, 50), (200, 0, 0, 0)).save(tmp_path / "clear.png")
    assert min(opened(thumbnail(tmp_path / "clear.png")).getpixel((25, 25))) > 250
    turned = Image.new("RGB", (400, 100))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert opened(thumbnail(tmp_path / "turned.jpg")).size == (SIDE // 4, SIDE)
    Image.new("P", (9, 9)).save(tmp_path / "palette.gif")
    assert opened(thumbnail(tmp_path / "palette.gif")).size == (9, 9)
    assert thumbnail(folder / "3.jpg") is None
    assert thumbnail(tmp_path / "nothing.jpg") is None


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30))
def test_the_boundary_disagrees_with_the_fewest_flags(rows):
    score = np.array([one for one, _ in rows], dtype=float) / 20
    flag = np.array([one for _, one in rows], dtype=bool)
    found = _boundary(score, flag)
    cuts = sorted(set(score))[1:]
    wrong = [sum((score[row] < cut) != flag[row] for row in range(len(rows))) for cut in cuts]
    if found is None:
        assert flag.all() or not flag.any() or min(wrong, default=len(rows)) > 0.02 * len(rows)
    else:
        assert sum((score[row] < found) != flag[row] for row in range(len(rows))) == min(wrong)


def test_numbers():
    assert [number(1234.56), number(None), number(float("nan")), number(True), number("x")] == ["1,234.6", *["–"] * 4]
    assert [percent(0.4123), percent(None)] == ["41.2%", "–"]
    assert [lookup({"a": {"b": 1}}, "a", "b"), lookup({"a": None}, "a", "b"), lookup(None, "a")] == [1, None, None]
