"""L2RM: learning to rematch mismatched pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from pairsift.arrays import Ints
from pairsift.loss.transport import log_partial_plan, rematching, symmetric_cross_entropy
from pairsift.match.base import scale_at
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.division import BetaDivision
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Batch, Network, Pairing, Phase, Term, not_negatives


class L2RMEpochs(Epochs):
    """The phases of L2RM."""

    warmup: int = Field(default=5, ge=0, description="Epochs on all pairs with the symmetric cross-entropy.")
    train: int = Field(default=35, ge=0, description="Epochs on clean pairs, and on noisy ones that are rematched.")


class Rematching(Options):
    """The transport between the images and the captions of noisy pairs."""

    mass: float = Field(default=0.1, gt=0, lt=1, description="Share of the mass that is moved, rho.")
    epsilon: float = Field(
        default=0.07, ge=1e-3, description="Weight of the plan's entropy, in units of the similarity."
    )
    steps: int = Field(default=50, ge=1, description="Steps of Sinkhorn's algorithm.")
    forbid_given: bool = Field(
        default=True, description="Whether nothing is moved between the image and the caption of a given pair."
    )
    temperature: float = Field(
        default=0.05,
        ge=0,
        description="Temperature of the softmax of noisy pairs and of the warm-up; 0: the matcher's.",
    )
    weight: float = Field(default=1.0, ge=0, description="Weight of the noisy pairs' loss.")
    cost_weight: float = Field(
        default=0.01,
        ge=0,
        description="Weight of the loss that fits the cost; small, so that gradients are not clipped for it.",
    )


class SimilarityCost(nn.Module):
    """The cost of moving mass between an image and a caption, a falling function of their similarity alone.

        C = softplus(a (t - s)) / a,   the smooth form of ReLU(t - s),

    with two learned numbers, the sharpness a > 0 and the threshold t.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(10.0)))
        self.threshold = nn.Parameter(torch.tensor(0.5))

    def forward(self, similarity: Tensor) -> Tensor:
        """Return the cost, at least 0, in the shape of the similarity and in its unit."""
        sharpness = self.log_sharpness.exp()
        return functional.softplus(sharpness * (self.threshold - similarity)) / sharpness

    def loss(self, similarity: Tensor, exclude: Tensor) -> Tensor:
        """Return how badly a (s - t) tells pairs that match from others, as a logistic regression, (B,).

        Args:
            similarity: Of pairs that match, on the diagonal, without gradient, (B, B).
            exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal among them.
        """
        odds = self.log_sharpness.exp() * (similarity - self.threshold)
        others = functional.softplus(odds).masked_fill(exclude, 0.0).sum(1) / (~exclude).sum(1).clamp(min=1)
        return (functional.softplus(-odds.diagonal()) + others) / 2


class L2RM(Method):
    """The method L2RM: noisy pairs learn from a transport plan between their images and their captions.

    Clean pairs train with the ranking loss. Of the noisy pairs of a step, partial optimal transport moves a tenth of
    the mass from images to captions where that costs least, and the softmax probabilities approach the plan. The
    warm-up takes the symmetric cross-entropy.

    In the paper a cost is ReLU(W s + b) of a row of similarities, with W across the columns of the batch. So it depends
    on the order of the pairs in the batch, and needs batches of one size; and only the small learning rate keeps it
    from the optimum of its loss, in which everything costs nothing. Here the cost is the same falling function of every
    similarity, with two numbers, which a logistic regression of clean pairs against the other captions of their batch
    fits. The published code forbids the diagonal of the plan where it knows that the noise is planted; here that is an
    option, and on by default, because pairs of the noisy set are believed to be mismatched. Plans are found on the
    device, and images of a step are rematched with captions of the same step, as there with a queue of that length.
    """

    name: ClassVar[str] = "l2rm"
    citation: ClassVar[str] = """
@inproceedings{han2024l2rm,
  author = {Han, Haochen and Zheng, Qinghua and Dai, Guang and Luo, Minnan and Wang, Jingdong},
  title = {Learning to Rematch Mismatched Pairs for Robust Cross-Modal Retrieval},
  booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2024}
}
"""
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER.having(train={"decay_epoch": 15}, rematching={"epsilon": 0.01, "steps": 300}),
        "paper_coco": PAPER.having(train={"decay_epoch": 10}, epochs={"warmup": 10, "train": 20}),
        "paper_cc152k": PAPER.having(train={"decay_epoch": 20}, epochs={"warmup": 10, "train": 40}),
        "two_tower": TWO_TOWER.having(epochs={"warmup": 2, "train": 6}, rematching={"temperature": 0.0}),
        "clip": CLIP.having(epochs={"warmup": 1, "train": 4}, rematching={"temperature": 0.0}),
    }

    epochs: L2RMEpochs = L2RMEpochs()
    division: BetaDivision = BetaDivision()
    rematching: Rematching = Rematching()
    networks: int = Field(default=1, ge=1, le=2, description="1, or 2 that divide the pairs for each other.")

    def phases(self) -> tuple[Phase, ...]:
        """Return warm-up, and training on clean and noisy pairs."""
        return (
            Phase("warm-up", self.epochs.warmup, warm=True, competes=False),
            Phase("rematch", self.epochs.train, ("clean", "noisy"), observe=True),
        )

    def head(self, dim: int) -> nn.Module:
        """Return the cost."""
        return SimilarityCost()

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division (a lone network's own), or `all`."""
        return self.division.subset(name, network) if name in ("clean", "noisy") else super().subset(name, network)

    def step(self, networks: Sequence[Network], k: int, batches: Mapping[str, Batch], phase: Phase) -> list[Term]:
        """Return the warm-up's loss of all pairs, or those of clean pairs, of the cost, and of noisy pairs."""
        terms, network, ranking = [], networks[k], self.setting.ranking
        for name, batch in batches.items():
            exclude = not_negatives(batch)
            pairing = Pairing(*network.encode(batch), exclude)
            similarity, scale = network.matcher.similarity(pairing.images, pairing.texts), network.matcher.scale()
            logits = similarity * scale_at(network.matcher, self.rematching.temperature)
            if name == "all":
                terms.append(Term(name, symmetric_cross_entropy(logits, exclude), reduction=ranking.reduction))
            elif name == "clean":
                y = torch.ones_like(similarity.diagonal())
                terms.append(self.setting.ranking_term(name, network, pairing, y, phase.warm, similarity, scale))
                values = cost_of(network).loss(similarity.detach(), exclude)
                terms.append(Term("cost", values, self.rematching.cost_weight))
            else:
                values = rematching(logits, self.plan(network, similarity, exclude))
                terms.append(Term(name, values, self.rematching.weight, ranking.reduction))
        return terms

    @torch.no_grad()
    def plan(self, network: Network, similarity: Tensor, exclude: Tensor) -> Tensor:
        """Return the logarithm of the plan between the images and the captions of noisy pairs, (B, B).

        Args:
            network: The network whose cost it has.
            similarity: Of the images with the captions, (B, B).
            exclude: True where image i is given with caption j, or with one that reads alike, (B, B).
        """
        options, cost = self.rematching, cost_of(network)(similarity)
        given = exclude if options.forbid_given else None
        return log_partial_plan(cost, options.mass, options.epsilon, given, options.steps)


def cost_of(network: Network) -> SimilarityCost:
    """Return the cost that a network learns."""
    assert isinstance(network.head, SimilarityCost)
    return network.head
