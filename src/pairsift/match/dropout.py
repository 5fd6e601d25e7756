"""Dropout with masks that are independent of each other on a GPU too."""

import torch
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """A dropout that draws its mask in float32 on a GPU, whatever the precision of its input.

    In 16 bits, torch's kernel for CUDA draws eight random numbers a thread where its generator moves on by four (seen
    in 2.11), so that the dropout after it draws half of them again. The mask of a caption would be that of its image in
    part, and a network would tell pairs by their masks: its loss falls, and it learns less of what they show.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with entries dropped, in its own precision."""
        if input.device.type == "cuda" and input.dtype in (torch.bfloat16, torch.float16):
            return super().forward(input.float()).to(input.dtype)
        return super().forward(input)
