"""Suggestions for pairs that do not match: captions that fit the image, and images that fit the caption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.siblings import WEIGHT
from pairsift.retrieve.codes import Gallery
from pairsift.suggest.candidates import References, best_captions, best_images, evidence_sums
from pairsift.suggest.choice import Choice

SUGGESTIONS = 5  # for each pair, in both directions
CANDIDATES = 20  # captions or images that suggestions are chosen from
FITS = 0.1  # quantile of the believed pairs' evidence that the first caption must reach


@dataclass(frozen=True)
class Suggestions:
    """What would fit some pairs, the best first; -1 stands where there is no more.

    Attributes:
        pairs: Places of the pairs in the gallery, ascending, (n,).
        captions: Places of captions for the pair's image, with different texts, (n, at most 5).
        caption_probability: Probability that each of them is the image's own caption, [0, 1], (n, at most 5).
        images: Images for the pair's caption, (n, at most 5).
        image_probability: Probability that each of them is the caption's own image, [0, 1], (n, at most 5).
        fits: Whether the first caption fits no worse than a tenth of the believed pairs do, (n,).
    """

    pairs: Ints
    captions: Ints
    caption_probability: Reals
    images: Ints
    image_probability: Reals
    fits: Bools


@dataclass(frozen=True)
class GalleryPairs:
    """What is known of the pairs in a gallery: each caption is a pair with its image.

    Attributes:
        owner: Index of the image of each caption in the gallery, (n_texts,).
        text: Number of the text of each caption; equal texts have equal numbers, (n_texts,).
        probability: Match probability of each pair, [0, 1], (n_texts,).
        believed: Whether each pair is assumed to match, (n_texts,). Preferably the networks were not trained on it.
    """

    owner: Ints
    text: Ints
    probability: Reals
    believed: Bools


def suggest(
    gallery: Gallery, pairs: GalleryPairs, requested: Bools, seed: int, references: References | None = None
) -> Suggestions:
    """Return what would fit these pairs better than what they are given with.

    The 20 candidates with the greatest mutual information (see `pairsift.suggest.candidates`) are compared by `Choice`.
    Where the similarity is a cosine, an image with several captions is joined with those that probably match, which say
    more about it than the image alone. Captions that seem to be mismatched where they are given come first, since the
    caption of the image may be among them, and so do images whose captions seem to be mismatched.

    Args:
        gallery: Codes of the images and captions.
        pairs: What is known of the captions.
        requested: Whether each pair needs suggestions, (n_texts,).
        seed: Seed of the sample.
        references: Used where the matcher does not factorise.
    """
    places = np.flatnonzero(requested).astype(np.int64)
    if not len(places) or not pairs.believed.any():
        none, zero = np.full((len(places), 1), -1, np.int64), np.zeros((len(places), 1))
        return Suggestions(places, none, zero, none, zero, np.zeros(len(places), np.bool_))
    references = references or References()
    gallery, own = _with_captions(gallery, pairs, requested)
    sums = evidence_sums(gallery, pairs.owner, seed, references, own)
    owners, place = np.unique(pairs.owner[places], return_inverse=True)
    captions, information = best_captions(gallery, pairs.owner, sums, owners, CANDIDATES, references.shortlist)
    captions, information = captions[place], information[place]
    texts = np.where(captions >= 0, pairs.text[captions], -1)
    information[_repeated(texts) | (texts == pairs.text[places][:, None])] = -np.inf
    mismatched = 1 - pairs.probability[captions]
    choice = Choice.fit(information, mismatched)
    caption_probability = choice.probability(information, mismatched)
    order = np.argsort(-caption_probability, axis=1, kind="stable")[:, :SUGGESTIONS]
    captions = np.where(np.isfinite(information), captions, -1)
    captions = np.take_along_axis(captions, order, 1)
    caption_probability = np.take_along_axis(caption_probability, order, 1)
    first = np.take_along_axis(information, order, 1)[:, 0]
    evidence = sums.evidence_of(first, pairs.owner[places], captions[:, 0])
    fits = evidence >= np.quantile(sums.evidence()[pairs.believed], FITS)
    images, information = best_images(gallery, pairs.owner, sums, places, CANDIDATES, references.shortlist)
    lacking: Reals = np.bincount(pairs.owner, 1 - pairs.probability, len(gallery.images[0])).astype(np.float64)
    image_probability = choice.probability(information, lacking[images])
    order = np.argsort(-image_probability, axis=1, kind="stable")[:, :SUGGESTIONS]
    images = np.take_along_axis(images, order, 1)
    image_probability = np.take_along_axis(image_probability, order, 1)
    return Suggestions(places, captions, caption_probability, images, image_probability, fits)


def _with_captions(gallery: Gallery, pairs: GalleryPairs, requested: Bools) -> tuple[Gallery, Reals | None]:
    """Return the gallery with images joined with their captions that probably match, but not where they have only one.

    Captions of pairs that need suggestions are left out: they would look for themselves. With it comes the similarity
    of every caption with its image joined with the others, (n_texts,); None where no image is joined.
    """
    several = np.bincount(pairs.owner, minlength=len(gallery.images[0]))[pairs.owner] > 1
    weight = WEIGHT * np.where(several & ~requested & (pairs.probability >= 0.5), pairs.probability, 0.0)
    if not gallery.shares_space or not weight.any():
        return gallery, None
    joined, own = gallery.with_captions(pairs.owner, weight)
    return joined, own.astype(np.float64)


def _repeated(texts: Ints) -> Bools:
    """Return whether each text is in its row before, (n, k)."""
    repeated = np.zeros(texts.shape, np.bool_)
    for place in range(1, texts.shape[1]):
        repeated[:, place] = (texts[:, :place] == texts[:, place, None]).any(1)
    return repeated
