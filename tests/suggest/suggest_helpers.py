"""Galleries of images and captions that lie near each other, for tests of suggestions."""

import math

import numpy as np
import torch

from pairsift.match.base import Codes, unit
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.retrieve.bank import Bank
from pairsift.retrieve.gallery import Gallery
from pairsift.suggest.suggest import GalleryPairs, suggest
from token_helpers import make_matchers

OWNER = np.array([0, 0, 1, 2, 2, 2, 3, 5, 6, 6])  # image 4 has no caption


def make_gallery(n_images: int, owner: np.ndarray, noise: float | np.ndarray = 0.8, dim: int = 24, seed: int = 0):
    """Two networks' codes; captions of an image lie near it. Returns the gallery."""
    rng = np.random.default_rng(seed)
    matchers = [TwoTower(4, 4, TwoTowerOptions(dim=dim, hidden=4, temperature=0.1)) for _ in range(2)]
    images, texts = [], []
    for _ in matchers:
        base = rng.normal(size=(n_images, dim))
        images.append(Bank.from_codes(Codes(unit(torch.tensor(base, dtype=torch.float32)))))
        near = base[owner] + noise * rng.normal(size=(len(owner), dim))
        texts.append(Bank.from_codes(Codes(unit(torch.tensor(near, dtype=torch.float32)))))
    return Gallery(matchers, images, texts)


def scaled(gallery: Gallery) -> np.ndarray:
    """s/tau of every image with every caption."""
    return gallery.block(np.arange(len(gallery.images[0]))).astype(float) * gallery.scale()


def evidence(s: np.ndarray, owner: np.ndarray, image: int, caption: int) -> float:
    """Of an image with a caption, by its definition; captions given with the image are not among the others."""
    return information(s, owner, image, caption, 0.5)


def information(s: np.ndarray, owner: np.ndarray, image: int, caption: int, share: float = 1.0) -> float:
    """The same with both sums whole: pointwise mutual information."""
    row = math.log(sum(math.exp(s[image, j]) for j in range(s.shape[1]) if owner[j] != image or j == caption))
    column = math.log(sum(math.exp(s[i, caption]) for i in range(s.shape[0])))
    return s[image, caption] - share * (row + column)


def token_codes(tokens):
    tokens = torch.tensor(tokens, dtype=torch.float32)
    return Bank.from_codes(Codes(unit(tokens.sum(1)), unit(tokens)))


def make_token_gallery(n_images, owner, noise=0.5, dim=16, seed=0):
    """Two networks' tokens: an image's captions have words near its three regions."""
    rng = np.random.default_rng(seed)
    images, texts = [], []
    for _ in range(2):
        regions = rng.normal(size=(n_images, 3, dim))
        words = regions[owner][:, [0, 1, 2, 1]] + noise * rng.normal(size=(len(owner), 4, dim))
        images.append(token_codes(regions))
        texts.append(token_codes(words))
    return Gallery(make_matchers(), images, texts)


def planted(make, n_images=400, wrong=0.3, seed=1, **options):
    """A gallery, the true image of each caption, and the image that it is given with."""
    truth = np.repeat(np.arange(n_images), 2)
    gallery = make(n_images, truth, seed=seed, **options)
    rng = np.random.default_rng(seed)
    moved = rng.permutation(len(truth))[: int(wrong * len(truth))]
    owner = truth.copy()
    owner[moved] = rng.permutation(truth[moved])
    return gallery, truth, owner


def suggested(gallery, owner, flagged, believed, text=None, seed=0, **options):
    """Suggestions where flagged pairs are known to be mismatched, and others to match."""
    text = np.arange(len(owner)) if text is None else text
    known = GalleryPairs(owner, text, np.where(flagged, 0.02, 0.98), believed)
    return suggest(gallery, known, flagged, seed, **options)
