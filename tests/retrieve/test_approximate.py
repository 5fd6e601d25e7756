"""The approximate index: its recall is what brute force says, and its candidates are ranked exactly."""

import numpy as np
import pytest
import torch

from pairsift.retrieve.nearest import BEST, CANDIDATES, ApproximateIndex, closest, mark_of, nearest

pytest.importorskip("faiss", reason="needs faiss-cpu: pip install 'pairsift[index]'")


@pytest.fixture(scope="module")
def sides():
    """Images in clusters, and queries from elsewhere: around other centres, all shifted to one side."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 24))

    def made(n, shift):
        points = centres[rng.integers(0, 60, n)] + 0.7 * rng.normal(size=(n, 24)) + shift
        unit = points / np.linalg.norm(points, axis=1, keepdims=True)
        return [torch.from_numpy(unit[:, :16]).half(), torch.from_numpy(unit[:, 16:]).half()]

    return made(12_000, 0.0), made(900, rng.normal(size=24))


@pytest.fixture(scope="module")
def index(sides):
    return ApproximateIndex.build(*sides)


def test_the_recall_is_that_of_brute_force_on_queries_of_the_other_side(sides, index):
    images, texts = sides
    every = np.linspace(0, 899, 200).astype(int)
    whole = np.concatenate([part.float().numpy() for part in images], 1)
    shares = []
    for row in every:
        query = np.concatenate([part[row].float().numpy() for part in texts])
        best = set(np.argsort(-(whole @ query), kind="stable")[:BEST].tolist())
        rows, _ = closest([part[row : row + 1] for part in texts], images, BEST, index)
        shares.append(len(best & set(rows.tolist())) / BEST)
    assert index.facts["recall"] == pytest.approx(np.mean(shares), abs=2e-3) and index.facts["recall"] >= 0.98
    assert index.facts["queries"] == 200 and index.facts["cells"] < 219
    assert index.line.startswith(f"approximate search: {index.facts['recall']:.1%} of the 10 best are found")


def test_scores_are_exact_and_too_many_results_are_searched_exactly(sides, index):
    images, texts = sides
    query = [part[7:8] for part in texts]
    exact, approximate = nearest(query, images, 12_000), closest(query, images, 12_000, index)
    assert exact[0][0].tolist() == approximate[0].tolist()
    rows, scores = closest(query, images, 30, index)
    by_row = dict(zip(exact[0][0].tolist(), exact[1][0].tolist(), strict=True))
    assert scores.tolist() == pytest.approx([by_row[row] for row in rows.tolist()], abs=1e-6)
    assert len(index.candidates(query, CANDIDATES)) <= CANDIDATES


def test_an_index_of_few_items_searches_all_cells_and_finds_everything(sides):
    images, texts = ([part[:50] for part in side] for side in sides)
    small = ApproximateIndex.build(images, texts)
    assert small.facts["recall"] == 1 and small.facts["cells"] == 1 and small.facts["queries"] == 50


def test_the_mark_differs_where_vectors_do(sides):
    images, texts = sides
    assert mark_of(images) != mark_of(texts) and mark_of(images) == mark_of([part.clone() for part in images])
