"""What a user is told of records that could not be used."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flat_options import fit
from PIL import Image

import pairsift
from pairsift.pairs.options import DataOptions
from pairsift.pairs.pairs import Pairs, Skip
from pairsift.runs.skipped import skipped_line, write_skipped

pytestmark = pytest.mark.slow


def some_pairs(*skipped: Skip) -> Pairs:
    split = np.array(["train"] * 4, dtype="<U7")
    split[[skip.pair for skip in skipped]] = "skipped"
    paths = [Path(f"{row}.jpg") for row in range(2)]
    return Pairs("x.csv", ["a", "b"], paths, list("abcd"), np.array([0, 0, 1, 1]), split, skipped=skipped)


def test_formulas_in_the_list_are_text_and_numbers_stay_numbers(tmp_path):
    skipped = Skip("=cmd.txt line 3", "the caption is empty", 1), Skip("x.csv line 4", "+split is none of train", 3)
    pairs = some_pairs(*skipped).skip_images({0: "the file is empty"})
    write_skipped(pairs, tmp_path / "skipped.csv")
    with (tmp_path / "skipped.csv").open(newline="") as file:
        rows = [tuple(row) for row in csv.reader(file)]
    assert rows == [
        ("where", "reason", "pair"),
        ("'=cmd.txt line 3", "the caption is empty", "1"),
        ("x.csv line 4", "'+split is none of train", "3"),
        ("a", "the file is empty", ""),
    ]


def test_the_line_counts_pairs_and_names_the_list():
    assert skipped_line(some_pairs(), Path("run/skipped.csv")) == ""
    pairs = some_pairs().skip_images({0: "the image is\nbroken"})
    assert pairs.n_skipped == 2
    line = skipped_line(pairs, Path("run/skipped.csv"))
    assert line == "2 of 4 pairs were skipped, the first: a: the image is broken; the full list: run/skipped.csv"
    reasons = ["the caption is a filler: 'image'", "the caption is a filler: 'photo'", "the caption is empty", "x", "y"]
    pairs = replace(some_pairs(), skipped=[Skip(f"line {place}", reason, 0) for place, reason in enumerate(reasons)])
    assert skipped_line(pairs, Path("s.csv")) == (
        "0 of 4 pairs were skipped (2: the caption is a filler: …; 1: the caption is empty; 1: x; 1 for other reasons),"
        " the first: line 0: the caption is a filler: 'image'; the full list: s.csv"
    )


def test_pairs_that_say_nothing_are_nobodys_evidence_and_listed(tmp_path, scenes):
    with (scenes / "captions.csv").open(newline="") as stream:
        records = [[f"{scenes}/images/{row['image']}", row["caption"]] for row in csv.DictReader(stream)][:150]
    records = list({image: [image, caption] for image, caption in records}.values())
    nothing = {2: "nan", 5: "IMG_4001.jpg", 8: "untitled"}
    for row, caption in nothing.items():
        records[row][1] = caption
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    icon = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    icon.paste((255, 255, 255, 255), (10, 10, 30, 30))
    icon.save(tmp_path / "icon.png")
    records += [[str(tmp_path / "clear.png"), "a red cube"], [str(tmp_path / "icon.png"), "a white square"]]
    with (tmp_path / "x.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image", "caption"), *records])
    clear = len(records) - 2
    run = pairsift.check(tmp_path / "x.csv", out=tmp_path / "run", progress=False)
    assert set(range(len(records))) - set(run.pairs()["pair"].to_pylist()) == {*nothing, clear}
    with (tmp_path / "run" / "skipped.csv").open(newline="") as file:
        reasons = [row["reason"] for row in csv.DictReader(file)]
    kinds = ("a missing value: 'nan'", "a file name: 'IMG_4001.jpg'", "a filler: 'untitled'")
    assert reasons == [*(f"the caption is {kind}" for kind in kinds), "the picture has one colour"]
    left_out = run.export(tmp_path / "clean.csv")
    assert left_out["skipped"] == 4 and left_out["kept"] == len(records) - 4
    data = DataOptions(keep_empty=True)
    kept = pairsift.check(tmp_path / "x.csv", data=data, out=tmp_path / "all", progress=False)
    assert len(kept.pairs()) == len(records)


def test_a_fit_says_how_many_pairs_it_skipped(capfd, place, scenes, quick):
    with (scenes / "captions.csv").open(newline="") as stream:
        records = [(f"../scenes/images/{row['image']}", row["caption"]) for row in csv.DictReader(stream)][:250]
    (place / "told").mkdir()
    with (place / "told" / "x.csv").open("w", newline="", encoding="cp1252") as stream:
        csv.writer(stream).writerows([("image", "caption"), *records, ("gone.jpg", "é"), (records[0][0], "Tür")])
    options = {name: value for name, value in quick.items() if not name.startswith("noise")}
    fit(place / "told" / "x.csv", {**options, "out": str(place / "told-run")})
    said = capfd.readouterr().err
    assert "lines that are not UTF-8 and were read as cp1252 (Western): 2: 252 pairs" in said
    assert "1 of 252 pairs were skipped, the first: x.csv line 252: no image file at" in said
    assert said.count(str(place / "told-run" / "skipped.csv")) == 1
