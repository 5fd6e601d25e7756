"""Evidence for pairs: how far a similarity stands above those of the image and the caption with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals
from pairsift.trust.crossfit import CrossFit

SCALE = 20.0  # inverse temperature of the references
REFERENCES = 1024  # pairs that every image and caption of a fold is compared with at most
FEWEST = 50  # pairs of a fold that suffice as references

Codes = Callable[[int, Ints], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Evidence:
    """One number per pair and per decoy; high where image and caption belong together.

    Attributes:
        pairs: (n,).
        decoys: (m,), the same number for captions beside images that they were not given with.
    """

    pairs: Reals
    decoys: Reals


def contrast(fit: CrossFit, codes: Codes, seed: int) -> Evidence:
    """Return the cosine of every pair less what its image and its caption reach with references.

        e(I, T) = cos(I, T) - 1/2s log mean_T' exp(s cos(I, T')) - 1/2s log mean_I' exp(s cos(I', T)),    s = 20

    The references are at most 1,024 pairs of the same fold, or of all folds where one has fewer than 50 pairs, without
    those of the same group of near-duplicate images. Without that, evidence of mismatched pairs and of decoys would be
    distributed differently: a decoy's caption comes from the same fold, with all near-duplicates of its true image; the
    true image of a mismatched pair's caption mostly lies in another fold.

    Args:
        fit: The pairs, their folds and the decoys.
        codes: For a fold and some pairs, unit vectors of the pairs' images and of their captions, (k, d) each, from a
            model that did not see the fold.
        seed: Seed of the references.
    """
    pairs, decoys = np.zeros(len(fit)), np.zeros(len(fit.decoy_images))
    place = np.zeros(len(fit), np.int64)
    decoy_fold = fit.fold[fit.decoy_images]
    for fold, members in enumerate(fit.members()):
        if not len(members):
            continue
        images, captions = codes(fold, members)
        place[members] = np.arange(len(members))
        pool = members if len(members) >= FEWEST else np.arange(len(fit))
        chosen = np.random.default_rng((seed, 9, fold)).permutation(pool)[:REFERENCES]
        owners, theirs = (torch.from_numpy(fit.group_of[some]) for some in (members, chosen))
        other_images, other_captions = codes(fold, chosen)
        rows = _references(images, other_captions, owners, theirs)
        columns = _references(captions, other_images, owners, theirs)
        own = np.arange(len(members))
        here = np.flatnonzero(decoy_fold == fold)
        strays = place[fit.decoy_images[here]], place[fit.decoy_captions[here]]
        for target, where, (left, right) in ((pairs, members, (own, own)), (decoys, here, strays)):
            cosine = (images[left] * captions[right]).sum(1)
            target[where] = (cosine - (rows[left] + columns[right]) / 2).numpy()
    return Evidence(pairs, decoys)


def _references(queries: Tensor, references: Tensor, owners: Tensor, theirs: Tensor) -> Tensor:
    """Log-mean-exp over the references that are not of the query's own group, divided by the scale, (n,)."""
    found = []
    for start in range(0, len(queries), 4096):
        part = slice(start, start + 4096)
        own = owners[part, None] == theirs[None, :]
        total = (SCALE * queries[part] @ references.T).masked_fill(own, -torch.inf).logsumexp(1)
        count = (~own).sum(1)
        found.append(torch.where(count > 0, total - count.clamp(min=1).log(), 0.0) / SCALE)
    return torch.cat(found)
