"""Ridge canonical correlation of frozen features, fitted on all folds but one in closed form."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Reals
from pairsift.trust.contrast import Codes, Evidence, contrast
from pairsift.trust.crossfit import CrossFit, Vectors

DIRECTIONS = 128
RIDGE = 0.1  # share of the largest eigenvalue that is added to all
FULL_RIDGE = 2000  # total weight of the pairs from which on the ridge falls with its root
WIDEST = 320  # features are first reduced to this many principal components
ROWS = 65_536  # whose products are summed at once


def principal(vectors: Vectors, width: int = WIDEST, most: int = 50_000) -> Vectors:
    """Return centred vectors by their first principal components, (n, at most `width` and at most n).

    Args:
        vectors: (n, d).
        width: Largest number of components.
        most: Number of rows, evenly spaced, that the components are computed from at most.
    """
    mean, width = vectors.mean(0), min(width, len(vectors))
    if vectors.shape[1] <= width:
        return np.asarray(vectors - mean, np.float32)
    sample = vectors[:: max(1, len(vectors) // most)] - mean
    values, basis = np.linalg.eigh(np.asarray(sample.T @ sample, np.float64))
    return np.asarray((vectors - mean) @ basis[:, np.argsort(-values)[:width]].astype(np.float32), np.float32)


def linear_evidence(
    fit: CrossFit, images: Vectors, captions: Vectors, seed: int, trust: Reals | None = None
) -> Evidence:
    """Contrast pairs by the cosine of canonical variates that were fitted without their fold.

    With covariances C over the other folds and ridges r, a tenth of the largest eigenvalue and of many pairs less, the
    singular vectors of (C_xx + r I)^-1/2 C_xy (C_yy + r I)^-1/2 give at most 128 directions for either side; every
    direction counts by its canonical correlation. Pairs count in C as far as they are believed.

    Args:
        fit: The pairs, their folds and the decoys.
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        seed: Seed of the references.
        trust: How far each pair is believed, [0, 1], by what did not see each of the folds, (folds, n); None: wholly.
    """
    return contrast(fit, canonical_codes(fit, images, captions, trust), seed)


def canonical_codes(fit: CrossFit, images: Vectors, captions: Vectors, trust: Reals | None = None) -> Codes:
    """Return what gives a fold's pairs their canonical variates, as `contrast` takes it."""
    x, y = torch.from_numpy(images), torch.from_numpy(captions)
    parts = [torch.from_numpy(members) for members in fit.members()]
    weights = torch.from_numpy(np.ones((1, len(fit))) if trust is None else trust)  # one row holds for all folds
    moments = [[_moments(x, y, weight, part) for part in parts] for weight in weights]
    models = [_canonical(_total(moments[fold % len(moments)], fold)) for fold in range(len(parts))]

    def codes(fold: int, members: np.ndarray) -> tuple[Tensor, Tensor]:
        mean_x, mean_y, left, right = models[fold]
        return _unit((x[members] - mean_x) @ left), _unit((y[members] - mean_y) @ right)

    return codes


def _moments(x: Tensor, y: Tensor, weight: Tensor, members: Tensor) -> tuple[Tensor, ...]:
    """Weight, weighted sums and weighted products of some pairs."""
    found: tuple[Tensor, ...] = ()
    for start in range(0, max(1, len(members)), ROWS):
        rows = members[start : start + ROWS]
        left, right, counts = x[rows].double(), y[rows].double(), weight[rows, None]
        one = (counts * left, counts * right)
        now = (counts.sum(), one[0].sum(0), one[1].sum(0), one[0].T @ left, one[1].T @ right, one[0].T @ right)
        found = tuple(map(torch.add, found, now)) if found else now
    return found


def _total(moments: list[tuple[Tensor, ...]], without: int) -> list[Tensor]:
    """Moments over all folds but one; summed, since a difference would keep the rounding of what it takes away."""
    others = moments[:without] + moments[without + 1 :]
    return [sum((part[kind] for part in others), torch.zeros_like(moments[without][kind])) for kind in range(6)]


def _canonical(moments: list[Tensor]) -> tuple[Tensor, ...]:
    """Means and projections of both sides from the moments of the pairs to learn from."""
    count, sum_x, sum_y, xx, yy, xy = moments
    count = count.clamp(min=1e-9)
    mean_x, mean_y = sum_x / count, sum_y / count
    ridge = float(RIDGE * (FULL_RIDGE / count.clamp(min=FULL_RIDGE)).sqrt())
    left = _inverse_root(xx / count - torch.outer(mean_x, mean_x), ridge)
    right = _inverse_root(yy / count - torch.outer(mean_y, mean_y), ridge)
    u, correlation, v = torch.linalg.svd(left @ (xy / count - torch.outer(mean_x, mean_y)) @ right, full_matrices=False)
    kept = correlation[:DIRECTIONS]
    projections = left @ u[:, : len(kept)] * kept, right @ v[: len(kept)].T * kept
    return tuple(part.float() for part in (mean_x, mean_y, *projections))


def _inverse_root(covariance: Tensor, ridge: float) -> Tensor:
    """(C + r I)^-1/2 with r this share of the largest eigenvalue of C."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = (vectors / (values.clamp(min=0) + ridge * values[-1].clamp(min=1e-12)).sqrt()) @ vectors.T
    return root


def _unit(x: Tensor) -> Tensor:
    unit: Tensor = x / x.norm(dim=1, keepdim=True).clamp(min=1e-9)
    return unit
