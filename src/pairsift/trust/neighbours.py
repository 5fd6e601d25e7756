"""The agreement of a pair with the pairs of similar images and of similar captions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals, unit_rows
from pairsift.trust.contrast import Evidence, contrast
from pairsift.trust.crossfit import CrossFit, Vectors

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


def sibling_evidence(fit: CrossFit, captions: Vectors, probability: Reals) -> Evidence:
    """Return the agreement of each caption with the other captions of its image, weighted by their probabilities.

        e_i = sum_s p_s cos(T_i, T_s) / (1 + sum_s p_s)    over the siblings s of pair i

    Where all captions of an image have low probabilities, such as after a swap of the image, e is near 0.

    Args:
        fit: The pairs, their folds and the decoys.
        captions: Vectors of each pair's caption, (n, e).
        probability: Probability that each pair matches, [0, 1], (n,), by evidence that leaves its siblings out.
    """
    vectors = unit_rows(captions - captions.mean(0))
    image = np.unique(fit.image_of, return_inverse=True)[1]
    believed = np.bincount(image, probability)
    total = np.zeros((len(believed), vectors.shape[1]), np.float32)
    np.add.at(total, image, vectors * probability[:, None].astype(np.float32))

    def agreement(image_pairs: Ints, caption_pairs: Ints) -> Reals:
        weight = probability[image_pairs]
        others = total[image[image_pairs]] - vectors[image_pairs] * weight[:, None].astype(np.float32)
        return np.asarray(
            (others * vectors[caption_pairs]).sum(1) / (1 + believed[image[image_pairs]] - weight), np.float64
        )

    pairs = np.arange(len(fit))
    decoys = agreement(fit.decoy_images, fit.decoy_captions)
    return Evidence(agreement(pairs, pairs), decoys, agreement(fit.near_images, fit.near_captions))
