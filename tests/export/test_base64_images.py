"""Images as base64 in the cells of a table: read as files, and exported as they were."""

import base64
import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from test_export_again import trip

import pairsift
from pairsift.pairs.base64_images import from_base64, is_base64_image


def picture(number, kind):
    out = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


PICTURES = [picture(number // 2, "PNG" if number % 4 else "JPEG") for number in range(20)]  # some are there twice
CODES = [base64.b64encode(data).decode() for data in PICTURES]
ROWS = [(str(1000 + number), code, f"one dog number {number} is here") for number, code in enumerate(CODES)]


def write(path):
    if path.suffix == ".jsonl":
        rows = ({"id": name, "image": f"data:image/png;base64,{code}", "text": text} for name, code, text in ROWS)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([("id", "picture", "caption"), *ROWS])
    else:
        path.write_text("".join(f"{name}\t{text}\t{code}\n" for name, code, text in ROWS))


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.tsv"])
def test_images_as_base64_are_read_and_come_back_as_they_were(tmp_path, name):
    write(tmp_path / name)
    for _ in range(2):
        pairs = pairsift.load(tmp_path / name, cache=tmp_path / "cache")
        assert [pairs.paths[row].read_bytes() for row in pairs.image_of] == PICTURES
        assert pairs.n_images == len(set(PICTURES)) and "images within the file" in pairs.description
    out = tmp_path / f"out{(tmp_path / name).suffix}"
    trip(tmp_path / name, out, [3])
    lines = (tmp_path / name).read_bytes().splitlines()
    del lines[3 + (name == "x.csv")]
    assert out.read_bytes().splitlines() == lines


def test_a_cell_that_is_no_base64_is_skipped_with_its_reason(tmp_path):
    write(tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text().replace(CODES[5], CODES[5][:-3] + "!?", 1)
    (tmp_path / "x.csv").write_text(text)
    pairs = pairsift.load(tmp_path / "x.csv", cache=tmp_path / "cache")
    assert [(skip.where, skip.reason) for skip in pairs.skipped] == [("x.csv line 7", "its image is no base64")]


def test_what_begins_like_an_image_is_told_from_text():
    assert all(map(is_base64_image, CODES))
    assert is_base64_image("data:image/jpeg;base64," + CODES[0]) and from_base64(CODES[1]) == PICTURES[1]
    url_safe = base64.urlsafe_b64encode(PICTURES[2]).decode()
    assert is_base64_image(url_safe) and from_base64(url_safe) == PICTURES[2]
    texts = ("Qk", "a dog runs over the grass and then it runs back to the house again, all day", "x" * 100, "", "/9j/")
    assert not any(map(is_base64_image, texts))
    assert from_base64("") is None and from_base64("é") is None
