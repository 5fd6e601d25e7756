"""SCAN against the loop over captions, and what must change nothing: order, padding, blocks."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from naive_loops_scan import scan_similarity
from torch import Tensor
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.base import Codes, unit
from pairsift.match.cross_attention import attention_weights, compare_all_by_products, compare_pairs_by_products
from pairsift.match.scan import Scan, ScanOptions

DOUBLE = torch.float64
Direction = Literal["t2i", "i2t", "both"]
Pooling = Literal["mean", "lse"]
directions = pytest.mark.parametrize("direction", ["t2i", "i2t", "both"])
poolings = pytest.mark.parametrize("pooling", ["mean", "lse"])


def make(direction: Direction = "t2i", pooling: Pooling = "mean", **options: Any) -> Scan:
    torch.manual_seed(2)
    chosen = ScanOptions(dim=5, word_dim=3, direction=direction, pooling=pooling, **options)
    return Scan(6, 20, chosen).double()


def codes(*counts: int, dim: int = 5, seed: int = 0) -> Codes:
    """Random unit tokens, so many for each item, and zeros behind them."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    tokens = unit(torch.randn(*mask.shape, dim, dtype=DOUBLE, generator=generator) + 0.3) * mask[..., None]
    return Codes(unit(tokens.sum(1)), tokens.requires_grad_(), mask)


def gradients(value: Tensor, *given: Codes) -> list[Tensor]:
    weights = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(9))
    return list(
        torch.autograd.grad((value * weights).sum(), [each.tokens for each in given if each.tokens is not None])
    )


@directions
@poolings
def test_values_and_gradients_match_the_loop_over_captions(direction: Direction, pooling: Pooling) -> None:
    matcher = make(direction, pooling)
    images, texts = codes(4, 2, 7, 4), codes(3, 1, 6, 3, 9, seed=1)
    got, expected = matcher.similarity(images, texts), scan_similarity(matcher, images, texts)
    assert got.shape == (4, 5)
    torch.testing.assert_close(got, expected)
    for mine, theirs in zip(gradients(got, images, texts), gradients(expected, images, texts), strict=True):
        torch.testing.assert_close(mine, theirs)


@directions
@poolings
def test_images_without_a_mask_match_the_loop(direction: Direction, pooling: Pooling) -> None:
    matcher, texts = make(direction, pooling, lambda_t2i=3.0, lambda_i2t=7.0, lse_i2t=20.0), codes(3, 2, seed=1)
    whole = codes(5, 5, 5)
    bare = Codes(whole.vectors, whole.tokens)
    torch.testing.assert_close(matcher.similarity(bare, texts), scan_similarity(matcher, bare, texts))


def test_one_pair_by_hand() -> None:
    """Two regions, one word: softmax of 9 * (sign of the affinity), as one word's row has length 1."""
    regions = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=DOUBLE)
    word = torch.tensor([[[0.6, -0.8]]], dtype=DOUBLE)
    images, texts = Codes(regions[:, 0], regions), Codes(word[:, 0], word)
    first = 1 / (1 + torch.tensor(-18.0, dtype=DOUBLE).exp())
    expected = (0.6 * first - 0.8 * (1 - first)) / (first**2 + (1 - first) ** 2).sqrt()
    torch.testing.assert_close(make().similarity(images, texts), expected.view(1, 1))


@directions
@poolings
def test_gradcheck(direction: Direction, pooling: Pooling) -> None:
    matcher, images, texts = make(direction, pooling), codes(3, 2), codes(2, 4, 2, seed=1)

    def run(regions: Tensor, words: Tensor) -> Tensor:
        return matcher.similarity(Codes(images.vectors, regions, images.mask), Codes(texts.vectors, words, texts.mask))

    assert torch.autograd.gradcheck(run, (images.tokens, texts.tokens), fast_mode=True)


@directions
def test_the_diagonal_is_the_similarity_of_pairs(direction: Direction) -> None:
    matcher, images, texts = make(direction, "lse"), codes(4, 2, 7, 4, 1), codes(3, 1, 6, 3, 9, seed=1)
    pairs = matcher.pair_similarity(images, texts)
    torch.testing.assert_close(pairs, matcher.similarity(images, texts).diagonal())
    alone = matcher.pair_similarity(images.rows(slice(1, 2)), texts.rows(slice(1, 2)))
    torch.testing.assert_close(alone, pairs[1:2])


@directions
@poolings
def test_the_size_of_blocks_changes_nothing(direction: Direction, pooling: Pooling) -> None:
    matcher, images, texts = make(direction, pooling), codes(4, 2, 7, 4, 1), codes(3, 1, 6, 3, 9, 3, seed=1)
    whole = matcher.similarity(images, texts)
    for cells in (1, 10, 100):
        part = compare_all_by_products(matcher._compare, images, texts, cells)
        torch.testing.assert_close(part, whole)
        pairs = compare_pairs_by_products(matcher._compare, images, texts.rows(slice(0, 5)), cells)
        torch.testing.assert_close(pairs, whole.diagonal())


@directions
def test_padding_changes_nothing(direction: Direction) -> None:
    matcher, images, texts = make(direction), codes(4, 2, 3), codes(3, 1, 6, seed=1)
    assert images.tokens is not None and texts.tokens is not None and images.mask is not None
    wide = [
        Codes(each.vectors, functional.pad(each.tokens, (0, 0, 0, 3), value=7.0), functional.pad(each.mask, (0, 3)))
        for each in (images, texts)
        if each.tokens is not None and each.mask is not None
    ]
    narrow, padded = matcher.similarity(images, texts), matcher.similarity(*wide)
    torch.testing.assert_close(padded, narrow)
    order = torch.tensor([6, 2, 0, 5, 1, 4, 3])
    assert wide[0].tokens is not None and wide[0].mask is not None
    moved = Codes(images.vectors, wide[0].tokens[:, order], wide[0].mask[:, order])
    torch.testing.assert_close(matcher.similarity(moved, texts), narrow)


@directions
@pytest.mark.parametrize("count", [1, 7, 49])
def test_captions_of_one_and_of_two_hundred_words_and_any_number_of_regions(direction: Direction, count: int) -> None:
    matcher, images, texts = make(direction), codes(count, count), codes(1, 200, 12, seed=1)
    together = matcher.similarity(images, texts)
    torch.testing.assert_close(together, scan_similarity(matcher, images, texts))
    for column in range(3):
        alone = matcher.similarity(images, texts.rows(slice(column, column + 1)))
        torch.testing.assert_close(alone, together[:, column : column + 1])


@directions
def test_items_of_one_kind_are_compared_as_images_with_texts(direction: Direction) -> None:
    matcher, images = make(direction), codes(4, 2, 7)
    intra = matcher.intra_similarity(images)
    torch.testing.assert_close(intra, scan_similarity(matcher, images, images))
    assert intra.shape == (3, 3)


@directions
@poolings
def test_zero_regions_and_zero_words_give_finite_gradients(direction: Direction, pooling: Pooling) -> None:
    matcher, images, texts = make(direction, pooling), codes(3, 3), codes(2, 4, 4, seed=1)
    assert images.tokens is not None and texts.tokens is not None
    with torch.no_grad():
        images.tokens[0, 1] = 0
        images.tokens[1] = 0
        texts.tokens[1, 2] = 0
        texts.tokens[2] = 0
    similarity = matcher.similarity(images, texts)
    assert bool(similarity.isfinite().all())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(similarity, images, texts))
    if pooling == "mean":
        assert similarity[1].tolist() == [0.0] * 3 and similarity[:, 2].tolist() == [0.0] * 2


@directions
@pytest.mark.parametrize("how", ["autocast", "codes"])
def test_half_precision_stays_close(direction: Direction, how: str) -> None:
    matcher, images, texts = make(direction), codes(36, 30, dim=256), codes(12, 5, 20, seed=1, dim=256)
    expected = matcher.similarity(images, texts)
    kind = torch.bfloat16 if how == "codes" else torch.float32
    given = [
        Codes(each.vectors.to(kind), each.tokens.to(kind), each.mask)
        for each in (images, texts)
        if each.tokens is not None
    ]
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        got = matcher.similarity(*given)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=5e-3)


def test_encoders_ignore_padding_and_give_empty_images_a_zero_token() -> None:
    matcher = make()
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    values = torch.randn(3, 3, 6, dtype=DOUBLE)
    garbage = values.masked_fill(~mask[..., None], torch.nan)
    images = matcher.encode_images(Items(garbage, mask))
    assert images.tokens is not None and images.mask is not None
    torch.testing.assert_close(images.tokens[2], unit(matcher.regions(values[2])))
    torch.testing.assert_close(images.vectors[0], unit(images.tokens[0, :2].mean(0)))
    assert not images.tokens[~mask].any() and images.mask.sum(1).tolist() == [2, 1, 3]
    texts = matcher.encode_texts(
        Items(torch.tensor([[3, 4, 99], [0, 0, 0]]), torch.tensor([[True, True, False], [False] * 3]))
    )
    similarity = matcher.similarity(images, texts)
    similarity.sum().backward()
    assert bool(similarity.isfinite().all()) and similarity[1].tolist() == [0.0, 0.0]
    assert all(bool(p.grad.isfinite().all()) for p in matcher.parameters() if p.grad is not None)


def test_focus_is_a_distribution_over_the_real_context() -> None:
    affinity, mask = torch.randn(2, 4, 3, 5), torch.tensor([[True] * 4, [True, False, True, False]])
    weights = attention_weights(affinity, 9.0, mask)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, 3, 5))
    assert not weights[1, 1].any() and not weights[1, 3].any() and bool((weights[0] > 0).all())


def test_size_and_options_with_the_flickr30k_vocabulary() -> None:
    with torch.device("meta"):
        matcher = Scan(2048, 8481)
    assert round(sum(parameter.numel() for parameter in matcher.parameters()) / 1e6, 1) == 12.8
    assert (matcher.dim, matcher.sharpness, matcher.lse) == (1024, {"t2i": 9.0, "i2t": 4.0}, {"t2i": 6.0, "i2t": 5.0})
    assert (Scan.factorises, Scan.has_tokens, Scan.preset) == (False, True, "paper")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "direction is 'up'"),
        ({"pooling": "max"}, "pooling is 'max'"),
        ({"pooling": "lse", "lse_t2i": 0.0}, r"lse_t2i is 0\.0; .*above 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScanOptions(**options)
