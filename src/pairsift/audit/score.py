"""How well every caption fits its image, and which caption would fit better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.pairs.pairs import Ints
from pairsift.retrieve.codes import Gallery
from pairsift.trust.mixture import fit_beside, fit_mixture

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


def judge(gallery: Gallery, owner: Ints, seed: int, trained: NDArray[np.bool_]) -> Verdicts:
    """Judge every caption of a gallery against the image that it is given with.

    A pair's evidence is its symmetric InfoNCE over the whole gallery instead of a batch,

        e = s/tau - 1/2 log sum_T' exp(s(I, T')/tau) - 1/2 log sum_I' exp(s(I', T)/tau),

    where the captions given with I are left out of the first sum. The score is the posterior of the upper component of
    a two-component mixture over e, fitted by itself for the pairs that the networks were trained on, which fit better
    than others do. For the others the lower component is that of captions put beside random images, so that a clean
    set is not cut in two.

    A suggestion is the caption with the largest s/tau - log sum_I' exp(s(I', T)/tau), so that captions which lie close
    to every image do not win everywhere.

    Args:
        gallery: The images and captions.
        owner: Which of the gallery's images each caption is given with, (n_texts,).
        seed: Seed of the mixture and of the random images.
        trained: Whether the networks were trained on the pair, (n_texts,).
    """
    stray = np.random.default_rng(seed).integers(0, len(gallery.images[0]), len(owner))
    (evidence, chance), columns = _evidence(gallery, owner, stray)
    score = np.ones(len(owner))
    score[trained] = fit_mixture(-evidence[trained], seed).low(-evidence[trained])
    if not trained.all():
        mixture = fit_beside(-evidence[~trained], -chance[~trained])
        score[~trained] = mixture.low(-evidence[~trained])
    flagged = score < 0.5
    best = _suggest(gallery, owner, columns, np.unique(owner[flagged]))
    return Verdicts(score, flagged, np.where(flagged, best[owner], -1))


def _evidence(gallery: Gallery, owner: Ints, stray: Ints) -> tuple[list[Floats], Floats]:
    """Evidence of every caption with its own and with a stray image; log-sums over images; each (n_texts,)."""
    n_images, scale = len(gallery.images[0]), gallery.scale()
    given, away = _by_image(owner, n_images), _by_image(stray, n_images)
    logits, rows = np.zeros((2, len(owner))), np.zeros((2, len(owner)))
    columns = torch.full((len(owner),), -torch.inf, dtype=torch.float64)
    for chunk in _chunks(np.arange(n_images)):
        block = torch.from_numpy(gallery.block(chunk)) * scale
        columns = torch.logaddexp(columns, block.logsumexp(0).double())
        mine, others = (np.concatenate([part[image] for image in chunk]) for part in (given, away))
        places = (owner[mine] - chunk[0], mine), (stray[others] - chunk[0], others)
        for kind, (at, captions) in enumerate(places):
            logits[kind, captions] = block[at, captions].numpy()
        block[places[0]] = -torch.inf
        sums = block.logsumexp(1).numpy()
        for kind, (at, captions) in enumerate(places):
            rows[kind, captions] = sums[at]
    both = [own - (np.logaddexp(own, sums) + columns.numpy()) / 2 for own, sums in zip(logits, rows, strict=True)]
    return both, columns.numpy()


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
