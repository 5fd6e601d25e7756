"""Ridge canonical correlation of frozen features, fitted in closed form on all folds except one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Floats, Reals, unit_rows
from pairsift.detect.evidence import Evidence, PairEncoder, contrast, unit_vectors
from pairsift.detect.folds import Folds
from pairsift.detect.options import DetectOptions, LinearOptions

ROWS = 16_384  # number of rows whose products are computed at once
POWER_STEPS = 30  # of the largest eigenvalue


@dataclass(frozen=True)
class Canonical:
    """Affine maps of images and of captions onto their canonical directions, weighted by the correlations.

    Attributes:
        image_mean: (d,).
        caption_mean: (e,).
        image_map: (d, k).
        caption_map: (e, k).
    """

    image_mean: Tensor
    caption_mean: Tensor
    image_map: Tensor
    caption_map: Tensor

    def images(self, x: Tensor) -> Tensor:
        """Return unit vectors of images, (n, d) to (n, k)."""
        return unit_vectors((x - self.image_mean) @ self.image_map)

    def captions(self, y: Tensor) -> Tensor:
        """Return unit vectors of captions, (n, e) to (n, k)."""
        return unit_vectors((y - self.caption_mean) @ self.caption_map)


def canonical(images: Floats, captions: Floats, trust: Reals, options: LinearOptions) -> Canonical:
    """Fit ridge canonical correlation to pairs, as `linear_evidence` describes it.

    Wider features than 320 are first reduced to their principal components.

    Args:
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        trust: Weight of each pair, [0, 1], (n,).
        options: The ridge, and the numbers of components and directions.
    """
    components = [Components.fit(side, options) for side in (images, captions)]
    x, y = (torch.from_numpy(part.project(side)) for part, side in zip(components, (images, captions), strict=True))
    weight = torch.from_numpy(np.asarray(trust, np.float64))
    model = _canonical(list(_moments(x, y, weight, torch.arange(len(x)))), options)
    image_mean, image_map = _unreduced(components[0], model.image_mean, model.image_map)
    caption_mean, caption_map = _unreduced(components[1], model.caption_mean, model.caption_map)
    return Canonical(image_mean, caption_mean, image_map, caption_map)


def _unreduced(components: Components, mean: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the map of whole vectors by the mean and the map of their components, (d,) and (d, k)."""
    if components.basis is not None:
        basis = torch.from_numpy(components.basis)
        mean, projection = basis @ mean, basis @ projection
    return torch.from_numpy(np.asarray(components.mean, np.float32)) + mean, projection


class StackedKinds:
    """Vectors side by side, each kind centred and scaled to unit length, computed for the rows that are asked for.

    Args:
        kinds: Vectors of each kind, (n, d) and so on.
        means: Their means where they are known, (d,) and so on.
    """

    def __init__(self, *kinds: Floats, means: Sequence[Floats] | None = None) -> None:
        self.kinds, self.means = kinds, list(means or [vectors.mean(0) for vectors in kinds])
        self.shape = (len(kinds[0]), sum(vectors.shape[1] for vectors in kinds))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Floats:
        kinds = zip(self.kinds, self.means, strict=True)
        return np.concatenate([unit_rows(vectors[rows] - mean) for vectors, mean in kinds], 1)

    def mean(self, axis: int, dtype: type = np.float64) -> Floats:
        """Return the mean over the rows, (d + e,)."""
        sums = [self[start : start + ROWS].sum(axis, dtype) for start in range(0, len(self), ROWS)]
        return np.asarray(np.sum(sums, 0) / max(1, len(self)), np.float32)


@dataclass(frozen=True)
class Components:
    """The mean of vectors and their first principal components.

    Attributes:
        mean: (d,).
        basis: (d, k), k at most 320; None for all directions.
    """

    mean: Floats
    basis: Floats | None

    @staticmethod
    def fit(vectors: Floats | StackedKinds, options: LinearOptions) -> Components:
        """Fit the components to rows of vectors, (n, d); there are at most n."""
        width = min(options.max_width, len(vectors))
        mean = np.asarray(vectors.mean(0, np.float64), np.float32)  # in float32, large equal values leave a rest
        if vectors.shape[1] <= width:
            return Components(mean, None)
        sample = vectors[:: max(1, -(-len(vectors) // options.max_rows))] - mean
        values, basis = np.linalg.eigh(np.asarray(sample.T @ sample, np.float64))
        return Components(mean, basis[:, np.argsort(-values)[:width]].astype(np.float32))

    def project(self, vectors: Floats | StackedKinds) -> Floats:
        """Project centred vectors onto the components, (n, d) to (n, k); for all directions, they are only centred."""
        if self.basis is None:
            return np.asarray(vectors[:] - self.mean, np.float32)
        projected = np.empty((len(vectors), self.basis.shape[1]), np.float32)
        for start in range(0, len(vectors), ROWS):
            projected[start : start + ROWS] = (vectors[start : start + ROWS] - self.mean) @ self.basis
        return projected


def principal(vectors: Floats | StackedKinds, options: LinearOptions) -> Floats:
    """Project centred vectors onto their first principal components, (n, at most 320 and at most n).

    Vectors of at most that width are only centred.

    Args:
        vectors: The vectors, (n, d).
        options: The largest number of components, and of rows that they are computed from.
    """
    return Components.fit(vectors, options).project(vectors)


def linear_evidence(folds: Folds, images: Floats, captions: Floats, seed: int, options: DetectOptions) -> Evidence:
    """Return the evidence of pairs by the cosine of canonical variates that are fitted without the pair's fold.

    With covariances C over the other folds and ridges r, the singular vectors of
    (C_xx + r I)^-1/2 C_xy (C_yy + r I)^-1/2 give at most 128 directions for each side. A ridge is a tenth of the
    largest eigenvalue, and less for many pairs. Directions are weighted by their canonical correlations.

    Args:
        folds: The pairs, their folds and the decoys.
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        seed: Seed of the references.
        options: Ridge, directions and references.
    """
    fitted = fit_canonicals(folds, images, captions, options.linear)
    return contrast(folds, fitted.encoder(images, captions), seed, options)


@dataclass(frozen=True)
class Canonicals:
    """The canonical variates of each fold's pairs, by a model of the other folds.

    Attributes:
        models: The model of each fold.
    """

    models: list[Canonical]

    def encoder(self, images: Floats, captions: Floats) -> PairEncoder:
        """Return a function that gives the canonical variates of pairs with these features."""
        x, y = torch.from_numpy(images), torch.from_numpy(captions)
        return lambda fold, rows: (self.models[fold].images(x[rows]), self.models[fold].captions(y[rows]))


def fit_canonicals(
    folds: Folds, images: Floats, captions: Floats, options: LinearOptions, trust: Reals | None = None
) -> Canonicals:
    """Fit ridge canonical correlation to all folds except each one, as `linear_evidence` describes it."""
    x, y = torch.from_numpy(images), torch.from_numpy(captions)
    parts = [torch.from_numpy(members) for members in folds.members()]
    weights = torch.from_numpy(np.ones((1, len(folds))) if trust is None else trust)  # one row holds for all folds
    moments = [[_moments(x, y, weight, part[weight[part] > 0]) for part in parts] for weight in weights]
    return Canonicals([_canonical(_total(moments[fold % len(moments)], fold), options) for fold in range(len(parts))])


def _moments(x: Tensor, y: Tensor, weight: Tensor, members: Tensor, block: int = ROWS) -> tuple[Tensor, ...]:
    """Return the weight, the weighted sums and the weighted products of some pairs."""
    total: tuple[Tensor, ...] = ()
    for start in range(0, max(1, len(members)), block):
        rows = members[start : start + block]
        images, captions, counts = x[rows].double(), y[rows].double(), weight[rows, None]
        weighted = (counts * images, counts * captions)
        part = (
            counts.sum(),
            weighted[0].sum(0),
            weighted[1].sum(0),
            weighted[0].T @ images,
            weighted[1].T @ captions,
            weighted[0].T @ captions,
        )
        total = tuple(map(torch.add, total, part)) if total else part
    return total


def _total(moments: list[tuple[Tensor, ...]], without: int) -> list[Tensor]:
    """Return the moments over all folds except one.

    They are sums over the other folds, since a difference would keep the rounding errors of the fold that is left out.
    """
    others = moments[:without] + moments[without + 1 :]
    return [sum((part[kind] for part in others), torch.zeros_like(moments[without][kind])) for kind in range(6)]


def _canonical(moments: list[Tensor], options: LinearOptions) -> Canonical:
    """Return the maps of both sides from the moments of the training pairs."""
    count, sum_x, sum_y, xx, yy, xy = moments
    count = count.clamp(min=1e-9)
    mean_x, mean_y = sum_x / count, sum_y / count
    ridge = float(options.ridge * (options.full_ridge_weight / count.clamp(min=options.full_ridge_weight)).sqrt())
    left = _factor(xx / count - torch.outer(mean_x, mean_x), ridge)
    right = _factor(yy / count - torch.outer(mean_y, mean_y), ridge)
    between = torch.linalg.solve_triangular(left, xy / count - torch.outer(mean_x, mean_y), upper=False)
    between = torch.linalg.solve_triangular(right, between.T, upper=False).T
    u, correlation, v = _leading(between, options.directions)
    x_map, y_map = (
        torch.linalg.solve_triangular(factor.T, directions * correlation, upper=True)
        for factor, directions in ((left, u), (right, v))
    )
    return Canonical(*(part.float().contiguous() for part in (mean_x, mean_y, x_map, y_map)))


def _factor(covariance: Tensor, ridge: float) -> Tensor:
    """Return the Cholesky factor of C + r I, where r is the share `ridge` of the largest eigenvalue of C.

    A power iteration finds the eigenvalue.
    """
    scaled = covariance / covariance.norm().clamp(min=1e-30)  # so that no step overflows
    vector: Tensor = scaled.abs().sum(0)
    for _ in range(POWER_STEPS):
        vector = scaled @ vector
    largest = ((covariance @ vector).norm() / vector.norm().clamp(min=1e-300)).clamp(min=1e-12)
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    factor: Tensor = torch.linalg.cholesky(covariance + (ridge * largest).clamp(min=1e-12) * identity)
    return factor


def _leading(matrix: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k leading singular vectors and values of a matrix, by the eigenvectors of its smaller square."""
    if len(matrix) > matrix.shape[1]:
        v, values, u = _leading(matrix.T, k)
        return u, values, v
    squares, vectors = torch.linalg.eigh((matrix @ matrix.T).float())
    u, values = vectors[:, -k:].flip(1).double(), squares[-k:].flip(0).double().clamp(min=1e-12).sqrt()
    return u, values, matrix.T @ u / values
