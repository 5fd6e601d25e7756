"""Models of the Hugging Face hub that one word names. Nothing heavy is imported here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, as its card and its configuration describe it.

    Attributes:
        hub: Id on the hub.
        reads: What it encodes; both sides have one space.
        dim: Width of its vectors.
        languages: Languages of the captions.
        licence: Licence of the weights.
        speed: Images and captions that it encodes in a second on two cores (`benchmarks/hub_encoders.py`).
        prefix: Text that its makers put before every caption.
    """

    hub: str
    reads: Literal["both", "images", "captions"]
    dim: int
    languages: str
    licence: str
    speed: tuple[int, int]
    prefix: str = ""

    @property
    def spec(self) -> str:
        """Return the name of its encoders."""
        return f"hf:{self.hub}"

    def is_here(self) -> bool:
        """Return whether the hub's cache on this machine has the model."""
        try:
            cache = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
        except ImportError:
            return False
        return any(cache.glob(f"models--{self.hub.replace('/', '--')}/snapshots/*/config.json"))

    def summary(self) -> str:
        """Return a line for a list."""
        images, captions = self.speed
        speeds = {"images": f"{images} images", "captions": f"{captions:,} captions"}
        speeds["both"] = " and ".join(speeds.values())
        reads = "images and captions in one space" if self.reads == "both" else self.reads
        languages = f"{self.languages}, " if self.languages else ""
        state = "here" if self.is_here() else "fetched when named; needs pip install 'pairsift[hf]'"
        return (
            f"{reads}, {self.dim}-d, {languages}{self.licence}, {speeds[self.reads]} a second on two cores; "
            f"{self.hub}, {state}"
        )


HUB_MODELS = {
    "clip": HubModel("openai/clip-vit-base-patch32", "both", 512, "English", "MIT", (17, 140)),
    "siglip2": HubModel("google/siglip2-base-patch16-224", "both", 768, "many languages", "Apache-2.0", (4, 17)),
    "dinov2": HubModel("facebook/dinov2-base", "images", 768, "", "Apache-2.0", (4, 0)),
    "e5": HubModel(
        "intfloat/multilingual-e5-base", "captions", 768, "about 100 languages", "MIT", (0, 75), prefix="query: "
    ),
    "multilingual": HubModel(
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        "captions",
        384,
        "50 languages",
        "Apache-2.0",
        (0, 235),
    ),
}
READS = {"image_encoder": "images", "text_encoder": "captions"}
PREFIXES = {model.hub: model.prefix for model in HUB_MODELS.values() if model.prefix}


def sides(name: str) -> dict[str, str]:
    """Return the encoders that a word names: `image_encoder`, `text_encoder` or both.

    Args:
        name: A name from `HUB_MODELS`; or two names joined by +, the first of a model of images and the second of a
            model of captions, where other encoders count too.

    Raises:
        ValueError: There is no such model, or it does not read what it is named for.
    """
    first, joined, second = name.partition("+")
    model = HUB_MODELS.get(first)
    known = f"choose from {', '.join(HUB_MODELS)}, or join one of images and one of captions by +, as dinov2+e5"
    if not joined:
        if model is None:
            raise ValueError(known)
        return {side: model.spec for side, read in READS.items() if model.reads in ("both", read)}
    other = HUB_MODELS.get(second)
    if (model is not None and model.reads == "captions") or (other is not None and other.reads == "images"):
        raise ValueError(known)
    return {
        "image_encoder": model.spec if model else first,
        "text_encoder": other.spec if other else second,
    }
