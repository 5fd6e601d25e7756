"""Runs whose captions are encoded by a sentence encoder."""

import csv

import numpy as np
import pytest
from flat_options import configured

from pairsift.runs.prepare import encode, prepare, read_pairs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "words", "limit"), [("minilm", 300, 256), ("muse", 8300, 8192)])
def test_a_new_run_tells_how_many_captions_are_cut(place, scenes, quick, caplog, name, words, limit):
    with (scenes / "captions.csv").open(newline="", encoding="utf-8") as stream:
        rows = [(scenes / "images" / row["image"], row["caption"]) for row in csv.DictReader(stream)]
    rows[3] = (rows[3][0], "word " * words)
    source = place / f"long-{name}.csv"
    with source.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("image", "caption"), *rows])
    config = configured({"source": str(source), "cache": quick["cache"], "text_encoder": name})
    prepared = prepare(config, place / f"none-{name}", progress=False)
    line = f"{source}: 1 of {len(rows)} captions have more than the {limit} tokens that {name} reads: "
    assert [record.message for record in caplog.records if " tokens that " in record.message] == [
        f"{line}their ends do not count"
    ]
    vectors = prepared.features.texts.values
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    caplog.clear()
    encode(config, place / f"none-{name}", read_pairs(config), finished=True, progress=False)
    assert not caplog.records
