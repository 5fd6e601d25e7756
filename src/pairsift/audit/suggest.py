"""Suggestions of captions that fit an image better than its given caption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals
from pairsift.retrieve.codes import Gallery, Similarities

CHUNK = 256  # images or captions in a block
FITS = 0.1  # quantile of the believed pairs' evidence that a suggestion must reach


def suggest(
    gallery: Gallery,
    owner: Ints,
    flagged: NDArray[np.bool_],
    believed: NDArray[np.bool_],
    seed: int,
    sizes: tuple[int, int] = (128, 32),
) -> Ints:
    """Return the caption that fits the image best for every flagged pair, -1 where none fits, (n_texts,).

    It is the caption of another image with the largest s/tau - log sum_I' exp(s(I', T)/tau). The second term prevents
    captions that are close to all images from being suggested everywhere. A suggestion is accepted if its symmetric
    InfoNCE evidence over all captions T' and images I',

        e = s/tau - 1/2 log sum_T' exp(s(I, T')/tau) - 1/2 log sum_I' exp(s(I', T)/tau),

    is at least the 10% quantile of the evidence of the believed pairs. Where the matcher does not factorise, the sums
    run over a sample of images and captions, drawn once. Only a shortlist of captions is then compared with an image:
    those for which the first expression, computed from inner products of global vectors, is largest.

    Args:
        gallery: Codes of the images and captions.
        owner: Index of the image of each caption in the gallery, (n_texts,).
        flagged: True for pairs that need a suggestion, (n_texts,).
        believed: True for pairs that are assumed to match, (n_texts,). Preferably the networks were not trained on
            them.
        seed: Seed of the sample.
        sizes: Used where the matcher does not factorise: the number of sampled images, which is also the number of
            sampled captions, and the number of captions on the shortlist of an image.
    """
    no_caption = np.full(len(owner), -1, np.int64)
    if not flagged.any() or not believed.any():
        return no_caption
    rng, n_images = np.random.default_rng(seed), len(gallery.images[0])
    images, captions = (np.sort(rng.permutation(n)[: sizes[0]]) for n in (n_images, len(owner)))
    flagged_images = np.unique(owner[flagged])
    if gallery.factorises:
        sums, best = _all_sums(gallery, owner)
    else:
        sums = _sampled_sums(gallery, owner, images, captions)
        best = _best_captions(gallery, owner, sums, flagged_images, sizes[1])
    flagged_images = flagged_images[best[flagged_images] >= 0]
    pairs = gallery.pairs(flagged_images, best[flagged_images]).astype(np.float64) * gallery.scale()
    evidence = pairs - (sums.without_caption[flagged_images] + sums.columns[best[flagged_images]]) / 2
    rejected = flagged_images[evidence < np.quantile(sums.evidence()[believed], FITS)]
    best[rejected] = -1
    return np.where(flagged, best[owner], no_caption)


@dataclass(frozen=True)
class _Sums:
    """The terms of the evidence.

    Attributes:
        pairs: s(I, T)/tau of every caption with its image, (n_texts,).
        rows: log sum_T' exp(s(I, T')/tau) over T and the reference captions of other images than I, (n_texts,).
        without_caption: The same sum without T, (n_images,).
        columns: log sum_I' exp(s(I', T)/tau) over the reference images and I, (n_texts,).
        coarse: log sum_I' exp(s(I', T)/tau) over the reference images, with s from the global vectors, (n_texts,).
    """

    pairs: Reals
    rows: Reals
    without_caption: Reals
    columns: Reals
    coarse: Reals

    def evidence(self) -> Reals:
        """Return the evidence of every caption with its image, (n_texts,)."""
        return self.pairs - (self.rows + self.columns) / 2


def _all_sums(gallery: Gallery, owner: Ints) -> tuple[_Sums, Ints]:
    """Compute the sums over the whole gallery, and the best caption of another image for each image, -1 for none."""
    scale, n_images = gallery.scale(), len(gallery.images[0])
    pairs, columns = np.zeros(len(owner)), np.zeros(len(owner))
    rows, top = torch.full((2, n_images), -torch.inf, dtype=torch.float64)
    best = torch.full((n_images,), -1)
    for chunk in _chunks(np.arange(len(owner))):
        block = torch.from_numpy(gallery.coarse(slice(None), slice(chunk[0], chunk[-1] + 1))) * scale
        columns[chunk] = block.logsumexp(0).numpy()
        position = np.arange(len(chunk))
        pairs[chunk] = block[owner[chunk], position].numpy()
        block[owner[chunk], position] = -torch.inf
        rows = torch.logaddexp(rows, block.logsumexp(1).double())
        fit, place = (block - torch.from_numpy(columns[chunk])).max(1)
        better = fit > top
        top, best = torch.where(better, fit, top), torch.where(better, place + int(chunk[0]), best)
    others = rows.numpy()
    return _Sums(pairs, np.logaddexp(pairs, others[owner]), others, columns, columns), best.numpy()


def _sampled_sums(gallery: Gallery, owner: Ints, images: Ints, captions: Ints) -> _Sums:
    """Compute the sums over these reference images and captions."""
    scale, all_captions = gallery.scale(), np.arange(len(owner))
    pairs = gallery.pairs(owner, all_captions).astype(np.float64) * scale
    columns = _columns(gallery.block, images, scale)
    sample = gallery.only_captions(captions) if len(captions) < len(all_captions) else gallery
    rows = np.zeros(len(gallery.images[0]))
    for chunk in _chunks(np.arange(len(rows))):
        block = torch.from_numpy(sample.block(chunk)) * scale
        block[torch.from_numpy(chunk[:, None] == owner[captions])] = -torch.inf
        rows[chunk] = block.logsumexp(1).numpy()
    columns = np.where(np.isin(owner, images), columns, np.logaddexp(columns, pairs))
    coarse = _columns(gallery.coarse, images, scale)
    return _Sums(pairs, np.logaddexp(pairs, rows[owner]), rows, columns, coarse)


def _columns(block: Callable[[Ints], Similarities], images: Ints, scale: float) -> Reals:
    """Return the log-sum-exp over these images for each caption, (n_texts,)."""
    parts = [(torch.from_numpy(block(chunk)) * scale).logsumexp(0).double().numpy() for chunk in _chunks(images)]
    return np.asarray(np.logaddexp.reduce(parts), np.float64)


def _best_captions(gallery: Gallery, owner: Ints, sums: _Sums, images: Ints, shortlist: int) -> Ints:
    """Return the best caption of another image for each of these images, -1 where there is none, (n_images,)."""
    best = np.full(len(gallery.images[0]), -1, np.int64)
    captions, scale, size = _by_image(owner, len(best)), gallery.scale(), min(shortlist, len(owner))
    for chunk in _chunks(images):
        fit = gallery.coarse(chunk) * scale - sums.coarse
        for row, image in zip(fit, chunk, strict=True):
            row[captions[image]] = -np.inf
        candidates = np.sort(np.argpartition(-fit, size - 1, axis=1)[:, :size], axis=1)
        exact = gallery.pairs(chunk.repeat(size), candidates.ravel()).reshape(candidates.shape) * scale
        fit = np.where(np.take_along_axis(fit, candidates, 1) > -np.inf, exact - sums.columns[candidates], -np.inf)
        first = fit.argmax(1)[:, None]
        caption = np.take_along_axis(candidates, first, 1)
        best[chunk] = np.where(np.take_along_axis(fit, first, 1) > -np.inf, caption, -1)[:, 0]
    return best


def _by_image(owner: Ints, n_images: int) -> list[Ints]:
    """List the captions of each image."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, n_images)))


def _chunks(rows: Ints) -> list[Ints]:
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
