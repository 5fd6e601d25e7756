import numpy as np
import pytest

from pairsift.arrays import first_numbers


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float32, "U2"])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_numbers_follow_the_order_in_which_values_first_appear(kind, count):
    values = np.random.default_rng(0).integers(0, 12, count).astype(kind)
    known: dict = {}
    assert first_numbers(values).tolist() == [known.setdefault(value, len(known)) for value in values.tolist()]
