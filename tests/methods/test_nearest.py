"""The nearest vectors, against a plain loop."""

import numpy as np
import pytest

from pairsift.methods.parts.nearest import nearest


@pytest.mark.parametrize("cells", [1, 30, 10**6])
def test_nearest_is_the_largest_cosine(cells: int) -> None:
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(23, 5)), rng.normal(size=(11, 5)) * rng.uniform(0.1, 9, size=(11, 1))
    found = nearest(queries.astype(np.float32), keys.astype(np.float32), cells)
    for i, query in enumerate(queries):
        cosines = [query @ key / np.linalg.norm(query) / np.linalg.norm(key) for key in keys]
        assert found[i] == int(np.argmax(cosines))


def test_ties_go_to_the_first_and_zero_vectors_to_anything() -> None:
    keys = np.array([[1, 0], [0, 2], [0, 1]], np.float32)
    assert nearest(np.array([[0, 3]], np.float32), keys).tolist() == [1]
    assert nearest(np.zeros((1, 2), np.float32), keys).tolist() == [0]
