"""Suggestions for pairs that do not match: captions that fit the image, and images that fit the caption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from pairsift.arrays import Bools, Ints, Reals
from pairsift.detect.options import SiblingOptions
from pairsift.retrieve.gallery import Gallery
from pairsift.suggest.candidates import SAMPLE, SHORTLIST, best_captions, best_images, evidence_sums

SUGGESTIONS = 5  # for each pair, in both directions
CANDIDATES = 20  # captions or images that suggestions are chosen from
FITS = 0.1  # quantile of the believed pairs' evidence that the first caption must reach

# Of the choice among candidates:
SLOPE = np.log(1.5)  # prior mean of log(a)
SLOPE_SPREAD = 0.5  # prior standard deviation of log(a)
INTERCEPT = -3.0  # prior mean of b, at the mean information of first candidates: none of them is right
INTERCEPT_SPREAD = 2.0  # prior standard deviation of b
STARTS = (-4.0, -1.0, 2.0)  # of b
BOUNDS = ((-3.0, 3.0), (-15.0, 15.0))
MAX_LISTS = 5000  # from twice this number of lists on, the model is fitted to a part of them
LEAST = 0.05  # smallest probability that counts for the pair that a candidate is given in to be mismatched


@dataclass(frozen=True)
class Suggestions:
    """Suggestions for some pairs, best first, filled up with -1.

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
    gallery: Gallery,
    pairs: GalleryPairs,
    requested: Bools,
    seed: int,
    sample: int = SAMPLE,
    shortlist: int = SHORTLIST,
    caption_weight: float = SiblingOptions.weight,
    references: Ints | None = None,
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
        sample: Number of reference images and captions, where the matcher does not factorise.
        shortlist: Number of captions that are compared with an image then, and of images with a caption.
        caption_weight: Weight of a caption that surely matches, beside the image that it is joined with.
        references: Captions that stand for a collection of which the gallery holds a part (`evidence_sums`), (r,).
    """
    places = np.flatnonzero(requested).astype(np.int64)
    if not len(places) or not pairs.believed.any():
        none, zero = np.full((len(places), 1), -1, np.int64), np.zeros((len(places), 1))
        return Suggestions(places, none, zero, none, zero, np.zeros(len(places), np.bool_))
    gallery, own = _with_captions(gallery, pairs, requested, caption_weight)
    sums = evidence_sums(gallery, pairs.owner, seed, sample, own, references)
    owners, place = np.unique(pairs.owner[places], return_inverse=True)
    captions, information = best_captions(gallery, pairs.owner, sums, owners, CANDIDATES, shortlist)
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
    images, information = best_images(gallery, pairs.owner, sums, places, CANDIDATES, shortlist)
    lacking: Reals = np.bincount(pairs.owner, 1 - pairs.probability, len(gallery.images[0])).astype(np.float64)
    image_probability = choice.probability(information, lacking[images])
    order = np.argsort(-image_probability, axis=1, kind="stable")[:, :SUGGESTIONS]
    images = np.take_along_axis(images, order, 1)
    image_probability = np.take_along_axis(image_probability, order, 1)
    return Suggestions(places, captions, caption_probability, images, image_probability, fits)


def _with_captions(
    gallery: Gallery, pairs: GalleryPairs, requested: Bools, caption_weight: float
) -> tuple[Gallery, Reals | None]:
    """Return the gallery with images joined with their captions that probably match, but not where they have only one.

    Captions of pairs that need suggestions are left out: they would look for themselves. With it comes the similarity
    of every caption with its image joined with the others, (n_texts,); None where no image is joined.
    """
    several = np.bincount(pairs.owner, minlength=len(gallery.images[0]))[pairs.owner] > 1
    joins = several & ~requested & (pairs.probability >= 0.5)
    weight = caption_weight * np.where(joins, pairs.probability, 0.0)
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


@dataclass(frozen=True)
class Choice:
    """A conditional logit model of the right candidate in a list, with "none of these" as an alternative.

        P(j | list) = x_j / (1 + sum_k x_k),    x_k = exp(a e_k + b) m_k / m

    e_k is the mutual information of a candidate. m_k is the probability that the pair that it is given in is
    mismatched. The caption that an image lacks is mismatched where it is given; of wrong candidates, the share m is,
    which the second half of the lists shows. Where several candidates are right, they share the probability.

    The images for a caption follow the same law: e is symmetric, and m_k is the number of the image's pairs that are
    expected to be mismatched, since the right image lacks its caption.

    Attributes:
        slope: a, above 0.
        intercept: b.
    """

    slope: float
    intercept: float

    @staticmethod
    def fit(information: Reals, mismatched: Reals) -> Choice:
        """Fit the model to lists whose right candidates are not known.

        If the candidates with the greatest information are in mismatched pairs more often than those at the end of the
        lists, some of them must be right. a and b maximise the likelihood of this, the sum over lists of

            log(1 + sum_k x_k) - log(1 + sum_k exp(a e_k + b)),

        with weak priors. Where the right captions are not in the collection, or the lists say nothing, b is small.

        Args:
            information: Mutual information of the candidates, the best first, -inf where there is none, (n, k). From
                twice 5,000 lists on, the model is fitted to a part of them, evenly spaced.
            mismatched: m_k of each candidate, (n, k).
        """
        step = max(1, len(information) // MAX_LISTS)
        information, mismatched = information[::step], mismatched[::step]
        present = np.isfinite(information)
        if not present.any():
            return Choice(float(np.exp(SLOPE)), 0.0)
        centre = float(information.max(1)[present.any(1)].mean())
        values, ratio = np.where(present, information - centre, 0.0), _log_ratio(information, mismatched)

        def loss(theta: Reals) -> float:
            scores = np.where(present, np.exp(theta[0]) * values + theta[1], -np.inf)
            prior = ((theta[0] - SLOPE) / SLOPE_SPREAD) ** 2 + ((theta[1] - INTERCEPT) / INTERCEPT_SPREAD) ** 2
            return float(prior / 2 + (_log_total(scores) - _log_total(scores + ratio)).sum())

        fits = [minimize(loss, np.array([SLOPE, start]), method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
        best = min(fits, key=lambda fit: float(fit.fun)).x
        slope = float(np.exp(best[0]))
        return Choice(slope, float(best[1]) - slope * centre)

    def probability(self, information: Reals, mismatched: Reals) -> Reals:
        """Return the probability that each candidate is right, [0, 1], 0 where there is none, (n, k).

        Args:
            information: Mutual information of the candidates, -inf where there is none, (n, k).
            mismatched: m_k of each candidate, (n, k).
        """
        present = np.isfinite(information)
        scores = np.where(present, self.slope * np.where(present, information, 0.0) + self.intercept, -np.inf)
        scores = scores + _log_ratio(information, mismatched)
        return np.asarray(np.exp(scores - _log_total(scores)[:, None]))


def _log_ratio(information: Reals, mismatched: Reals) -> Reals:
    """Return log(m_k / m), with m the mean over the second half of the lists, (n, k)."""
    present = np.isfinite(information)
    last = present.copy()
    last[:, : information.shape[1] // 2] = False
    chosen = last if last.any() else present
    raised = np.maximum(mismatched, LEAST)
    return np.asarray(np.log(raised / (raised[chosen].mean() if chosen.any() else 1.0)))


def _log_total(scores: Reals) -> Reals:
    """Return log(1 + sum exp(scores)) of each row, (n,)."""
    return np.asarray(np.logaddexp(0.0, logsumexp(scores, axis=1)))
