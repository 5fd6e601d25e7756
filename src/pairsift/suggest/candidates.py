"""The captions that fit an image best and the images that fit a caption best, with their evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals
from pairsift.retrieve.gallery import Gallery, Similarities

CHUNK = 256  # largest number of images or captions in a block
BLOCK = 1 << 25  # similarities in a block
DEPTH = 70.0  # a float32 beside another one that is exp(70) times as large is exact; beside exp(87) times, it may be 0
# Where the matcher does not factorise:
SAMPLE = 128  # images, and captions, that the evidence of a pair is computed from
SHORTLIST = 32  # captions that are compared with an image, and images with a caption


@dataclass(frozen=True)
class Sums:
    """The terms of the evidence that image and caption belong together.

    The evidence of a pair is symmetric InfoNCE,

        s/tau - 1/2 log sum_T' exp(s(I, T')/tau) - 1/2 log sum_I' exp(s(I', T)/tau).

    Candidates are ranked by the pointwise mutual information, which has both sums whole. Captions that are close to all
    images, and images that are close to all captions, are then not everywhere. Where images are joined with captions, I
    is joined with all of them in the sums over other captions, and with all but T in s(I, T).

    Attributes:
        pairs: s(I, T)/tau of every caption with its image, (n_texts,).
        rows: log sum_T' exp(s(I, T')/tau) over T and the reference captions of other images than I, (n_texts,).
        images: The same sum without T, (n_images,).
        captions: log sum_I' exp(s(I', T)/tau) over the reference images and I, (n_texts,).
        coarse_images: `images` over all reference captions, with s from the global vectors, (n_images,).
        coarse_captions: `captions` over the reference images, with s from the global vectors, (n_texts,).
    """

    pairs: Reals
    rows: Reals
    images: Reals
    captions: Reals
    coarse_images: Reals
    coarse_captions: Reals

    def evidence(self) -> Reals:
        """Return the evidence of every caption with its image, (n_texts,)."""
        return self.pairs - (self.rows + self.captions) / 2

    def evidence_of(self, information: Reals, images: Ints, captions: Ints) -> Reals:
        """Return the evidence of captions with other images from their pointwise mutual information, (n,)."""
        return np.asarray(information + (self.images[images] + self.captions[captions]) / 2)

    def information(self, similarity: Reals, images: Ints, captions: Ints) -> Reals:
        """Return the pointwise mutual information of captions with other images from their s/tau, (n,)."""
        return np.asarray(similarity - self.images[images] - self.captions[captions])


def evidence_sums(
    gallery: Gallery,
    owner: Ints,
    seed: int,
    sample: int = SAMPLE,
    own: Reals | None = None,
    references: Ints | None = None,
) -> Sums:
    """Return the terms of the evidence over the whole gallery, or over a sample where the matcher does not factorise.

    Args:
        gallery: Codes of the images and captions.
        owner: Index of the image of each caption in the gallery, (n_texts,).
        seed: Seed of the sample.
        sample: Number of sampled images, which is also the number of sampled captions.
        own: Similarity of every caption with its image, (n_texts,), where the gallery factorises; by default,
            from their codes.
        references: Matching captions that stand, with their images, for a collection of which the gallery holds what is
            near to some images, or for a large gallery, (r,). Where the gallery factorises, the sums are then over them
            alone, without a caption's own image, and without an image's own captions, since the images of mismatched
            captions are not there.
    """
    if gallery.factorises and references is not None:
        return _reference_sums(gallery, owner, references, own)
    if gallery.factorises:
        return _all_sums(gallery, owner, own)
    rng, n_images = np.random.default_rng(seed), len(gallery.images[0])
    images, captions = (np.sort(rng.permutation(n)[:sample]) for n in (n_images, len(owner)))
    return _sampled_sums(gallery, owner, images, captions)


def best_captions(
    gallery: Gallery, owner: Ints, sums: Sums, images: Ints, k: int, shortlist: int
) -> tuple[Ints, Reals]:
    """Return the captions of other images that fit these images best, and their mutual information.

    Args:
        gallery: Codes of the images and captions.
        owner: Index of the image of each caption, (n_texts,).
        sums: The terms of the evidence.
        images: The images, (n,).
        k: Number of captions for each.
        shortlist: Where the matcher does not factorise, number of captions that are compared with an image: those that
            fit best by the global vectors.

    Returns:
        Captions, best first, -1 where there are no more, and the pointwise mutual information of each, (n, at most k).
    """
    order = np.argsort(owner, kind="stable")
    captions_of = np.split(order, np.searchsorted(owner[order], np.arange(1, len(gallery.images[0]))))
    queries = _Queries(
        gallery.coarse,
        lambda chunk, candidates: gallery.pairs(chunk.repeat(candidates.shape[1]), candidates.ravel()),
        [captions_of[image] for image in images],
        sums.coarse_captions,
        sums.captions,
    )
    places, similarity = _best(gallery, queries, images, k, shortlist)
    return places, np.where(places >= 0, sums.information(similarity, images[:, None], places), -np.inf)


def best_images(
    gallery: Gallery, owner: Ints, sums: Sums, captions: Ints, k: int, shortlist: int
) -> tuple[Ints, Reals]:
    """Return the other images that these captions fit best, and their mutual information, (n, at most k) each.

    See `best_captions`.
    """
    queries = _Queries(
        gallery.coarse_of_captions,
        lambda chunk, candidates: gallery.pairs(candidates.ravel(), chunk.repeat(candidates.shape[1])),
        list(owner[captions][:, None]),
        sums.coarse_images,
        sums.images,
    )
    places, similarity = _best(gallery, queries, captions, k, shortlist)
    return places, np.where(places >= 0, sums.information(similarity, places, captions[:, None]), -np.inf)


@dataclass(frozen=True)
class _Queries:
    """Images that captions are ranked for, or captions that images are ranked for.

    Attributes:
        coarse: Function from some queries to their similarity with all candidates by the global vectors.
        exact: Function from some queries, (m,), and candidates of each, (m, k), to the similarities, (m * k,).
        excluded: Candidates that each query is given with.
        coarse_level: Level that each candidate reaches with all queries, by the global vectors, (n_candidates,).
        level: The same by the similarity itself.
    """

    coarse: Callable[[Ints], Similarities]
    exact: Callable[[Ints, Ints], Similarities]
    excluded: Sequence[Ints]
    coarse_level: Reals
    level: Reals


def _best(gallery: Gallery, queries: _Queries, rows: Ints, k: int, shortlist: int) -> tuple[Ints, Reals]:
    """Return the best candidates of each query, -1 where there are no more, and their s/tau, (n, at most k) each."""
    scale, n_candidates = gallery.scale(), len(queries.level)
    k = min(k, n_candidates)
    places, similarities = np.full((len(rows), k), -1, np.int64), np.zeros((len(rows), k))
    level = torch.from_numpy(queries.coarse_level).float()
    for part in _chunks(np.arange(len(rows)), n_candidates):
        chunk = rows[part]
        fit = queries.coarse(chunk)
        torch.from_numpy(fit).mul_(scale).sub_(level)
        for row, excluded in zip(fit, (queries.excluded[query] for query in part), strict=True):
            row[excluded] = -np.inf
        best = _top(fit, k if gallery.factorises else max(k, min(shortlist, n_candidates)))
        values = np.take_along_axis(fit, best, 1)
        if gallery.factorises:
            similarity = values + queries.coarse_level[best]
        else:
            similarity = queries.exact(chunk, best).reshape(best.shape).astype(np.float64) * scale
            values = np.where(values > -np.inf, similarity - queries.level[best], -np.inf)
            order = _top(values, k)
            best, similarity = np.take_along_axis(best, order, 1), np.take_along_axis(similarity, order, 1)
            values = np.take_along_axis(values, order, 1)
        places[part] = np.where(values > -np.inf, best, -1)
        similarities[part] = np.where(values > -np.inf, similarity, 0.0)
    return places, similarities


def _top(fit: NDArray[np.floating], k: int) -> Ints:
    """Return the columns of the k largest values of each row, the largest first, (n, k)."""
    columns = torch.from_numpy(fit).topk(k, sorted=False).indices.sort().values.numpy()  # so equal values stay in order
    order = np.argsort(-np.take_along_axis(fit, columns, 1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(columns, order, 1), np.int64)


def _all_sums(gallery: Gallery, owner: Ints, own: Reals | None) -> Sums:
    """Compute the sums over the whole gallery."""
    scale, n_images = gallery.scale(), len(gallery.images[0])
    pairs, columns, largest = np.zeros(len(owner)), np.zeros(len(owner)), -np.inf
    images = np.full(n_images, -np.inf)
    for chunk in _chunks(np.arange(len(owner)), n_images):
        block = torch.from_numpy(gallery.coarse_of_captions(chunk)).mul_(scale)
        given = np.arange(len(chunk)), owner[chunk]
        if own is not None:
            block[given] = torch.from_numpy(own[chunk]).float() * scale
        pairs[chunk] = block[given].numpy()
        highest = block.amax(1)
        block.sub_(highest[:, None]).exp_()  # once for the sums of both directions
        columns[chunk] = (highest + block.sum(1).log()).numpy()
        block[given] = 0
        top = float(highest.max())
        sums = (highest - top).exp() @ block
        images, largest = np.logaddexp(images, top + sums.double().log().numpy()), max(largest, top)
    small = np.flatnonzero(images < largest - DEPTH + np.log(len(owner)))  # some of their terms were rounded to 0
    for chunk in _chunks(small, len(owner)):
        block = torch.from_numpy(gallery.coarse(chunk)) * scale
        images[chunk] = block.masked_fill_(torch.from_numpy(chunk[:, None] == owner), -torch.inf).logsumexp(1).numpy()
    return Sums(pairs, np.logaddexp(pairs, images[owner]), images, columns, images, columns)


def _reference_sums(gallery: Gallery, owner: Ints, references: Ints, own: Reals | None) -> Sums:
    """Compute the sums over these captions and their images, without those of the same pair."""
    scale, n_images = gallery.scale(), len(gallery.images[0])
    own = gallery.pairs(owner, np.arange(len(owner))).astype(np.float64) if own is None else own
    pairs = own * scale
    images, columns, rows = np.unique(owner[references]), np.zeros(len(owner)), np.zeros(n_images)
    for chunk in _chunks(np.arange(len(owner)), len(images)):
        given = torch.from_numpy(images[:, None] == owner[chunk])
        block = torch.from_numpy(gallery.coarse(images, chunk)) * scale
        columns[chunk] = block.masked_fill(given, -torch.inf).logsumexp(0).numpy()
    for chunk in _chunks(np.arange(n_images), len(references)):
        given = torch.from_numpy(chunk[:, None] == owner[references])
        block = torch.from_numpy(gallery.coarse(chunk, references)) * scale
        rows[chunk] = block.masked_fill(given, -torch.inf).logsumexp(1).numpy()
    return Sums(pairs, rows[owner], rows, columns, rows, columns)


def _sampled_sums(gallery: Gallery, owner: Ints, images: Ints, captions: Ints) -> Sums:
    """Compute the sums over these reference images and captions."""
    scale, n_images = gallery.scale(), len(gallery.images[0])
    pairs = gallery.pairs(owner, np.arange(len(owner))).astype(np.float64) * scale
    sample = gallery.only_captions(captions) if len(captions) < len(owner) else gallery
    rows, coarse_rows = np.zeros(n_images), np.zeros(n_images)
    for chunk in _chunks(np.arange(n_images), len(captions)):
        given = torch.from_numpy(chunk[:, None] == owner[captions])
        for level, similarity in ((rows, sample.block(chunk)), (coarse_rows, gallery.coarse(chunk, captions))):
            level[chunk] = (torch.from_numpy(similarity) * scale).masked_fill(given, -torch.inf).logsumexp(1).numpy()
    columns = _level(gallery.block, images, scale, len(owner))
    columns = np.where(np.isin(owner, images), columns, np.logaddexp(columns, pairs))
    coarse_columns = _level(gallery.coarse, images, scale, len(owner))
    return Sums(pairs, np.logaddexp(pairs, rows[owner]), rows, columns, coarse_rows, coarse_columns)


def _level(block: Callable[[Ints], Similarities], images: Ints, scale: float, n_texts: int) -> Reals:
    """Return the log-sum-exp over these images for each caption, (n_texts,)."""
    parts = [
        (torch.from_numpy(block(chunk)) * scale).logsumexp(0).double().numpy() for chunk in _chunks(images, n_texts)
    ]
    return np.asarray(np.logaddexp.reduce(parts), np.float64)


def _chunks(rows: Ints, width: int) -> list[Ints]:
    """Return parts of the rows so that a block of a part and `width` columns stays small."""
    size = int(np.clip(BLOCK // max(1, width), 1, CHUNK))
    return [rows[start : start + size] for start in range(0, len(rows), size)]
