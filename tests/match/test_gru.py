"""The GRU written by hand is torch's, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.match.gru import gru_states


def by_torch(unit: nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    found, _ = pad_packed_sequence(unit(packed)[0], batch_first=True, total_length=x.shape[1])
    if unit.bidirectional:
        forward, backward = found.chunk(2, -1)
        return (forward + backward) / 2
    return found


def both(lengths: list[int], both_ways: bool, dtype: torch.dtype = torch.float64) -> list[list[Tensor]]:
    """States and gradients of x and all weights, here and by torch."""
    torch.manual_seed(0)
    unit = nn.GRU(5, 7, batch_first=True, bidirectional=both_ways).to(dtype)
    size = torch.tensor(lengths)
    x = torch.randn(len(lengths), max(lengths) + 1, 5, dtype=dtype)  # one more place than the longest needs
    weight = torch.randn(len(lengths), max(lengths) + 1, 7, dtype=dtype)
    found = []
    for run in (gru_states, by_torch):
        leaf = x.clone().requires_grad_()
        states = run(unit, leaf, size)
        gradients = torch.autograd.grad(states, [leaf, *unit.parameters()], weight.to(states.dtype))
        found.append([states.detach(), *gradients])
    return found


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("lengths", [[3, 1, 6, 6, 2, 1], [1], [1, 1, 1], [4, 4], [2, 9]])
def test_states_and_all_gradients_are_those_of_torch(lengths, both_ways):
    here, torchs = both(lengths, both_ways)
    assert len(here) == 2 + 4 * (1 + both_ways)
    for one, other in zip(here, torchs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_single_precision_differs_by_rounding():
    for one, other in zip(*both([5, 3, 8, 1], True, torch.float32), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_half_precision_is_near_and_states_and_gradients_stay_full():
    exact = both([5, 3, 8, 1], True, torch.float32)[1]
    with torch.autocast("cpu", torch.bfloat16):
        here = both([5, 3, 8, 1], True, torch.float32)[0]
    assert {one.dtype for one in here} == {torch.float32}
    for one, other in zip(here, exact, strict=True):
        assert 0 < float((one - other).norm() / other.norm()) < 0.02


def test_padding_is_zero_and_does_not_matter():
    unit, x, lengths = nn.GRU(5, 7, batch_first=True, bidirectional=True), torch.randn(3, 6, 5), torch.tensor([2, 6, 4])
    padding = torch.arange(6) >= lengths[:, None]
    with torch.no_grad():
        states = gru_states(unit, x, lengths)
        assert states[padding].eq(0).all() and not states[~padding].eq(0).any()
        torch.testing.assert_close(gru_states(unit, x.masked_fill(padding[..., None], 9.0), lengths), states)


def test_a_caption_has_the_same_states_alone_and_in_a_batch():
    unit, x, lengths = nn.GRU(5, 7, batch_first=True, bidirectional=True), torch.randn(3, 6, 5), torch.tensor([2, 6, 4])
    with torch.no_grad():
        states = gru_states(unit, x, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone = gru_states(unit, x[row : row + 1, :length], lengths[row : row + 1])
            torch.testing.assert_close(alone[0], states[row, :length])
