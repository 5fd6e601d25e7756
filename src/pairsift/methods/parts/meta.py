"""Meta similarity correction: a small network, learned from pairs that are known to match, that corrects similarities.

The pairs are the verified ones of `Setting.verified`; they train the meta network and nothing else (MSCN).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.match.base import Codes, at_least_float32
from pairsift.methods.base import Part
from pairsift.methods.parts.dropout import encode
from pairsift.steps import Batch, Network, Pairing, Setting, Term, not_negatives

START_SLOPE = 4.0  # slope of the logit over the similarity at the start: the slope of V is then 1 at its middle
HIDDEN_IN_CACHE = 2**20  # values of the hidden layer that a CPU computes at once, so that they stay in its cache
STEP_LENGTH = 1e-3  # length of the step in parameters to either side, for a directional derivative
Result = TypeVar("Result")
MIN_IMAGES = 2  # of verified pairs, so that one is the negative of another


class MetaNetwork(nn.Module):
    """The meta network: the logit of a match by the similarity and by partial products of the global vectors.

        logit = a S + b + w^T ReLU(W v + c),    V = sigmoid(logit)

    The global vectors are cut into `groups` stretches. v are the inner products over each, times `groups`, so that
    their mean is the inner product of the vectors. a is above 0, and w starts at 0, so that V starts as a rising
    function of S.

    Args:
        groups: Length of v.
        hidden: Width of the hidden layer.
    """

    def __init__(self, groups: int, hidden: int) -> None:
        super().__init__()
        self.groups = groups
        self.mix, self.out = nn.Linear(groups, hidden), nn.Linear(hidden, 1, bias=False)
        nn.init.zeros_(self.out.weight)
        self.log_slope, self.offset = nn.Parameter(torch.tensor(START_SLOPE).log()), nn.Parameter(torch.zeros(()))

    def forward(self, similarity: Tensor, parts: Tensor) -> Tensor:
        """Return logits in the shape of the similarities, (n, m) or (n,); `parts` has one more dimension in front."""
        n = parts.shape[1]
        if parts.device.type == "cpu":
            n = max(1, HIDDEN_IN_CACHE // (similarity[:1].numel() * self.mix.out_features))
        corrections = [self._correction(part.flatten(1)) for part in torch.split(parts, n, 1)]
        return self.log_slope.exp() * similarity + self.offset + torch.cat(corrections).view_as(similarity)

    def _correction(self, parts: Tensor) -> Tensor:
        """Return what is added to the logits of some images and captions, (n,)."""
        hidden = torch.addmm(self.mix.bias[:, None], self.mix.weight, parts).relu()
        return (self.out.weight @ hidden)[0]


class MetaHead(nn.Module):
    """The trainable part of a method with a meta network, beside another trainable part where there is one."""

    def __init__(self, meta: MetaNetwork, other: nn.Module | None = None) -> None:
        super().__init__()
        self.meta, self.other = meta, other

    def forward(self, codes: Codes) -> Tensor:
        """Return the other part's output."""
        assert self.other is not None, "this method has a meta network alone"
        logits: Tensor = self.other(codes)
        return logits


@dataclass(frozen=True)
class MetaInputs:
    """A batch as a network sees it with some parameters.

    Attributes:
        similarity: S, (B, B).
        parts: v of every image with every caption, (groups, B, B).
        scale: Inverse temperature, scalar.
    """

    similarity: Tensor
    parts: Tensor
    scale: Tensor


class MetaCorrection(Part):
    """The correction of similarities by a meta network that a differentiable virtual step trains (MSCN).

    With theta the matcher's parameters, Theta the meta network's, L the loss of a batch on V, and M the meta loss of
    verified pairs (`meta_loss`), a step moves Theta along the gradient of

        M( theta - alpha grad_theta L(theta, Theta), Theta )

    and theta along the gradient of L(theta, Theta). Both move in one optimizer step. The derivative through the virtual
    step is

        -alpha d/dTheta <grad_theta L(theta, Theta), u>,    u = grad_theta' M,

    which is -alpha d/dTheta <grad_x L(x, Theta), x'>, with the meta network's inputs x (`MetaInputs`) and x' their
    derivative as theta moves along u. x' is taken as a central difference, so that no matcher has to be differentiated
    twice, with the same dropout masks and in float32; the rest is exact. Batch norms keep no statistics of it. L is the
    sum over the batch, as in the published code, whatever the loop reduces by.
    """

    groups: int = Field(default=32, ge=1, description="Partial inner products that the meta network reads.")
    hidden: int = Field(default=64, ge=1, description="Width of the meta network's hidden layer.")
    rate: float = Field(
        default=2e-4,
        ge=0,
        description="Rate of the virtual step, alpha, on the sum of a batch; it falls with the learning rate, and this "
        "is its value at the largest one; 0 for M at theta.",
    )

    def begin(self, setting: Setting) -> Self:
        """Return a copy that has begun.

        Raises:
            InputError: There are no verified pairs of several images.
        """
        images = len(np.unique(setting.image_of[setting.verified]))
        if images < MIN_IMAGES:
            raise InputError(
                f"the meta network learns from verified training pairs of at least {MIN_IMAGES} images, and there "
                f"are {len(setting.verified)} of {images}: verify more, with --verified or --verified-column"
            )
        return super().begin(setting)

    def head(self, other: nn.Module | None = None) -> MetaHead:
        """Return a meta network, beside another trainable part."""
        return MetaHead(MetaNetwork(self.groups, self.hidden), other)

    def unverified(self, ids: Ints, may_be_empty: bool = False) -> Ints:
        """Return the pairs among these that are not verified, ascending.

        Args:
            ids: The pairs.
            may_be_empty: What to return where every pair is verified: no pairs, or all of them.
        """
        others = np.setdiff1d(ids, self.setting.verified)
        return others if len(others) or may_be_empty else ids

    def logits(self, network: Network, inputs: MetaInputs, learns: bool = True) -> Tensor:
        """Return the logits of a match, (B, B); without `learns` the meta network has no gradient."""
        meta = meta_of(network)
        with torch.autocast(inputs.similarity.device.type, enabled=False):
            if learns:
                logits: Tensor = meta(inputs.similarity, inputs.parts)
            else:
                frozen = {name: value.detach() for name, value in meta.named_parameters()}
                logits = functional_call(meta, frozen, (inputs.similarity, inputs.parts))
        return logits

    def encode(self, network: Network, batch: Batch) -> tuple[int, Codes, Codes]:
        """Return a new seed, and codes of a batch's images and captions with dropout masks by this seed."""
        seed = int(torch.randint(2**31, ()))
        ((images, texts),) = encode(network, [batch], seed)
        return seed, images, texts

    def correct(self, network: Network, pairing: Pairing, learns: bool) -> Tensor:
        """Return the logits of a match of all images and captions of a pairing, (B, B); see `logits`."""
        return self.logits(network, self.inputs_of(network, pairing.images, pairing.texts), learns)

    def inputs_of(self, network: Network, images: Codes, texts: Codes) -> MetaInputs:
        """Return the meta network's inputs for all images and captions."""
        return MetaInputs(
            network.matcher.similarity(images, texts), partial_products(images, texts, self.groups), scale_of(network)
        )

    def terms(
        self,
        network: Network,
        ranking: Term,
        y: Tensor,
        batches: tuple[Batch, Batch],
        seed: int,
        share: float,
        shares_graph: bool = False,
    ) -> list[Term]:
        """Return the ranking loss and the meta loss of verified pairs, as terms whose gradients are computed already.

        The ranking loss has the gradient of the virtual step, so that no second backward pass is needed. The meta loss
        has the gradient that the class describes, and none on theta.

        Args:
            network: The network in training.
            ranking: The run's ranking loss of the step's batch, with its graph.
            y: Correspondence of each pair in that loss, without gradient, (B,).
            batches: The step's batch, and verified pairs.
            seed: Seed of the dropout masks of the encoded batch.
            share: Learning rate of the step as a share of the largest one.
            shares_graph: Whether other terms of the step have parts of the ranking loss's graph.
        """
        batch, verified = batches
        rate = self.rate * share
        theta = {f"network.matcher.{n}": p for n, p in network.matcher.named_parameters() if p.requires_grad}
        meta = list(meta_of(network).parameters())
        with torch.autocast(y.device.type, enabled=False):  # a backward pass has the precision of its forward pass
            step = torch.autograd.grad(
                ranking.values.sum(), list(theta.values()), retain_graph=shares_graph, allow_unused=True
            )
        after = {
            name: (p.detach() if g is None else p.detach() - rate * g).requires_grad_()
            for (name, p), g in zip(theta.items(), step, strict=True)
        }

        def judge(inputs: MetaInputs) -> tuple[Tensor, tuple[Tensor | None, ...]]:
            losses = meta_loss(self.logits(network, inputs), not_negatives(verified))
            return losses.detach(), torch.autograd.grad(losses.mean(), [*after.values(), *meta], allow_unused=True)

        losses, found = self._at_parameters(network, after, verified, seed + 1, judge)
        u = {name: g for name, g in zip(after, found[: len(after)], strict=True) if g is not None}
        gradients = [_or_zero(g, p) for g, p in zip(found[len(after) :], meta, strict=True)]
        if rate and any(bool(g.any()) for g in u.values()):
            inputs, change = self._derivative_along(network, theta, u, batch, seed)
            through = self._mixed_derivative(network, inputs, change, y, not_negatives(batch))
            gradients = [g - rate * _or_zero(d, g) for g, d in zip(gradients, through, strict=True)]
        mean_step = [(p, g / len(ranking.values)) for p, g in zip(theta.values(), step, strict=True) if g is not None]
        return [
            replace(ranking, values=_with_gradient(ranking.values, mean_step)),
            Term("meta", _with_gradient(losses, list(zip(meta, gradients, strict=True)))),
        ]

    def _derivative_along(
        self, network: Network, theta: Mapping[str, Tensor], u: Mapping[str, Tensor], batch: Batch, seed: int
    ) -> tuple[MetaInputs, MetaInputs]:
        """Return the meta network's inputs for a batch, and their derivative as theta moves along u, by differences."""
        length = torch.stack([g.norm() for g in u.values()]).norm()
        sides: list[MetaInputs] = []
        for side in (STEP_LENGTH, -STEP_LENGTH):
            shifted = {n: p.detach() + side / length * u[n] if n in u else p.detach() for n, p in theta.items()}
            with torch.no_grad():
                sides.append(self._at_parameters(network, shifted, batch, seed, lambda inputs: inputs))
        pairs = [(getattr(sides[0], field.name), getattr(sides[1], field.name)) for field in fields(MetaInputs)]
        middle = MetaInputs(*(torch.lerp(minus, plus, 0.5) for plus, minus in pairs))
        return middle, MetaInputs(*((plus - minus).mul_(length / (2 * STEP_LENGTH)) for plus, minus in pairs))

    def _mixed_derivative(
        self, network: Network, inputs: MetaInputs, change: MetaInputs, y: Tensor, exclude: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return d/dTheta <grad L, change> over the meta network's inputs, a tensor for each of its parameters."""
        meta = list(meta_of(network).parameters())
        read = [getattr(inputs, field.name).detach().requires_grad_() for field in fields(inputs)]
        with torch.autocast(exclude.device.type, enabled=False):
            given = MetaInputs(*read)
            total = self.setting.ranking(self.logits(network, given).sigmoid(), given.scale, y, exclude).sum()
            slopes = torch.autograd.grad(total, read, create_graph=True, allow_unused=True)
            moves = [getattr(change, field.name) for field in fields(change)]
            parts = [(s * m).sum() for s, m in zip(slopes, moves, strict=True) if s is not None]
            return torch.autograd.grad(torch.stack(parts).sum(), meta, allow_unused=True)

    def _at_parameters(
        self,
        network: Network,
        parameters: Mapping[str, Tensor],
        batch: Batch,
        seed: int,
        use: Callable[[MetaInputs], Result],
    ) -> Result:
        """Call a function with a batch as the network would see it with other parameters, in float32.

        The network has these parameters until the function returns: a matcher that computes its forward pass again for
        its gradients, as CLIP does, then computes it with the same ones.
        """
        buffers = {f"network.{name}": buffer.clone() for name, buffer in network.named_buffers()}
        with torch.autocast(batch.image_rows.device.type, enabled=False):
            values = {**buffers, **parameters}
            result: Result = functional_call(_NetworkInputs(self, network), values, (batch, seed, use))
        return result


class _NetworkInputs(nn.Module):
    """Encoding, comparing and what follows in one module, since other parameters can be lent to a module only."""

    def __init__(self, part: MetaCorrection, network: Network) -> None:
        super().__init__()
        self.network, self.part = network, [part]

    def forward(self, batch: Batch, seed: int, use: Callable[[MetaInputs], Result]) -> Result:
        ((images, texts),) = encode(self.network, [batch], seed)
        return use(self.part[0].inputs_of(self.network, images, texts))


def meta_of(network: Network) -> MetaNetwork:
    """Return the network's meta network."""
    assert isinstance(network.head, MetaHead), "this method has no meta network"
    return network.head.meta


def scale_of(network: Network) -> Tensor:
    """Return the inverse temperature, scalar, in float32 at least."""
    return at_least_float32(network.matcher.scale())


def partial_products(images: Codes, texts: Codes, groups: int) -> Tensor:
    """Return inner products over stretches of the global vectors, times their number, (groups, n_images, n_texts)."""
    with torch.autocast(images.vectors.device.type, enabled=False):
        left, right = (_stretches(codes, groups).transpose(0, 1) for codes in (images, texts))
        return torch.bmm(groups * left, right.transpose(1, 2))


def partial_products_of_pairs(images: Codes, texts: Codes, groups: int) -> Tensor:
    """Return `partial_products` of every image with the caption at the same position, (groups, n)."""
    return groups * (_stretches(images, groups) * _stretches(texts, groups)).sum(-1).T


def _stretches(codes: Codes, groups: int) -> Tensor:
    """Cut global vectors into `groups` stretches of one length, the last filled up with zeros, (n, groups, width)."""
    vectors = at_least_float32(codes.vectors)
    width = -(-vectors.shape[1] // groups)
    return nn.functional.pad(vectors, (0, groups * width - vectors.shape[1])).view(-1, groups, width)


def _with_gradient(values: Tensor, gradients: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return values, (B,), whose mean has these gradients, each with its parameter, and no others."""
    carrier = torch.stack([(parameter * gradient).sum() for parameter, gradient in gradients]).sum()
    return values.detach() + (carrier - carrier.detach())


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def meta_loss(logits: Tensor, exclude: Tensor) -> Tensor:
    """Return the binary cross-entropy of each pair of a block and of its negatives, half and half.

        -1/2 log V_ii  -  1/2 mean_j log(1 - V_ij),    V = sigmoid(logits)

    Args:
        logits: Logits of a match of every image with every caption, (B, B); pairs that match on the diagonal.
        exclude: True where row i and column j are not negatives of each other, (B, B); the diagonal is always excluded.

    Returns:
        (B,), at least 0; a pair without negatives has the first part alone.
    """
    negative = ~(exclude | torch.eye(len(logits), dtype=torch.bool, device=logits.device))
    apart = softplus(logits).masked_fill(~negative, 0.0).sum(1) / negative.sum(1).clamp(min=1)
    return (softplus(-logits.diagonal()) + apart) / 2
