"""How well every caption fits its image, and which caption would fit better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.pairs.pairs import Ints
from pairsift.retrieve.codes import Block, Gallery
from pairsift.trust.mixture import Mixture, fit_beside, fit_mixture

CHUNK = 256  # images or captions in a block
ONE_GROUP = 0.4  # two towers on Flickr8k: 0.13 to 0.34 on the clean captions, 0.61 to 0.95 at 5 to 80% noise
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


def judge(
    gallery: Gallery,
    owner: Ints,
    seed: int,
    trained: NDArray[np.bool_],
    references: int = 128,
    shortlist: int = 32,
) -> Verdicts:
    """Judge every caption of a gallery against the image that it is given with.

    A pair's evidence is its symmetric InfoNCE over reference captions T' and reference images I' instead of a batch,

        e = s/tau - 1/2 log sum_T' exp(s(I, T')/tau) - 1/2 log sum_I' exp(s(I', T)/tau),

    where the first sum leaves out the captions given with I, and both take in the pair itself. Where the matcher
    factorises, the references are the whole gallery. Elsewhere they are a sample of it, drawn once, the same for all
    pairs; with as many references as there are images and captions the evidence is that of the whole gallery again.

    The score is the posterior of the upper component of a two-component mixture over e, fitted by itself for the pairs
    that the networks were trained on, which fit better than others do. For the others the lower component is that of
    captions put beside random images. So it is for trained pairs where the mixture has cut one group in two, as it does
    with any lopsided one: where both its lower component and the mean of the other pairs lie less than 0.4 of the way
    from the upper component to random pairs. (If the others lie farther off, they are mismatched too, or the networks
    know their pairs by heart, and right and wrong ones then look alike.)

    A suggestion is the caption with the largest s/tau - log sum_I' exp(s(I', T)/tau), so that captions which lie close
    to every image do not win everywhere. Where the matcher does not factorise, only those captions are compared for
    which the same expression over the inner products of global vectors is largest.

    Args:
        gallery: The images and captions.
        owner: Which of the gallery's images each caption is given with, (n_texts,).
        seed: Seed of the mixture, of the random images and of the references.
        trained: Whether the networks were trained on the pair, (n_texts,).
        references: How many images, and how many captions, are the references where the matcher does not factorise.
        shortlist: How many captions are compared with an image for a suggestion where it does not.
    """
    rng = np.random.default_rng(seed)
    n_images = len(gallery.images[0])
    beside = np.stack([owner, rng.integers(0, n_images, len(owner))])
    images, captions = (np.sort(rng.permutation(n)[:references]) for n in (n_images, len(owner)))
    if gallery.factorises:
        sums, best = _whole(gallery, beside)
    else:
        sums, best = _sampled(gallery, beside, images, captions), None
    evidence, chance = sums.evidence()
    score = np.ones(len(owner))
    if trained.any():
        mixture = _of_trained(evidence[trained], chance[trained], evidence[~trained], seed)
        score[trained] = mixture.low(-evidence[trained])
    if not trained.all():
        score[~trained] = fit_beside(-evidence[~trained], -chance[~trained]).low(-evidence[~trained])
    flagged = score < 0.5
    if best is None:
        best = _suggest(gallery, owner, sums, np.unique(owner[flagged]), shortlist)
    return Verdicts(score, flagged, np.where(flagged, best[owner], -1))


def _of_trained(evidence: Floats, chance: Floats, others: Floats, seed: int) -> Mixture:
    """The mixture over trained pairs, as `judge` says; `others` is the evidence of pairs that were not trained on."""
    mixture = fit_mixture(-evidence, seed)
    near = mixture.means[0] + ONE_GROUP * (-chance.mean() - mixture.means[0])
    if mixture.means[1] < near and (not len(others) or -others.mean() < near):
        return fit_beside(-evidence, -chance)
    return mixture


@dataclass(frozen=True)
class _Sums:
    """What evidence is made of, for every caption beside its own and beside a stray image.

    Attributes:
        pairs: s(I, T)/tau, (2, n_texts).
        rows: log sum_T' exp(s(I, T')/tau) over T and the reference captions that are not given with I, (2, n_texts).
        columns: log sum_I' exp(s(I', T)/tau) over the reference images and I, (2, n_texts).
        coarse: The sum over the reference images by the global vectors, (n_texts,).
    """

    pairs: Floats
    rows: Floats
    columns: Floats
    coarse: Floats

    def evidence(self) -> Floats:
        """Evidence of every caption with its own and with the stray image, (2, n_texts)."""
        return self.pairs - (self.rows + self.columns) / 2


def _whole(gallery: Gallery, beside: Ints) -> tuple[_Sums, Ints]:
    """The sums over the whole gallery, and each image's best caption that is not given with it, -1 for none, in one go.

    Args:
        gallery: The images and captions.
        beside: Each caption's own image, and a stray one, (2, n_texts).
    """
    scale, n_images = gallery.scale(), len(gallery.images[0])
    pairs, columns = np.zeros(beside.shape), np.zeros(beside.shape[1])
    rows, top = torch.full((2, n_images), -torch.inf, dtype=torch.float64)
    best = torch.full((n_images,), -1)
    for chunk in _chunks(np.arange(beside.shape[1])):
        block = torch.from_numpy(gallery.coarse(slice(None), slice(chunk[0], chunk[-1] + 1))) * scale
        columns[chunk] = block.logsumexp(0).numpy()
        at = np.arange(len(chunk))
        for kind, images in enumerate(beside[:, chunk]):
            pairs[kind, chunk] = block[images, at].numpy()
        block[beside[0, chunk], at] = -torch.inf
        rows = torch.logaddexp(rows, block.logsumexp(1).double())
        fit, place = (block - torch.from_numpy(columns[chunk])).max(1)
        better = fit > top
        top, best = torch.where(better, fit, top), torch.where(better, place + int(chunk[0]), best)
    seen = np.ones(beside.shape[1], np.bool_)
    return _Sums(pairs, _with_pairs(rows.numpy(), pairs, beside, seen), np.stack([columns] * 2), columns), best.numpy()


def _sampled(gallery: Gallery, beside: Ints, images: Ints, captions: Ints) -> _Sums:
    """The sums over these reference images and captions; `beside` as in `_whole`."""
    scale, everything = gallery.scale(), np.arange(beside.shape[1])
    pairs = np.stack([gallery.pairs(image, everything) for image in beside]).astype(np.float64) * scale
    columns = _columns(gallery.block, images, scale)
    few = gallery.only_captions(captions) if len(captions) < len(everything) else gallery
    rows = np.zeros(len(gallery.images[0]))
    for chunk in _chunks(np.arange(len(rows))):
        block = torch.from_numpy(few.block(chunk)) * scale
        block[torch.from_numpy(chunk[:, None] == beside[0, captions])] = -torch.inf
        rows[chunk] = block.logsumexp(1).numpy()
    columns = np.where(np.isin(beside, images), columns, np.logaddexp(columns, pairs))
    seen = np.isin(everything, captions)
    return _Sums(pairs, _with_pairs(rows, pairs, beside, seen), columns, _columns(gallery.coarse, images, scale))


def _with_pairs(rows: Floats, pairs: Floats, beside: Ints, seen: NDArray[np.bool_]) -> Floats:
    """Each image's sum with the caption beside it, where it is not in there as a reference caption, (2, n_texts)."""
    counted = seen & (beside != beside[0])
    return np.where(counted, rows[beside], np.logaddexp(pairs, rows[beside]))


def _columns(block: Callable[[Ints], Block], images: Ints, scale: float) -> Floats:
    """Each caption's log-sum over these images, (n_texts,)."""
    parts = [(torch.from_numpy(block(chunk)) * scale).logsumexp(0).double().numpy() for chunk in _chunks(images)]
    return np.asarray(np.logaddexp.reduce(parts), np.float64)


def _suggest(gallery: Gallery, owner: Ints, sums: _Sums, images: Ints, shortlist: int) -> Ints:
    """For these images the best caption that is not given with them, -1 where there is none, (n_images,)."""
    best = np.full(len(gallery.images[0]), -1, np.int64)
    captions, scale, size = _by_image(owner, len(best)), gallery.scale(), min(shortlist, len(owner))
    for chunk in _chunks(images):
        fit = gallery.coarse(chunk) * scale - sums.coarse
        for row, image in zip(fit, chunk, strict=True):
            row[captions[image]] = -np.inf
        found = np.sort(np.argpartition(-fit, size - 1, axis=1)[:, :size], axis=1)
        exact = gallery.pairs(chunk.repeat(size), found.ravel()).reshape(found.shape) * scale
        fit = np.where(np.take_along_axis(fit, found, 1) > -np.inf, exact - sums.columns[0, found], -np.inf)
        first = fit.argmax(1)[:, None]
        chosen = np.take_along_axis(found, first, 1)
        best[chunk] = np.where(np.take_along_axis(fit, first, 1) > -np.inf, chosen, -1)[:, 0]
    return best


def _by_image(owner: Ints, n_images: int) -> list[Ints]:
    """The captions that each image is given with."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, n_images)))


def _chunks(rows: Ints) -> list[Ints]:
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
