"""The nearest vectors, against a plain loop."""

import numpy as np
import pytest

from pairsift.methods.parts.nearest import nearest


@pytest.mark.parametrize("cells", [1, 30, 10**6])
@pytest.mark.parametrize("ban", [False, True])
def test_nearest_is_the_largest_cosine_among_those_allowed(cells: int, ban: bool) -> None:
    rng = np.random.default_rng(0)
    queries, keys = rng.normal(size=(23, 5)), rng.normal(size=(11, 5)) * rng.uniform(0.1, 9, size=(11, 1))
    banned = rng.integers(-1, 11, 23) if ban else None
    found = nearest(queries.astype(np.float32), keys.astype(np.float32), banned, cells)
    for i, query in enumerate(queries):
        cosines = [
            -2.0 if banned is not None and j == banned[i] else query @ key / np.linalg.norm(query) / np.linalg.norm(key)
            for j, key in enumerate(keys)
        ]
        assert found[i] == int(np.argmax(cosines))


def test_ties_go_to_the_first_and_zero_vectors_to_anything() -> None:
    keys = np.array([[1, 0], [0, 2], [0, 1]], np.float32)
    assert nearest(np.array([[0, 3]], np.float32), keys).tolist() == [1]
    assert nearest(np.zeros((1, 2), np.float32), keys).tolist() == [0]
    assert nearest(np.array([[1, 0]], np.float32), keys[:1], np.array([0])).tolist() == [0]
