"""VSRN against loops over images, regions and words, in value and gradient, and its invariances."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.vsrn import Vsrn, VsrnOptions

DOUBLE = torch.float64
FLICKR30K = {"norm": "entry", "state_norm": True, "std": 0.3}
either_mode = pytest.mark.parametrize("training", [False, True])
published = pytest.mark.parametrize("options", [{}, {"norm": "entry"}, FLICKR30K], ids=["paper", "coco", "flickr30k"])


def make(training: bool = False, std: float = 0.6, **options: Any) -> Vsrn:
    """A small float64 matcher whose parameters and statistics are all random."""
    torch.manual_seed(6)
    matcher = Vsrn(6, 20, VsrnOptions(dim=5, word_dim=3, **{"graphs": 3, **options})).double()
    for parameter in matcher.parameters():
        nn.init.normal_(parameter, std=std)
    for name, buffer in matcher.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
        elif name.endswith("running_mean"):
            buffer.normal_()
    return matcher.train(training)


def ragged(*counts: int) -> Items:
    """Images with these numbers of regions."""
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    return Items(torch.randn(len(counts), max(counts), 6, dtype=DOUBLE) * mask[..., None], mask)


def captions(*lengths: int) -> Items:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Items(torch.randint(1, 20, mask.shape) * mask, mask)


def of_length_one(x: Tensor) -> Tensor:
    return x / sum(value * value for value in x).sqrt()


def last_state(rows: list[Tensor], gru: nn.GRU) -> Tensor:
    """A GRU's state behind these inputs, one after the other."""
    h = torch.zeros(gru.hidden_size, dtype=DOUBLE)
    for row in rows:
        r_in, z_in, n_in = (gru.weight_ih_l0 @ row + gru.bias_ih_l0).chunk(3)
        r_h, z_h, n_h = (gru.weight_hh_l0 @ h + gru.bias_hh_l0).chunk(3)
        z = torch.sigmoid(z_in + z_h)
        h = (1 - z) * torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h) + z * h
    return h


def normed_regions(matcher: Vsrn, image: list[Tensor]) -> list[Tensor]:
    """The regions of an image, each of unit length, or each entry over them."""
    if matcher.norm == "region":
        return [of_length_one(one) for one in image]
    lengths = [sum(one[c] ** 2 for one in image) ** 0.5 for c in range(5)]
    return [torch.stack([one[c] / lengths[c] for c in range(5)]) for one in image]


def image_vectors(matcher: Vsrn, images: list[Tensor]) -> list[Tensor]:
    """Images of regions (N, 6) each; only the batch norms see more than one of them at a time."""
    states = [[matcher.project(region) for region in image] for image in images]
    if matcher.state_norm is None:
        states = [normed_regions(matcher, image) for image in states]
    for graph in matcher.graphs:
        updates = []
        for image in states:
            for one in image:
                total = torch.zeros(5, dtype=DOUBLE)
                for other in image:
                    total = total + (graph.theta(one) @ graph.phi(other)) / len(image) * graph.value(other)
                updates.append(graph.out(total))
        if matcher.training:
            mean = sum(updates) / len(updates)
            variance = sum((update - mean) ** 2 for update in updates) / len(updates)
        else:
            mean, variance = graph.norm.running_mean.clone(), graph.norm.running_var.clone()
        normed = iter((u - mean) / (variance + 1e-5).sqrt() * graph.norm.weight + graph.norm.bias for u in updates)
        states = [[one + next(normed) for one in image] for image in states]
    last = [last_state(normed_regions(matcher, image), matcher.reader) for image in states]
    if matcher.state_norm is not None:
        norm, count = matcher.state_norm, len(last)
        mean = sum(last) / count if matcher.training else norm.running_mean.clone()
        variance = sum((s - mean) ** 2 for s in last) / count if matcher.training else norm.running_var.clone()
        last = [(s - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias for s in last]
    return [of_length_one(state) for state in last]


def text_vectors(matcher: Vsrn, items: Items) -> list[Tensor]:
    assert items.mask is not None
    words = matcher.words.vectors.weight
    return [
        of_length_one(last_state([words[i] for i in ids[mask]], matcher.words.gru))
        for ids, mask in zip(items.values, items.mask, strict=True)
    ]


@either_mode
@published
def test_values_and_gradients_are_those_of_the_loops(training: bool, options: dict[str, Any]) -> None:
    left, right = ragged(1, 4, 7), captions(3, 1, 6, 2)
    weights, found, expected = torch.randn(3, 4, dtype=DOUBLE), [], []
    for results, by_hand in ((found, False), (expected, True)):
        matcher = make(training, **options)
        if by_hand:
            images = [values[mask] for values, mask in zip(left.values, left.mask, strict=True)]
            rows, columns = image_vectors(matcher, images), text_vectors(matcher, right)
            scores = torch.stack([torch.stack([row @ column for column in columns]) for row in rows])
        else:
            scores = matcher.similarity(matcher.encode_images(left), matcher.encode_texts(right))
        results += [scores, *torch.autograd.grad((scores * weights).sum(), list(matcher.parameters()))]
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-8, rtol=1e-7)


@either_mode
@published
@pytest.mark.parametrize("garbage", [1e6, math.nan])
def test_padding_of_images_changes_neither_codes_nor_gradients(
    training: bool, garbage: float, options: dict[str, Any]
) -> None:
    items, weights = ragged(2, 5, 3), torch.randn(3, 5, dtype=DOUBLE)
    mask = functional.pad(items.mask, (0, 4))
    wide = Items(functional.pad(items.values, (0, 0, 0, 4)).masked_fill(~mask[..., None], garbage), mask)
    gap = torch.tensor([0, 7, 1, 2, 8, 3, 4, 5, 6])  # padding comes to stand between regions
    results = []
    for given in (items, wide, Items(wide.values[:, gap], mask[:, gap])):
        matcher = make(training, **options)
        vectors = matcher.encode_images(given).vectors
        (vectors * weights).sum().backward()
        grads = [parameter.grad for parameter in matcher.parameters() if parameter.grad is not None]
        results.append([vectors, *grads, *matcher.buffers()])
    for other in results[1:]:
        for narrow, padded in zip(results[0], other, strict=True):
            torch.testing.assert_close(narrow, padded)


@pytest.mark.parametrize("garbage", [7, -1])
def test_padding_of_texts_changes_nothing(garbage: int) -> None:
    matcher, items = make(), captions(2, 6, 1)
    mask = functional.pad(items.mask, (0, 9))
    wide = Items(functional.pad(items.values, (0, 9)).masked_fill(~mask, garbage), mask)
    torch.testing.assert_close(matcher.encode_texts(items).vectors, matcher.encode_texts(wide).vectors)


def test_the_order_of_regions_and_of_words_matters() -> None:
    matcher, items, right = make(), ragged(4, 4), Items(torch.tensor([[1, 2, 3]]))
    for encode, given in ((matcher.encode_images, items), (matcher.encode_texts, right)):
        turned = Items(given.values.flip(1))
        assert (encode(given).vectors - encode(turned).vectors).norm().item() > 1e-3


@pytest.mark.parametrize("count", [1, 36, 49])
def test_any_number_of_regions_with_or_without_a_mask(count: int) -> None:
    matcher, items = make(), ragged(count, 50)
    alone = matcher.encode_images(Items(items.values[:1, :count]))
    together = matcher.encode_images(items)
    torch.testing.assert_close(alone.vectors, together.vectors[:1])
    torch.testing.assert_close(alone.tokens[0], together.tokens[0, :count])
    assert not together.tokens[0, count:].any() and together.mask.sum(1).tolist() == [count, 50]


def test_captions_of_one_and_of_two_hundred_words() -> None:
    matcher, items = make(), captions(1, 200, 12)
    together = matcher.encode_texts(items).vectors
    for row, length in enumerate((1, 200, 12)):
        alone = matcher.encode_texts(Items(items.values[row : row + 1, :length])).vectors
        torch.testing.assert_close(together[row : row + 1], alone)
        assert alone.norm().item() == pytest.approx(1)


@either_mode
def test_images_without_regions_and_empty_captions_harm_nobody(training: bool) -> None:
    matcher, left, right = make(training), ragged(3, 2), captions(4, 2)
    left.mask[1], right.mask[1] = False, False
    images, texts = matcher.encode_images(left).vectors, matcher.encode_texts(right).vectors
    (images @ texts.T).sum().backward()
    assert images[1].tolist() == [0.0] * 5 and texts[1].norm().item() == pytest.approx(1)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in matcher.parameters())


def test_images_without_regions_do_not_count_in_the_norm_of_states() -> None:
    items = ragged(3, 2, 4)
    more = Items(torch.cat([items.values, items.values[:1]]), torch.cat([items.mask, items.mask[:1] & False]))
    few, many = (make(True, **FLICKR30K).encode_images(given).vectors for given in (items, more))
    torch.testing.assert_close(many[:3], few)
    assert many[3].tolist() == [0.0] * 5


def test_graphs_start_as_the_identity() -> None:
    torch.manual_seed(0)
    matcher, items = Vsrn(6, 20, VsrnOptions(dim=5)), Items(torch.randn(2, 3, 6))
    plain = functional.normalize(matcher.project(items.values), dim=-1)
    torch.testing.assert_close(matcher.encode_images(items).tokens, plain)


def test_half_precision_stays_close() -> None:
    torch.manual_seed(0)
    matcher = Vsrn(32, 50, VsrnOptions(dim=64)).eval()
    items, right = Items(torch.randn(8, 9, 32)), captions(5, 9, 1)
    exact = matcher.similarity(matcher.encode_images(items), matcher.encode_texts(right))
    with torch.autocast("cpu", torch.bfloat16):
        half = matcher.similarity(matcher.encode_images(items), matcher.encode_texts(right))
    assert (half.float() - exact).abs().max() < 2e-2


def test_size_with_the_flickr30k_vocabulary() -> None:
    with torch.device("meta"):
        matcher = Vsrn(2048, 8481)
    assert matcher.dim == 2048
    assert round(sum(parameter.numel() for parameter in matcher.parameters()) / 1e6, 1) == 113.5


def test_without_graphs_it_is_refused() -> None:
    with pytest.raises(InputError, match="graphs is 0"):
        VsrnOptions(graphs=0)
