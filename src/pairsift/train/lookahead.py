"""The parameters after a training step that is not taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def after_step(
    network: nn.Module, optimizer: torch.optim.AdamW, max_norm: float, gradients: Mapping[str, Tensor], momentum: bool
) -> dict[str, Tensor]:
    """Return the parameters after one more step of the loop: clipping, then AdamW with its moments and rate.

    A second optimizer takes the step on copies, so that it is the same step to the last bit.

    Args:
        network: The network with the parameters.
        optimizer: The optimizer of all its parameters.
        max_norm: Largest norm of the gradients; 0 for no clipping.
        gradients: Gradients by parameter name; a parameter without a gradient stays unchanged.
        momentum: Whether the step has the direction of a real step, to which earlier gradients contribute nine tenths;
            if not, it has the direction of these gradients, and each entry is still scaled by its second moment.

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
    double = torch.optim.AdamW(groups)
    if max_norm:
        nn.utils.clip_grad_norm_(copies.values(), max_norm)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            copy = copies[names[parameter]]
            moments = {key: value.clone() for key, value in optimizer.state.get(parameter, {}).items()}
            double.state[copy] = moments
            if moments and not momentum and copy.grad is not None:  # as if every earlier gradient were this gradient
                moments["exp_avg"].copy_(copy.grad * (1 - group["betas"][0] ** float(moments["step"])))
    double.step()
    return {name: copy.detach() for name, copy in copies.items()}
