"""Drawn pairs with a hidden common factor, some of them mismatched, and the judges' formulas in plain loops."""

import math

import numpy as np

from pairsift.arrays import text_numbers
from pairsift.detect.evidence import Evidence
from pairsift.detect.folds import Folds, make_folds
from pairsift.detect.judged_pairs import JudgedPairs
from pairsift.detect.options import DetectOptions

OPTIONS = DetectOptions()
OWN_REFERENCES = OPTIONS.changed({"contrast": {"min_references": 1}})  # of the fold, however small it is
# One division into folds, and fewer resamples: intervals and several divisions are tested by themselves.
LIGHT = OPTIONS.changed({"folds": {"averaged_pairs": 1, "inner_folds": 2}, "calibration": {"resamples": 8}})
# Two or more divisions, into fewer folds: placeholders are found by all together.
DIVIDED = OPTIONS.changed(
    {"folds": {"folds": 5, "inner_folds": 2, "averaged_pairs": 1500}, "calibration": {"resamples": 24}}
)


def planted(images, per=1, noise=0.0, seed=0, whole=False):
    """Pairs, and which of them match. With `whole` all captions of an image go to one other image."""
    rng = np.random.default_rng(seed)
    hidden, image_of = rng.normal(size=(images, 12)), np.repeat(np.arange(images), per)
    source = image_of.copy()
    if whole:
        chosen, moved = rng.permutation(images)[: round(noise * images)], np.arange(images)
        moved[chosen] = np.roll(chosen, 1)
        source = moved[image_of]
    else:
        chosen = rng.permutation(len(image_of))[: round(noise * len(image_of))]
        source[chosen] = (image_of[chosen] + rng.integers(1, images, len(chosen))) % images
    left = hidden @ rng.normal(size=(12, 40)) + 0.5 * rng.normal(size=(images, 40))
    right = hidden[source] @ rng.normal(size=(12, 30)) + 0.5 * rng.normal(size=(len(image_of), 30))
    return judged_of(left[image_of], right, image_of), source == image_of


def scenes_of_classes(noise, seed=0, images=900, classes=30):
    """Images of few classes, whose captions differ by a little; a share is exchanged within classes."""
    rng = np.random.default_rng(seed)
    of_class = np.arange(images) % classes
    hidden = 3 * rng.normal(size=(classes, 12))[of_class] + 0.7 * rng.normal(size=(images, 12))
    source = np.arange(images)
    for place in rng.permutation(images)[: round(noise * images / 2)]:
        others = np.flatnonzero((of_class == of_class[place]) & (source == np.arange(images)))
        others = others[others != place]
        if source[place] == place and len(others):
            source[place], source[others[0]] = others[0], place
    left = hidden @ rng.normal(size=(12, 40)) + 0.3 * rng.normal(size=(images, 40))
    right = (hidden @ rng.normal(size=(12, 30)) + 0.3 * rng.normal(size=(images, 30)))[source]
    return judged_of(left, right, np.arange(images)), source == np.arange(images)


def judged_of(images, captions, image_of, texts=None, group_of=None):
    texts = [f"caption {i}" for i in range(len(image_of))] if texts is None else texts
    group_of = image_of if group_of is None else group_of
    seen = np.ones(len(image_of), bool)
    return JudgedPairs(
        images.astype(np.float32), captions.astype(np.float32), text_numbers(texts), image_of, group_of, seen
    )


def small(images=24, per=2, folds=3, seed=0):
    """Pairs in folds with features of 7 and 5 numbers that share three."""
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(images), per)
    hidden = rng.normal(size=(images, 3))
    left = hidden @ rng.normal(size=(3, 7)) + 0.3 * rng.normal(size=(images, 7))
    right = hidden[image_of] @ rng.normal(size=(3, 5)) + 0.3 * rng.normal(size=(len(image_of), 5))
    texts = [f"caption {i}" for i in range(len(image_of))]
    folds = Folds.make(image_of, image_of, text_numbers(texts), make_folds(image_of, folds, seed), seed, OPTIONS.decoys)
    return folds, left[image_of].astype(np.float32), right.astype(np.float32)


def permuted(folds, order):
    """The same pairs, folds and decoys in another order: new pair k is old pair order[k]."""
    back = np.argsort(order)
    return Folds(
        folds.image_of[order],
        folds.group_of[order],
        folds.fold[order],
        back[folds.decoy_images],
        back[folds.decoy_captions],
    )


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def centred(x):
    return unit(x.astype(float) - x.astype(float).mean(0))


def naive_contrast(folds, images, captions, left, right):
    """Evidence of one image with one caption of the same fold; every pair's codes are in its row."""
    scale, members = 20.0, [i for i in range(len(folds)) if folds.fold[i] == folds.fold[left]]

    def reach(own, query, references):
        others = [j for j in members if folds.group_of[j] != folds.group_of[own]]
        if not others:
            return 0.0
        return math.log(sum(math.exp(scale * float(query @ references[j])) for j in others) / len(others)) / scale

    cosine = float(images[left] @ captions[right])
    return cosine - (reach(left, images[left], captions) + reach(right, captions[right], images)) / 2


def naive_evidence(folds, codes):
    """Evidence of all pairs and decoys, from codes (images, captions) of all pairs."""
    pairs = [naive_contrast(folds, *codes, i, i) for i in range(len(folds))]
    places = zip(folds.decoy_images, folds.decoy_captions, strict=True)
    return np.array(pairs), np.array([naive_contrast(folds, *codes, i, j) for i, j in places])


def drawn_evidence(rates, each=2000, apart=3.0, seed=0):
    """Normal evidence of groups with these rates of mismatches, decoys, the groups, and which pairs match."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(rates)), each)
    matched = rng.random(len(group)) >= np.array(rates)[group]
    return Evidence(rng.normal(size=len(group)) + apart * matched, rng.normal(size=20_000)), group, matched
