import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import touch, write_table
from pairsift.pairs.pairs import SPLITS
from pairsift.pairs.readers import load
from pairsift.pairs.splits import Draw, draw_splits, shuffled


def table(folder, rows):
    touch(folder, *(row[0] for row in rows))
    return write_table(folder / "x.csv", ["image", "caption"], rows)


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


def test_skipping_images_keeps_ids(tmp_path):
    pairs = load(table(tmp_path, ROWS))
    row = int(pairs.images("dev")[0])
    fewer = pairs.skip_images({row: "cannot be decoded"})
    assert len(fewer) == len(pairs)
    assert np.flatnonzero(fewer.image_of == row).tolist() == fewer.ids("skipped").tolist()
    assert fewer.skipped[-1].reason == "cannot be decoded"
    with pytest.raises(ValueError, match="truth is not known"):
        fewer.mismatched()
