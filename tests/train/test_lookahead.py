"""A step looked at ahead is the step that a real copy takes."""

import copy
import math

import pytest
import torch
from torch import nn

from pairsift.steps import Network
from pairsift.train.loop import after_step, parameter_groups


class Mixed(nn.Module):
    """Matrices, biases, a norm, a recurrence and a parameter that never has a gradient."""

    head_speed = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.gru = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.GRU(6, 4, batch_first=True)
        self.idle = nn.Parameter(torch.ones(3, 3))

    def speed(self, name: str) -> float:
        return 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(self.norm(self.first(x))[None])[0]


def gradients_of(network: nn.Module, kind: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    loss = network.matcher(torch.randn(7, 5, dtype=kind)).square().sum()
    names, parameters = zip(*network.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def take(network: nn.Module, optimizer: torch.optim.Optimizer, gradients: dict[str, torch.Tensor], clip: float) -> None:
    optimizer.zero_grad()
    for name, parameter in network.named_parameters():
        parameter.grad = gradients[name].clone() if name in gradients else None
    if clip:
        torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
    optimizer.step()


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6])
@pytest.mark.parametrize("steps", [0, 3])
def test_it_is_what_a_deep_copy_becomes_by_a_real_adamw_step(steps: int, clip: float) -> None:
    torch.manual_seed(0)
    network = Network(Mixed(), None)
    optimizer = torch.optim.AdamW(parameter_groups(network, 0.2), 0.01, fused=True)
    for _ in range(steps):
        take(network, optimizer, gradients_of(network), clip)
    for group in optimizer.param_groups:
        group["lr"] = 0.003
    gradients = gradients_of(network)

    twin = copy.deepcopy(network)
    theirs = torch.optim.AdamW(parameter_groups(twin, 0.2), 0.003)  # not fused: the plain formula
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # which would share the moments
    for group in theirs.param_groups:
        group["fused"] = False
    take(twin, theirs, gradients, clip)

    kept = copy.deepcopy((network.state_dict(), optimizer.state_dict(), gradients))
    found = after_step(network, optimizer, clip, gradients, True)
    assert found.keys() == dict(network.named_parameters()).keys()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(found[name], parameter.detach(), rtol=1e-6, atol=1e-7)
        assert not found[name].requires_grad
    assert torch.equal(found["matcher.idle"], torch.ones(3, 3))  # as AdamW leaves what has no gradient

    for before, now in zip(kept, (network.state_dict(), optimizer.state_dict(), gradients), strict=True):
        torch.testing.assert_close(before, now, rtol=0, atol=0)
    take(network, optimizer, gradients, clip)  # and the step itself leads just there
    for name, parameter in network.named_parameters():
        assert torch.equal(found[name], parameter.detach())


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_without_momentum_the_direction_is_the_gradients(steps: int, clip: float) -> None:
    torch.manual_seed(1)
    network = Network(Mixed(), None).double()
    rate, decay, (_, beta) = 0.003, 0.2, (0.9, 0.999)
    optimizer = torch.optim.AdamW(parameter_groups(network, decay), rate)
    for _ in range(steps):
        take(network, optimizer, gradients_of(network, torch.float64), clip)
    gradients = gradients_of(network, torch.float64)
    kept = copy.deepcopy((network.state_dict(), optimizer.state_dict(), gradients))
    found = after_step(network, optimizer, clip, gradients, False)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    for name, parameter in network.named_parameters():
        if name not in gradients:
            continue
        g = gradients[name] * (min(1.0, clip / (norm + 1e-6)) if clip else 1.0)
        before = optimizer.state[parameter]["exp_avg_sq"] if steps else torch.zeros_like(g)
        square = (beta * before + (1 - beta) * g * g) / (1 - beta ** (steps + 1))
        shrunk = parameter.detach() * (1 - rate * (decay if parameter.ndim > 1 else 0.0))
        torch.testing.assert_close(found[name], shrunk - rate * g / (square.sqrt() + 1e-8))
    for before, now in zip(kept, (network.state_dict(), optimizer.state_dict(), gradients), strict=True):
        torch.testing.assert_close(before, now, rtol=0, atol=0)
