"""Regions that reason with each other before a GRU reads them in order: VSRN."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, full, unit
from pairsift.match.states import Linear, RowNorm, Words, mask_of


class Vsrn(Matcher):
    """Visual semantic reasoning (Li et al., Visual Semantic Reasoning for Image-Text Matching, ICCV 2019).

    An image's regions pass through residual graphs and then, in the detector's order, through a GRU whose last state is
    its vector; a caption's vector is the last state of a GRU over its words; the similarity is their cosine. Any number
    of regions will do, and padding changes nothing: it is in no graph, no batch norm and no GRU.

    Regions have unit length before and after the graphs. (The published code takes that length over the regions of each
    entry instead of over the entries of each region, by the axis it names.) The paper's second loss, which generates
    the caption from the regions, is left out: it learns wrong captions by heart.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        dim: Length of the common vectors.
        word_dim: Length of a word vector.
        graphs: Residual graphs over the regions, at least 1.

    Raises:
        InputError: `graphs` is out of range.
    """

    name: ClassVar[str] = "vsrn"
    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    has_tokens: ClassVar[bool] = True

    def __init__(
        self, image_dim: int, vocabulary_size: int, dim: int = 1024, word_dim: int = 300, graphs: int = 4
    ) -> None:
        super().__init__()
        if graphs < 1:
            raise InputError(f"vsrn.graphs is {graphs}; it must be at least 1")
        self.dim = dim
        self.project = Linear(image_dim, dim)
        self.graphs = nn.ModuleList(_Graph(dim) for _ in range(graphs))
        self.reader = nn.GRU(dim, dim, batch_first=True)
        self.words = Words(vocabulary_size, word_dim, dim, directions="forward")

    def encode_images(self, items: Items) -> Codes:
        """Unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. Real regions keep their order.

        Returns:
            Vectors (n, dim), 0 for an image without regions; as tokens the regions behind the graphs, unit length, the
            real ones first.
        """
        mask = mask_of(items)
        counts = mask.sum(1)
        real = torch.arange(max(1, int(counts.max())), device=mask.device) < counts[:, None]
        rows = unit(self.project(items.values[mask]))
        for graph in self.graphs:
            rows = graph(rows, real)
        tokens = _spread(unit(rows), real)
        packed = pack_padded_sequence(tokens, counts.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        last: Tensor = self.reader(packed)[1][0]
        return Codes(unit(full(last).masked_fill(counts[:, None] == 0, 0.0)), tokens, real)

    def encode_texts(self, items: Items) -> Codes:
        """Unit vectors of texts.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.

        Returns:
            Vectors (n, dim); the words' states as tokens, unit length.
        """
        states, mask = self.words(items)
        last = states[torch.arange(len(states), device=mask.device), mask.sum(1) - 1]
        return Codes(unit(full(last)), unit(states), mask)


class _Graph(nn.Module):
    """One residual graph over an image's N regions v, of which each one's relation to each is a product of two maps.

        v' = v + BN( W R g(v) ),    R = theta(v)^T phi(v) / N

    There is no softmax, so relations may be negative. The norm's scale starts at 0, and the graph as the identity.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta, self.phi, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.norm = RowNorm(dim)
        nn.init.zeros_(self.norm.weight)

    def forward(self, rows: Tensor, real: Tensor) -> Tensor:
        """Real regions of all images one after the other, (m, dim), to the same; `real` (n, regions) has m True."""
        theta, phi, value = (_spread(one(rows), real) for one in (self.theta, self.phi, self.value))
        relation = theta @ phi.transpose(1, 2) / real.sum(1).clamp(min=1)[:, None, None]
        update: Tensor = self.norm(self.out((relation @ value)[real]))
        return rows + update


def _spread(rows: Tensor, real: Tensor) -> Tensor:
    """Rows (m, d) at the m True places of `real` (n, length), 0 elsewhere, (n, length, d)."""
    out = rows.new_zeros((*real.shape, rows.shape[-1]))
    out[real] = rows
    return out
