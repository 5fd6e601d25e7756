import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import touch, write_table
from pairsift.cli import main
from pairsift.pairs.pairs import SPLITS
from pairsift.pairs.readers import load
from pairsift.pairs.splits import Draw, check_sizes, draw_splits, shuffled
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import read_pairs


def table(folder, rows):
    touch(folder, *(row[0] for row in rows))
    return write_table(folder / "x.csv", ["image", "caption", "split"][: len(rows[0])], rows)


ROWS = [(f"{number}.jpg", f"caption {number} {each}") for number in range(40) for each in range(3)]


def splits_by_name(pairs):
    return {pairs.names[row]: split for row, split in zip(pairs.image_of, pairs.split, strict=True)}


def test_splits_are_drawn_by_image(tmp_path):
    pairs = load(table(tmp_path, ROWS))
    for one in SPLITS:
        assert len(pairs.ids(one)) == 3 * len(pairs.images(one))
    assert [len(pairs.images(split)) for split in SPLITS] == [32, 4, 4]


def test_splits_depend_on_the_seed_and_not_on_the_order(tmp_path):
    first = splits_by_name(load(table(tmp_path, ROWS)))
    rows = ROWS.copy()
    random.Random(1).shuffle(rows)
    assert splits_by_name(load(table(tmp_path, rows))) == first
    assert splits_by_name(load(table(tmp_path, ROWS), split_seed=1)) != first


@given(
    n=st.integers(3, 60),
    dev=st.floats(0.001, 0.98),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
)
def test_no_split_is_ever_empty(n, dev, share, seed):
    names = [f"{row}.jpg" for row in range(n)]
    order = shuffled(range(n), names, seed)
    assert sorted(order) == list(range(n))
    split_of = draw_splits(order, Draw(seed, dev, share * (1 - dev)))
    assert set(split_of) == set(range(n))
    assert set(split_of.values()) == set(SPLITS)


OWN = [(*row, "train" if number < 60 else ("val", "test")[number // 3 % 2]) for number, row in enumerate(ROWS)]


def drawn(source, **data):
    config = from_tree({"source": str(source), **data})
    pairs = read_pairs(config).pairs
    check_sizes(pairs, config.data.sizes)
    return pairs


@pytest.mark.parametrize("rows", [ROWS, OWN])
def test_sizes_are_exact_in_images_with_all_their_captions(tmp_path, rows):
    """Drawn from all images, or from each of the splits that the source has, whatever the order of the rows."""
    source, asked = table(tmp_path, rows), {"sample": 11, "dev": 7, "test": 5}
    part, again = drawn(source, **asked), drawn(table(tmp_path / "reversed", rows[::-1]), **asked)
    for split, size in {"train": 11, "dev": 7, "test": 5, "unused": 17}.items():
        assert len(part.images(split)) == size and len(part.ids(split)) == 3 * size
    assert splits_by_name(again) == splits_by_name(part) == splits_by_name(drawn(source, **asked))
    assert splits_by_name(drawn(source, **asked, split_seed=1)) != splits_by_name(part)
    if rows is OWN:
        own = {name: split for name, _, split in OWN}
        assert all(split in ("unused", own[n].replace("val", "dev")) for n, split in splits_by_name(part).items())


def test_a_size_alone_leaves_the_other_splits(tmp_path):
    def counts(pairs):
        return [len(pairs.images(split)) for split in SPLITS]

    plain, own = table(tmp_path, ROWS), table(tmp_path / "own", OWN)
    for source, expected in (
        (plain, [[9, 4, 4], [27, 9, 4], [27, 4, 9]]),
        (own, [[9, 10, 10], [20, 9, 10], [20, 10, 9]]),
    ):
        assert [counts(drawn(source, **{name: 9})) for name in ("sample", "dev", "test")] == expected
    assert [counts(load(plain, shares=shares)) for shares in ((9, 0.2), (1, 1))] == [[23, 9, 8], [38, 1, 1]]


@pytest.mark.parametrize(
    ("rows", "asked", "left"),
    [
        (ROWS, {"dev": 30, "test": 20}, "9 images for test, fewer than --test 20"),
        (ROWS, {"sample": 33}, "32 images for train, fewer than --sample 33"),
        (OWN, {"dev": 11}, "10 images for dev, fewer than --dev 11"),
    ],
)
def test_a_size_that_is_not_there_ends_in_one_line(tmp_path, capsys, rows, asked, left):
    source = table(tmp_path, rows)
    words = [word for name, size in asked.items() for word in (f"--{name}", str(size))]
    assert main(["fit", str(source), "--out", str(tmp_path / "run"), *words, "--quiet"]) == 2
    assert capsys.readouterr().err == f"pairsift: {source}: leaves {left}\n"


def test_skipping_images_keeps_ids(tmp_path):
    pairs = load(table(tmp_path, ROWS))
    row = int(pairs.images("dev")[0])
    fewer = pairs.skip_images({row: "cannot be decoded"})
    assert len(fewer) == len(pairs)
    assert np.flatnonzero(fewer.image_of == row).tolist() == fewer.ids("skipped").tolist()
    assert fewer.skipped[-1].reason == "cannot be decoded"
    with pytest.raises(ValueError, match="truth is not known"):
        fewer.mismatched()
