"""The CLIP matcher, which fine-tunes a CLIP or a SigLIP on pixels and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from pairsift.encode.clip_preprocessor import ClipPreprocessor, is_siglip
from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import (
    Adam,
    Codes,
    ImageKind,
    Matcher,
    TextKind,
    at_least_float32,
    inverse_temperature,
    unit,
)
from pairsift.match.clip_heads import DIM, TokenHead
from pairsift.match.pau import PrototypeOptions, Prototypes
from pairsift.match.pcme import SampledDistance, SampleOptions
from pairsift.match.pcmepp import DistanceOptions, ExpectedDistance
from pairsift.match.token_encoders import token_mask
from pairsift.options import Options

Freeze = Literal["none", "image", "text", "towers"]
Tower = Callable[[Tensor], Tensor]

LOSSES = {"gpo": "hinge", "pcme": "bce", "pcmepp": "bce"}  # the ranking losses of the heads' papers
TOWER_BATCH = 64  # items per pass through a tower without gradients, where `micro_batch` is 0


class PauHead(PrototypeOptions):
    """The options of PAU's prototypes on a fine-tuned CLIP, as its authors run them."""

    regression: float = Field(default=100.0, ge=0, description="Weight of the squared error of the vagueness.")


class ClipOptions(Options):
    """The options of `Clip`."""

    checkpoint: str = Field(
        default="openai/clip-vit-base-patch32",
        description="A folder in transformers' layout, or an id on the Hugging Face hub, of a CLIP or a SigLIP.",
    )
    freeze: Freeze = Field(
        default="none",
        description="Which towers are frozen; the projections and the temperature are always trained.",
    )
    micro_batch: int = Field(
        default=64,
        ge=0,
        description="Images, or captions, that go through a tower together where there is a gradient; 0 for the whole "
        "batch. In the backward pass each part is computed again, so that only one part's activations are in memory, "
        "for up to half as much time again; the loss sees the whole batch in any case.",
    )
    head: Literal["none", "pau", "gpo", "pcme", "pcmepp"] = Field(
        default="none",
        description="What stands on both towers: nothing, the prototypes of PAU on their vectors, or on their tokens "
        "the pooling of VSE-infinity (gpo) or the Gaussians of PCME or PCME++.",
    )
    pau: PauHead = PauHead()
    pcme: SampleOptions = SampleOptions()
    pcmepp: DistanceOptions = DistanceOptions()


class Clip(Matcher):
    """The CLIP model: pretrained transformers for pixels and text, projections, cosine and learned temperature.

    Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021. Training continues
    from the weights of a checkpoint. The two networks of a run start with equal weights and differ only by the order of
    their batches. With `head` pau this is PAU as published (`pairsift.match.pau.Pau`).

    With `gpo`, `pcme` and `pcmepp` this is VSE-infinity, PCME and PCME++ on a CLIP, as PCME++'s paper compares them
    (Chun, ICLR 2024): tokens take the place of the projected vectors, a linear map of each and generalized pooling make
    vectors of 1,024 entries, and Gaussians have variances from the same on one more transformer block beside the last.
    Of the learning rate, which is the image tower's, the text tower has ten times as much and the head 100 times.

    Of a SigLIP (Zhai et al., ICCV 2023) the towers end in vectors of the common space. The logit of a match is the
    cosine at a learned temperature plus a learned bias, and the similarity is the logit at the temperature,

        S = cos(v, t) + b / scale = (v, b / scale) . (t, 1).

    Args:
        options: See `ClipOptions`.
        pretrained: Whether to read the weights of the checkpoint.

    Raises:
        InputError: There is no such checkpoint.
    """

    name: ClassVar[str] = "clip"
    options: ClassVar[type[Options]] = ClipOptions
    image_kind: ClassVar[ImageKind] = "pixels"
    text_kind: ClassVar[TextKind] = "text"
    preset: ClassVar[str] = "clip"
    starts_trained = True
    head_speed: ClassVar[float] = 1000.0  # a head starts untrained, the towers start pretrained
    adam: ClassVar[Adam] = Adam((0.9, 0.98), 1e-6)  # as CLIP was trained, and as NPC, OSA and PAU fine-tune it
    gains_by_bf16: ClassVar[bool] = True
    model: Any
    mean: Tensor
    std: Tensor

    def __init__(self, options: ClipOptions = ClipOptions(), pretrained: bool = True) -> None:
        super().__init__()
        preprocessor = ClipPreprocessor(options.checkpoint, pretrained)
        self.model = preprocessor.model()
        config, self.siglip = preprocessor.config, preprocessor.siglip
        self.dim = int(config.vision_config.hidden_size if self.siglip else config.projection_dim)
        self.micro_batch = options.micro_batch
        self.prototypes = Prototypes(self.dim, options.pau) if options.head == "pau" else None
        self.tokens = None
        if options.head in LOSSES:
            self.dim, self.starts_trained = DIM, False
            distance: SampledDistance | ExpectedDistance | None = None
            if options.head != "gpo":
                pcme = options.head == "pcme"
                distance = SampledDistance(options.pcme) if pcme else ExpectedDistance(options.pcmepp)
            self.tokens = TokenHead(config.vision_config, config.text_config, distance)
        self.register_buffer(
            "mean", torch.tensor(preprocessor.mean).view(3, 1, 1) / preprocessor.factor, persistent=False
        )
        self.register_buffer(
            "std", torch.tensor(preprocessor.std).view(3, 1, 1) / preprocessor.factor, persistent=False
        )
        towers = {"image": self.model.vision_model, "text": self.model.text_model}
        self._frozen: list[nn.Module] = [tower for side, tower in towers.items() if options.freeze in (side, "towers")]
        for tower in self._frozen:
            tower.requires_grad_(False)

    @classmethod
    def check(cls, options: Options) -> None:
        """Check the checkpoint, except for the values of its weights."""
        assert isinstance(options, ClipOptions)
        if ClipPreprocessor(options.checkpoint).siglip and options.head != "none":
            raise InputError(
                f"--clip.head {options.head} stands on a CLIP, and {options.checkpoint} is a SigLIP: leave the head out"
            )

    @classmethod
    def loss_of(cls, options: Mapping[str, Any]) -> str | None:
        """Return the ranking loss of the head's paper, or of SigLIP's."""
        siglip = is_siglip(str(options.get("checkpoint", "")))
        return "sigmoid" if siglip else LOSSES.get(str(options.get("head")))

    def speed(self, name: str) -> float:
        """Return the learning rate of a parameter as a multiple of the run's; see the class."""
        if self.tokens is None or name.startswith("model.vision_model."):
            return 1.0
        return 10.0 if name.startswith("model.text_model.") else 100.0

    def train(self, mode: bool = True) -> Clip:
        """Set training or evaluation mode; frozen towers stay in evaluation mode."""
        super().train(mode)
        for tower in self._frozen:
            tower.eval()
        return self

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images, (n, 3, height, width) bytes to (n, dim)."""

        def tower(pixels: Tensor) -> Tensor:
            scaled = (pixels.to(self.mean.dtype) - self.mean) / self.std
            return self._read(self.model.vision_model, pixel_values=scaled)

        read = self._in_parts(tower, items.values, self.model.vision_model)
        if self.tokens is not None:
            return self.tokens.codes(read, torch.ones_like(read[:, 0, :, 0], dtype=torch.bool), images=True)
        vectors = unit(at_least_float32(read if self.siglip else self.model.visual_projection(read)))
        if self.siglip:
            level = self.model.logit_bias / self.scale()
            return Codes(vectors, index=torch.cat([vectors, level.expand(len(vectors), 1)], 1))
        own = self.prototypes
        return Codes(vectors) if own is None else own.codes(vectors, own.texts, self.scale())

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of captions, (n, length) token ids to (n, dim).

        Padding needs no mask in the tower. A CLIP's attention is causal and its vector is read at the last real token,
        and a SigLIP learned with padding.
        """

        def tower(ids: Tensor) -> Tensor:
            return self._read(self.model.text_model, input_ids=ids)

        read = self._in_parts(tower, items.values, self.model.text_model)
        if self.tokens is not None:
            return self.tokens.codes(read, token_mask(items), images=False)
        vectors = unit(at_least_float32(read if self.siglip else self.model.text_projection(read)))
        if self.siglip:
            return Codes(vectors, index=torch.cat([vectors, vectors.new_ones(len(vectors), 1)], 1))
        own = self.prototypes
        return Codes(vectors) if own is None else own.codes(vectors, own.images, self.scale())

    def _read(self, module: nn.Module, **values: Tensor) -> Tensor:
        """Return the pooled output of a tower, (n, width), or the tokens that the head reads, (n, k, length, width)."""
        if self.tokens is not None:
            return self.tokens.states(module(**values, output_hidden_states=True))
        pooled: Tensor = module(**values).pooler_output
        return pooled

    def _in_parts(self, tower: Tower, values: Tensor, module: nn.Module) -> Tensor:
        """Return what is read of a tower for each item, (n, ...), computed in parts."""
        if module in self._frozen or not torch.is_grad_enabled():
            with torch.no_grad():
                return torch.cat([tower(part) for part in torch.split(values, self.micro_batch or TOWER_BATCH)])
        if not 0 < self.micro_batch < len(values):
            return tower(values)
        parts = torch.split(values, self.micro_batch)
        return torch.cat([recomputed(tower, part, use_reentrant=False) for part in parts])

    @property
    def _distance(self) -> SampledDistance | ExpectedDistance | None:
        """What compares Gaussians; None without them."""
        return None if self.tokens is None else self.tokens.distance

    @property
    def index_dim(self) -> int:
        """Length of the vectors whose inner product is the similarity in evaluation."""
        return self.dim + (self.siglip if self._distance is None else self._distance.behind)

    @property
    def shares_space(self) -> bool:
        """Whether the similarity in evaluation is the cosine: no Gaussians, no bias, and vague items lose nothing."""
        return self.index_dim == self.dim and (self.prototypes is None or self.prototypes.rerank == 0)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts)."""
        own = self._distance
        return super().similarity(images, texts) if own is None else own.similarity(images, texts)

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted terms of PAU, PCME or PCME++ for each pair, (B,); None for other heads."""
        if self._distance is not None:
            return self._distance.penalty(images, texts)
        return None if self.prototypes is None else self.prototypes.penalty(images, texts, exclude, self.scale())

    def scale(self) -> Tensor:
        """Return the learned inverse temperature, of a CLIP at most 100 as in the paper."""
        if self.siglip:
            scale: Tensor = self.model.logit_scale.exp().squeeze()
            return scale
        return inverse_temperature(self.model.logit_scale) if self._distance is None else self._distance.scale()
