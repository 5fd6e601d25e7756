"""A tiny job: planted structure, some of it mismatched, trained in a second."""

from pathlib import Path

import numpy as np

from pairsift.encode.features import Features, Table
from pairsift.loss.ranking import InfoNCE
from pairsift.match import TwoTower
from pairsift.methods import METHODS
from pairsift.pairs import Pairs, inject
from pairsift.train.loop import Job
from pairsift.train.options import TrainOptions

MORE = {"pcsr": {"refine_epochs": 1, "all_epochs": 1, "classes": 8, "classifier": "directions", "search": "epoch"}}


def make_pairs(n_images: int = 240, per: int = 2, noise: float = 0.4) -> tuple[Pairs, Features]:
    """Images and captions that share a hidden vector; the last fifth are dev and test."""
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(n_images, 12))
    image_of = np.repeat(np.arange(n_images), per)
    images = hidden @ rng.normal(size=(12, 20)) + 0.3 * rng.normal(size=(n_images, 20))
    texts = hidden[image_of] @ rng.normal(size=(12, 16)) + 0.3 * rng.normal(size=(len(image_of), 16))
    split = np.where(image_of < n_images * 0.8, "train", np.where(image_of < n_images * 0.9, "dev", "test"))
    names = [f"{i}.jpg" for i in range(n_images)]
    pairs = Pairs("made", names, [Path(n) for n in names], [f"c{i}" for i in range(len(image_of))], image_of, split)
    features = Features(Table(images.astype(np.float32)), Table(texts.astype(np.float32)))
    return (inject(pairs, noise, 1) if noise else pairs), features


def make_job(
    folder: Path, method: str = "pc2", noise: float = 0.4, minutes: float = 10.0, n_images: int = 240, **options
) -> Job:
    pairs, features = make_pairs(n_images, noise=noise)
    phases = {"epochs": 3} if method in ("npc", "gsc", "plain", "crossfit") else {"clean_epochs": 1, "all_epochs": 2}
    chosen = {"networks": 2, "warmup_epochs": 1, **phases, **MORE.get(method, {}), **options}
    (folder / "model").mkdir(parents=True, exist_ok=True)
    return Job(
        pairs,
        features,
        lambda: TwoTower(20, 16, dim=16, hidden=16, dropout=0.3),
        METHODS[method](**chosen),
        InfoNCE(),
        TrainOptions(batch_size=32, lr=3e-3, seed=5, device="cpu", checkpoint_minutes=minutes, threads=1),
        folder,
        progress=False,
    )
