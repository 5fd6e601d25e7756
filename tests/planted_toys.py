"""Small planted collections of vectors for matchers of one vector per side."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pairsift.encode.features import Features, Table
from pairsift.loss.ranking import RankingLoss
from pairsift.match.base import Matcher
from pairsift.methods import METHODS
from pairsift.pairs.pairs import Pairs
from pairsift.train.loop import Job
from pairsift.train.options import TrainOptions


def planted_job(folder: Path, matcher: Callable[[], Matcher], ranking: RankingLoss, epochs: int = 12) -> Job:
    """A job on images (20 floats) and captions (16) that share a hidden vector, one to one."""
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(400, 8))
    images = hidden @ rng.normal(size=(8, 20)) + 0.05 * rng.normal(size=(400, 20))
    texts = hidden @ rng.normal(size=(8, 16)) + 0.05 * rng.normal(size=(400, 16))
    split = np.where(np.arange(400) < 340, "train", np.where(np.arange(400) < 370, "dev", "test"))
    names = [f"{i}.jpg" for i in range(400)]
    pairs = Pairs("made", names, [Path(n) for n in names], [f"c{i}" for i in range(400)], np.arange(400), split)
    features = Features(Table(images.astype(np.float32)), Table(texts.astype(np.float32)))
    (folder / "model").mkdir(parents=True, exist_ok=True)
    method = METHODS["plain"](epochs={"warmup": 0, "train": epochs}, networks=1)
    options = TrainOptions(batch_size=34, lr=5e-3, seed=5, device="cpu", threads=1)
    return Job(pairs, features, matcher, method, ranking, options, folder, progress=False)


def ambiguous(groups: int = 8, size: int = 6, clear: int = 48) -> tuple[Tensor, Tensor, Tensor]:
    """Images, captions and which captions are vague: those of a group read alike, and fit all images of the group.

    The images of a group differ as much as any; the other captions fit one image each.

    Returns:
        Images and captions, (groups * size + clear, 24) each, and whether each caption is vague.
    """
    generator = torch.Generator().manual_seed(4)
    count = groups * size + clear
    images = torch.randn(count, 24, generator=generator)
    texts = images.clone()
    for group in range(groups):
        members = slice(group * size, (group + 1) * size)
        texts[members] = texts[members].mean(0) * size**0.5
    return images, texts, torch.arange(count) < groups * size
