import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.encode.features import Table


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.booleans(), st.randoms(use_true_random=False))
def test_ragged_batches_are_padded_with_zeros(lengths, vectors, chance):
    items = [np.arange(1, length + 1, dtype=np.int32) + 10 * at for at, length in enumerate(lengths)]
    values = np.concatenate(items)
    if vectors:
        values = np.stack([values, -values], 1).astype(np.float16)
    table = Table(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    rows = np.array(chance.choices(range(len(lengths)), k=4))
    batch = table.batch(rows)
    longest = max(1, *(lengths[row] for row in rows))
    assert len(table) == len(lengths)
    assert batch.values.shape == ((4, longest, 2) if vectors else (4, longest))
    assert batch.values.dtype == (torch.float32 if vectors else torch.int64)
    first = batch.values[..., 0] if vectors else batch.values
    for at, row in enumerate(rows):
        wanted = [*items[row], *[0] * (longest - lengths[row])]
        assert first[at].tolist() == wanted
        assert batch.mask[at].tolist() == [spot < lengths[row] for spot in range(longest)]


def test_plain_batches_are_gathered():
    values = np.arange(12, dtype=np.float16).reshape(3, 2, 2)
    table = Table(values)
    batch = table.batch(np.array([2, 0, 2]))
    assert batch.mask is None
    assert batch.values.dtype == torch.float32
    np.testing.assert_array_equal(batch.values.numpy(), values[[2, 0, 2]])
    assert (len(table), table.dim) == (3, 2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_tables_behind_each_other_are_one_table(left, right, ragged, chance):
    rows = np.array(chance.choices(range(len(right)), k=chance.randint(0, 4)), np.int64)
    items = []
    for start, lengths in ((0, left), (100, right)):
        items.append(
            [
                np.arange(length if ragged else 3, dtype=np.float32) + start + 10 * at
                for at, length in enumerate(lengths)
            ]
        )
    if ragged:
        first, second = (Table.from_items([np.stack([item, -item], 1) for item in side]) for side in items)
    else:
        first, second = (Table(np.stack(side)) for side in items)
    both = first.joined(second, rows)
    wanted = [*items[0], *(items[1][row] for row in rows)]
    assert len(both) == len(wanted) and both.dim == first.dim
    assert both.lengths.tolist() == [len(item) if ragged else 1 for item in wanted]
    order = np.array(chance.sample(range(len(wanted)), len(wanted)), np.int64)
    batch = both.batch(order)
    for place, row in enumerate(order):
        values = batch.values[place, : len(wanted[row]), 0] if ragged else batch.values[place]
        assert values.tolist() == wanted[row].tolist()
