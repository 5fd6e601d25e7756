"""What a method is: phases, per-pair state, and the loss of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.loss.ranking import RankingLoss, Reduction
from pairsift.match.base import Codes, Matcher, full
from pairsift.pairs.pairs import Ints

Array = NDArray[Any]


@dataclass(frozen=True)
class Phase:
    """A stretch of epochs that train the same subsets.

    Attributes:
        name: For the log.
        epochs: At least 0.
        subsets: The first drives an epoch; a batch of each other one comes along with every batch of the first.
        warm: Whether the ranking loss is in its warm-up form.
        observe: Whether each epoch begins with a pass over all training pairs that renews the method's state.
    """

    name: str
    epochs: int
    subsets: tuple[str, ...] = ("all",)
    warm: bool = False
    observe: bool = False


@dataclass(frozen=True)
class Batch:
    """Some pairs, on their way through a network.

    Attributes:
        ids: Pair ids, (B,).
        image_rows: Row of each pair's image, or of the first of its near-duplicates, (B,).
        caption_images: The same of the image that each caption is given with, (B,); `image_rows` unless rematched.
        images: Features of the images.
        texts: Features of the captions.
        given: Features of the pairs' own captions where they train with others and the method reads them, else None.
        caption_texts: Number of each caption's text, the same for equal texts, (B,); None where texts are not compared.
    """

    ids: Ints
    image_rows: Tensor
    caption_images: Tensor
    images: Items
    texts: Items
    given: Items | None = None
    caption_texts: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Term:
    """One named part of a step's loss, not yet reduced.

    Attributes:
        name: For the log.
        values: One value per pair, (B,).
        weight: Factor of the term in the sum.
        reduction: How the loop reduces `values`.
    """

    name: str
    values: Tensor
    weight: float = 1.0
    reduction: Reduction = "mean"

    def reduced(self) -> Tensor:
        """The sum or the mean over the pairs, scalar."""
        total = self.values.float().sum()
        return total if self.reduction == "sum" else total / max(1, len(self.values))


class Network(nn.Module):
    """One matcher with the method's own trainable part beside it.

    Attributes:
        after: What one more step of the loop would make of the parameters with given gradients, both by parameter
            name, with the optimizer's momentum or without. It changes nothing. The loop sets it: it has the optimizer.
    """

    def __init__(self, matcher: Matcher, head: nn.Module | None) -> None:
        super().__init__()
        self.matcher = matcher
        self.head = head
        self.after: Callable[[Mapping[str, Tensor], bool], dict[str, Tensor]] | None = None

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Similarity of the batch's images with its captions, (B, B), and the inverse temperature, scalar."""
        return self.matcher.similarity(*self.encode(batch)), self.matcher.scale()

    def encode(self, batch: Batch) -> tuple[Codes, Codes]:
        """Codes of the batch's images and of its captions."""
        return self.matcher.encode_images(batch.images), self.matcher.encode_texts(batch.texts)

    def logits(self, codes: Codes) -> Tensor:
        """The head's class logits, (n, K), in float32 at least: in half precision many classes tie for the largest."""
        assert self.head is not None, "this method has no head"
        tokens = None if codes.tokens is None else full(codes.tokens)
        with torch.autocast(codes.vectors.device.type, enabled=False):
            logits: Tensor = self.head(Codes(full(codes.vectors), tokens, codes.mask))
        return logits


@dataclass(frozen=True)
class Prior:
    """What models that saw none of a pair say of it before training.

    Attributes:
        probability: Probability that each pair matches, [0, 1], (n_pairs,).
        rate: Estimated share of mismatched training pairs, [0, 1].
        most: Largest share that a division may hold for mismatched, [0, 1].
    """

    probability: NDArray[np.float32]
    rate: float
    most: float


@dataclass(frozen=True)
class Setting:
    """What a method is told before it starts.

    Attributes:
        ids: Training pairs, ascending, (n,).
        image_of: Image row of every pair, (n_pairs,).
        n_images: Number of image rows.
        matched: Whether each pair's caption really belongs to its image, (n_pairs,); None where nobody knows.
        ranking: The ranking loss of the run.
        seed: Seed of the run.
        prior: What held-out evidence says of the pairs; None where there is none.
    """

    ids: Ints
    image_of: Ints
    n_images: int
    matched: NDArray[np.bool_] | None
    ranking: RankingLoss
    seed: int
    prior: Prior | None = None


class Method(ABC):
    """What to do with pairs of little trust. Subclasses read beside their paper.

    A method owns its state: named arrays of shape (networks, n_pairs, ...), one row per pair (or per image where it
    says so), which the loop saves with every checkpoint.

    Attributes:
        name: What the command line calls it.
        summary: One line for `pairsift list`.
        citation: The paper.
        needs_truth: Whether it can only run where the true correspondences are known.
        presets: Default options by preset name, keyed as on the command line.
        open_epochs: Options of phases whose length 0 leaves open, and the length that `--epochs` scales them from.
        reads_given: Whether steps read the own captions of pairs that train with others.
        networks: How many networks train side by side.
        state: The named arrays.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    citation: ClassVar[str] = ""
    needs_truth: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    open_epochs: ClassVar[Mapping[str, int]] = {}
    reads_given: ClassVar[bool] = False
    networks: int = 2
    state: dict[str, Array]
    setting: Setting

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The phases, in order."""

    def settle(self, pairs: int, batch_size: int) -> None:
        """Settle what depends on the number of training pairs and on the batch size, before `phases` counts."""
        return None

    def check(self, matcher: type[Matcher]) -> None:
        """Refuse a matcher that the method cannot run on.

        Raises:
            InputError: It lacks something that the method needs.
        """
        return None

    def head(self, dim: int) -> nn.Module | None:
        """The method's own trainable part: codes (vectors and tokens of length `dim`) to class logits."""
        return None

    def begin(self, setting: Setting) -> None:
        """Take the data's setting and make the state that training starts from."""
        self.setting = setting
        self.state = {}

    def observe(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """What an epoch's pass (evaluation mode, no gradient) notes of each pair, each (B, ...)."""
        images, texts = network.encode(batch)
        similarity = network.matcher.similarity(images, texts)
        return {"loss": self.setting.ranking.observe(similarity, network.matcher.scale(), not_negatives(batch))}

    def update(self, seen: Sequence[Mapping[str, Array]], epoch: int) -> None:
        """Turn what was observed, (n, ...) in the order of `setting.ids` for each network, into state."""
        return None

    def facts(self) -> dict[str, float]:
        """Numbers about the present state, for the log."""
        return {}

    def verdicts(self) -> list[str] | None:
        """The class that the method puts each training pair into, in the order of `setting.ids`; None of most methods.

        `clean` is its word for pairs that it believes; any other names a kind of mismatch.
        """
        return None

    def subset(self, name: str, network: int) -> Ints:
        """Ids of the pairs that this network trains on under this name; none, and the steps go without it."""
        if name != "all":
            raise KeyError(f"{self.name} has no subset {name!r}")
        return self.setting.ids

    def captions(self, name: str, network: int, ids: Ints) -> Ints:
        """Ids of the pairs whose captions these pairs of a subset train with; by default their own, (len(ids),)."""
        return ids

    def companions(self, wanted: Mapping[str, Ints], network: int) -> Mapping[str, Ints]:
        """More batches for a step of this network: ids of pairs, (B,) each, by names that `wanted` does not have.

        Args:
            wanted: Ids of the step's pairs by subset.
            network: The network that steps.
        """
        return {}

    @abstractmethod
    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Loss of one step of network k on a batch of every subset of the phase, and on their `companions`."""

    def ranking_term(self, name: str, network: Network, pair: Pairing, y: Tensor, warm: bool = False) -> Term:
        """The run's ranking loss on a pairing of images and texts as a term."""
        matcher, loss = network.matcher, self.setting.ranking
        similarity = matcher.similarity(pair.images, pair.texts)
        return Term(name, loss(similarity, matcher.scale(), y, pair.exclude, warm), reduction=loss.reduction)


@dataclass(frozen=True)
class Pairing:
    """Images and captions side by side, row i of one with row i of the other, and what is no negative of what.

    Attributes:
        images: (B, ...).
        texts: (B, ...).
        exclude: (B, B).
    """

    images: Codes
    texts: Codes
    exclude: Tensor


def not_negatives(batch: Batch) -> Tensor:
    """Return where image i and caption j of a batch are not each other's negatives, (B, B): where they are related."""
    return related(batch.image_rows, batch.caption_images, batch.caption_texts)


def related(image_rows: Tensor, caption_images: Tensor, texts: Tensor | None = None) -> Tensor:
    """Return where image i and caption j must not push each other apart, (B, B).

    That is where the caption is given with that very image, or is paired here with the same image, or is a sibling (or
    the same) of the caption that the image is paired with here, or reads like that one.

    Args:
        image_rows: Row of the image in each pair, (B,).
        caption_images: Row of the image that each pair's caption is given with, (B,).
        texts: Number of each pair's caption text, the same for equal texts, (B,); None where they are not compared.
    """
    found = (image_rows[:, None] == image_rows[None, :]) | (image_rows[:, None] == caption_images[None, :])
    for captions in (caption_images, texts):
        if captions is not None:
            found = found | (captions[:, None] == captions[None, :])
    return found


def demand(method: Method, least: float, most: float, *names: str) -> None:
    """Check that these options of a method lie between two bounds.

    Raises:
        InputError: One does not.
    """
    for name in names:
        value = getattr(method, name)
        if not least <= value <= most:
            bounds = f"at least {least:g}" if most == inf else f"between {least:g} and {most:g}"
            raise InputError(f"{method.name}.{name} is {value}; it must be {bounds}")


def correspond(values: Array, ids: Ints, like: Tensor) -> Tensor:
    """Rows of a per-pair array as a float tensor on the device of `like`, (len(ids), ...)."""
    return torch.from_numpy(np.asarray(values[ids], np.float32)).to(like.device)
