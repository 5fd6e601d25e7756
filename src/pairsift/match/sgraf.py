"""Learned similarities based on cross attention: SGR, SAF, and the mean of both."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, Matcher, at_least_float32, autocast_precision, unit
from pairsift.match.cross_attention import (
    Comparison,
    affinities,
    attended_norm,
    attention_weights,
    compare_all,
    compare_pairs,
    gram,
)
from pairsift.match.layers import Dropout, Linear, MeanPool, RowNorm
from pairsift.match.sgraf_kernels import reasoning_step, similarity_vectors
from pairsift.match.token_encoders import GruSizes, RegionsAndWords, Words, region_codes, word_codes
from pairsift.options import Options

RegionNorm = Literal["slot", "feature"]

SHARPNESS = 9.0
CELLS = 2**15  # pairs of an image and a word in a block
CELLS_TRAINING = (
    2**17
)  # with gradients: every block adds to the gradients of all tokens, and all blocks are kept anyway


class SimilaritySizes(GruSizes):
    """The sizes that SGR, SAF and SGRAF share."""

    similarity_dim: int = Field(default=256, ge=1, description="Length of a similarity vector.")
    dropout: float = Field(
        default=0.4,
        ge=0,
        lt=1,
        description="Probability of dropping an entry of a word vector or inside the self-attention.",
    )
    region_norm: RegionNorm | None = Field(
        default=None,
        description="Batch norm inside the images' self-attention over each region's place (slot, the paper's form, "
        "which needs as many regions in every image, in a meaningful order) or over each entry (feature); by default "
        "slot where it can be.",
    )


class SgrOptions(SimilaritySizes):
    """The options of `Sgr`."""

    steps: int = Field(default=3, ge=1, description="SGR's steps of reasoning.")


class SgrafOptions(SgrOptions):
    """The options of `Sgraf`."""

    apart: bool = Field(
        default=True,
        description="Whether SGR and SAF train apart, as in the paper, each with its own networks, division and best "
        "epoch; if not, they train together by the loss of their mean.",
    )


class TextAttention(nn.Module):
    """A self-attention over words, with weights from each word and the mean of all words.

        t = unit( sum_l a_l t_l ),    a = softmax_l( w . [ tanh(W_l t_l + b_l) * tanh(W_g mean(t) + b_g) ] + b )

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry after a tanh, [0, 1).
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.local, self.whole, self.common = Linear(dim, dim), Linear(dim, dim), Linear(dim, 1)
        self.squash = nn.Sequential(nn.Tanh(), Dropout(dropout))
        self.mean = MeanPool()

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the global vectors, of unit length.

        Args:
            tokens: (n, length, dim), 0 at padding.
            mask: True at real tokens, at least one per item, (n, length).

        Returns:
            (n, dim).
        """
        local = self.squash(self.norm_local(self.local(tokens), mask))
        mean = self.squash(self.norm_mean(self.whole(self.mean(tokens, mask))))
        weights = self.common(local * mean[:, None]).squeeze(-1).masked_fill(~mask, -torch.inf).softmax(1)
        return unit((weights[:, None].to(tokens.dtype) @ tokens).squeeze(1))

    def norm_local(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise the tokens before their tanh, (n, length, dim); for texts, return them unchanged."""
        return x

    def norm_mean(self, x: Tensor) -> Tensor:
        """Normalise the mean of the tokens before its tanh, (n, dim); for texts, return it unchanged."""
        return x


class ImageAttention(TextAttention):
    """A self-attention over regions, as `TextAttention` but with a batch norm before each tanh.

    The batch norm of the paper uses the position of a region as the channel (`slot`). This needs the same number of
    regions in every image, and it gives the order of the regions a meaning. `feature` normalises each entry over all
    real regions instead.

    Args:
        dim: Length of a token.
        dropout: Probability of dropping an entry after a tanh, [0, 1).
        regions: Number of regions of every image; None where the number differs.
        norm: Batch norm of the regions; None selects `slot` where `regions` is known, else `feature`.

    Raises:
        InputError: `norm` is `slot` without a fixed number of regions, or there is no such norm.
    """

    def __init__(self, dim: int, dropout: float, regions: int | None, norm: RegionNorm | None) -> None:
        super().__init__(dim, dropout)
        if norm not in (None, "slot", "feature"):
            raise InputError(f"region_norm is {norm!r}; it must be slot or feature")
        if norm == "slot" and not regions:
            raise InputError("region_norm slot needs images with the same number of regions each; use feature")
        self.slots = regions if regions and norm != "feature" else None
        self.local_norm = nn.BatchNorm1d(self.slots) if self.slots else RowNorm(dim)
        self.whole_norm = RowNorm(dim)

    def norm_local(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the batch norm of the regions, (n, length, dim); with `feature` padding becomes 0.

        Raises:
            InputError: The norm is `slot`, and the images do not have the expected number of regions.
        """
        if self.slots:
            if x.shape[1] != self.slots or not bool(mask.all()):
                raise InputError(f"these images do not have {self.slots} regions each; use region_norm feature")
            slots: Tensor = self.local_norm(x)
            return slots
        out = torch.zeros_like(x)
        out[mask] = self.local_norm(x[mask]).to(x.dtype)
        return out

    def norm_mean(self, x: Tensor) -> Tensor:
        """Apply the batch norm of the mean, (n, dim)."""
        mean: Tensor = self.whole_norm(x)
        return mean


class _SimilarityVectors(RegionsAndWords):
    """The base class of SGR and SAF: encoders and similarity vectors (Diao et al., AAAI 2021, Eq. 1 to 6).

        s_l = unit( W_loc (c_l - t_l)^2 )    for every word l, with c_l its attended vector of regions, of unit length
        s_0 = unit( W_glo (v - t)^2 )        for the global vectors v and t

    The similarity vectors [s_0, s_1, ..., s_L] of a pair are the nodes of a graph, and the subclasses summarise it.
    """

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        options: SimilaritySizes = SimilaritySizes(),
    ) -> None:
        super().__init__()
        self.dim = options.dim
        self.regions = Linear(image_dim, options.dim)
        self.words = Words.make(vocabulary_size, options, options.dropout)
        self.image_attention = ImageAttention(options.dim, options.dropout, regions, options.region_norm)
        self.text_attention = TextAttention(options.dim, options.dropout)
        self.local = Linear(options.dim, options.similarity_dim)
        self.whole = Linear(options.dim, options.similarity_dim)
        self.head = Linear(options.similarity_dim, 1)

    def encode_images(self, items: Items) -> Codes:
        """Return codes of images: unit region codes as tokens, and the result of their self-attention as vector.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. An image without regions has a zero token.
        """
        codes = region_codes(self.regions, items)
        assert codes.tokens is not None
        return Codes(self.image_attention(codes.tokens, codes.mask), codes.tokens, codes.mask)

    def encode_texts(self, items: Items) -> Codes:
        """Return codes of texts: unit word states as tokens, and the result of their self-attention as vector.

        Args:
            items: Values (n, length) of token ids. The real tokens of a caption come first. A caption without tokens is
                read as the single token 0.
        """
        codes = word_codes(self.words, items)
        assert codes.tokens is not None
        return Codes(self.text_attention(codes.tokens, codes.mask), codes.tokens, codes.mask)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with every text, (n_images, n_texts), in (0, 1)."""
        return self.logits(images, texts).sigmoid()

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity before its sigmoid, (n_images, n_texts)."""
        return self._pairwise(compare_all, images, texts, scores=True)

    def similarity_vectors(self, images: Codes, texts: Codes) -> Tensor:
        """Return the vectors that the head turns into scores, (n_images, n_texts, similarity_dim)."""
        return self._pairwise(compare_all, images, texts, scores=False)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the similarity of every image with the text at the same position, (n,), in (0, 1)."""
        return self._pairwise(compare_pairs, images, texts, scores=True).sigmoid()

    def _pairwise(self, run: Comparison, images: Codes, texts: Codes, scores: bool) -> Tensor:
        """Return the summaries of all pairs, or the scores that the head computes from them.

        In training mode all blocks are summarised together, because of the batch norm of SAF. In evaluation mode the
        blocks are summarised one after the other. Without gradients only the nodes of one block are in memory.
        """
        images, texts = _codes_in_autocast(images), _codes_in_autocast(texts)
        assert images.tokens is not None
        images = replace(images, grams=gram(images.tokens))

        with torch.autocast(images.vectors.device.type, enabled=False):
            products = self._products()

        def finish(nodes: list[Tensor]) -> list[Tensor]:
            with torch.autocast(nodes[0].device.type, enabled=False):
                summaries = [at_least_float32(vectors) for vectors in self._summaries(nodes, products)]
                return [self.head(vectors).squeeze(-1) for vectors in summaries] if scores else summaries

        cells = CELLS_TRAINING if torch.is_grad_enabled() else CELLS
        if self.training:
            return run(self._nodes, images, texts, CELLS_TRAINING, finish)
        return run(
            lambda image_block, text_block: finish([self._nodes(image_block, text_block)])[0],
            images,
            texts,
            cells,
            None,
        )

    def _nodes(self, images: Codes, texts: Codes) -> Tensor:
        """Return the nodes of n images with m texts of L words, (n, m, L + 1, similarity_dim)."""
        regions, grams, words = images.tokens, images.grams, texts.tokens
        image_vectors, text_vectors = images.vectors.unsqueeze(1), texts.vectors.unsqueeze(2)
        assert regions is not None and grams is not None and words is not None
        with torch.autocast(regions.device.type, enabled=False):
            weights = attention_weights(affinities(regions, words), SHARPNESS, images.mask)
            weights = weights / attended_norm(weights, grams).unsqueeze(1)
            weights = weights.permute(0, 2, 3, 1).contiguous().to(regions.dtype)
            word_nodes = similarity_vectors(weights, regions, words, self.local.weight, self.local.bias)
            ones = image_vectors.new_ones(len(image_vectors), text_vectors.shape[1], 1, 1)
            global_node = similarity_vectors(ones, image_vectors, text_vectors, self.whole.weight, self.whole.bias)
            return torch.cat([global_node, word_nodes], 2)

    def _products(self) -> list[Tensor]:
        """Return what the summaries of all blocks share, computed once."""
        return []

    @abstractmethod
    def _summaries(self, nodes: list[Tensor], products: list[Tensor]) -> list[Tensor]:
        """Reduce each block's nodes (n, m, nodes, similarity_dim) to one vector per pair, (n, m, similarity_dim).

        Args:
            nodes: The nodes of each block.
            products: The result of `_products`.
        """


class Sgr(_SimilarityVectors):
    """The similarity graph reasoning (Diao et al., Similarity Reasoning and Filtration, AAAI 2021, Eq. 7 to 9).

    The nodes of a pair are its similarity vectors. They exchange information over a full graph in `steps` steps, and
    the score is computed from the first node. The papers on noisy correspondence build on this matcher.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Number of regions of every image; None where the number differs.
        options: See `SgrOptions`.

    Raises:
        InputError: `region_norm` is `slot` and `regions` is None.
    """

    name: ClassVar[str] = "sgr"
    options: ClassVar[type[Options]] = SgrOptions

    def __init__(
        self, image_dim: int, vocabulary_size: int, regions: int | None = None, options: SgrOptions = SgrOptions()
    ) -> None:
        super().__init__(image_dim, vocabulary_size, regions, options)
        self.steps = nn.ModuleList(_Step(options.similarity_dim) for _ in range(options.steps))

    def _products(self) -> list[Tensor]:
        return [step.edge() for step in cast("list[_Step]", list(self.steps))]

    def _summaries(self, nodes: list[Tensor], products: list[Tensor]) -> list[Tensor]:
        return [self._summary(block, products) for block in nodes]

    def _summary(self, nodes: Tensor, edges: list[Tensor]) -> Tensor:
        """Reason over the nodes (n, m, nodes, similarity_dim), and return the first one, (n, m, similarity_dim)."""
        x: Tensor = nodes.flatten(0, 1)
        for number, (step, edge) in enumerate(zip(self.steps, edges, strict=True), 1):
            x = step(x, edge, 1 if number == len(self.steps) else x.shape[1])
        return x.view(*nodes.shape[:2], -1)


class _Step(nn.Module):
    """A step of reasoning, with the linear maps of the queries, the keys and the mixed nodes."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.out = Linear(dim, dim), Linear(dim, dim), Linear(dim, dim)

    def edge(self) -> Tensor:
        """Return the product of the maps of the queries and the keys, (dim, dim)."""
        return self.query.weight.T @ self.key.weight

    def forward(self, nodes: Tensor, edge: Tensor, outputs: int) -> Tensor:
        """Compute the first `outputs` new nodes from the product `edge`, (g, N, dim) to (g, outputs, dim)."""
        return reasoning_step(nodes, edge, self.query.bias @ self.key.weight, self.out.weight.T, self.out.bias, outputs)


class Saf(_SimilarityVectors):
    """The similarity attention filtration (Diao et al., Similarity Reasoning and Filtration, AAAI 2021, Eq. 10 to 12).

    Each node has a gate, sigmoid(BN(w s + b)). The vector of a pair is the mean of its nodes, weighted by their gates
    and scaled to unit length. In training the batch norm of the gates is one norm over all nodes of all pairs, without
    padding. (The published code normalises each caption with all images separately, so its running statistics are
    updated once per caption in each step.)

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Number of regions of every image; None where the number differs.
        options: See `SimilaritySizes`.

    Raises:
        InputError: `region_norm` is `slot` and `regions` is None.
    """

    name: ClassVar[str] = "saf"
    options: ClassVar[type[Options]] = SimilaritySizes

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        options: SimilaritySizes = SimilaritySizes(),
    ) -> None:
        super().__init__(image_dim, vocabulary_size, regions, options)
        self.gate = Linear(options.similarity_dim, 1)
        self.gate_norm = RowNorm(1)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Return the similarity of every item with every item of the same kind, (n, n).

        Rows are used as images, columns as texts. The running statistics of the gates are not updated, because
        evaluation needs the statistics of images with texts.
        """
        momentum, self.gate_norm.momentum = self.gate_norm.momentum, 0.0
        try:
            return super().intra_similarity(codes)
        finally:
            self.gate_norm.momentum = momentum

    def _summaries(self, nodes: list[Tensor], products: list[Tensor]) -> list[Tensor]:
        nodes = [at_least_float32(block) for block in nodes]
        logits = torch.cat([self.gate(block).flatten() for block in nodes])
        gates = torch.split(self.gate_norm(logits[:, None])[:, 0].sigmoid(), [block[..., 0].numel() for block in nodes])
        return [self._filter(block, gate.view(block.shape[:3])) for block, gate in zip(nodes, gates, strict=True)]

    @staticmethod
    def _filter(nodes: Tensor, gates: Tensor) -> Tensor:
        """Return the mean of the nodes (n, m, N, S), weighted by the gates (n, m, N), of unit length."""
        weights = gates / gates.sum(-1, keepdim=True)
        return unit((weights.unsqueeze(-2) @ nodes).squeeze(-2))


class Sgraf(RegionsAndWords):
    """The mean of an SGR and an SAF similarity, with separate encoders (Diao et al., AAAI 2021).

    As in the paper, a run trains the two apart, one after the other, and averages their similarities. With `apart` off
    both are trained by the loss of the mean.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Number of regions of every image; None where the number differs.
        options: See `SgrafOptions`.

    Raises:
        InputError: `region_norm` is `slot` and `regions` is None.
    """

    name: ClassVar[str] = "sgraf"
    options: ClassVar[type[Options]] = SgrafOptions

    def __init__(
        self, image_dim: int, vocabulary_size: int, regions: int | None = None, options: SgrafOptions = SgrafOptions()
    ) -> None:
        super().__init__()
        self.sgr = Sgr(image_dim, vocabulary_size, regions, options)
        self.saf = Saf(image_dim, vocabulary_size, regions, options)
        self.dim = 2 * options.dim
        self._apart = options.apart

    def apart(self) -> dict[str, Matcher]:
        """Return SGR and SAF, unless they train together."""
        return {"sgr": self.sgr, "saf": self.saf} if self._apart else {}

    def encode_images(self, items: Items) -> Codes:
        """Return codes of images: the codes of both parts, concatenated."""
        return _concatenate(self.sgr.encode_images(items), self.saf.encode_images(items))

    def encode_texts(self, items: Items) -> Codes:
        """Return codes of texts: the codes of both parts, concatenated."""
        return _concatenate(self.sgr.encode_texts(items), self.saf.encode_texts(items))

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the mean similarity of every image with every text, (n_images, n_texts), in (0, 1)."""
        return self._mean("similarity", images, texts)

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Return the mean of the scores of both parts before their sigmoid, (n_images, n_texts)."""
        return self._mean("logits", images, texts)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Return the mean similarity of every image with the text at the same position, (n,), in (0, 1)."""
        return self._mean("pair_similarity", images, texts)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Return the mean similarity of every item with every item of the same kind, (n, n), in (0, 1)."""
        return self._mean("intra_similarity", codes)

    def _mean(
        self, method: Literal["similarity", "logits", "pair_similarity", "intra_similarity"], *codes: Codes
    ) -> Tensor:
        halves = zip(*(_halves(code) for code in codes), strict=True)
        sgr, saf = (
            getattr(part, method)(*part_codes) for part, part_codes in zip((self.sgr, self.saf), halves, strict=True)
        )
        mean: Tensor = (sgr + saf) / 2
        return mean


def _codes_in_autocast(codes: Codes) -> Codes:
    """Cast the codes to the precision of autocast where autocast is on, else to float32 at least."""
    assert codes.tokens is not None
    return Codes(autocast_precision(codes.vectors), autocast_precision(codes.tokens), codes.mask)


def _concatenate(first: Codes, second: Codes) -> Codes:
    """Concatenate two codes; the vectors keep unit length."""
    assert first.tokens is not None and second.tokens is not None
    vectors = torch.cat([first.vectors, second.vectors], -1) / 2**0.5
    return Codes(vectors, torch.cat([first.tokens, second.tokens], -1), first.mask)


def _halves(codes: Codes) -> tuple[Codes, Codes]:
    """Split codes that `_concatenate` concatenated."""
    assert codes.tokens is not None
    vectors, tokens = (codes.vectors * 2**0.5).chunk(2, -1), codes.tokens.chunk(2, -1)
    return Codes(vectors[0], tokens[0], codes.mask), Codes(vectors[1], tokens[1], codes.mask)
