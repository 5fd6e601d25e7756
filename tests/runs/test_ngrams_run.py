"""Runs whose text encoder is fitted to their captions: they open, search and audit without what made it."""

import csv
import shutil

import numpy as np
import pytest
from flat_options import configured, fit

import pairsift
from pairsift.cli import main
from pairsift.encode.ngrams import NgramEncoder
from pairsift.errors import InputError
from pairsift.runs.prepare import encode, prepare, read_pairs

pytestmark = pytest.mark.slow

COLOURS = {"red": "красный", "blue": "синий", "green": "зелёный", "yellow": "жёлтый", "white": "белый"}


@pytest.fixture(scope="module")
def foreign(place, scenes):
    """The scenes with captions of which the colours are Russian."""
    folder = place / "foreign"
    shutil.copytree(scenes, folder)
    with (folder / "captions.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["caption"] = " ".join(COLOURS.get(word, word) for word in row["caption"].split())
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.mark.parametrize("name", ["ngrams", "wordllama+ngrams"])
def test_a_run_keeps_what_it_fitted(place, foreign, quick, name):
    out, cache = place / name, place / f"{name}-cache"
    fit(foreign, {**quick, "out": str(out), "cache": str(cache), "text_encoder": name}, progress=False)
    file = out / "model" / "ngrams.safetensors"
    kept = NgramEncoder.load(file)
    opened = pairsift.open_run(out, progress=False)
    before, found = opened.evaluate("test")["ensemble"], opened.search("красный мяч", 5)
    assert len(found) == 5
    assert kept.dim <= 256 and opened.prepared.ngrams.key() == kept.key()
    shutil.rmtree(cache)
    again = pairsift.open_run(out, progress=False)
    scores = dict(again.pairs().select(["pair", "match_probability"]).to_pydict().items())
    table = again.audit()
    assert again.evaluate("test")["ensemble"] == pytest.approx(before)
    assert [path for path, _ in again.search("красный мяч", 5)] == [path for path, _ in found]
    now = dict(zip(table["pair"].to_pylist(), table["match_probability"].to_pylist(), strict=True))
    was = dict(zip(scores["pair"], scores["match_probability"], strict=True))
    np.testing.assert_allclose([now[pair] for pair in was], list(was.values()), atol=1e-4)
    file.unlink()
    with pytest.raises(InputError, match=r"ngrams\.safetensors is missing, .*fit again$"):
        pairsift.open_run(out, progress=False).evaluate("test")


def test_a_new_run_warns_of_captions_that_wordllama_does_not_know(place, scenes, quick, caplog):
    with (scenes / "captions.csv").open(newline="", encoding="utf-8") as stream:
        images = [row["image"] for row in csv.DictReader(stream)]
    lines = [f"{scenes / 'images' / image},красный мяч и синий дом {n}" for n, image in enumerate(images)]
    (place / "russian.csv").write_text("\n".join(["image,caption", *lines]), encoding="utf-8")
    for name, warnings in (("wordllama", 1), ("ngrams", 0)):
        config = configured({"source": str(place / "russian.csv"), "cache": quick["cache"], "text_encoder": name})
        caplog.clear()
        prepare(config, place / f"none-{name}", progress=False)
        told = [record.message for record in caplog.records if "does not know" in record.message]
        assert len(told) == warnings
        assert all("russian.csv: all captions" in line and "(Cyrillic)" in line for line in told)
    caplog.clear()
    wordllama = configured({"source": str(place / "russian.csv"), "cache": quick["cache"]})
    read = read_pairs(wordllama)
    encode(wordllama, place / "none", read, finished=True, progress=False)
    assert not caplog.records


def test_a_matcher_that_learns_words_refuses_them_in_one_line(capsys, scenes, place):
    for name in ("ngrams", "wordllama+ngrams"):
        words = ["fit", str(scenes), "--matcher", "vse", "--text-encoder", name, f"--out={place / 'refused-n'}"]
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert f"matcher vse cannot read the text encoder {name}; it takes words, bpe or ids" in err
    assert not (place / "refused-n").exists()


def test_encoders_are_listed(capsys):
    assert main(["list", "encoders"]) == 0
    told = capsys.readouterr().out
    assert "  ngrams  " in told and "muse+ngrams" in told
