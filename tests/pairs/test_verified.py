"""Pairs that a file or a column declares to match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairsift.errors import InputError
from pairsift.noise.planted import plant_noise
from pairsift.pairs.options import DataOptions
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.verified import check_verified_options, read_verified


def made(**columns: list[str]) -> Pairs:
    image_of = np.repeat(np.arange(10), 2)
    split = np.where(image_of < 7, "train", "dev")
    names = [f"{i}.jpg" for i in range(10)]
    captions = [f"c{i}" for i in range(20)]
    return Pairs("made.csv", names, [Path(n) for n in names], captions, image_of, split, dict(columns))


def test_a_file_lists_ids(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_bytes(b"3\r\n\n 11 \n19\n3\n")
    pairs = made()
    mask = read_verified(pairs, DataOptions(verified=str(file)))
    assert mask is not None and np.flatnonzero(mask).tolist() == [3, 11, 19]
    assert replace(pairs, verified=mask).verified_ids().tolist() == [3, 11]  # 19 is of dev
    assert read_verified(pairs, DataOptions()) is None and pairs.verified_ids().tolist() == []


def test_a_column_marks_pairs() -> None:
    marks = ["Yes", "1", " true", "", "0", "no", "FALSE", *["0"] * 13]
    mask = read_verified(made(checked=marks), DataOptions(verified_column="checked"))
    assert mask is not None and np.flatnonzero(mask).tolist() == [0, 1, 2]


def test_a_pair_that_noise_moved_is_not_verified() -> None:
    noisy = plant_noise(made(), 0.8, 0)
    pairs = replace(noisy, verified=np.ones(20, np.bool_))
    moved = set(np.flatnonzero(noisy.mismatched()).tolist())
    assert moved and pairs.verified_ids().tolist() == [i for i in range(14) if i not in moved]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3\n20\n", "line 2: '20' is no id of a pair, which go from 0 to 19"),
        ("-1", "line 1: '-1' is no id"),
        ("x", "line 1: 'x' is no id"),
        ("19\n", "verifies no pair of train"),
        ("", "the file is empty"),
    ],
)
def test_what_a_file_cannot_say_is_told_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "ids.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_verified(made(), DataOptions(verified=str(file)))
    assert "\n" not in str(error.value)


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--verified .*none.txt cannot be read"):
        read_verified(made(), DataOptions(verified=str(tmp_path / "none.txt")))
    with pytest.raises(
        InputError, match="has no column 'good' with the pairs that are known to match; its further columns are 'x'"
    ):
        read_verified(made(x=["1"] * 20), DataOptions(verified_column="good"))
    with pytest.raises(InputError, match="column x has 'maybe'; mark verified pairs by 1"):
        read_verified(made(x=["maybe"] * 20), DataOptions(verified_column="x"))
    with pytest.raises(InputError, match="exclude each other"):
        check_verified_options(DataOptions(verified="a", verified_column="b"))
