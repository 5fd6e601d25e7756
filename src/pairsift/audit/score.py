"""How well every caption fits its image, and which caption would fit better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.pairs.pairs import Ints
from pairsift.retrieve.codes import Gallery
from pairsift.trust.mixture import fit_mixture

CHUNK = 256  # images in a block
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdicts:
    """What the networks say of each judged pair, all (n,).

    Attributes:
        score: Probability that the caption belongs to the image, [0, 1]; low is bad.
        is_mismatch: score < 0.5.
        suggested: Position, among the judged pairs, of the caption that would fit a flagged pair's image; else -1.
    """

    score: Floats
    is_mismatch: NDArray[np.bool_]
    suggested: Ints

    @property
    def noise_rate(self) -> float:
        """Expected share of mismatched pairs."""
        return float(np.mean(1 - self.score)) if len(self.score) else 0.0


def judge(gallery: Gallery, owner: Ints, seed: int, fit_on: NDArray[np.bool_] | None = None) -> Verdicts:
    """Judge every caption of a gallery against the image that it is given with.

    A pair's evidence is its symmetric InfoNCE over the whole gallery instead of a batch,

        e = s/tau - 1/2 log sum_T' exp(s(I, T')/tau) - 1/2 log sum_I' exp(s(I', T)/tau),

    where the caption's siblings are left out of the first sum. The score is the posterior of the upper component of a
    two-component mixture over e. A suggestion is the caption with the largest s/tau - log sum_I' exp(s(I', T)/tau),
    so that captions which lie close to every image do not win everywhere.

    Args:
        gallery: The images and captions.
        owner: Which of the gallery's images each caption is given with, (n_texts,).
        seed: Seed of the mixture.
        fit_on: The pairs that the mixture is fitted on, (n_texts,); default: all.
    """
    own, rows, columns = _sums(gallery, owner)
    evidence = own - (rows + columns) / 2
    mixture = fit_mixture(-evidence if fit_on is None else -evidence[fit_on], seed)
    score = mixture.low(-evidence)
    flagged = score < 0.5
    best = _suggest(gallery, owner, columns, np.unique(owner[flagged]))
    return Verdicts(score, flagged, np.where(flagged, best[owner], -1))


def _sums(gallery: Gallery, owner: Ints) -> tuple[Floats, Floats, Floats]:
    """Every caption's s/tau with its own image, and the log-sums over captions and over images, each (n_texts,)."""
    n_images, scale = len(gallery.images[0]), gallery.scale()
    n_images, scale = len(gallery.images[0]), gallery.scale()
    own, others = np.zeros(len(owner)), np.zeros(len(owner))
    columns = torch.full((len(owner),), -torch.inf, dtype=torch.float64)
    captions = _by_image(owner, n_images)
    for chunk in _chunks(np.arange(n_images)):
        logits = torch.from_numpy(gallery.block(chunk)) * scale
        columns = torch.logaddexp(columns, logits.logsumexp(0).double())
        mine = np.concatenate([captions[image] for image in chunk])
        at = owner[mine] - chunk[0]
        own[mine] = logits[at, mine].numpy()
        logits[at, mine] = -torch.inf
        others[mine] = logits.logsumexp(1).numpy()[at]
    return own, np.logaddexp(own, others), columns.numpy()


def _suggest(gallery: Gallery, owner: Ints, columns: Floats, images: Ints) -> Ints:
    """For these images the best caption that is not given with them, -1 where there is none, (n_images,)."""
    best = np.full(len(gallery.images[0]), -1, np.int64)
    captions, handicap = _by_image(owner, len(best)), columns
    for chunk in _chunks(images):
        block = gallery.block(chunk) * gallery.scale() - handicap
        for fit, image in zip(block, chunk, strict=True):
            fit[captions[image]] = -np.inf
            best[image] = fit.argmax() if len(captions[image]) < len(owner) else -1
    return best


def _by_image(owner: Ints, n_images: int) -> list[Ints]:
    """The captions that each image is given with."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, n_images)))


def _chunks(rows: Ints) -> list[Ints]:
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
