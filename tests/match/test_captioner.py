"""VSRN's caption loss against a loop over images and words, weighed by y, in training alone; and what it can learn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge
from pairsift.match.base import Codes
from pairsift.match.vsrn import Captioner, Vsrn, VsrnOptions
from pairsift.steps import Network, Pairing, Setting

DOUBLE, DIM, WORDS = torch.float64, 5, 11


def make() -> Captioner:
    torch.manual_seed(2)
    captioner = Captioner(DIM, WORDS, word_dim=3, hidden=4, dropout=0.0).double()
    for parameter in captioner.parameters():
        nn.init.normal_(parameter, std=0.7)
    return captioner


def step(x: Tensor, h: Tensor, w_in: Tensor, w_state: Tensor, b_in: Tensor, b_state: Tensor) -> Tensor:
    """One step of a GRU on one vector."""
    r_in, z_in, n_in = (w_in @ x + b_in).chunk(3)
    r_h, z_h, n_h = (w_state @ h + b_state).chunk(3)
    z = torch.sigmoid(z_in + z_h)
    return (1 - z) * torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h) + z * h


def by_hand(captioner: Captioner, regions: list[Tensor], caption: list[int]) -> Tensor:
    """Minus the log-likelihood of one caption by the regions of one image."""
    reader, writer = captioner.reader, captioner.writer
    state, read = torch.zeros(4, dtype=DOUBLE), []
    for region in regions:
        entered = captioner.enter.weight @ region + captioner.enter.bias
        state = step(entered, state, reader.weight_ih_l0, reader.weight_hh_l0, reader.bias_ih_l0, reader.bias_hh_l0)
        read.append(state)
    total = torch.zeros((), dtype=DOUBLE)
    for word, after in pairwise(caption):
        energies = [captioner.score(torch.tanh(captioner.of_region(u) + captioner.of_state(state)))[0] for u in read]
        powers = [energy.exp() for energy in energies]
        context = sum(power / sum(powers) * u for power, u in zip(powers, read, strict=True))
        x = torch.cat([captioner.vectors.weight[word], context])
        state = step(x, state, writer.weight_ih, writer.weight_hh, writer.bias_ih, writer.bias_hh)
        logits = captioner.out(state)
        total = total - (logits[after].exp() / logits.exp().sum()).log()
    return total


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    real = torch.arange(4) < torch.tensor([2, 4, 1])[:, None]
    mask = torch.arange(6) < torch.tensor([3, 6, 1])[:, None]
    regions = torch.randn(3, 4, DIM, dtype=DOUBLE) * real[..., None]
    return regions, real, torch.randint(1, WORDS, (3, 6)) * mask, mask


def test_values_and_gradients_are_those_of_the_loop() -> None:
    regions, real, ids, mask = batch()
    weights, results = torch.randn(3, dtype=DOUBLE), []
    for naive in (False, True):
        captioner = make()
        if naive:
            loss = torch.stack(
                [by_hand(captioner, list(regions[i][real[i]]), ids[i][mask[i]].tolist()) for i in range(3)]
            )
        else:
            loss = captioner(regions, real, ids, mask)
        results.append([loss, *torch.autograd.grad((loss * weights).sum(), list(captioner.parameters()))])
    assert results[0][0][2].item() == 0.0  # one word has none behind it
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-9, rtol=1e-7)


def test_padding_and_images_without_regions_change_nothing() -> None:
    regions, real, ids, mask = batch()
    expected = make()(regions, real, ids, mask)
    wide = nn.functional.pad(regions, (0, 0, 0, 3), value=7.0), nn.functional.pad(real, (0, 3))
    long = nn.functional.pad(ids, (0, 2), value=5), nn.functional.pad(mask, (0, 2))
    torch.testing.assert_close(make()(*wide, *long), expected)
    real[0] = False
    captioner = make()
    loss = captioner(regions, real, ids, mask)
    loss.sum().backward()
    torch.testing.assert_close(loss[1:], expected[1:])
    assert all(bool(p.grad.isfinite().all()) for p in captioner.parameters() if p.grad is not None)


def vsrn(**options: Any) -> Vsrn:
    torch.manual_seed(4)
    return Vsrn(6, WORDS, VsrnOptions(dim=DIM, word_dim=3, graphs=1, **options))


def coded(matcher: Vsrn) -> tuple[Codes, Codes]:
    torch.manual_seed(5)
    _, _, ids, mask = batch()
    return matcher.encode_images(Items(torch.randn(3, 4, 6))), matcher.encode_texts(Items(ids, mask))


@pytest.mark.parametrize("by_y", [True, False])
def test_the_penalty_is_weighed_by_y_unless_it_should_not_be(by_y: bool) -> None:
    matcher = vsrn(caption_weight=2.0, caption_by_y=by_y).train()
    assert matcher.captioner is not None
    matcher.captioner.dropout.p = 0.0
    images, texts = coded(matcher)
    y = torch.tensor([0.25, 1.0, 0.5])
    found = matcher.penalty(images, texts, torch.eye(3, dtype=torch.bool), y)
    loss = matcher.captioner(images.tokens, images.mask, *batch()[2:])
    assert found is not None
    torch.testing.assert_close(found, 2 / 128 * loss * (y if by_y else 1))


def test_it_stands_beside_the_ranking_loss_in_training() -> None:
    matcher = vsrn(caption_weight=1.0).train()
    images, texts = coded(matcher)
    none, y = torch.eye(3, dtype=torch.bool), torch.ones(3)
    setting = Setting(torch.arange(3).numpy(), torch.arange(3).numpy(), 3, None, Hinge(), 0)
    torch.manual_seed(9)
    term = setting.ranking_term("correspondence", Network(matcher, None), Pairing(images, texts, none), y)
    torch.manual_seed(9)
    penalty = matcher.penalty(images, texts, none, y)
    hinge = Hinge()(matcher.similarity(images, texts), matcher.scale(), y, none, False)
    torch.testing.assert_close(term.values, hinge + penalty)


def test_without_a_weight_there_is_no_decoder_and_evaluation_keeps_no_ids() -> None:
    plain, writing = vsrn(), vsrn(caption_weight=1.0)
    kept = {name: value for name, value in writing.state_dict().items() if not name.startswith("captioner.")}
    assert all(torch.equal(value, kept[name]) for name, value in plain.state_dict().items())
    assert plain.captioner is None and plain.train().encode_texts(Items(batch()[2], batch()[3])).extra == {}
    assert plain.penalty(*coded(plain), torch.eye(3, dtype=torch.bool), torch.ones(3)) is None
    assert writing.eval().encode_texts(Items(batch()[2], batch()[3])).extra == {}


def test_codes_of_batches_of_different_lengths_are_joined() -> None:
    matcher = vsrn(caption_weight=1.0).train()
    first = matcher.encode_texts(Items(torch.tensor([[1, 2, 3]])))
    joined = Codes.join([first, matcher.encode_texts(Items(torch.tensor([[4, 5], [6, 7]])))])
    assert joined.extra["ids"].tolist() == [[1, 2, 3], [4, 5, 0], [6, 7, 0]]
    assert joined.mask is not None and joined.mask.tolist()[1] == [True, True, False]


def test_a_caption_without_words_and_garbage_at_padding_harm_nobody() -> None:
    matcher = vsrn(caption_weight=1.0).train()
    texts = matcher.encode_texts(
        Items(torch.tensor([[-1, -1], [3, -1]]), torch.tensor([[False, False], [True, False]]))
    )
    images = matcher.encode_images(Items(torch.randn(2, 4, 6)))
    penalty = matcher.penalty(images, texts, torch.eye(2, dtype=torch.bool), torch.ones(2))
    assert penalty is not None and penalty.tolist() == [0.0, 0.0]


def test_it_learns_which_caption_belongs_to_which_image() -> None:
    matcher = vsrn(caption_weight=1.0).train()
    optimizer = torch.optim.Adam(matcher.parameters(), 1e-2)
    items, none = Items(torch.randn(3, 4, 6)), torch.eye(3, dtype=torch.bool)
    ids, mask = torch.tensor([[1, 3, 4, 2], [1, 5, 2, 0], [1, 6, 7, 2]]), torch.ones(3, 4, dtype=torch.bool)
    mask[1, 3] = False
    for _ in range(60):
        codes = matcher.encode_images(items), matcher.encode_texts(Items(ids, mask))
        penalty = matcher.penalty(*codes, none, torch.ones(3))
        assert penalty is not None
        optimizer.zero_grad()
        penalty.sum().backward()
        optimizer.step()
    images, captioner = matcher.eval().encode_images(items), matcher.captioner
    assert captioner is not None
    with torch.no_grad():
        own = captioner(images.tokens, images.mask, ids, mask)
        other = captioner(images.tokens, images.mask, ids.roll(1, 0), mask.roll(1, 0))
    assert own.max() < 0.5 and other.min() > 2


def test_half_precision_keeps_the_loss_exact() -> None:
    matcher = vsrn(caption_weight=1.0).train()
    with torch.autocast("cpu", torch.bfloat16):
        images, texts = coded(matcher)
        penalty = matcher.penalty(images, texts, torch.eye(3, dtype=torch.bool), torch.ones(3))
    assert penalty is not None and penalty.dtype == torch.float32 and bool(penalty.isfinite().all())


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(InputError, match="caption_weight is -1"):
        VsrnOptions(caption_weight=-1)
