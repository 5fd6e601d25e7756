"""CLIP, fine-tuned from pixels and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from pairsift.encode.features import Items
from pairsift.encode.front import Front
from pairsift.errors import InputError
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, inverse_temperature, unit

Freeze = Literal["none", "image", "text", "towers"]
Tower = Callable[[Tensor], Tensor]

AT_ONCE = 64  # items that go through a tower together where no gradient is wanted


class Clip(Matcher):
    """A pretrained transformer on pixels and one on text, a projection each, cosine, learned temperature: CLIP.

    Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021. It learns the
    weights of a checkpoint further. Two networks of one run start alike and differ by the order of their batches.

    Args:
        checkpoint: A folder in transformers' layout, or an id on the Hugging Face hub, of a CLIP.
        freeze: Which towers stay as they are: `none`, `image`, `text` or both `towers`. The projections and the
            temperature learn in any case.
        micro_batch: Images, or captions, that go through a tower together where there is a gradient; 0 for the whole
            batch. In the backward pass each part is computed again, so that only one part's activations are in memory,
            for up to half as much time again; the loss sees the whole batch in any case.
        pretrained: Whether the checkpoint's weights are read.

    Raises:
        InputError: There is no such checkpoint, or an option is not possible.
    """

    name: ClassVar[str] = "clip"
    image_kind: ClassVar[ImageKind] = "pixels"
    text_kind: ClassVar[TextKind] = "text"
    preset: ClassVar[str] = "clip"
    starts_trained: ClassVar[bool] = True
    head_speed: ClassVar[float] = 1000.0  # a head starts from nothing, the towers from weights that are nearly right
    model: Any
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        checkpoint: str = "openai/clip-vit-base-patch32",
        freeze: Freeze = "none",
        micro_batch: int = 64,
        pretrained: bool = True,
    ) -> None:
        super().__init__()
        _demand(freeze, micro_batch)
        front = Front(checkpoint, pretrained)
        self.model = front.model()
        self.dim = int(front.config.projection_dim)
        self.micro_batch = micro_batch
        self.register_buffer("mean", torch.tensor(front.mean).view(3, 1, 1) / front.factor, persistent=False)
        self.register_buffer("std", torch.tensor(front.std).view(3, 1, 1) / front.factor, persistent=False)
        towers = {"image": self.model.vision_model, "text": self.model.text_model}
        self._frozen: list[nn.Module] = [tower for side, tower in towers.items() if freeze in (side, "towers")]
        for tower in self._frozen:
            tower.requires_grad_(False)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Look at the options and at all of the checkpoint but its weights."""
        _demand(options["freeze"], options["micro_batch"])
        Front(options["checkpoint"])

    def train(self, mode: bool = True) -> Clip:
        """Training mode for all but the frozen towers."""
        super().train(mode)
        for tower in self._frozen:
            tower.eval()
        return self

    def encode_images(self, items: Items) -> Codes:
        """Unit vectors of images, (n, 3, height, width) bytes -> (n, dim)."""

        def tower(pixels: Tensor) -> Tensor:
            scaled = (pixels.to(self.mean.dtype) - self.mean) / self.std
            pooled: Tensor = self.model.vision_model(pixel_values=scaled).pooler_output
            return pooled

        pooled = self._in_parts(tower, items.values, self.model.vision_model)
        return Codes(unit(full(self.model.visual_projection(pooled))))

    def encode_texts(self, items: Items) -> Codes:
        """Unit vectors of captions, (n, length) token ids -> (n, dim).

        Attention looks back only and the last token is read, so that padding needs no mask.
        """

        def tower(ids: Tensor) -> Tensor:
            pooled: Tensor = self.model.text_model(input_ids=ids).pooler_output
            return pooled

        pooled = self._in_parts(tower, items.values, self.model.text_model)
        return Codes(unit(full(self.model.text_projection(pooled))))

    def _in_parts(self, tower: Tower, values: Tensor, module: nn.Module) -> Tensor:
        """What a tower pools of each item, (n, width), part after part."""
        if module in self._frozen or not torch.is_grad_enabled():
            with torch.no_grad():
                return torch.cat([tower(part) for part in torch.split(values, self.micro_batch or AT_ONCE)])
        if not 0 < self.micro_batch < len(values):
            return tower(values)
        parts = torch.split(values, self.micro_batch)
        return torch.cat([recomputed(tower, part, use_reentrant=False) for part in parts])

    def scale(self) -> Tensor:
        """The learned inverse temperature, at most 100 as in the paper."""
        return inverse_temperature(self.model.logit_scale)


def _demand(freeze: str, micro_batch: int) -> None:
    if freeze not in ("none", "image", "text", "towers"):
        raise InputError(f"clip.freeze is {freeze!r}; it must be none, image, text or towers")
    if micro_batch < 0:
        raise InputError(f"clip.micro_batch is {micro_batch}; it must be at least 0")
