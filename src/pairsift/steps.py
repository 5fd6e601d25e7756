"""The objects of a training step, and the setting of a run that methods and their parts receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from pairsift.arrays import Array, Bools, Floats, Ints
from pairsift.encode.features import Items
from pairsift.loss.infonce import match_probability
from pairsift.loss.ranking import RankingLoss, Reduction
from pairsift.match.base import PAPER_BATCH, Codes, Matcher, at_least_float32

AfterStep = Callable[[int, Mapping[str, Tensor], bool], dict[str, Tensor]]

LEAST_NOISE = 0.01  # estimated share of mismatched training pairs below which every pair is believed


@dataclass(frozen=True)
class Phase:
    """Some epochs that train on the same subsets.

    Attributes:
        name: For the log.
        epochs: At least 0.
        subsets: The first drives an epoch; a batch of each other one comes along with every batch of the first.
        warm: Whether the ranking loss is in its warm-up form.
        observe: Whether each epoch begins with a pass over all training pairs that renews the method's state.
        competes: Whether the checkpoints of these epochs compete for the best on dev; false for a phase that only
            prepares the last one, such as a warm-up.
        restarts: Whether the phase begins with new networks, optimizers and learning rates.
        teachers: With `restarts`: whether the networks before the restart become teachers of the new ones; if not, they
            and all earlier teachers are dropped.
        once: Subsets whose pairs come along once in an epoch, until they are used up; the others are repeated.
        in_turn: With `observe`: whether only a network's peer passes, right before the network trains, so that the
            second one trains by the first as it has become; if not, all networks pass before the epoch.
        batch_size: Pairs of the driving subset in a step; None for the run's.
        new_optimizers: Whether the phase begins with new optimizers for the same networks.
        may_end: Whether the phase comes to its end when recall on dev makes no more progress, with a one-cycle rate.
    """

    name: str
    epochs: int
    subsets: tuple[str, ...] = ("all",)
    warm: bool = False
    observe: bool = False
    competes: bool = True
    restarts: bool = False
    teachers: bool = True
    once: tuple[str, ...] = ()
    in_turn: bool = False
    batch_size: int | None = None
    new_optimizers: bool = False
    may_end: bool = False


@dataclass(frozen=True)
class Request:
    """A request for the pairs of a step, with their own captions or others.

    Attributes:
        ids: The pairs, (B,).
        captions: Ids of the pairs whose captions stand beside their images, (B,); None for their own.
        given_texts: Whether the step reads the pairs' own captions too.
        undivided: Whether a process reads all of them by itself, where several train.
    """

    ids: Ints
    captions: Ints | None = None
    given_texts: bool = False
    undivided: bool = False


@dataclass(frozen=True)
class Batch:
    """Some pairs and their features.

    Attributes:
        ids: Pair ids, (B,).
        image_rows: Row of each pair's image, or of the first of its near-duplicates, (B,).
        caption_images: As `image_rows`, for the image that each caption is given with, (B,); differs where rematched.
        images: Features of the images.
        texts: Features of the captions.
        given_texts: Features of the pairs' own captions, where they were requested; else None.
        caption_texts: Number of each caption's text, the same for equal texts, (B,); None where texts are not compared.
        captions: Ids of the pairs whose captions stand beside the images, (B,); None for their own.
    """

    ids: Ints
    image_rows: Tensor
    caption_images: Tensor
    images: Items
    texts: Items
    given_texts: Items | None = None
    caption_texts: Tensor | None = None
    captions: Ints | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Term:
    """One named part of a step's loss, not yet reduced.

    Attributes:
        name: Name in the log; terms of a step have different names.
        values: One value per pair, (B,).
        weight: Factor of the term in the sum.
        reduction: How the loop reduces `values`.
    """

    name: str
    values: Tensor
    weight: float = 1.0
    reduction: Reduction = "mean"

    def reduced(self) -> Tensor:
        """Return the sum or the mean over the pairs, scalar."""
        total = self.values.float().sum()
        return total if self.reduction == "sum" else total / max(1, len(self.values))

    def masked(self, mask: Tensor) -> Term:
        """Return the term with the value 0 at the pairs outside a mask, (B,). They still count in a mean."""
        return replace(self, values=self.values * mask)


class Network(nn.Module):
    """One matcher with the method's own trainable part beside it."""

    def __init__(self, matcher: Matcher, head: nn.Module | None) -> None:
        super().__init__()
        self.matcher = matcher
        self.head = head

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return similarities of the batch's images with its captions, (B, B), and the inverse temperature, scalar."""
        return self.matcher.similarity(*self.encode(batch)), self.matcher.scale()

    def encode(self, batch: Batch) -> tuple[Codes, Codes]:
        """Return codes of the batch's images and of its captions."""
        return self.matcher.encode_images(batch.images), self.matcher.encode_texts(batch.texts)

    def pairing(self, batch: Batch) -> Pairing:
        """Return the encoded batch, each image beside its caption."""
        return Pairing(*self.encode(batch), not_negatives(batch))

    @torch.no_grad()
    def judge(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return similarities and inverse temperature as `forward` does, in evaluation mode and without gradient.

        The network's mode stays as it is.
        """
        training = self.training
        self.eval()
        similarity, scale = self(batch)
        self.train(training)
        torch.clear_autocast_cache()  # up to torch 2.9 weights cast here would have no gradient in the step's pass
        return similarity, scale

    def logits(self, codes: Codes) -> Tensor:
        """Return the head's class logits, (n, K), in float32 at least: in half precision many classes tie."""
        assert self.head is not None, "this method has no head"
        tokens = None if codes.tokens is None else at_least_float32(codes.tokens)
        with torch.autocast(codes.vectors.device.type, enabled=False):
            logits: Tensor = self.head(Codes(at_least_float32(codes.vectors), tokens, codes.mask))
        return logits


@dataclass(frozen=True)
class Observation:
    """A batch encoded by one network in the pass before an epoch, in evaluation mode and without gradient.

    Attributes:
        network: The network.
        k: Its number.
        batch: The pairs.
        images: Codes of their images.
        texts: Codes of their captions.
    """

    network: Network
    k: int
    batch: Batch
    images: Codes
    texts: Codes

    @staticmethod
    def make(network: Network, k: int, batch: Batch) -> Observation:
        """Encode a batch."""
        return Observation(network, k, batch, *network.encode(batch))

    @cached_property
    def similarity(self) -> Tensor:
        """Similarity of every image with every caption, (B, B)."""
        return self.network.matcher.similarity(self.images, self.texts)

    def blocks(self, size: int) -> list[tuple[Codes, Codes, Tensor]]:
        """Return images, texts and `not_negatives` of blocks of about `size` pairs, in order.

        A pass may bring more pairs at once than a step. What depends on the negatives of a pair is estimated within a
        block.
        """
        exclude, blocks = not_negatives(self.batch), []
        for part in np.array_split(np.arange(len(self.batch)), max(1, round(len(self.batch) / size))):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            blocks.append((self.images.rows(rows), self.texts.rows(rows), exclude[rows, rows]))
        return blocks

    def match_probability(self, scale: Tensor, block: int) -> Tensor:
        """Return the softmax probability of each pair in its block, the mean of both directions, (B,).

        Args:
            scale: Inverse temperature, scalar.
            block: About how many pairs share a softmax.
        """
        similarity = self.network.matcher.similarity
        return torch.cat(
            [
                match_probability(similarity(images, texts) * scale, exclude)
                for images, texts, exclude in self.blocks(block)
            ]
        )

    def loss(self, ranking: RankingLoss) -> Tensor:
        """Return the ranking loss that divides clean from noisy pairs, (B,)."""
        return ranking.observe(self.similarity, self.network.matcher.scale(), not_negatives(self.batch))


@dataclass(frozen=True)
class Prior:
    """The judgement of the pairs before training, by models that did not see them.

    Attributes:
        probability: Probability that each pair matches, [0, 1], (n_pairs,).
        rate: Estimated share of mismatched training pairs, [0, 1].
        most: Largest share that a division may hold for mismatched, [0, 1].
    """

    probability: Floats
    rate: float
    most: float

    @property
    def finds_mismatches(self) -> bool:
        """Whether the rate is at least 1%; below, every pair is believed."""
        return self.rate >= LEAST_NOISE


@dataclass(frozen=True)
class Setting:
    """The data that a method and its parts have when training begins.

    Attributes:
        ids: Training pairs, ascending, (n,).
        image_of: Image row of every pair, (n_pairs,).
        n_images: Number of image rows.
        matched: Whether each pair's caption really belongs to its image, (n_pairs,); None where it is unknown.
        ranking: The ranking loss of the run.
        seed: Seed of the run.
        networks: Number of networks that train side by side.
        batch_size: Pairs of the driving subset in a step.
        prior: The judgement by held-out evidence; None if there is none.
        after_step: A function that returns the parameters of network k, by name, after one more step with these
            gradients, with or without the optimizer's momentum. It changes nothing.
        verified: Training pairs that are known to match, ascending; empty where none are declared.
        teachers: The networks before the last restart that keeps them, in evaluation mode and without gradients; the
            linear model instead where that is better on dev; empty before a restart. The loop fills the list.
    """

    ids: Ints
    image_of: Ints
    n_images: int
    matched: Bools | None
    ranking: RankingLoss
    seed: int
    networks: int = 2
    batch_size: int = 128
    prior: Prior | None = None
    after_step: AfterStep | None = None
    verified: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    teachers: Sequence[Network] = field(default_factory=list)

    def per_pair(self, fill: float, dtype: type = np.float32) -> Array:
        """Return a new array of one value per network and pair, (networks, n_pairs)."""
        return np.full((self.networks, len(self.image_of)), fill, dtype)

    def ranking_loss(self, step: Step, y: Tensor | None = None) -> Term:
        """Return the run's ranking loss on the driving pairs of a step, each with its own caption.

        Args:
            step: The step.
            y: Correspondence of each pair, [0, 1], (B,); None to believe every pair.
        """
        y = torch.ones(len(step.batch), device=step.batch.image_rows.device) if y is None else y
        pairing = step.network.pairing(step.batch)
        return self.ranking_term("correspondence", step.network, pairing, y, step.phase.warm)

    def ranking_term(
        self,
        name: str,
        network: Network,
        pairing: Pairing,
        y: Tensor,
        warm: bool = False,
        similarity: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> Term:
        """Return the run's ranking loss on a pairing of images and captions as a term, with the matcher's penalty.

        Args:
            name: Name of the term.
            network: The network that made the codes.
            pairing: The codes.
            y: Correspondence of each pair, [0, 1], (B,).
            warm: Whether the loss is in its warm-up form.
            similarity: The similarities of the pairing, where they are known, (B, B).
            scale: Inverse temperature, scalar; None for the matcher's own.
        """
        matcher, loss = network.matcher, self.ranking
        similarity = matcher.similarity(pairing.images, pairing.texts) if similarity is None else similarity
        scale = matcher.scale() if scale is None else scale
        values = loss(similarity, scale, y, pairing.exclude, warm)
        penalty = matcher.penalty(pairing.images, pairing.texts, pairing.exclude, y)
        return Term(name, values if penalty is None else values + penalty, reduction=loss.reduction)

    def auxiliary_term(self, name: str, values: Tensor, weight: float) -> Term:
        """Return a term whose weight a paper names beside the sum of `PAPER_BATCH` pairs' ranking losses.

        In the paper the term is a mean over its batch, so that a pair's ranking loss weighs `PAPER_BATCH / weight`
        times as much as the pair's share in the term. That ratio is kept: the term is reduced as the run's ranking loss
        is, with `weight / PAPER_BATCH`. With the sum of a batch of `PAPER_BATCH` it is the paper's term.

        Args:
            name: Name of the term.
            values: One value per pair, (B,).
            weight: The paper's weight, at least 0.
        """
        return Term(name, values, weight / PAPER_BATCH, self.ranking.reduction)


@dataclass(frozen=True)
class Step:
    """One training step of a network.

    Attributes:
        networks: All networks of the run.
        k: Number of the network that steps.
        batches: The pairs by the name of their subset; the first drives the phase.
        phase: The phase of the step.
        rate: Learning rate of the step as a share of the largest one, (0, 1].
    """

    networks: Sequence[Network]
    k: int
    batches: Mapping[str, Batch]
    phase: Phase
    rate: float = 1.0

    @property
    def network(self) -> Network:
        """The network that steps."""
        return self.networks[self.k]

    @property
    def batch(self) -> Batch:
        """The pairs of the driving subset."""
        return next(iter(self.batches.values()))


@dataclass(frozen=True)
class Pairing:
    """Codes of images and captions side by side, row i with row i.

    Attributes:
        images: (B, ...).
        texts: (B, ...).
        exclude: True where an image and a caption are not negatives of each other, (B, B).
    """

    images: Codes
    texts: Codes
    exclude: Tensor


def not_negatives(batch: Batch) -> Tensor:
    """Return a mask of images i and captions j that are not each other's negatives, (B, B); see `related`."""
    return related(batch.image_rows, batch.caption_images, batch.caption_texts)


def related(image_rows: Tensor, caption_images: Tensor, texts: Tensor | None = None) -> Tensor:
    """Return a mask of images i and captions j that must not push each other apart, (B, B).

    Image i and caption j are related where

    - the caption is given with the image,
    - the image is paired here with a caption that is given with the same image as caption j, or reads like it, or
    - both are paired here with the same image.

    Args:
        image_rows: Row of the image in each pair, (B,).
        caption_images: Row of the image that each pair's caption is given with, (B,).
        texts: Number of each pair's caption text, the same for equal texts, (B,); None where they are not compared.
    """
    excluded = (image_rows[:, None] == image_rows[None, :]) | (image_rows[:, None] == caption_images[None, :])
    for captions in (caption_images, texts):
        if captions is not None:
            excluded = excluded | (captions[:, None] == captions[None, :])
    return excluded


def gather_rows(values: Array, ids: Ints, like: Tensor) -> Tensor:
    """Return rows of a per-pair array as a float tensor on the device of `like`, (len(ids), ...)."""
    return torch.from_numpy(np.asarray(values[ids], np.float32)).to(like.device)
