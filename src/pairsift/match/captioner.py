"""A decoder that writes the caption of an image from its regions, and the likelihood that it gives to a caption."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.match.base import full
from pairsift.match.dropout import Dropout

HIDDEN = 512  # width of both GRUs
DROPOUT = 0.2  # of their inputs


class Captioner(nn.Module):
    """An encoder-decoder of captions with attention (Li et al., VSRN, ICCV 2019, Eq. 10).

        u_1, ..., u_R = GRU(W_v v_1, ..., W_v v_R),    h_0 = u_R
        e_tr = w . tanh(W_u u_r + W_h h_(t-1) + b),    c_t = sum_r softmax_r(e_t)_r u_r
        h_t = GRU([w_t; c_t], h_(t-1)),                p(w_(t+1) | w_1, ..., w_t, v) = softmax(W_o h_t + b_o)

    The words that it reads are those of the caption, not its own. It has a word table of its own.

    Args:
        dim: Length of a region's code.
        vocabulary_size: Number of token ids.
        word_dim: Length of a word vector.
        hidden: Width of both GRUs.
        dropout: Probability of dropping an entry of an input of a GRU, [0, 1).
    """

    def __init__(
        self, dim: int, vocabulary_size: int, word_dim: int, hidden: int = HIDDEN, dropout: float = DROPOUT
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(dim, hidden)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.vectors = nn.Embedding(vocabulary_size, word_dim)
        self.of_region, self.of_state = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary_size)
        self.dropout = Dropout(dropout)

    def forward(self, regions: Tensor, real: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the negative log-likelihood of each caption, the sum over its words from the second on, (n,), float32.

        Args:
            regions: Codes of the regions of n images; real ones come first, (n, R, dim).
            real: True at real regions, (n, R).
            ids: Token ids of the captions beside the images; real ones come first, (n, L).
            mask: True at real tokens, (n, L).
        """
        with torch.autocast(regions.device.type, enabled=False):
            return self._likelihood(full(regions), real, ids, mask)

    def _likelihood(self, regions: Tensor, real: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        read, state = self._read(regions, real)
        keys, words = self.of_region(read), self.vectors(ids.masked_fill(~mask, 0))
        padding = ~(real | (torch.arange(real.shape[1], device=real.device) == 0))  # the first one is read in any case
        states = []
        for step in range(ids.shape[1] - 1):
            energy = self.score((keys + self.of_state(state)[:, None]).tanh()).squeeze(-1)
            weights = energy.masked_fill(padding, -torch.inf).softmax(1)
            context = (weights[:, None] @ read).squeeze(1)
            state = self.writer(self.dropout(torch.cat([words[:, step], context], 1)), state)
            states.append(state)
        loss = regions.new_zeros(len(ids))
        follows = mask[:, 1:]
        if states and bool(follows.any()):
            logits = self.out(torch.stack(states, 1)[follows])
            each = functional.cross_entropy(logits, ids[:, 1:][follows], reduction="none")
            loss = loss.index_add(0, follows.nonzero()[:, 0], each)
        return loss

    def _read(self, regions: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states of the regions (n, R, hidden), 0 at padding, and the last state of each image."""
        entered = self.dropout(self.enter(regions))
        counts = real.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(entered, counts, batch_first=True, enforce_sorted=False)
        output, last = self.reader(packed)
        read, _ = pad_packed_sequence(output, batch_first=True, total_length=regions.shape[1])
        return read, last[0]
