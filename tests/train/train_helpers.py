"""A tiny job: planted structure, some of it mismatched, trained in a second."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pairsift.encode.features import Features, Table
from pairsift.loss.ranking import InfoNCE
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.methods import METHODS
from pairsift.methods.base import Method
from pairsift.noise.planted import plant_noise
from pairsift.pairs.pairs import Pairs
from pairsift.train.loop import Job, Trainer
from pairsift.train.options import TrainOptions

Options = dict[str, Any]
SIZES = TwoTowerOptions(dim=16, hidden=16, dropout=0.3)
VERIFIED = 10  # every so many pairs are declared to match; those that noise moved do not count
THROUGHOUT: Options = {"epochs": {"warmup": 1, "train": 3}}
DIVIDED: Options = {"epochs": {"warmup": 1, "clean": 1, "all": 2}}
PCSR: Options = {
    "epochs": {"warmup": 1, "clean": 1, "refine": 1, "all": 1},
    "classifier": {"classes": 8},
    "captions": {"search": "epoch"},
}
PIECES: Options = {"epochs": {"first": 2, "second": 0, "third": 0, "last": 2}, "frozen": 1}
CREAM: Options = {"epochs": {"warmup": 1, "clean": 1, "hard": 1, "all": 1}}
USUAL = {
    "ncr": DIVIDED,
    "pc2": DIVIDED,
    "pc2_mscn": DIVIDED,
    "pcsr": PCSR,
    "crcl": PIECES,
    "bicro": DIVIDED,
    "cream": CREAM,
}


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
    pairs = plant_noise(pairs, noise, 1) if noise else pairs
    return replace(pairs, verified=np.arange(len(image_of)) % VERIFIED == 0), features


def over(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> Options:
    """Options over defaults, those of a group one by one."""
    groups = {
        name: {**defaults[name], **value}
        for name, value in options.items()
        if isinstance(value, dict) and name in defaults
    }
    return {**defaults, **options, **groups}


def make_method(name: str, **options: Any) -> Method:
    """A method with few epochs; the options are its own, groups being mappings."""
    return METHODS[name](**over({"networks": 2, **USUAL.get(name, THROUGHOUT)}, options))


def watched(method: Method, **hooks: Callable[..., Any]) -> Method:
    """The same options, of a subclass whose functions call hooks with the method, its own function and arguments."""
    kind = type(method)

    def calling(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *given: hook(self, partial(getattr(kind, name), self), *given)

    made = type(kind.__name__, (kind,), {name: calling(name, hook) for name, hook in hooks.items()})
    return made(**{name: getattr(method, name) for name in method.model_fields_set})


def make_job(
    folder: Path,
    method: str = "pc2",
    noise: float = 0.4,
    minutes: float = 10.0,
    n_images: int = 240,
    hooks: Mapping[str, Callable[..., Any]] | None = None,
    **options: Any,
) -> Job:
    """A job of a method by name; `hooks` are those of `watched`."""
    pairs, features = make_pairs(n_images, noise=noise)
    (folder / "model").mkdir(parents=True, exist_ok=True)
    return Job(
        pairs,
        features,
        lambda: TwoTower(20, 16, SIZES),
        watched(make_method(method, **options), **(hooks or {})),
        InfoNCE(),
        TrainOptions(batch_size=32, lr=3e-3, seed=5, device="cpu", checkpoint_minutes=minutes, threads=1),
        folder,
        progress=False,
    )


def dying(step: int, die: Callable[[], None]) -> type[Trainer]:
    """A trainer that saves a checkpoint every third optimizer step, and dies before a given one."""

    class Dying(Trainer):
        count = 0

        def _descend(self, k, terms):
            self.count += 1
            if self.count == step:
                die()
            super()._descend(k, terms)
            self._saved = float("-inf") if self.count % 3 == 0 else self._saved

    return Dying
