"""The search over several networks' vectors against a sort of all mean scores, and its memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pairsift
import pairsift.retrieve.nearest
from pairsift.errors import InputError
from pairsift.retrieve.nearest import nearest


@pytest.mark.parametrize("block", [1, 40, 2**23])
@pytest.mark.parametrize("k", [1, 5, 99])
def test_the_mean_over_networks_of_different_width_matches_a_full_sort(block, k, monkeypatch):
    monkeypatch.setattr(pairsift.retrieve.nearest, "BLOCK", block)
    rng = np.random.default_rng(k)
    vectors = [rng.integers(-2, 3, (23, d)).astype(np.float32) for d in (3, 7)]
    queries = [rng.integers(-2, 3, (4, d)).astype(np.float32) for d in (3, 7)]
    indices, scores = nearest(
        [torch.from_numpy(one) for one in queries], [torch.from_numpy(one).half() for one in vectors], k
    )
    for row in range(4):
        means = [
            sum(float(query[row] @ items[place]) for query, items in zip(queries, vectors, strict=True)) / 2
            for place in range(23)
        ]
        expected = sorted(range(23), key=lambda place: (-means[place], place))[:k]
        assert indices[row].tolist() == expected
        assert scores[row].tolist() == [means[place] for place in expected]


def test_nothing_is_found_among_nothing_and_no_result_is_no_request():
    indices, scores = nearest([torch.ones(2, 3)], [torch.empty(0, 3).half()], 4)
    assert indices.shape == scores.shape == (2, 0)
    indices, scores = nearest([torch.empty(0, 3)], [torch.ones(4, 3).half()], 5)
    assert indices.shape == scores.shape == (0, 4)
    with pytest.raises(InputError, match="k is 0"):
        nearest([torch.ones(1, 3)], [torch.ones(2, 3)], 0)
    with pytest.raises(InputError, match="not a number"):
        nearest([torch.ones(1, 1)], [torch.tensor([[1.0], [float("nan")]])], 1)


PEAK = """
import resource
import torch
from pairsift.retrieve.nearest import nearest

vectors = [torch.ones(200_000, 256, dtype=torch.float16) for _ in range(2)]
queries = [torch.ones(1, 256) for _ in range(2)]
nearest([query[:, :8] for query in queries], [rows[:9, :8] for rows in vectors], 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nearest(queries, vectors, 10)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_only_a_block_is_copied():
    """A copy of all vectors in float32 would take 390 MiB."""
    environment = {
        "PYTHONPATH": str(Path(pairsift.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run([sys.executable, "-c", PEAK], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 120
