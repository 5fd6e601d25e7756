"""Where a step would lead, without taking it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def after_step(
    network: nn.Module, optimizer: torch.optim.Optimizer, clip: float, gradients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The parameters as one step of the loop would leave them: clipping, then the optimizer, with its moments and rate.

    A second optimizer of the same kind takes the step on copies, so that it is the same step whatever the kind.

    Args:
        network: Whose parameters they are.
        optimizer: Optimizer of all of them.
        clip: Largest norm of the gradients; 0 for none.
        gradients: By parameter name; a parameter that has none here stays as it is.

    Returns:
        All parameters by name, without a graph. Network, optimizer and gradients are unchanged.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
    copies = {name: parameter.detach().clone() for parameter, name in names.items()}
    for name, gradient in gradients.items():
        copies[name].grad = gradient.detach().clone()
    groups = [
        {**group, "params": [copies[names[parameter]] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    double = type(optimizer)(groups)  # type: ignore[call-arg]
    for parameter, moments in optimizer.state.items():
        double.state[copies[names[parameter]]] = {key: value.clone() for key, value in moments.items()}
    if clip:
        nn.utils.clip_grad_norm_(copies.values(), clip)
    double.step()
    return {name: copy.detach() for name, copy in copies.items()}
