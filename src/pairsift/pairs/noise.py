"""Injected noise: training captions re-pointed to other images, with the truth kept.

Caption-level noise is NCR's (Huang et al., NeurIPS 2021), image-level noise is DECL's and RCL's. The index files are in
the layout that these papers' authors published.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from pairsift.errors import InputError
from pairsift.pairs.pairs import Ints, Noise, Pairs

GRANULARITIES = ("caption", "image")


def inject(pairs: Pairs, ratio: float, seed: int, granularity: str = "caption") -> Pairs:
    """Re-points a random share of the training captions by permuting their image pointers among themselves.

    Captions and their order stay, and so do dev and test. A pointer may come to lie where it was, or on a sibling
    caption of the same image; such a caption is no noise, and so the real rate is a hair below the ratio.

    Args:
        pairs: Pairs without injected noise.
        ratio: Share of the training captions (`caption`) or training images (`image`) to pick, in [0, 1].
        seed: Seed of numpy's default generator, 0 or above.
        granularity: `caption` permutes single captions' pointers; `image` lets all captions of an image move together.

    Returns:
        The pairs with `true_image_of` and `noise` set; `noise.rate` is the real rate.

    Raises:
        InputError: An argument is out of its range, or the pairs have injected noise already.
    """
    _refuse_noisy(pairs)
    if granularity not in GRANULARITIES:
        raise InputError(f"unknown noise granularity {granularity!r}; it is caption or image")
    if not 0 <= ratio <= 1:
        raise InputError(f"noise ratio {ratio} is outside [0, 1]")
    if seed < 0:
        raise InputError(f"noise seed {seed} is below 0")
    train = pairs.ids("train")
    rng = np.random.default_rng(seed)
    truth = pairs.image_of[train]
    if granularity == "caption":
        moved = _permute(truth, ratio, rng)
    else:
        images, position = training_images(truth)
        moved = _permute(images, ratio, rng)[position]
    return _repoint(pairs, moved, ratio, seed, granularity)


def _permute(pointers: Ints, ratio: float, rng: np.random.Generator) -> Ints:
    """The pointers with a random `int(ratio * n)` of them permuted among themselves."""
    picked = rng.permutation(len(pointers))[: int(ratio * len(pointers))]
    values = pointers[picked]
    rng.shuffle(values)
    moved = pointers.copy()
    moved[picked] = values
    return moved


def training_images(image_of: Ints) -> tuple[Ints, Ints]:
    """Image rows in the order in which captions first point at them, and each caption's position among them.

    Args:
        image_of: Image row of each training caption, (n,).

    Returns:
        Image rows, (n_images,), and positions, (n,) in [0, n_images).
    """
    rows, first, inverse = np.unique(image_of, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rows[order].astype(np.int64), rank[inverse.reshape(-1)]


def read_index(pairs: Pairs, path: str | Path) -> Pairs:
    """Re-points the training captions as a published noise index file says.

    The `.npy` file holds one image for each training caption, or one for each training image, which then goes to all
    its captions. An image is given as its position among the training images, in the order in which the training
    captions first point at them. The granularity is `image` where all captions of every image move together.

    Args:
        pairs: Pairs without injected noise.
        path: The file.

    Returns:
        The pairs with `true_image_of` and `noise` set; the nominal ratio is not known, so `noise.ratio` is the rate.

    Raises:
        InputError: The file is no one-dimensional array of integers, its length fits neither the captions nor the
            images, a value is out of range, or the pairs have injected noise already.
    """
    _refuse_noisy(pairs)
    path = Path(path)
    index = _read_integers(path)
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
    return _repoint(pairs, moved, None, -1, _granularity(moved, position))


def _read_integers(path: Path) -> Ints:
    """The one-dimensional integer array of a .npy file."""
    try:
        index = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: is not a .npy file of integers (pickled objects are not read)") from error
    if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu":
        found = f"{index.dtype} of shape {index.shape}" if isinstance(index, np.ndarray) else "an archive"
        raise InputError(f"{path}: holds {found}; a noise index is a one-dimensional array of integers")
    return index.astype(np.int64)


def _granularity(moved: Ints, position: Ints) -> str:
    """`image` where some image has several captions and those of every image point at one image, else `caption`."""
    first = np.unique(position, return_index=True)[1]
    together = bool((moved == moved[first][position]).all())
    return "image" if together and len(first) < len(position) else "caption"


def write_index(pairs: Pairs, path: str | Path) -> None:
    """Writes which image each training caption points at, in the layout that `read_index` reads.

    Args:
        pairs: Pairs, with or without injected noise.
        path: The `.npy` file: int64, one entry for each training caption.
    """
    train = pairs.ids("train")
    truth = pairs.image_of if pairs.true_image_of is None else pairs.true_image_of
    images, _ = training_images(truth[train])
    position_of = np.full(pairs.n_images, -1, dtype=np.int64)
    position_of[images] = np.arange(len(images))
    with open(path, "wb") as file:
        np.save(file, position_of[pairs.image_of[train]])


def _refuse_noisy(pairs: Pairs) -> None:
    if pairs.noise is not None:
        raise InputError(
            f"{pairs.source}: noise was injected already (rate {pairs.noise.rate:.4f}); load the pairs anew"
        )


def _repoint(pairs: Pairs, moved: Ints, ratio: float | None, seed: int, granularity: str) -> Pairs:
    """The pairs with the training captions pointing at the images in `moved`; `ratio` None means the real rate."""
    train = pairs.ids("train")
    rate = float(np.mean(moved != pairs.image_of[train])) if len(train) else 0.0
    image_of = pairs.image_of.copy()
    image_of[train] = moved
    digest = hashlib.sha256(moved.astype("<i8").tobytes()).hexdigest()[:16]
    noise = Noise(rate if ratio is None else ratio, seed, granularity, rate, digest)
    return replace(pairs, image_of=image_of, true_image_of=pairs.image_of.copy(), noise=noise)
