"""The report's run card: what made the run, and whom to cite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from report_helpers import HOSTILE, Page, make, metrics, section, write

from pairsift.methods import METHODS
from pairsift.report.report import CITE_PAIRSIFT

ROOT = Path(__file__).parents[2]


def rows(source):
    found = re.findall(r"<dt>([^<]*)</dt><dd>(.*?)</dd>", section(source, "Run card"))
    return {name: re.sub(r"<[^>]+>", "", value) for name, value in found}


def test_the_run_card_says_what_made_the_run(tmp_path, folder):
    pairs, table = make(folder)
    numbers = {
        **metrics(table),
        "data": {"hash": "0123456789abcdef"},
        "encoders": {"image_encoder": "efficientnet-lite0", "text_encoder": "wordllama+ngrams"},
    }
    config = {"method": "pc2", "matcher": "vse", "loss": "hinge", "preset": None, "image_encoder": None}
    found = rows(write(tmp_path, pairs, table, numbers, config={**config, "seed": 7}))
    assert found == {
        "method": "pc2",
        "matcher": "vse",
        "loss": "hinge",
        "image encoder": "efficientnet-lite0",
        "text encoder": "wordllama+ngrams",
        "seed": "7",
        "source": "/data/shop &amp; co/captions.csv",
        "data hash": "0123456789abcdef",
        "train pairs": "100",
        "skipped pairs": "2",
        "planted noise": "38.0% of the training pairs (random), seed 1",
        "noise index hash": "00ff00ff00ff00ff",
        "torch": "2.13.0",
        "encode": "4.0 min",
        "train": "31.5 s",
        "all": "4.5 min",
    }


def test_without_facts_the_data_remain(tmp_path, folder):
    pairs, table = make(folder, truth=False)
    assert rows(write(tmp_path, pairs, table)) == {
        "source": pairs.source.replace("&", "&amp;"),
    }


@pytest.mark.parametrize("method", METHODS)
def test_the_paper_of_a_method_is_cited(tmp_path, folder, method):
    pairs, table = make(folder, 20)
    entry = METHODS[method].citation.strip()
    card = section(write(tmp_path, pairs, table, metrics(table), citation=METHODS[method].citation), "Run card")
    blocks = [text for text in Page(card).texts if text.startswith("@")]
    assert blocks == ([entry] if entry else [])
    assert ("The paper of the method" in card) == bool(entry)
    assert bool(entry) == (method not in ("linear", "plain", "oracle", "crossfit", "sift"))


@pytest.mark.parametrize("method", [method for method in METHODS if METHODS[method].citation])
def test_citations_are_bibtex(method):
    entry = METHODS[method].citation.strip()
    assert re.fullmatch(r"@(article|inproceedings|misc)\{[a-z0-9_]+,\n(  [a-z]+ = \{.*\},?\n)+\}", entry, re.DOTALL)
    assert entry.count("{") == entry.count("}")
    fields = re.findall(r"^  ([a-z]+) = ", entry, re.MULTILINE)
    assert {"author", "title"} <= set(fields) and len(fields) == len(set(fields))


def test_pairsift_is_cited_as_its_citation_file_says():
    file = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for word in (file["title"], file["authors"][0]["name"], file["type"], file["license"]):
        assert word in CITE_PAIRSIFT


def test_hostile_facts_stay_text(tmp_path, folder):
    pairs, table = make(folder, 20)
    numbers = {
        "versions": {HOSTILE: HOSTILE},
        "seconds": {HOSTILE: 3.0},
        "pairs": {HOSTILE: 4},
        "seed": HOSTILE,
        "encoders": {"image_encoder": HOSTILE},
        "data": {"hash": HOSTILE},
    }
    page = Page(write(tmp_path, pairs, table, numbers, config={"method": HOSTILE}, citation=HOSTILE))
    assert "script" not in page.tags and not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.texts.count(HOSTILE) >= 6
