"""Learned similarities over cross attention: SGR, SAF, and the mean of both."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match import attend, blocks
from pairsift.match.aligned import aligned
from pairsift.match.attention import ImageAttention, RegionNorm, TextAttention
from pairsift.match.base import Codes, full, unit
from pairsift.match.reasoning import reason
from pairsift.match.states import Linear, RegionsAndWords, RowNorm, Words, region_codes, word_codes

SHARPNESS = 9.0
CELLS = 2**15  # pairs of an image and a word in a block
CELLS_TRAINING = 2**17  # there every block adds to the gradient of all tokens, and is kept in any case


class _SimilarityVectors(RegionsAndWords):
    """What SGR and SAF share: the encoders, and the similarity vectors of a pair (Diao et al., AAAI 2021, Eq. 1 to 6).

        s_l = unit( W_loc (c_l - t_l)^2 )    for every word l, with c_l the unit vector of regions that it attends to
        s_0 = unit( W_glo (v - t)^2 )        for the global vectors v and t

    They are the nodes [s_0, s_1, ..., s_L] of a pair's graph, which the subclasses read.
    """

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        dim: int = 1024,
        word_dim: int = 300,
        similarity_dim: int = 256,
        dropout: float = 0.4,
        region_norm: RegionNorm | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.regions = Linear(image_dim, dim)
        self.words = Words(vocabulary_size, word_dim, dim, dropout)
        self.image_attention = ImageAttention(dim, dropout, regions, region_norm)
        self.text_attention = TextAttention(dim, dropout)
        self.local = Linear(dim, similarity_dim)
        self.whole = Linear(dim, similarity_dim)
        self.head = Linear(similarity_dim, 1)

    def encode_images(self, items: Items) -> Codes:
        """Codes of images: unit region codes as tokens, the global vector of self-attention over them as vector.

        Args:
            items: Values (n, regions, image_dim); the mask may be None. An image without regions has a zero token.
        """
        codes = region_codes(self.regions, items)
        assert codes.tokens is not None
        return Codes(self.image_attention(codes.tokens, codes.mask), codes.tokens, codes.mask)

    def encode_texts(self, items: Items) -> Codes:
        """Codes of texts: unit word states as tokens, the global vector of self-attention over them as vector.

        Args:
            items: Values (n, length) of token ids; the real ones of a caption come first. One without any is read as
                the single token 0.
        """
        codes = word_codes(self.words, items)
        assert codes.tokens is not None
        return Codes(self.text_attention(codes.tokens, codes.mask), codes.tokens, codes.mask)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with every text, (n_images, n_texts), in (0, 1)."""
        return self.logits(images, texts).sigmoid()

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """The similarity before its sigmoid, (n_images, n_texts)."""
        return self._over(blocks.cross, images, texts, scores=True)

    def similarity_vectors(self, images: Codes, texts: Codes) -> Tensor:
        """What the head makes a score of, (n_images, n_texts, similarity_dim)."""
        return self._over(blocks.cross, images, texts, scores=False)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Similarity of every image with the text in the same place, (n,), in (0, 1)."""
        return self._over(blocks.paired, images, texts, scores=True).sigmoid()

    def _over(self, run: blocks.Run, images: Codes, texts: Codes, scores: bool) -> Tensor:
        """The summaries of all pairs, or the head's scores of them.

        In training all blocks are summarised together, because of SAF's batch norm; otherwise one after the other, so
        that no more than a block's nodes are in memory.
        """

        images, texts = _precise(images), _precise(texts)
        assert images.tokens is not None
        images = replace(images, grams=attend.gram(images.tokens))

        def finish(nodes: list[Tensor]) -> list[Tensor]:
            with torch.autocast(nodes[0].device.type, enabled=False):
                summaries = [full(one) for one in self._summaries(nodes)]
                return [self.head(one).squeeze(-1) for one in summaries] if scores else summaries

        cells = CELLS_TRAINING if torch.is_grad_enabled() else CELLS
        if self.training:
            return run(self._nodes, images, texts, CELLS_TRAINING, finish)
        return run(lambda some, others: finish([self._nodes(some, others)])[0], images, texts, cells, None)

    def _nodes(self, images: Codes, texts: Codes) -> Tensor:
        """Nodes of n images with m texts of L words, (n, m, L + 1, similarity_dim)."""
        regions, grams, words = images.tokens, images.grams, texts.tokens
        whole, texts_whole = images.vectors.unsqueeze(1), texts.vectors.unsqueeze(2)
        assert regions is not None and grams is not None and words is not None
        with torch.autocast(regions.device.type, enabled=False):
            weights = attend.focus(attend.affinity(regions, words), SHARPNESS, images.mask)
            weights = weights / attend.attended_norm(weights, grams).unsqueeze(1)
            weights = weights.permute(0, 2, 3, 1).contiguous().to(regions.dtype)
            local = aligned(weights, regions, words, self.local.weight, self.local.bias)
            ones = whole.new_ones(len(whole), texts_whole.shape[1], 1, 1)
            globally = aligned(ones, whole, texts_whole, self.whole.weight, self.whole.bias)
            return torch.cat([globally, local], 2)

    @abstractmethod
    def _summaries(self, nodes: list[Tensor]) -> list[Tensor]:
        """Each block's nodes (n, m, nodes, similarity_dim) as one vector a pair, (n, m, similarity_dim)."""


class Sgr(_SimilarityVectors):
    """Similarity graph reasoning (Diao et al., Similarity Reasoning and Filtration, AAAI 2021, Eq. 7 to 9).

    The nodes of a pair, its similarity vectors, exchange what they hold over a full graph in `steps` steps; the first
    node is read. The papers on noisy correspondence stand on this matcher.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Regions of every image where all have as many; None where they differ.
        dim: Length of region and word codes.
        word_dim: Length of a word vector.
        similarity_dim: Length of a similarity vector.
        dropout: Probability of dropping an entry of a word vector or inside the self-attention, [0, 1).
        region_norm: Batch norm inside the images' self-attention over each region's place (`slot`, the paper's form,
            which needs as many regions in every image, in a meaningful order) or over each entry (`feature`); by
            default `slot` where it can be.
        steps: Steps of reasoning, at least 1.

    Raises:
        InputError: An option is out of range, or `slot` cannot be.
    """

    name: ClassVar[str] = "sgr"

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        dim: int = 1024,
        word_dim: int = 300,
        similarity_dim: int = 256,
        dropout: float = 0.4,
        region_norm: RegionNorm | None = None,
        steps: int = 3,
    ) -> None:
        super().__init__(image_dim, vocabulary_size, regions, dim, word_dim, similarity_dim, dropout, region_norm)
        if steps < 1:
            raise InputError(f"sgr.steps is {steps}; it must be at least 1")
        self.steps = nn.ModuleList(_Step(similarity_dim) for _ in range(steps))

    def _summaries(self, nodes: list[Tensor]) -> list[Tensor]:
        return [self._read(one) for one in nodes]

    def _read(self, nodes: Tensor) -> Tensor:
        x: Tensor = nodes.flatten(0, 1)
        for number, step in enumerate(self.steps, 1):
            x = step(x, 1 if number == len(self.steps) else x.shape[1])
        return x.view(*nodes.shape[:2], -1)


class _Step(nn.Module):
    """One step of reasoning: queries, keys and the map of the mixed nodes."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.out = Linear(dim, dim), Linear(dim, dim), Linear(dim, dim)

    def forward(self, nodes: Tensor, read: int) -> Tensor:
        """Nodes (g, N, dim) to the first `read` new ones, (g, read, dim)."""
        edge = self.query.weight.T @ self.key.weight
        return reason(nodes, edge, self.query.bias @ self.key.weight, self.out.weight.T, self.out.bias, read)


class Saf(_SimilarityVectors):
    """Similarity attention filtration (Diao et al., Similarity Reasoning and Filtration, AAAI 2021, Eq. 10 to 12).

    Every node gets a gate, sigmoid(BN(w s + b)); a pair's vector is the nodes' mean weighted by their gates. In
    training the gates' batch norm is one norm over all the nodes of all pairs of a block, padding left out. (The
    published code normalises each caption with all images by itself, so that its running statistics move as often in
    a step as there are captions.)

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Regions of every image where all have as many; None where they differ.
        dim: Length of region and word codes.
        word_dim: Length of a word vector.
        similarity_dim: Length of a similarity vector.
        dropout: Probability of dropping an entry of a word vector or inside the self-attention, [0, 1).
        region_norm: As for `sgr`.

    Raises:
        InputError: `slot` cannot be.
    """

    name: ClassVar[str] = "saf"

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        dim: int = 1024,
        word_dim: int = 300,
        similarity_dim: int = 256,
        dropout: float = 0.4,
        region_norm: RegionNorm | None = None,
    ) -> None:
        super().__init__(image_dim, vocabulary_size, regions, dim, word_dim, similarity_dim, dropout, region_norm)
        self.gate = Linear(similarity_dim, 1)
        self.gate_norm = RowNorm(1)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Similarity of every item with every item of its kind, the rows as images, the columns as texts, (n, n).

        The gates' running statistics stay those of images with texts, which evaluation meets.
        """
        momentum, self.gate_norm.momentum = self.gate_norm.momentum, 0.0
        try:
            return super().intra_similarity(codes)
        finally:
            self.gate_norm.momentum = momentum

    def _summaries(self, nodes: list[Tensor]) -> list[Tensor]:
        nodes = [full(one) for one in nodes]
        logits = torch.cat([self.gate(one).flatten() for one in nodes])
        gates = torch.split(self.gate_norm(logits[:, None])[:, 0].sigmoid(), [one[..., 0].numel() for one in nodes])
        return [self._filter(one, gate.view(one.shape[:3])) for one, gate in zip(nodes, gates, strict=True)]

    @staticmethod
    def _filter(nodes: Tensor, gates: Tensor) -> Tensor:
        """Mean of the nodes (n, m, N, S) weighted by gates (n, m, N), unit length."""
        weights = gates / gates.sum(-1, keepdim=True)
        return unit((weights.unsqueeze(-2) @ nodes).squeeze(-2))


class Sgraf(RegionsAndWords):
    """The mean of an SGR and an SAF similarity, each with encoders of its own (Diao et al., AAAI 2021).

    The paper trains the two by themselves and averages what they say of a pair. Here both learn from the loss of the
    mean, so that a run is one run; imported checkpoints are averaged as in the paper.

    Args:
        image_dim: Length of a region's feature vector.
        vocabulary_size: Number of token ids; ids are 0 to `vocabulary_size - 1`.
        regions: Regions of every image where all have as many; None where they differ.
        dim: Length of each part's region and word codes.
        word_dim: Length of a word vector.
        similarity_dim: Length of a similarity vector.
        dropout: As for `sgr`.
        steps: SGR's steps of reasoning, at least 1.

    Raises:
        InputError: An option is out of range.
    """

    name: ClassVar[str] = "sgraf"

    def __init__(
        self,
        image_dim: int,
        vocabulary_size: int,
        regions: int | None = None,
        dim: int = 1024,
        word_dim: int = 300,
        similarity_dim: int = 256,
        dropout: float = 0.4,
        steps: int = 3,
    ) -> None:
        super().__init__()
        shared = image_dim, vocabulary_size, regions, dim, word_dim, similarity_dim, dropout
        self.sgr, self.saf = Sgr(*shared, steps=steps), Saf(*shared)
        self.dim = 2 * dim

    def encode_images(self, items: Items) -> Codes:
        """Codes of images: both parts' side by side."""
        return _beside(self.sgr.encode_images(items), self.saf.encode_images(items))

    def encode_texts(self, items: Items) -> Codes:
        """Codes of texts: both parts' side by side."""
        return _beside(self.sgr.encode_texts(items), self.saf.encode_texts(items))

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Mean similarity of every image with every text, (n_images, n_texts), in (0, 1)."""
        return self._mean("similarity", images, texts)

    def logits(self, images: Codes, texts: Codes) -> Tensor:
        """Mean of the parts' scores before their sigmoid, (n_images, n_texts)."""
        return self._mean("logits", images, texts)

    def pair_similarity(self, images: Codes, texts: Codes) -> Tensor:
        """Mean similarity of every image with the text in the same place, (n,), in (0, 1)."""
        return self._mean("pair_similarity", images, texts)

    def intra_similarity(self, codes: Codes) -> Tensor:
        """Mean similarity of every item with every item of its kind, (n, n), in (0, 1)."""
        return self._mean("intra_similarity", codes)

    def _mean(
        self, what: Literal["similarity", "logits", "pair_similarity", "intra_similarity"], *codes: Codes
    ) -> Tensor:
        halves = zip(*(_apart(one) for one in codes), strict=True)
        first, second = (getattr(part, what)(*half) for part, half in zip((self.sgr, self.saf), halves, strict=True))
        mean: Tensor = (first + second) / 2
        return mean


def _precise(codes: Codes) -> Codes:
    """The codes in the precision of autocast where it is on."""
    assert codes.tokens is not None
    return Codes(attend.cast(codes.vectors), attend.cast(codes.tokens), codes.mask)


def _beside(first: Codes, second: Codes) -> Codes:
    """Both codes side by side; the vectors keep unit length."""
    assert first.tokens is not None and second.tokens is not None
    vectors = torch.cat([first.vectors, second.vectors], -1) / 2**0.5
    return Codes(vectors, torch.cat([first.tokens, second.tokens], -1), first.mask)


def _apart(codes: Codes) -> tuple[Codes, Codes]:
    """What `_beside` put together."""
    assert codes.tokens is not None
    vectors, tokens = (codes.vectors * 2**0.5).chunk(2, -1), codes.tokens.chunk(2, -1)
    return Codes(vectors[0], tokens[0], codes.mask), Codes(vectors[1], tokens[1], codes.mask)
