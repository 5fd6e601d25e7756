"""Planted noise: training captions that are moved to other images, with the truth kept.

Caption-level noise follows NCR (Huang et al., NeurIPS 2021). Image-level noise follows DECL and RCL. The index files
have the layout that the authors of these papers published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pairsift.arrays import Ints, first_numbers
from pairsift.errors import InputError
from pairsift.pairs.pairs import Noise, Pairs
from pairsift.pairs.precomputed import load_array


def plant_noise(pairs: Pairs, ratio: float, seed: int, granularity: str = "caption") -> Pairs:
    """Plant noise: permute the images of a random share of the training captions among themselves.

    The captions, their order, and the dev and test splits do not change. After the permutation, a caption may still
    point at its image, because its pointer stayed in place or was exchanged with another caption of the same image.
    Such a caption is not noise. The real rate is therefore slightly below the ratio.

    Args:
        pairs: Pairs without planted noise.
        ratio: Share of the training captions (`caption`) or training images (`image`) to pick, in [0, 1].
        seed: Seed of numpy's default generator, 0 or above.
        granularity: `caption` permutes the pointers of single captions; `image` moves all captions of an image
            together.

    Returns:
        The pairs with `true_image_of` and `noise` set; `noise.rate` is the real rate.

    Raises:
        InputError: The pairs already have planted noise.
    """
    refuse_noisy(pairs)
    train = pairs.ids("train")
    rng = np.random.default_rng(seed)
    truth = pairs.image_of[train]
    if granularity == "caption":
        moved = _permute(truth, ratio, rng)
    else:
        images, position = training_images(truth)
        moved = _permute(images, ratio, rng)[position]
    return repointed(pairs, moved, ratio, seed, granularity, "random")


def plant_in_all_splits(pairs: Pairs, plant: Callable[[Pairs], Pairs]) -> Pairs:
    """Plant noise in train, dev and test, in each by itself: a caption never moves to an image of another split.

    The training captions get the noise that they get where train alone has any.

    Args:
        pairs: Pairs without planted noise.
        plant: Function that plants noise in the training captions.

    Returns:
        The pairs with `true_image_of` and `noise` set, and with `source_captions` if captions were replaced.

    Raises:
        InputError: The noise cannot be planted in one of the splits.
    """
    image_of, truth, captions, records = pairs.image_of.copy(), pairs.image_of.copy(), list(pairs.captions), []
    for name in ("train", "dev", "test"):
        ids = pairs.ids(name)
        if len(ids):
            alone = np.full(len(pairs), "unused")
            alone[ids] = "train"
            planted = plant(replace(pairs, split=alone))
            assert planted.noise is not None and planted.true_image_of is not None, "no noise was planted"
            image_of[ids], truth[ids] = planted.image_of[ids], planted.true_image_of[ids]
            for pair in ids.tolist():
                captions[pair] = planted.captions[pair]
            records.append(planted.noise)
    digest = hashlib.sha256("".join(record.index_hash for record in records).encode()).hexdigest()[:16]
    noise = replace(records[0], splits="all", index_hash=digest)
    original = None if captions == pairs.captions else pairs.captions
    return replace(
        pairs, image_of=image_of, true_image_of=truth, captions=captions, source_captions=original, noise=noise
    )


def refuse_noisy(pairs: Pairs) -> None:
    """Raise an error for pairs that already have planted noise.

    Raises:
        InputError: They do.
    """
    if pairs.noise is not None:
        raise InputError(
            f"{pairs.source}: noise was planted already (rate {pairs.noise.rate:.4f}); load the pairs anew"
        )


def _permute(pointers: Ints, ratio: float, rng: np.random.Generator) -> Ints:
    """Return the pointers with a random `int(ratio * n)` of them permuted among themselves."""
    picked = rng.permutation(len(pointers))[: int(ratio * len(pointers))]
    values = pointers[picked]
    rng.shuffle(values)
    moved = pointers.copy()
    moved[picked] = values
    return moved


def training_images(image_of: Ints) -> tuple[Ints, Ints]:
    """Return the distinct image rows in the order of their first captions, and each caption's position among them.

    Args:
        image_of: Image row of each training caption, (n,).

    Returns:
        Image rows, (n_images,), and the position of each caption's image among them, (n,) in [0, n_images).
    """
    position = first_numbers(image_of)
    return image_of[np.unique(position, return_index=True)[1]], position


def read_index(pairs: Pairs, path: str | Path) -> Pairs:
    """Move the training captions to the images that a published noise index file names.

    The `.npy` file contains one image for each training caption, or one for each training image, which then applies to
    all its captions. An image is written as its position among the training images, in the order of their first
    captions. The granularity is `image` if images have several captions and all captions of every
    image move together.

    Args:
        pairs: Pairs without planted noise.
        path: The file.

    Returns:
        The pairs with `true_image_of` and `noise` set. The nominal ratio is unknown, so `noise.ratio` is the real rate.

    Raises:
        InputError: The file is not a one-dimensional array of integers, its length fits neither the captions nor the
            images, a value is out of range, or the pairs already have planted noise.
    """
    refuse_noisy(pairs)
    path = Path(path)
    index = load_array(path, mapped=False)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise InputError(
            f"{path}: holds {index.dtype} of shape {index.shape}; a noise index is a one-dimensional array of integers"
        )
    images, position = training_images(pairs.image_of[pairs.ids("train")])
    if len(index) not in (len(position), len(images)):
        raise InputError(
            f"{path}: holds {len(index)} entries; "
            f"the training split has {len(position)} captions of {len(images)} images"
        )
    if len(index) and not (index.min() >= 0 and index.max() < len(images)):
        raise InputError(
            f"{path}: entries run from {index.min()} to {index.max()}; "
            f"the training images are counted from 0 to {len(images) - 1}"
        )
    moved = images[index if len(index) == len(position) else index[position]]
    return repointed(pairs, moved, None, -1, _granularity(moved, position), "index")


def _granularity(moved: Ints, position: Ints) -> str:
    """Return `image` or `caption`, the granularity of the noise.

    It is `image` if some image has several captions and the captions of each image all point at one image.
    """
    first_captions = np.unique(position, return_index=True)[1]
    together = bool((moved == moved[first_captions][position]).all())
    return "image" if together and len(first_captions) < len(position) else "caption"


def repointed(pairs: Pairs, moved: Ints, ratio: float | None, seed: int, granularity: str, kind: str) -> Pairs:
    """Return the pairs with the training captions pointing at the images in `moved`.

    Args:
        pairs: Pairs without planted noise.
        moved: Image that each training caption points at, (n_train,).
        ratio: Share that was to be moved; None records the real rate.
        seed: Seed of the noise; -1 if it came from a file.
        granularity: `caption` or `image`.
        kind: Kind of the noise.
    """
    train = pairs.ids("train")
    rate = float(np.mean(moved != pairs.image_of[train])) if len(train) else 0.0
    image_of = pairs.image_of.copy()
    image_of[train] = moved
    digest = hashlib.sha256(moved.astype("<i8").tobytes()).hexdigest()[:16]
    noise = Noise(rate if ratio is None else ratio, seed, granularity, rate, digest, kind)
    return replace(pairs, image_of=image_of, true_image_of=pairs.image_of.copy(), noise=noise)


def rewritten(pairs: Pairs, captions: list[str], true_image_of: Ints, ratio: float, seed: int, kind: str) -> Pairs:
    """Return the pairs with other training captions, which are planted noise.

    Args:
        pairs: Pairs without planted noise.
        captions: The new captions, (n,).
        true_image_of: Image that each caption belongs to, -1 for the new ones, (n,).
        ratio: Share that was to be replaced.
        seed: Seed of the noise.
        kind: Kind of the noise.
    """
    train = pairs.ids("train")
    rate = float(np.mean(true_image_of[train] != pairs.image_of[train])) if len(train) else 0.0
    text = "\0".join(captions[pair] for pair in train).encode("utf-8", "surrogatepass")
    noise = Noise(ratio, seed, "caption", rate, hashlib.sha256(text).hexdigest()[:16], kind)
    return replace(pairs, captions=captions, source_captions=pairs.captions, true_image_of=true_image_of, noise=noise)
