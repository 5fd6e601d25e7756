"""The matcher VSRN: graphs over regions, followed by a GRU that reads the regions in order."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.encode.features import Items
from pairsift.match.base import PAPER_BATCH, Codes, ImageKind, Matcher, TextKind, at_least_float32, unit
from pairsift.match.gru import gru_states
from pairsift.match.layers import Dropout, Linear, RowNorm
from pairsift.match.token_encoders import Words, WordSizes, token_mask
from pairsift.options import Options

CAPTIONER_WIDTH = 512  # of both GRUs of the captioner
CAPTIONER_DROPOUT = 0.2  # of the inputs of these GRUs


class VsrnOptions(WordSizes):
    """The options of `Vsrn`."""

    dim: int = Field(default=2048, ge=1, description="Length of the common vectors, and of region and word codes.")
    graphs: int = Field(default=4, ge=1, description="Residual graphs over the regions.")
    norm: Literal["region", "entry"] = Field(
        default="region",
        description="What has unit length before and after the graphs: each region over its entries (region, the "
        "paper), or each entry over the regions of its image (entry, the published code).",
    )
    state_norm: bool = Field(
        default=False,
        description="Whether a batch norm of the image's last state replaces the normalisation before the graphs, as "
        "in the published code for Flickr30K.",
    )
    caption_weight: float = Field(
        default=0.0,
        ge=0,
        description="Weight of the loss that writes the caption from the regions, beside the ranking loss; the paper "
        "takes 1. By default there is none, because under mismatches it learns wrong captions by heart.",
    )
    caption_by_y: bool = Field(
        default=True,
        description="Whether the caption loss of a pair is multiplied by how far the method believes the pair.",
    )


class Vsrn(Matcher):
    """The visual semantic reasoning (Li et al., Visual Semantic Reasoning for Image-Text Matching, ICCV 2019).

    The regions of an image pass through residual graphs and then, in the order of the detector, through a GRU. The last
    state of the GRU is the vector of the image. The vector of a caption is the last state of a GRU over its words. The
    similarity is the cosine of the two vectors. The number of regions is arbitrary. Padding has no effect, because it
    is excluded from the graphs, the batch norms and the GRU.

    Regions have unit length before and after the graphs. The published code uses another axis, and for Flickr30K
    another order: `norm` and `state_norm` are for its checkpoints. With `caption_weight` the regions also learn to
    generate the caption, by the second loss of the paper (`Captioner`), which is a penalty beside the ranking loss: the
    published code adds a batch's mean of it to a batch's sum of hinges, so that a pair's share is divided by 128.

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
    gains_by_bf16: ClassVar[bool] = True

    def __init__(self, image_dim: int, vocabulary_size: int, options: VsrnOptions = VsrnOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        self.project = Linear(image_dim, options.dim)
        self.graphs = nn.ModuleList(_Graph(options.dim) for _ in range(options.graphs))
        self.reader = nn.GRU(options.dim, options.dim, batch_first=True)
        self.norm, self.state_norm = options.norm, RowNorm(options.dim) if options.state_norm else None
        self.words = Words(
            vocabulary_size, options.word_dim, options.dim, directions="forward", layers=options.gru_layers
        )
        self.caption_weight, self.caption_by_y = options.caption_weight / PAPER_BATCH, options.caption_by_y
        writes = options.caption_weight > 0
        self.captioner = Captioner(options.dim, vocabulary_size, options.word_dim) if writes else None

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. Real regions keep their order.

        Returns:
            Vectors (n, dim), 0 for an image without regions, and the regions after the graphs, normalised, as tokens.
            Real regions come first.
        """
        mask = token_mask(items)
        counts = mask.sum(1)
        real = torch.arange(max(1, int(counts.max())), device=mask.device) < counts[:, None]
        rows: Tensor = self.project(items.values[mask])
        if self.state_norm is None:
            rows = self._normalised(rows, real)
        for graph in self.graphs:
            rows = graph(rows, real)
        tokens = _scattered(self._normalised(rows, real), real)
        lengths, shown = counts.clamp(min=1), counts > 0
        states = gru_states(self.reader, tokens, lengths)
        last = at_least_float32(states[torch.arange(len(tokens), device=mask.device), lengths - 1])
        if self.state_norm is not None:
            last = last.index_put((shown,), self.state_norm(last[shown]).to(last.dtype))
        return Codes(unit(last.masked_fill(~shown[:, None], 0.0)), tokens, real)

    def _normalised(self, rows: Tensor, real: Tensor) -> Tensor:
        """Normalise the real regions of all images, (m, dim) to (m, dim); `real` (n, regions) has m True entries."""
        if self.norm == "region":
            return unit(rows)
        return unit(_scattered(rows, real).transpose(1, 2)).transpose(1, 2)[real]

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.

        Returns:
            Vectors (n, dim), and the states of the words, of unit length, as tokens; in training for the caption loss,
            the token ids too, (n, longest), as `extra["ids"]`.
        """
        states, mask = self.words(items)
        last = states[torch.arange(len(states), device=mask.device), mask.sum(1) - 1]
        extra = {}
        if self.training and self.captioner is not None:
            longest = mask.shape[1]
            extra = {"ids": items.values[:, :longest].masked_fill(~token_mask(items)[:, :longest], 0)}
        return Codes(unit(at_least_float32(last)), unit(states), mask, extra=extra)

    def penalty(self, images: Codes, texts: Codes, exclude: Tensor, y: Tensor) -> Tensor | None:
        """Return the weighted negative log-likelihood of each caption by the regions beside it, (B,)."""
        if self.captioner is None or "ids" not in texts.extra:
            return None
        assert images.tokens is not None and images.mask is not None and texts.mask is not None
        loss: Tensor = self.captioner(images.tokens, images.mask, texts.extra["ids"], texts.mask)
        return self.caption_weight * (y.to(loss.dtype) * loss if self.caption_by_y else loss)


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
        theta, phi, value = (_scattered(layer(rows), real) for layer in (self.theta, self.phi, self.value))
        relation = theta @ phi.transpose(1, 2) / real.sum(1).clamp(min=1)[:, None, None]
        update: Tensor = self.norm(self.out((relation @ value)[real]))
        return rows + update


def _scattered(rows: Tensor, real: Tensor) -> Tensor:
    """Put rows (m, d) at the m True places of `real` (n, length), with 0 elsewhere, (n, length, d)."""
    out = rows.new_zeros((*real.shape, rows.shape[-1]))
    out[real] = rows
    return out


class Captioner(nn.Module):
    """An encoder-decoder of captions with attention (Li et al., VSRN, ICCV 2019, Eq. 10).

        u_1, ..., u_R = GRU(W_v v_1, ..., W_v v_R),    h_0 = u_R
        e_tr = w . tanh(W_u u_r + W_h h_(t-1) + b),    c_t = sum_r softmax_r(e_t)_r u_r
        h_t = GRU([w_t; c_t], h_(t-1)),                p(w_(t+1) | w_1, ..., w_t, v) = softmax(W_o h_t + b_o)

    It reads the words of the caption, not the words that it wrote. It has a word table of its own.

    Args:
        dim: Length of a region's code.
        vocabulary_size: Number of token ids.
        word_dim: Length of a word vector.
        hidden: Width of both GRUs.
        dropout: Probability of dropping an entry of an input of a GRU, [0, 1).
    """

    def __init__(
        self,
        dim: int,
        vocabulary_size: int,
        word_dim: int,
        hidden: int = CAPTIONER_WIDTH,
        dropout: float = CAPTIONER_DROPOUT,
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(dim, hidden)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.vectors = nn.Embedding(vocabulary_size, word_dim)
        self.of_region, self.of_state = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary_size)
        self.dropout = Dropout(dropout)
        for layer in (self.enter, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, regions: Tensor, real: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the negative log-likelihood of each caption, the sum over its words from the second on, (n,), float32.

        Args:
            regions: Codes of the regions of n images; real ones come first, (n, R, dim).
            real: True at real regions, (n, R).
            ids: Token ids of the captions beside the images; real ones come first, (n, L).
            mask: True at real tokens, (n, L).
        """
        with torch.autocast(regions.device.type, enabled=False):
            return self._likelihood(at_least_float32(regions), real, ids, mask)

    def _likelihood(self, regions: Tensor, real: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        read, state = self._read(regions, real)
        keys, words = self.of_region(read), self.vectors(ids.masked_fill(~mask, 0))
        padding = ~(real | (torch.arange(real.shape[1], device=real.device) == 0))  # the first one is read in any case
        states = []
        for step in range(ids.shape[1] - 1):
            energy = self.score((keys + self.of_state(state)[:, None]).tanh()).squeeze(-1)
            weights = energy.masked_fill(padding, -torch.inf).softmax(1)
            context = (weights[:, None] @ read).squeeze(1)
            state = self.writer(self.dropout(torch.cat([words[:, step], context], 1)), state)
            states.append(state)
        loss = regions.new_zeros(len(ids))
        follows = mask[:, 1:]
        if states and bool(follows.any()):
            logits = self.out(torch.stack(states, 1)[follows])
            each = functional.cross_entropy(logits, ids[:, 1:][follows], reduction="none")
            loss = loss.index_add(0, follows.nonzero()[:, 0], each)
        return loss

    def _read(self, regions: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the regions (n, R, hidden), 0 at padding, and the last state of each image."""
        entered = self.dropout(self.enter(regions))
        counts = real.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(entered, counts, batch_first=True, enforce_sorted=False)
        output, last = self.reader(packed)
        read, _ = pad_packed_sequence(output, batch_first=True, total_length=regions.shape[1])
        return read, last[0]
