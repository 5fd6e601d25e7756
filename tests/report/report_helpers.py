"""What the tests of the report share: a reader that fails on broken HTML, and a run to report."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from pairsift.pairs.pairs import Noise, Pairs, Skip
from pairsift.report.report import write_report
from pairsift.table import detection, pair_table

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
        description="image and caption from their columns",
        skipped=(Skip("captions.csv line 9", "empty caption", 7), Skip("3.jpg", "cannot be read")),
        true_image_of=true if truth else None,
        noise=Noise(0.4, 1, "caption", 0.38, "00ff00ff00ff00ff") if truth else None,
    )
    probability = np.clip(np.where(image_of != true, 0.2, 0.8) + rng.normal(0, 0.15, n), 0, 1)
    flag = probability < 0.5
    verdict = np.where(probability < 0.4, "mismatched", np.where(probability < 0.6, "uncertain", "clean"))
    return pairs, pair_table(pairs, np.arange(n), probability, flag, verdict, np.where(flag, 5 * image_of, -1))


def recalls(base):
    values = [base + row for row in range(6)]
    return {**dict(zip(KEYS, values, strict=True)), "rsum": sum(values)}


def metrics(table):
    return {
        "test": {"ensemble": recalls(33.25), "network_0": recalls(30.5), "network_1": recalls(31.0)},
        "dev": {"ensemble": recalls(34)},
        "detection": detection(table),
        "detectors": {"linear": {"auroc": 0.931}, "networks": {"auroc": 0.957}},
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
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


def shown(source):
    return [int(found) for found in re.findall(r"<b>pair (\d+)</b>", source)]


def section(source, title):
    return re.search(rf"<section[^>]*><h2>{title}</h2>.*?</section>", source, re.DOTALL).group()


def judged(pairs, probability, truth=True):
    """A table of these match probabilities, flagged below one half."""
    probability = np.asarray(probability)
    flag = probability < 0.5
    words = np.where(flag, "mismatched", "clean")
    known = pairs if truth else replace(pairs, true_image_of=None, noise=None)
    return known, pair_table(
        known, np.arange(len(probability)), probability, flag, words, np.full(len(probability), -1)
    )
