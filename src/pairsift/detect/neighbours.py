"""The agreement of a pair with the pairs of similar images and of similar captions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals, unit_rows
from pairsift.detect.contrast import Evidence, contrast
from pairsift.detect.crossfit import CrossFit, Vectors

NEIGHBOURS = 30
SHARPNESS = 5.0  # inverse temperature of the neighbours' weights
KEYS = 20_000  # largest number of pairs, drawn once for each fold, among which neighbours are sought


def neighbour_evidence(
    fit: CrossFit, images: Vectors, captions: Vectors, seed: int, trust: Reals | None = None
) -> tuple[Evidence, Evidence]:
    """Return the evidence of pairs by predictions from the nearest pairs of other folds.

    The captions of the 30 nearest images, weighted by exp(5 cos), predict the caption of an image; the images of the
    30 nearest captions predict the image of a caption. Cosines are those of centred features. Pairs are also weighted
    by the trust in them.

    Args:
        fit: The pairs, their folds and the decoys.
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        seed: Seed of the references and of the keys.
        trust: Trust in each pair by models that did not see each of the folds, [0, 1], (folds, n); None for 1.

    Returns:
        The evidence by predicted captions, and by predicted images.
    """
    x, y = (torch.from_numpy(unit_rows(vectors - vectors.mean(0))) for vectors in (images, captions))
    weights = torch.ones(1, len(fit)) if trust is None else torch.from_numpy(trust).float()  # one row: for all folds

    def predicted(queries: Tensor, values: Tensor, fold: int, members: Ints) -> Tensor:
        return _predictions(queries, values, weights[fold % len(weights)], members, _keys(fit, fold, seed))

    def by_images(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        return predicted(x, y, fold, members), y[members]

    def by_captions(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        return x[members], predicted(y, x, fold, members)

    return contrast(fit, by_images, seed), contrast(fit, by_captions, seed)


def _keys(fit: CrossFit, fold: int, seed: int) -> Ints:
    """Return at most `KEYS` pairs of the other folds, in an order that is drawn for each fold."""
    others = np.flatnonzero(fit.fold != fold)
    return np.random.default_rng((seed, 10, fold)).permutation(others)[:KEYS].astype(np.int64)


def _predictions(queries: Tensor, values: Tensor, weights: Tensor, members: Ints, keys: Ints) -> Tensor:
    """Return the weighted means of the values of each member's nearest keys, as unit vectors, (len(members), e)."""
    predictions = []
    for start in range(0, len(members), 1024):
        cosine, place = (queries[members[start : start + 1024]] @ queries[keys].T).topk(min(NEIGHBOURS, len(keys)), 1)
        weight = (SHARPNESS * cosine).softmax(1) * weights[keys][place]
        mean = torch.einsum("nk,nkd->nd", weight, values[keys][place])
        predictions.append(mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-9))
    return torch.cat(predictions)
