"""The matcher VSRN: graphs over regions, followed by a GRU that reads the regions in order."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.match import recurrent
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, unit
from pairsift.match.states import Linear, RowNorm, Words, WordSizes, mask_of
from pairsift.options import Options


class VsrnOptions(WordSizes):
    """The options of `Vsrn`."""

    graphs: int = Field(default=4, ge=1, description="Residual graphs over the regions.")


class Vsrn(Matcher):
    """The visual semantic reasoning (Li et al., Visual Semantic Reasoning for Image-Text Matching, ICCV 2019).

    The regions of an image pass through residual graphs and then, in the order of the detector, through a GRU. The last
    state of the GRU is the vector of the image. The vector of a caption is the last state of a GRU over its words. The
    similarity is the cosine of the two vectors. The number of regions is arbitrary. Padding has no effect, because it
    is excluded from the graphs, the batch norms and the GRU.

    Regions have unit length before and after the graphs. (The published code uses another axis: it normalises each
    entry over the regions instead of each region over its entries.) The second loss of the paper, which generates the
    caption from the regions, is not implemented, because it would memorise wrong captions.

    Args:
        image_dim: Length of the feature vector of a region.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        options: See `VsrnOptions`.
    """

    name: ClassVar[str] = "vsrn"
    options: ClassVar[type[Options]] = VsrnOptions
    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    has_tokens: ClassVar[bool] = True

    def __init__(self, image_dim: int, vocabulary_size: int, options: VsrnOptions = VsrnOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.project = Linear(image_dim, options.dim)
        self.graphs = nn.ModuleList(_Graph(options.dim) for _ in range(options.graphs))
        self.reader = nn.GRU(options.dim, options.dim, batch_first=True)
        self.words = Words(vocabulary_size, options.word_dim, options.dim, directions="forward")

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. Real regions keep their order.

        Returns:
            Vectors (n, dim), 0 for an image without regions, and the regions after the graphs, of unit length, as
            tokens. Real regions come first.
        """
        mask = mask_of(items)
        counts = mask.sum(1)
        real = torch.arange(max(1, int(counts.max())), device=mask.device) < counts[:, None]
        rows = unit(self.project(items.values[mask]))
        for graph in self.graphs:
            rows = graph(rows, real)
        tokens = _spread(unit(rows), real)
        lengths = counts.clamp(min=1)
        last = recurrent.states(self.reader, tokens, lengths)[
            torch.arange(len(tokens), device=mask.device), lengths - 1
        ]
        return Codes(unit(full(last).masked_fill(counts[:, None] == 0, 0.0)), tokens, real)

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.

        Returns:
            Vectors (n, dim), and the states of the words, of unit length, as tokens.
        """
        states, mask = self.words(items)
        last = states[torch.arange(len(states), device=mask.device), mask.sum(1) - 1]
        return Codes(unit(full(last)), unit(states), mask)


class _Graph(nn.Module):
    """A residual graph over the N regions v of an image; the relation of two regions is a product of two maps.

        v' = v + BN( W R g(v) ),    R = theta(v)^T phi(v) / N

    There is no softmax, so relations may be negative. The scale of the norm starts at 0, so the graph starts as the
    identity.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta, self.phi, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.norm = RowNorm(dim)
        nn.init.zeros_(self.norm.weight)

    def forward(self, rows: Tensor, real: Tensor) -> Tensor:
        """Update the real regions of all images, (m, dim) to (m, dim); `real` (n, regions) has m True entries."""
        theta, phi, value = (_spread(layer(rows), real) for layer in (self.theta, self.phi, self.value))
        relation = theta @ phi.transpose(1, 2) / real.sum(1).clamp(min=1)[:, None, None]
        update: Tensor = self.norm(self.out((relation @ value)[real]))
        return rows + update


def _spread(rows: Tensor, real: Tensor) -> Tensor:
    """Put rows (m, d) at the m True places of `real` (n, length), with 0 elsewhere, (n, length, d)."""
    out = rows.new_zeros((*real.shape, rows.shape[-1]))
    out[real] = rows
    return out
