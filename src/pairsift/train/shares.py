"""What several processes compute together in a training step: each its share, exchanged with gradient.

Every process encodes its share of a batch and receives the codes of the others, so that everything after that, losses,
terms and heads, sees the whole batch in every process and knows nothing of processes. Of a matrix of similarities each
process computes the rows of its share, and receives the other rows.

Where a share begins, parameters and codes pass through an identity whose gradient is summed over all processes. Where
it ends, a process's own part of what was exchanged has a gradient, and the others' have none. So every process has the
whole gradient of every parameter, also where a method asks for one in the middle of a step. The sums of a backward pass
come in the same order everywhere, the reverse of the order in which the shares were begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from pairsift.encode.features import Items
from pairsift.match.base import Codes, Matcher, at_least_float32
from pairsift.processes import Processes

BUCKET = 2**24  # values that are summed in one exchange
ALIGNED = 8  # bytes, of the largest type


class Shares:
    """The shares of this process in what the networks of a training compute.

    Args:
        processes: The processes that train.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._in_step = self._in_share = False

    def divide(self, matcher: Matcher) -> None:
        """Let a matcher compute its share, where a batch is divided; with one process, leave it as it is."""
        if self.processes.count == 1:
            return
        for name in ("encode_images", "encode_texts"):
            setattr(matcher, name, partial(self._encode, matcher, getattr(matcher, name)))
        for name in ("similarity", "logits"):
            setattr(matcher, name, partial(self._compare, matcher, getattr(matcher, name)))
        for module in matcher.modules():
            if isinstance(module, _BatchNorm):
                module.forward = partial(self._normalise, module, module.forward)  # type: ignore[method-assign]

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark a training step, which all processes take at the same time."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    def _encode(self, matcher: Matcher, encode: Callable[[Items], Codes], items: Items) -> Codes:
        """Return the codes of a whole batch, of which these items are the share; or of the items, if they are all."""
        if items.whole is None:
            return encode(items)
        with self._share(items.values.device):
            codes: Codes = self._lent(matcher, [], lambda _: encode(items))
        return self._gathered(codes, items.whole)

    def _compare(
        self, matcher: Matcher, compare: Callable[[Codes, Codes], Tensor], images: Codes, texts: Codes
    ) -> Tensor:
        """Return the similarities of images and texts, of which this process computes the rows of its share."""
        if self._in_share or not self._in_step or not self.processes.divides(len(images)):
            return compare(images, texts)
        rows, sides = self.processes.share(len(images)), (images, texts)
        with self._share(images.vectors.device):

            def work(tensors: list[Tensor]) -> Tensor:
                lent = iter(tensors)
                image_codes, text_codes = (_codes(side, [next(lent) for _ in _tensors(side)]) for side in sides)
                return compare(image_codes.rows(rows), text_codes)

            similarity: Tensor = self._lent(matcher, [tensor for side in sides for tensor in _tensors(side)], work)
        parts = exchanged(self.processes, [similarity])
        parts[self.processes.rank] = [similarity]
        return torch.cat([part for (part,) in parts])

    @contextmanager
    def _share(self, device: torch.device) -> Iterator[None]:
        """Compute a share: random numbers are this process's own, and afterwards those of all again."""
        seed = int(torch.randint(2**62, ())) + self.processes.rank
        before, self._in_share = self._in_share, True
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                yield
        finally:
            self._in_share = before

    def _lent(self, matcher: Matcher, tensors: list[Tensor], work: Callable[[list[Tensor]], Any]) -> Any:
        """Do some work with parameters and tensors whose gradients are summed over the processes."""
        leaves = [value for value in matcher.parameters() if value.requires_grad]
        learning = [place for place, tensor in enumerate(tensors) if tensor.requires_grad]
        if not torch.is_grad_enabled() or not (leaves or learning):
            return work(tensors)
        names = [f"matcher.{name}" for name, value in matcher.named_parameters() if value.requires_grad]
        summed = _Summed.apply(self.processes, *leaves, *(tensors[place] for place in learning))  # type: ignore[no-untyped-call]
        for place, tensor in zip(learning, summed[len(leaves) :], strict=True):
            tensors[place] = tensor
        return functional_call(_Work(matcher), dict(zip(names, summed[: len(leaves)], strict=True)), (work, tensors))

    def _gathered(self, codes: Codes, whole: int) -> Codes:
        """Return the codes of all processes' items; those of this process have a gradient."""
        processes = self.processes
        parts = [_codes(codes, tensors) for tensors in exchanged(processes, _tensors(codes))]
        parts[processes.rank] = codes
        assert sum(map(len, parts)) == whole
        joined = Codes.join(parts)
        lengths = {None if part.tokens is None else part.tokens.shape[1] for part in parts}
        return replace(joined, mask=None) if codes.mask is None and len(lengths) == 1 else joined

    def _normalise(self, norm: _BatchNorm, alone: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Normalise the share of a batch by the statistics of the whole, (m, d) or (m, d, length)."""
        if not (self._in_share and norm.training):
            return alone(x)
        axes, values = [0, *range(2, x.ndim)], at_least_float32(x)
        sums = torch.cat([values.sum(axes), values.new_full((1,), x.numel() / x.shape[1])])
        total = _AddedUp.apply(self.processes, sums)  # type: ignore[no-untyped-call]
        count = float(total[-1].detach())
        if count <= 1:
            return alone(x)
        shape = [1, -1, *[1] * (x.ndim - 2)]
        mean = total[:-1] / count
        centred = values - mean.view(shape)
        variance = _AddedUp.apply(self.processes, centred.square().sum(axes)) / count  # type: ignore[no-untyped-call]
        _remember(norm, mean.detach(), variance.detach() * (count / (count - 1)))
        y = centred * (variance + norm.eps).rsqrt().view(shape)
        if norm.affine:
            y = y * norm.weight.view(shape) + norm.bias.view(shape)
        normalised: Tensor = y.to(x.dtype)
        return normalised


@torch.no_grad()
def _remember(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move a norm's running statistics, (d,) each, as torch does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    for running, now in ((norm.running_mean, mean), (norm.running_var, variance)):
        running.mul_(1 - share).add_(now.to(running.dtype), alpha=share)


class _Work(nn.Module):
    """Some work with a matcher as a module, since other parameters can be lent to a module only."""

    def __init__(self, matcher: Matcher) -> None:
        super().__init__()
        self.matcher = matcher

    def forward(self, work: Callable[[list[Tensor]], Any], tensors: list[Tensor]) -> Any:
        """Do it."""
        return work(tensors)


class _Summed(torch.autograd.Function):
    """The identity of some tensors, whose gradients are summed over all processes."""

    @staticmethod
    def forward(ctx: Any, processes: Processes, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.processes, ctx.like = processes, [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        needed = ctx.processes.anywhere([gradient is not None for gradient in gradients])
        found: list[Tensor | None] = list(gradients)
        groups: dict[torch.dtype, list[int]] = {}
        for place, (shape, dtype, device) in enumerate(ctx.like):
            if needed[place]:
                gradient = gradients[place]
                found[place] = torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
                groups.setdefault(dtype, []).append(place)
        for places in groups.values():
            for bucket in _buckets([ctx.like[place][0].numel() for place in places]):
                members = [places[number] for number in bucket]
                flat = torch.cat([at_least_float32(_some(found[place])).flatten() for place in members])
                ends = torch.split(ctx.processes.add_up(flat), [ctx.like[place][0].numel() for place in members])
                for place, values in zip(members, ends, strict=True):
                    found[place] = values.view(ctx.like[place][0]).to(ctx.like[place][1])
        return None, *found


class _AddedUp(torch.autograd.Function):
    """The sum of a tensor over all processes, each of which uses it for its share."""

    @staticmethod
    def forward(ctx: Any, processes: Processes, tensor: Tensor) -> Tensor:
        ctx.processes = processes
        return processes.add_up(tensor.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.processes.add_up(gradients[0].clone())


def exchanged(processes: Processes, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the tensors of every process, without gradient.

    They are as many in all processes, of the same types and numbers of axes, and may differ in shape.
    """
    shapes = processes.gather(torch.tensor([size for tensor in tensors for size in tensor.shape], dtype=torch.int64))
    every = [_split_shapes(row, tensors) for row in shapes.tolist()]
    sizes = [[_bytes(shape, tensor.dtype) for shape, tensor in zip(row, tensors, strict=True)] for row in every]
    longest = max(map(sum, sizes))
    flat = tensors[0].new_zeros(longest, dtype=torch.uint8)
    start = 0
    for tensor, size in zip(tensors, sizes[processes.rank], strict=True):
        values = tensor.detach().contiguous().flatten().view(torch.uint8)
        flat[start : start + len(values)] = values
        start += size
    found = []
    for row, row_shapes, row_sizes in zip(processes.gather(flat), every, sizes, strict=True):
        parts = zip(torch.split(row[: sum(row_sizes)], row_sizes), row_shapes, tensors, strict=True)
        found.append(
            [part[: shape.numel() * like.element_size()].view(like.dtype).view(shape) for part, shape, like in parts]
        )
    return found


def _split_shapes(row: list[int], tensors: Sequence[Tensor]) -> list[torch.Size]:
    """Return the shapes of tensors from their sizes, one after the other."""
    sizes = iter(row)
    return [torch.Size([next(sizes) for _ in range(tensor.ndim)]) for tensor in tensors]


def _bytes(shape: torch.Size, dtype: torch.dtype) -> int:
    """Return the length of a tensor in bytes, rounded up so that the next one is aligned."""
    return -(-shape.numel() * dtype.itemsize // ALIGNED) * ALIGNED


def _buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Return places of tensors of these sizes that are summed together, in order."""
    buckets: list[list[int]] = []
    room = 0
    for place, size in enumerate(sizes):
        if size > room or not buckets:
            buckets.append([])
            room = BUCKET
        buckets[-1].append(place)
        room -= size
    return buckets


def _some(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _tensors(codes: Codes) -> list[Tensor]:
    """Return the arrays that codes have, in a fixed order."""
    fields = codes.vectors, codes.tokens, codes.mask, codes.index, *(codes.extra[name] for name in sorted(codes.extra))
    return [tensor for tensor in fields if tensor is not None]


def _codes(like: Codes, tensors: Sequence[Tensor]) -> Codes:
    """Return codes with these arrays in the places of those that others have."""
    rest = iter(tensors)
    vectors = next(rest)
    tokens, mask, index = (None if part is None else next(rest) for part in (like.tokens, like.mask, like.index))
    return Codes(vectors, tokens, mask, None, index, {name: next(rest) for name in sorted(like.extra)})
