"""Agreement of a pair with the pairs of like images and of like captions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals
from pairsift.trust.contrast import Evidence, contrast
from pairsift.trust.crossfit import CrossFit, Vectors, unit_rows

NEIGHBOURS = 30
SHARPNESS = 5.0  # inverse temperature of the neighbours' weights
KEYS = 20_000  # pairs, drawn once for each fold, among which neighbours are sought at most


def neighbour_evidence(
    fit: CrossFit, images: Vectors, captions: Vectors, seed: int, trust: Reals | None = None
) -> tuple[Evidence, Evidence]:
    """Contrast pairs by what the nearest pairs of other folds foretell.

    The captions of the 30 nearest images, weighted by exp(5 cos), foretell the caption of an image; the images of the
    30 nearest captions foretell the image of a caption. Cosines are those of centred features. Pairs count as far as
    they are believed.

    Args:
        fit: The pairs, their folds and the decoys.
        images: Features of each pair's image, (n, d).
        captions: Features of each pair's caption, (n, e).
        seed: Seed of the references and of the keys.
        trust: How far each pair is believed, [0, 1], by what did not see each of the folds, (folds, n); None: wholly.

    Returns:
        The evidence by foretold captions, and by foretold images.
    """
    x, y = (torch.from_numpy(unit_rows(one - one.mean(0))) for one in (images, captions))
    weights = torch.ones(1, len(fit)) if trust is None else torch.from_numpy(trust).float()  # one row: for all folds

    def foretold(queries: Tensor, values: Tensor, fold: int, members: Ints) -> Tensor:
        return _foretold(queries, values, weights[fold % len(weights)], members, _keys(fit, fold, seed))

    def by_images(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        return foretold(x, y, fold, members), y[members]

    def by_captions(fold: int, members: Ints) -> tuple[Tensor, Tensor]:
        return x[members], foretold(y, x, fold, members)

    return contrast(fit, by_images, seed), contrast(fit, by_captions, seed)


def _keys(fit: CrossFit, fold: int, seed: int) -> Ints:
    """Pairs of the other folds, in an order drawn for each fold."""
    others = np.flatnonzero(fit.fold != fold)
    return np.random.default_rng((seed, 10, fold)).permutation(others)[:KEYS].astype(np.int64)


def _foretold(queries: Tensor, values: Tensor, weights: Tensor, members: Ints, keys: Ints) -> Tensor:
    """Weighted means of the values of each member's nearest keys, as unit vectors, (len(members), e)."""
    found = []
    for start in range(0, len(members), 1024):
        cosine, place = (queries[members[start : start + 1024]] @ queries[keys].T).topk(min(NEIGHBOURS, len(keys)), 1)
        weight = (SHARPNESS * cosine).softmax(1) * weights[keys][place]
        mean = torch.einsum("nk,nkd->nd", weight, values[keys][place])
        found.append(mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-9))
    return torch.cat(found)


def sibling_evidence(fit: CrossFit, captions: Vectors, probability: Reals) -> Evidence:
    """Return how far a caption agrees with the other captions of its image, as far as those are believed.

        e_i = sum_s p_s cos(T_i, T_s) / (1 + sum_s p_s)    over the siblings s of pair i

    Where all captions of an image are doubted, as where an image was exchanged as a whole, they say nothing.

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

    def agreement(left: Ints, right: Ints) -> Reals:
        own = probability[left]
        others = total[image[left]] - vectors[left] * own[:, None].astype(np.float32)
        return np.asarray((others * vectors[right]).sum(1) / (1 + believed[image[left]] - own), np.float64)

    pairs = np.arange(len(fit))
    return Evidence(agreement(pairs, pairs), agreement(fit.decoy_images, fit.decoy_captions))
