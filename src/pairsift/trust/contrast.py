"""The evidence of pairs: a pair's similarity minus the similarities of its image and caption with other pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints, Reals
from pairsift.trust.crossfit import COMMON, CrossFit

SCALE = 20.0  # inverse temperature of the references
REFERENCES = 1024  # largest number of pairs that every image and caption of a fold is compared with
MIN_REFERENCES = 50  # smallest number of pairs in a fold that are sufficient as references

Codes = Callable[[int, Ints], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Evidence:
    """A number per pair and per decoy, high where image and caption belong together.

    Attributes:
        pairs: Evidence of the pairs, (n,).
        decoys: Evidence of the decoys, captions combined with images of other pairs, (m,).
        near_decoys: Evidence of the near decoys, whose captions read like those that are given with the images, (k,).
        placeholder: Number of the image or caption that the pair has in common with many and that fits hardly any
            of them (`pairsift.trust.placeholders`), -1 for other pairs, (n,); empty if there is none.
    """

    pairs: Reals
    decoys: Reals
    near_decoys: Reals = field(default_factory=lambda: np.zeros(0))
    placeholder: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def contrast(fit: CrossFit, codes: Codes, seed: int) -> Evidence:
    """Return the cosine of every pair minus the level that its image and its caption reach with references.

        e(I, T) = cos(I, T) - 1/2s log mean_T' exp(s cos(I, T')) - 1/2s log mean_I' exp(s cos(I', T)),    s = 20

    The references are at most 1,024 pairs of the same fold, or of all folds where the fold has fewer than 50 pairs.
    Pairs of the same group of near-duplicate images are excluded. Otherwise the evidence of mismatched pairs and of
    decoys would be distributed differently: the caption of a decoy comes from the same fold, with all near-duplicates
    of its true image; the true image of a mismatched pair's caption mostly lies in another fold. For near decoys, and
    decoys that are swaps, the pairs of both groups are excluded, or they would be compared with themselves; for decoys
    with an image of at least 20 pairs, or a caption from one, too, or this image would count against them but not
    against its own pairs.

    Args:
        fit: The pairs, their folds and the decoys.
        codes: Function from a fold and some pairs to unit vectors of the pairs' images and of their captions, (k, d)
            each, from a model that did not see the fold.
        seed: Seed of the references.
    """
    pairs, decoys, near = (np.zeros(n) for n in (len(fit), len(fit.decoy_images), len(fit.near_images)))
    place = np.zeros(len(fit), np.int64)
    large = np.bincount(fit.image_of, minlength=1)[fit.image_of] >= COMMON
    mismatched = (
        (decoys, fit.decoy_images, fit.decoy_captions, len(fit.copies) > 0),
        (near, fit.near_images, fit.near_captions, True),
    )
    for fold, members in enumerate(fit.members()):
        if not len(members):
            continue
        images, captions = codes(fold, members)
        place[members] = np.arange(len(members))
        pool = members if len(members) >= MIN_REFERENCES else np.arange(len(fit))
        references = np.random.default_rng((seed, 9, fold)).permutation(pool)[:REFERENCES]
        groups, reference_groups = (torch.from_numpy(fit.group_of[part]) for part in (members, references))
        other_images, other_captions = codes(fold, references)
        rows = _references(images, other_captions, groups[:, None], reference_groups)
        columns = _references(captions, other_images, groups[:, None], reference_groups)
        pairs[members] = ((images * captions).sum(1) - (rows + columns) / 2).numpy()
        for values, image_pairs, caption_pairs, alike in mismatched:
            inside = np.flatnonzero(fit.fold[image_pairs] == fold)
            here, there = place[image_pairs[inside]], place[caption_pairs[inside]]
            levels = rows[here] + columns[there]
            apart = np.flatnonzero(alike | large[image_pairs[inside]] | large[caption_pairs[inside]])
            both = torch.stack([groups[here[apart]], groups[there[apart]]], 1)
            levels[apart] = _references(images[here[apart]], other_captions, both, reference_groups)
            levels[apart] += _references(captions[there[apart]], other_images, both, reference_groups)
            values[inside] = ((images[here] * captions[there]).sum(1) - levels / 2).numpy()
    return Evidence(pairs, decoys, near)


def _references(queries: Tensor, references: Tensor, groups: Tensor, reference_groups: Tensor) -> Tensor:
    """Return the log-mean-exp over the references outside the query's groups, (n, g), divided by the scale, (n,)."""
    levels = [queries.new_zeros(0)]
    for start in range(0, len(queries), 4096):
        part = slice(start, start + 4096)
        same_group = (groups[part, :, None] == reference_groups).any(1)
        total = (SCALE * queries[part] @ references.T).masked_fill(same_group, -torch.inf).logsumexp(1)
        count = (~same_group).sum(1)
        levels.append(torch.where(count > 0, total - count.clamp(min=1).log(), 0.0) / SCALE)
    return torch.cat(levels)
