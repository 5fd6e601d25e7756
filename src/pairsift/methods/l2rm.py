"""L2RM: learning to rematch mismatched pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from pairsift.arrays import Ints
from pairsift.loss.infonce import infonce, match_probability
from pairsift.match.base import scale_at
from pairsift.methods.base import Epochs, Method
from pairsift.methods.parts.division import BetaDivision
from pairsift.methods.presets import CLIP, PAPER, TWO_TOWER, Preset
from pairsift.options import Options
from pairsift.steps import Network, Phase, Step, Term

LOG_ZERO = math.log(1e-7)  # what stands for log 0
LEAST_MOVED = 1e-10  # mass that every entry of a plan counts for at least, as in the authors' code
COST_WEIGHT = 0.01  # of the loss that fits the cost; small, so that gradients are not clipped for it


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
    cost: Literal["learned", "distance"] = Field(
        default="learned",
        description="The cost of moving mass: a falling function of the similarity that clean pairs teach, or "
        "ReLU(1 - S), which the paper's cost starts as.",
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
    from the optimum of its loss, where everything costs nothing. It starts as ReLU(1 - s), which is the cost of the
    paper's presets here and stays as it is. Elsewhere the cost is the same falling function of every similarity, with
    two numbers, which a logistic regression of clean pairs against the other captions of their batch fits.

    The published code forbids the diagonal of the plan where it knows that the noise is planted, and allows it on
    CC152K; here that is an option, and on by default, because pairs of the noisy set are believed to be mismatched. The
    losses of the warm-up and of noisy pairs are means over their batches beside a sum of clean pairs' hinges. Plans are
    found on the device, and images of a step are rematched with captions of the same step, as there with a queue of
    that length.
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
        "paper": PAPER.plus(
            train={"decay_epoch": 15, "decay_every": 15},
            rematching={"cost": "distance", "epsilon": 0.01, "steps": 300},
        ),
        "paper_coco": PAPER.plus(
            train={"decay_epoch": 10, "decay_every": 10},
            epochs={"warmup": 10, "train": 20},
            rematching={"cost": "distance"},
        ),
        "paper_cc152k": PAPER.plus(
            train={"decay_epoch": 20, "decay_every": 20},
            epochs={"warmup": 10, "train": 40},
            rematching={"cost": "distance", "forbid_given": False},
        ),
        "two_tower": TWO_TOWER.plus(epochs={"warmup": 2, "train": 6}, rematching={"temperature": 0.0}),
        "clip": CLIP.plus(epochs={"warmup": 1, "train": 4}, rematching={"temperature": 0.0}),
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

    def head(self, dim: int) -> nn.Module | None:
        """Return the cost where it is learned."""
        return SimilarityCost() if self.rematching.cost == "learned" else None

    def subset(self, name: str, network: int) -> Ints:
        """Return `clean` and `noisy` pairs by the peer's division (a lone network's own), or `all`."""
        return self.division.subset(name, network)

    def step(self, step: Step) -> list[Term]:
        """Return the warm-up's loss of all pairs; or the losses of clean pairs, of the cost, and of noisy pairs."""
        terms, network = [], step.network
        for name, batch in step.batches.items():
            pairing = network.pairing(batch)
            exclude = pairing.exclude
            similarity, scale = network.matcher.similarity(pairing.images, pairing.texts), network.matcher.scale()
            logits = similarity * scale_at(network.matcher, self.rematching.temperature)
            if name == "all":
                terms.append(Term(name, symmetric_cross_entropy(logits, exclude)))
            elif name == "clean":
                y = torch.ones_like(similarity.diagonal())
                terms.append(self.setting.ranking_term(name, network, pairing, y, step.phase.warm, similarity, scale))
                if isinstance(network.head, SimilarityCost):
                    values = network.head.loss(similarity.detach(), exclude)
                    terms.append(Term("cost", values, COST_WEIGHT))
            else:
                terms.append(Term(name, rematching(logits, self.plan(network, similarity, exclude))))
        return terms

    @torch.no_grad()
    def plan(self, network: Network, similarity: Tensor, exclude: Tensor) -> Tensor:
        """Return the logarithm of the plan between the images and the captions of noisy pairs, (B, B).

        Args:
            network: The network whose cost the plan has.
            similarity: Of the images with the captions, (B, B).
            exclude: True where image i is given with caption j, or with one that reads alike, (B, B).
        """
        options = self.rematching
        cost = (1 - similarity).clamp(min=0) if network.head is None else network.head(similarity)
        given = exclude if options.forbid_given else None
        return log_partial_plan(cost, options.mass, options.epsilon, given, options.steps)


@torch.no_grad()
def log_partial_plan(
    cost: Tensor, mass: float, epsilon: float, forbidden: Tensor | None = None, steps: int = 100
) -> Tensor:
    """Return the logarithm of the plan that moves a part of the mass at the least cost, by Sinkhorn's steps.

    Every row holds 1 / n and every column 1 / m, and only `mass` of the whole 1 is moved. With h(x) = x (log x - 1),
    and s and t the masses that rows and columns keep, the plan solves

        min over P >= 0 of  <P, C> + epsilon ( sum h(P) + sum h(s) + sum h(t) )
                     with  P 1 + s = 1 / n,  P^T 1 + t = 1 / m,  s, t >= 0,  sum P = mass

    The steps solve a plan with one more row and column of cost 0 for what is kept. Their meeting point is forbidden.
    The last step makes the columns exact, and the rows as near as the number of steps allows.

    Args:
        cost: C, finite, (..., n, m).
        mass: Share of the mass that is moved, (0, 1).
        epsilon: Weight of the entropy, above 0, in the unit of the cost.
        forbidden: Where nothing may be moved, (..., n, m) or what broadcasts to it; None for nowhere.
        steps: Number of steps, at least 1.

    Returns:
        log P, (..., n, m), in float32 at least, without gradient; -inf where nothing is moved.
    """
    *_, n, m = cost.shape
    kernel = functional.pad(-cost.to(torch.promote_types(cost.dtype, torch.float32)) / epsilon, (0, 1, 0, 1))
    if forbidden is not None:
        kernel[..., :n, :m] = kernel[..., :n, :m].masked_fill(forbidden, -torch.inf)
    kernel[..., n, m] = -torch.inf
    rows = kernel.new_tensor([1 / n] * n + [1 - mass]).log()
    columns = kernel.new_tensor([1 / m] * m + [1 - mass]).log()
    left, right = torch.zeros_like(kernel[..., 0]), torch.zeros_like(kernel[..., 0, :])
    for _ in range(steps):
        left = rows - (kernel + right[..., None, :]).logsumexp(-1)
        right = columns - (kernel + left[..., None]).logsumexp(-2)
    return (kernel + left[..., None] + right[..., None, :])[..., :n, :m]


def rematching(logits: Tensor, log_plan: Tensor) -> Tensor:
    """Return the symmetric divergence of each pair's softmax probabilities from a plan, the mean of both directions.

    With Q the plan, of which every entry counts for 1e-10 at least, with rows (columns) scaled to sum to 1, and P the
    softmax over them:

        sum_j (Q_ij - P_ij) (log Q_ij - log P_ij)  =  KL(Q || P) + KL(P || Q)

    A row or column to which nothing is moved has the uniform distribution as its target.

    Args:
        logits: S / tau, (B, B), images in rows.
        log_plan: Logarithm of the plan, (B, B).

    Returns:
        (B,), at least 0.
    """
    log_moved = log_plan.clamp(min=math.log(LEAST_MOVED))
    values = torch.zeros_like(logits[0])
    for dim in (1, 0):
        log_p, log_q = logits.log_softmax(dim), log_moved.log_softmax(dim)
        values = values + ((log_q.exp() - log_p.exp()) * (log_q - log_p)).sum(dim)
    return values / 2


def symmetric_cross_entropy(logits: Tensor, exclude: Tensor) -> Tensor:
    """Return half of the cross-entropy of each pair in its batch and half of the reverse one, summed over directions.

    The reverse cross-entropy of the prediction p with the label as the prediction is -log(0) (1 - p_ii), log 0 being
    log 1e-7.

    Args:
        logits: S / tau, (B, B), images in rows; pairs on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always kept.

    Returns:
        (B,), at least 0.
    """
    return infonce(logits, exclude) - LOG_ZERO * (1 - match_probability(logits, exclude))
