"""The matchers VSE++ and VSE-infinity, which pool regions and words into one vector per side."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, ImageKind, Matcher, TextKind, at_least_float32, unit
from pairsift.match.layers import Linear, MeanPool, RowNorm
from pairsift.match.token_encoders import GruDirections, Words, WordSizes, token_mask
from pairsift.options import Options

POSITION_WIDTH = 32  # entries of a position's encoding, and width of the GRU over the encodings
POOL_TEMPERATURE = 0.1
MASKED, REPLACED = 0.5, 0.1  # shares of the words to drop that are masked, and that become any word; the rest goes


class VseOptions(WordSizes):
    """The options of `Vse`."""

    pooling: Literal["mean", "gpo"] = Field(
        default="gpo",
        description="gpo for the generalized pooling operator of VSE-infinity, or mean for VSE++: the mean of the "
        "regions, and the last state of a GRU that reads forward.",
    )
    gru_directions: GruDirections | None = Field(
        default=None,
        description="Whether the GRU reads a caption in both directions, or forward alone; by default both with gpo. "
        "With mean it reads forward.",
    )
    drop: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="With gpo: probability of dropping a region in training, and of dropping, masking or replacing a "
        "word.",
    )


class Vse(Matcher):
    """A matcher with a projection of regions, a GRU over words, a pooling per side, and the cosine.

    With `mean` this is VSE++ on region features (Faghri et al., BMVC 2018): a text is the last state of its GRU. With
    `gpo` it is VSE-infinity (Chen et al., CVPR 2021): the output of a two-layer MLP is added to the projection of each
    region, the GRU reads in both directions, and a learned pooling replaces mean and last state. The number of regions
    and words is arbitrary. Padding has no effect, because the batch norm of the MLP uses only real regions.

    As in VSE-infinity's code, `gpo` drops a fifth of the regions in training, and of a fifth of the words, without the
    first and the last token, which are start and end, half become `<mask>`, a tenth any word, and the rest is left out.

    Args:
        image_dim: Length of the feature vector of a region.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        options: See `VseOptions`.

    Raises:
        InputError: The GRU of VSE++ should read in both directions.
    """

    name: ClassVar[str] = "vse"
    options: ClassVar[type[Options]] = VseOptions
    image_kind: ClassVar[ImageKind] = "regions"
    text_kind: ClassVar[TextKind] = "ids"
    has_tokens: ClassVar[bool] = True

    def __init__(self, image_dim: int, vocabulary_size: int, options: VseOptions = VseOptions()) -> None:
        super().__init__()
        self.dim = options.dim
        learned = options.pooling == "gpo"
        directions = options.gru_directions or ("both" if learned else "forward")
        if not learned and directions == "both":
            raise InputError(
                "pooling mean takes the last state of a GRU: set gru_directions to forward, or leave it out"
            )
        self.drop = options.drop if learned else 0.0
        self.mask_id = vocabulary_size
        self.regions = _ResidualRegions(image_dim, options.dim, learned)
        sizes = vocabulary_size + (self.drop > 0), options.word_dim, options.dim
        self.words = Words(*sizes, directions=directions, layers=options.gru_layers)
        self.image_pool = GeneralizedPool() if learned else MeanPool()
        self.text_pool = GeneralizedPool() if learned else LastState()

    def encode_images(self, items: Items) -> Codes:
        """Return unit vectors of images.

        Args:
            items: Values (n, regions, image_dim); the mask may be None.

        Returns:
            Vectors (n, dim), 0 for an image without regions, and the projected regions of unit length as tokens.
        """
        mask = token_mask(items)
        if self.training and self.drop:
            mask = kept_regions(mask, self.drop)
        tokens = self.regions(items.values, mask)
        return Codes(unit(at_least_float32(self.image_pool(tokens, mask))), unit(tokens), mask)

    def encode_texts(self, items: Items) -> Codes:
        """Return unit vectors of texts.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.

        Returns:
            Vectors (n, dim), and the states of the words, of unit length, as tokens.
        """
        if self.training and self.drop:
            items = with_words_dropped(items, self.drop, self.mask_id)
        tokens, mask = self.words(items)
        return Codes(unit(at_least_float32(self.text_pool(tokens, mask))), unit(tokens), mask)


def kept_regions(mask: Tensor, drop: float) -> Tensor:
    """Return the mask without randomly dropped regions; an image that would lose all of them keeps them, (n, length).

    Args:
        mask: True at real regions, (n, length).
        drop: Probability of dropping a region, [0, 1).
    """
    kept = mask & (torch.rand(mask.shape, device=mask.device) >= drop)
    return torch.where(kept.any(1, keepdim=True), kept, mask)


def with_words_dropped(items: Items, drop: float, mask_id: int) -> Items:
    """Return captions with random words masked, replaced by any word or left out; the first and last token stay.

    Args:
        items: Values (n, length) of token ids, the real ones first; the mask may be None.
        drop: Probability that something happens to a word, (0, 1).
        mask_id: Id of `<mask>`, behind all others.
    """
    real, ids = token_mask(items), items.values
    place = torch.arange(ids.shape[1], device=ids.device)
    inner = (place > 0) & (place < real.sum(1, keepdim=True) - 1)
    draw = torch.rand(ids.shape, device=ids.device) / drop
    masked, replaced = inner & (draw < MASKED), inner & (draw >= MASKED) & (draw < MASKED + REPLACED)
    gone = inner & (draw >= MASKED + REPLACED) & (draw < 1)
    ids = torch.where(replaced, torch.randint_like(ids, mask_id + 1), ids.masked_fill(masked, mask_id))
    order = (~real | gone).int().argsort(dim=1, stable=True)  # what is left out goes behind
    return Items(ids.gather(1, order), (real & ~gone).gather(1, order))


class LastState(nn.Module):
    """The state of the last word, (n, length, d) to (n, d)."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Select the last of the states (n, length, d) where the mask (n, length) is True; real words come first."""
        return tokens[torch.arange(len(tokens), device=tokens.device), mask.sum(1) - 1]


class _ResidualRegions(nn.Module):
    """A linear projection of each region; for `gpo` the output of a two-layer MLP is added."""

    def __init__(self, width: int, dim: int, residual: bool) -> None:
        super().__init__()
        self.project = Linear(width, dim)
        hidden = max(1, dim // 2)
        layers = nn.Linear(width, hidden), RowNorm(hidden), nn.ReLU(), nn.Linear(hidden, dim)
        self.residual = nn.Sequential(*layers) if residual else None

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Project the regions, (n, length, width) to (n, length, dim), 0 at padding."""
        real = values[mask]
        projected: Tensor = self.project(real)
        if self.residual is not None:
            projected = projected + self.residual(real)
        tokens = projected.new_zeros((*mask.shape, projected.shape[-1]))
        tokens[mask] = projected
        return tokens


class GeneralizedPool(nn.Module):
    """The generalized pooling operator (Chen et al., Learning the Best Pooling Strategy for VSE, CVPR 2021).

    Each channel is sorted separately over the tokens of an item, and its k-th highest value is weighted by theta_k:

        v_c = sum_k theta_k max_k(x_1c, ..., x_Lc),    theta = softmax_k( score(GRU(p_1, ..., p_L))_k / 0.1 )

    p_k is a sinusoidal encoding of the position k. theta depends only on L. Mean and maximum are special cases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(POSITION_WIDTH, POSITION_WIDTH, batch_first=True, bidirectional=True)
        self.score = nn.Linear(POSITION_WIDTH, 1, bias=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Pool the tokens of each item into one vector.

        Args:
            tokens: (n, length, d).
            mask: True at real tokens, at any positions, (n, length).

        Returns:
            (n, d); 0 for an item without tokens.
        """
        count = mask.sum(1)
        maxima = tokens.masked_fill(~mask[..., None], -torch.inf).transpose(1, 2).sort(-1, descending=True).values
        padding = torch.arange(mask.shape[1], device=mask.device) >= count[:, None]
        maxima = maxima.masked_fill(padding[:, None], 0.0)
        distinct, index = torch.unique(count.clamp(min=1), return_inverse=True)
        theta = self.weights(distinct, mask.shape[1])[index]
        return (maxima @ theta[..., None].to(maxima.dtype)).squeeze(-1)

    def weights(self, lengths: Tensor, width: int) -> Tensor:
        """Return theta for items of these lengths.

        Args:
            lengths: Each from 1 to `width`, (m,).
            width: Length of a row of the result.

        Returns:
            (m, width). A row sums to 1 over its length and is 0 beyond it.
        """
        encoded = positions(width).to(self.score.weight).expand(len(lengths), -1, -1)
        packed = pack_padded_sequence(encoded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=width)
        score: Tensor = self.score((states[..., :POSITION_WIDTH] + states[..., POSITION_WIDTH:]) / 2)
        padding = torch.arange(width, device=lengths.device) >= lengths[:, None]
        return (score.squeeze(-1) / POOL_TEMPERATURE).masked_fill(padding, -torch.inf).softmax(1)


def positions(length: int) -> Tensor:
    """Return sinusoidal encodings of the positions 0, 1, ..., with sine and cosine in turn, (length, 32), float64."""
    rate = torch.exp(torch.arange(0, POSITION_WIDTH, 2, dtype=torch.float64) * (-math.log(10000.0) / POSITION_WIDTH))
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
