"""Text encoders whose networks read the tokens of many captions one after the other, so that nothing is padded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairsift.arrays import Ints
from pairsift.encode.encoder import Array, without_surrogates

_BATCH = {"cpu": 4096, "cuda": 65536}  # tokens; on a CPU, more of them exceed its caches and are slower


# A network in evaluation mode: of the tokens of all captions, from the shortest to the longest, (total,), the number of
# tokens of each, (n,), and whether to pool them, it returns a vector for each caption, (n, dim), or each token.
FlatNetwork = Callable[[Tensor, Tensor, bool], Tensor]
# A tokenizer that several threads may use: the tokens of each caption, with those that mark its two ends.
Tokens = Callable[[list[str]], list[list[int]]]


class FlatEncoder:
    """A text encoder of one such network: one vector per caption, or one per token in its context.

    Each caption has a first and a last token that mark its ends, so that one without words has a vector too.

    Args:
        name: Name that selects the encoder.
        dim: Size of one vector.
        limit: The largest number of tokens that are read, at least 2; the last token of a longer caption is kept.
        tokens: Whether to keep one vector per token.
        device: The device of the network.
    """

    kind: Literal["vector", "tokens", "ids"]
    _network: FlatNetwork
    _tokens: Tokens

    def __init__(self, name: str, dim: int, limit: int, tokens: bool, device: torch.device) -> None:
        self.name, self.dim, self.limit = name, dim, limit
        self.kind = "tokens" if tokens else "vector"
        self._device = device

    def count_tokens(self, captions: list[str]) -> Ints:
        """Return the number of tokens of each caption before it is cut, (n,)."""
        return np.array([len(ids) for ids in self._tokens(without_surrogates(captions))], np.int64)

    @torch.inference_mode()
    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions, -> (n, dim) float32, or a list of n arrays (length, dim), length at least 2."""
        ids = [self._cut(tokens) for tokens in self._tokens(without_surrogates(captions))]
        vectors = np.zeros((len(ids), self.dim), np.float32)
        tokens: list[Array] = [vectors] * len(ids)
        for rows in self._batches(np.array([len(tokens) for tokens in ids], np.int64)):
            lengths = [len(ids[row]) for row in rows]
            flat = torch.tensor([token for row in rows for token in ids[row]], device=self._device)
            values = self._network(flat, torch.tensor(lengths, device=self._device), self.kind == "vector").cpu()
            if self.kind == "vector":
                vectors[rows] = values.numpy()
            else:
                for row, states in zip(rows, torch.split(values, lengths), strict=True):
                    tokens[row] = states.numpy()
        return vectors if self.kind == "vector" else tokens

    def _cut(self, ids: list[int]) -> list[int]:
        return ids if len(ids) <= self.limit else [*ids[: self.limit - 1], ids[-1]]

    def _batches(self, lengths: Ints) -> Iterator[Ints]:
        """Yield rows of captions, from the shortest to the longest."""
        order = np.argsort(lengths, kind="stable")
        batch = lengths[order].cumsum() // _BATCH[self._device.type]
        yield from np.split(order, np.flatnonzero(np.diff(batch)) + 1) if len(order) else []
