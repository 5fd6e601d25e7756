"""Two simple detectors, written without the package's evidence: ridge-CCA, and agreement with the nearest captions."""

from __future__ import annotations

import numpy as np

from pairsift.runs.judge import Judge
from pairsift.runs.prepare import Prepared


def sides(prepared: Prepared, judge: Judge) -> tuple[np.ndarray, np.ndarray]:
    """Centred features of each judged pair's image and caption."""
    rows, ids = prepared.pairs.image_of[judge.ids], judge.ids
    images = prepared.features.images.batch(rows).values.numpy()
    captions = prepared.features.texts.batch(ids).values.numpy()
    return images - images.mean(0), captions - captions.mean(0)


def cca_score(prepared: Prepared, judge: Judge) -> np.ndarray:
    """Cosine of ridge-CCA (128 directions, ridge a tenth of the largest eigenvalue), five folds by image."""
    x, y = sides(prepared, judge)
    _, image = np.unique(prepared.pairs.image_of[judge.ids], return_inverse=True)
    fold = np.random.default_rng(0).permutation(image.max() + 1)[image] % 5
    score = np.zeros(len(x))
    for held_out in range(5):
        learn = fold != held_out
        a, b = (root(side[learn].T @ side[learn]) for side in (x, y))
        u, _, v = np.linalg.svd(a @ (x[learn].T @ y[learn]) @ b, full_matrices=False)
        left, right = x[~learn] @ a @ u[:, :128], y[~learn] @ b @ v[:128].T
        score[~learn] = cosine(left, right)
    return score


def root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance.astype(np.float64))
    return vectors / np.sqrt(np.maximum(values, 0) + 0.1 * values[-1]) @ vectors.T


def knn_score(prepared: Prepared, judge: Judge) -> np.ndarray:
    """Cosine of a caption with the mean caption of the ten nearest other images."""
    x, y = sides(prepared, judge)
    x, y = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9) for side in (x, y))
    image = prepared.pairs.image_of[judge.ids]
    scores = np.zeros(len(x))
    for start in range(0, len(x), 512):
        part = slice(start, start + 512)
        near = x[part] @ x.T
        near[image[part][:, None] == image[None, :]] = -np.inf
        nearest = np.argpartition(-near, min(10, len(x) - 1), axis=1)[:, :10]
        scores[part] = cosine(y[nearest].mean(1), y[part])
    return scores


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / np.maximum(lengths, 1e-9)
