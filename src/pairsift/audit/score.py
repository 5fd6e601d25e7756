"""How well every caption fits its image, and which caption would fit better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairsift.pairs.pairs import Ints
from pairsift.retrieve.codes import Gallery
from pairsift.trust.mixture import fit_mixture

REFERENCES = 2000  # images that a caption's similarity is compared with
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

    A pair's evidence is how far its similarity stands above chance, z = ((s - mu_I) / sd_I + (s - mu_T) / sd_T) / 2,
    with the mean and deviation of the image's similarity to all captions, and of the caption's to random images. The
    score is the posterior of the upper component of a two-component mixture over z.

    Args:
        gallery: The images and captions.
        owner: Which of the gallery's images each caption is given with, (n_texts,).
        seed: Seed of the random images and of the mixture.
        fit_on: The pairs that the mixture is fitted on, (n_texts,); default: all.
    """
    n_images = len(gallery.images[0])
    center, spread = _captions(gallery, n_images, seed)
    evidence, best = np.zeros(len(owner)), np.full(n_images, -1, np.int64)
    order = np.argsort(owner, kind="stable")
    for start in range(0, n_images, CHUNK):
        rows = np.arange(start, min(start + CHUNK, n_images), dtype=np.int64)
        block = gallery.block(rows)
        mean, deviation = block.mean(1, dtype=np.float64), block.std(1, dtype=np.float64) + 1e-9
        block = (block - center) / spread
        own = order[np.searchsorted(owner[order], start) : np.searchsorted(owner[order], rows[-1], "right")]
        row = owner[own] - start
        above = block[row, own].astype(np.float64)
        similarity = above * spread[own] + center[own]
        evidence[own] = ((similarity - mean[row]) / deviation[row] + above) / 2
        block[row, own] = -np.inf
        best[rows] = np.where(np.isfinite(block.max(1)), block.argmax(1), -1)
    mixture = fit_mixture(-evidence if fit_on is None else -evidence[fit_on], seed)
    score = mixture.low(-evidence)
    flagged = score < 0.5
    return Verdicts(score, flagged, np.where(flagged, best[owner], -1))


def _captions(gallery: Gallery, n_images: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of every caption's similarity to random images, each (n_texts,)."""
    sample = np.random.default_rng(seed).permutation(n_images)[:REFERENCES]
    total, squares = 0.0, 0.0
    for rows in np.array_split(sample, len(sample) // CHUNK + 1):
        block = gallery.block(rows).astype(np.float64)
        total, squares = total + block.sum(0), squares + (block**2).sum(0)
    mean = total / len(sample)
    spread = np.sqrt(np.maximum(squares / len(sample) - mean**2, 0)) + 1e-9
    return np.asarray(mean, np.float32), np.asarray(spread, np.float32)
