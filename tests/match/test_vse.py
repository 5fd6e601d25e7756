"""VSE++ and VSE-infinity against plain loops, and their indifference to padding."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pairsift.encode.features import Items
from pairsift.errors import InputError
from pairsift.match.vse import GeneralizedPool, Vse, VseOptions, kept_regions, positions, with_words_dropped

Pooling = Literal["mean", "gpo"]
DOUBLE = torch.float64
both = pytest.mark.parametrize("pooling", ["mean", "gpo"])
either_mode = pytest.mark.parametrize("training", [False, True])


def make(pooling: Pooling, training: bool = False, drop: float = 0.0) -> Vse:
    """A small float64 matcher whose parameters and statistics are all random."""
    torch.manual_seed(5)
    matcher = Vse(6, 20, VseOptions(dim=5, word_dim=3, pooling=pooling, drop=drop)).double()
    for parameter in matcher.parameters():
        nn.init.normal_(parameter, std=0.6)
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


def gru_by_hand(x: Tensor, gru: nn.GRU) -> Tensor:
    """Mean of the directions' states over one sequence (length, in) -> (length, out)."""
    runs = []
    for suffix in ("", "_reverse") if gru.bidirectional else ("",):
        w_in, w_state, b_in, b_state = (
            getattr(gru, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h, states = torch.zeros(w_state.shape[1], dtype=x.dtype), []
        for row in x.flip(0) if suffix else x:
            r_in, z_in, n_in = (w_in @ row + b_in).chunk(3)
            r_h, z_h, n_h = (w_state @ h + b_state).chunk(3)
            z = torch.sigmoid(z_in + z_h)
            h = (1 - z) * torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h) + z * h
            states.append(h)
        runs.append(torch.stack(states[::-1] if suffix else states))
    return sum(runs) / len(runs)


def theta_by_hand(length: int, pool: GeneralizedPool) -> list[float]:
    encoded = torch.tensor(
        [
            [(math.sin if c % 2 == 0 else math.cos)(p / 10000 ** (c // 2 * 2 / 32)) for c in range(32)]
            for p in range(length)
        ],
        dtype=DOUBLE,
    )
    scores = [(pool.score.weight[0] @ state).item() / 0.1 for state in gru_by_hand(encoded, pool.gru)]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def pool_by_hand(tokens: Tensor, pool: nn.Module) -> list[float]:
    """One item's tokens (length, d) to a unit vector."""
    n, d = tokens.shape
    theta = theta_by_hand(n, pool) if isinstance(pool, GeneralizedPool) else [1 / n] * n
    ranked = [sorted(tokens[:, c].tolist(), reverse=True) for c in range(d)]
    pooled = [sum(weight * value for weight, value in zip(theta, column, strict=True)) for column in ranked]
    length = math.sqrt(sum(value * value for value in pooled))
    return [value / length for value in pooled]


def region_by_hand(matcher: Vse, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    own = matcher.regions
    out = own.project.weight @ x + own.project.bias
    if own.residual is None:
        return out
    first, norm, _, last = own.residual
    hidden = (first.weight @ x + first.bias - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    return out + last.weight @ hidden.clamp(min=0) + last.bias


@both
@either_mode
def test_images_match_plain_loops(pooling: Pooling, training: bool) -> None:
    matcher, items = make(pooling, training), ragged(1, 4, 7)
    real = [image[:count] for image, count in zip(items.values, (1, 4, 7), strict=True)]
    mean = variance = torch.zeros(1, dtype=DOUBLE)
    if matcher.regions.residual is not None:
        first, norm = matcher.regions.residual[0], matcher.regions.residual[1]
        mean, variance = norm.running_mean.clone(), norm.running_var.clone()
        if training:
            hidden = torch.stack([first.weight @ x + first.bias for image in real for x in image])
            mean, variance = hidden.mean(0), ((hidden - hidden.mean(0)) ** 2).sum(0) / 12
    got = matcher.encode_images(items)
    assert got.tokens is not None and got.mask is not None
    for vector, codes, image in zip(got.vectors, got.tokens, real, strict=True):
        tokens = torch.stack([region_by_hand(matcher, x, mean, variance) for x in image])
        for code, token in zip(codes, tokens, strict=False):
            assert code.tolist() == pytest.approx((token / token.norm()).tolist(), abs=1e-9)
        assert not codes[len(image) :].any()
        assert vector.tolist() == pytest.approx(pool_by_hand(tokens, matcher.image_pool), abs=1e-9)


@both
def test_texts_match_plain_loops(pooling: Pooling) -> None:
    matcher, items = make(pooling), captions(3, 1, 6)
    got = matcher.encode_texts(items).vectors
    for vector, ids, length in zip(got, items.values, (3, 1, 6), strict=True):
        words = torch.stack([matcher.words.vectors.weight[i] for i in ids[:length]])
        tokens = gru_by_hand(words, matcher.words.gru)
        if pooling == "mean":
            tokens = tokens[-1:]
        assert vector.tolist() == pytest.approx(pool_by_hand(tokens, matcher.text_pool), abs=1e-9)


@both
@either_mode
@pytest.mark.parametrize("garbage", [1e6, math.nan, -math.inf])
def test_padding_of_images_changes_neither_codes_nor_gradients(
    pooling: Pooling, training: bool, garbage: float
) -> None:
    items, weights = ragged(2, 5, 3), torch.randn(3, 5, dtype=DOUBLE)
    assert items.mask is not None
    mask = functional.pad(items.mask, (0, 4))
    wide = Items(functional.pad(items.values, (0, 0, 0, 4)).masked_fill(~mask[..., None], garbage), mask)
    results = []
    for given in (items, wide):
        matcher = make(pooling, training)
        vectors = matcher.encode_images(given).vectors
        (vectors * weights).sum().backward()
        grads = [parameter.grad for parameter in matcher.parameters() if parameter.grad is not None]
        results.append([vectors, *grads, *matcher.buffers()])
    assert len(results[0]) == len(results[1]) > 2
    for narrow, padded in zip(*results, strict=True):
        torch.testing.assert_close(narrow, padded)


@both
@pytest.mark.parametrize("garbage", [7, -1, 10**9])
def test_padding_of_texts_changes_neither_codes_nor_gradients(pooling: Pooling, garbage: int) -> None:
    items, weights = captions(2, 6, 1), torch.randn(3, 5, dtype=DOUBLE)
    assert items.mask is not None
    mask = functional.pad(items.mask, (0, 9))
    wide = Items(functional.pad(items.values, (0, 9)).masked_fill(~mask, garbage), mask)
    results = []
    for given in (items, wide):
        matcher = make(pooling)
        vectors = matcher.encode_texts(given).vectors
        (vectors * weights).sum().backward()
        results.append([vectors, *(p.grad for p in matcher.parameters() if p.grad is not None)])
    for narrow, padded in zip(*results, strict=True):
        torch.testing.assert_close(narrow, padded)


@both
@either_mode
def test_the_order_of_regions_does_not_matter(pooling: Pooling, training: bool) -> None:
    items = ragged(7, 3)
    assert items.mask is not None
    order = torch.randperm(7)  # padding comes to stand between regions
    moved = Items(items.values[:, order], items.mask[:, order])
    first, second = (make(pooling, training).encode_images(given).vectors for given in (items, moved))
    torch.testing.assert_close(first, second)


@both
def test_the_order_of_words_matters(pooling: Pooling) -> None:
    matcher, items = make(pooling), Items(torch.tensor([[1, 2, 3]]))
    turned = Items(items.values.flip(1))
    assert (matcher.encode_texts(items).vectors - matcher.encode_texts(turned).vectors).norm().item() > 1e-3


@both
@pytest.mark.parametrize("count", [1, 7, 36, 49])
def test_any_number_of_regions_with_or_without_a_mask(pooling: Pooling, count: int) -> None:
    matcher, items = make(pooling), ragged(count, 50)
    alone = matcher.encode_images(Items(items.values[:1, :count])).vectors
    torch.testing.assert_close(alone, matcher.encode_images(items).vectors[:1])
    assert alone.norm().item() == pytest.approx(1)


@both
def test_captions_of_one_and_of_two_hundred_words(pooling: Pooling) -> None:
    matcher, items = make(pooling), captions(1, 200, 12)
    together = matcher.encode_texts(items).vectors
    for row, length in enumerate((1, 200, 12)):
        alone = matcher.encode_texts(Items(items.values[row : row + 1, :length])).vectors
        torch.testing.assert_close(together[row : row + 1], alone)
        assert alone.norm().item() == pytest.approx(1)


@both
@either_mode
def test_images_without_regions_and_empty_captions_harm_nobody(pooling: Pooling, training: bool) -> None:
    matcher, left, right = make(pooling, training), ragged(3, 2), captions(4, 2)
    assert left.mask is not None and right.mask is not None
    left.mask[1], right.mask[1] = False, False
    images, texts = matcher.encode_images(left).vectors, matcher.encode_texts(right).vectors
    (images @ texts.T).sum().backward()
    assert images[1].tolist() == [0.0] * 5 and texts[1].norm().item() == pytest.approx(1)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in matcher.parameters())
    single = matcher.encode_texts(Items(torch.tensor([[0]]))).vectors
    torch.testing.assert_close(texts[1:], single)


@both
def test_a_batch_of_one_region_trains(pooling: Pooling) -> None:
    matcher = make(pooling, training=True)
    trained = matcher.encode_images(ragged(1)).vectors
    trained.sum().backward()
    assert bool(trained.isfinite().all())


def test_training_updates_the_statistics_by_the_real_regions() -> None:
    matcher, items = make("gpo", training=True), ragged(5, 2)
    assert matcher.regions.residual is not None
    first, norm = matcher.regions.residual[0], matcher.regions.residual[1]
    before = norm.running_mean.clone()
    hidden = torch.cat([items.values[0], items.values[1, :2]]) @ first.weight.T + first.bias
    matcher.encode_images(items)
    torch.testing.assert_close(norm.running_mean, 0.9 * before + 0.1 * hidden.mean(0))


def test_gpo_weights_depend_on_the_length_alone_and_are_a_distribution() -> None:
    pool = make("gpo").image_pool
    assert isinstance(pool, GeneralizedPool)
    theta = pool.weights(torch.tensor([4, 1, 9]), 12)
    torch.testing.assert_close(theta.sum(1), torch.ones(3, dtype=DOUBLE))
    for row, length in zip(theta, (4, 1, 9), strict=True):
        assert row[length:].tolist() == [0.0] * (12 - length)
        assert row[:length].tolist() == pytest.approx(theta_by_hand(length, pool), abs=1e-9)


@both
def test_gpo_with_equal_scores_is_the_mean(pooling: Pooling) -> None:
    pool = make(pooling).image_pool
    if isinstance(pool, GeneralizedPool):
        nn.init.zeros_(pool.score.weight)
    items = ragged(3, 8, 1)
    assert items.mask is not None
    expected = torch.stack([image[mask].mean(0) for image, mask in zip(items.values, items.mask, strict=True)])
    torch.testing.assert_close(pool(items.values, items.mask), expected)


def test_gpo_sorts_each_channel_by_itself() -> None:
    """Shuffling one channel over the tokens changes nothing."""
    pool, tokens, mask = make("gpo").image_pool, torch.randn(2, 6, 3, dtype=DOUBLE), torch.ones(2, 6, dtype=torch.bool)
    shuffled = tokens.clone()
    shuffled[..., 1] = tokens[:, torch.randperm(6), 1]
    torch.testing.assert_close(pool(tokens, mask), pool(shuffled, mask))


def test_position_encodings() -> None:
    encoded = positions(3)
    assert encoded.shape == (3, 32)
    assert encoded[0].tolist() == [0.0, 1.0] * 16
    assert float(encoded[2, 0]) == pytest.approx(math.sin(2)) and float(encoded[2, 1]) == pytest.approx(math.cos(2))
    assert float(encoded[2, 31]) == pytest.approx(math.cos(2 / 10000 ** (30 / 32)), abs=1e-15)


@pytest.mark.parametrize(("pooling", "millions"), [("mean", 8.7), ("gpo", 14.4)])
def test_size_with_the_flickr30k_vocabulary(pooling: Pooling, millions: float) -> None:
    with torch.device("meta"):
        matcher = Vse(2048, 8481, VseOptions(pooling=pooling))
    assert round(sum(parameter.numel() for parameter in matcher.parameters()) / 1e6, 1) == millions
    assert matcher.dim == 1024


def test_initial_values() -> None:
    torch.manual_seed(0)
    matcher = Vse(30, 100, VseOptions(dim=10, word_dim=8))
    words, project = matcher.words.vectors.weight, matcher.regions.project
    assert 0.09 < float(words.detach().abs().max()) <= 0.1
    bound = math.sqrt(6 / 40)
    assert 0.9 * bound < float(project.weight.detach().abs().max()) <= bound
    assert not project.bias.any()


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(InputError, match="pooling is 'max'"):
        VseOptions(pooling="max")  # type: ignore[arg-type]


def test_both_directions_have_no_last_state() -> None:
    with pytest.raises(InputError, match="set gru_directions to forward"):
        Vse(6, 20, VseOptions(pooling="mean", gru_directions="both"))


def test_a_fifth_of_the_regions_is_dropped_and_no_image_loses_all() -> None:
    torch.manual_seed(0)
    mask = torch.ones(4000, 36, dtype=torch.bool)
    mask[:2000, 20:] = False
    kept = kept_regions(mask, 0.2)
    assert not (kept & ~mask).any()
    assert kept[:2000, :20].float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert kept[2000:].float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert kept_regions(torch.ones(500, 1, dtype=torch.bool), 0.9).all()
    assert not kept_regions(torch.zeros(2, 3, dtype=torch.bool), 0.2).any()


def test_words_are_masked_replaced_and_left_out_but_for_start_and_end() -> None:
    torch.manual_seed(0)
    mask_id, n, lengths = 20, 3000, torch.tensor([12, 7, 2, 1, 0]).repeat(600)
    mask = torch.arange(12) < lengths[:, None]
    ids = torch.where(mask, torch.full((n, 12), 5), torch.full((n, 12), 777))
    ids[:, 0] = 1
    ids[torch.arange(n), (lengths - 1).clamp(min=0)] = 2
    dropped = with_words_dropped(Items(ids, mask), 0.2, mask_id)
    assert dropped.mask is not None
    masked = replaced = left = 0
    for row, real, given, length in zip(dropped.values, dropped.mask, ids, lengths.tolist(), strict=True):
        words = row[real].tolist()
        assert real.tolist() == sorted(real.tolist(), reverse=True)  # the real ones come first
        assert words[:1] == given[: min(1, length)].tolist() and words[-1:] == given[length - 1 : length].tolist()
        if length < 3:
            assert words == given[:length].tolist()
            continue
        inner = words[1:-1]
        assert all(0 <= word <= mask_id for word in inner)
        left += length - len(words)
        masked += inner.count(mask_id)
        replaced += sum(word not in (5, mask_id) for word in inner)
    total = 600 * (10 + 5)
    assert left / total == pytest.approx(0.08, abs=0.01)
    assert masked / total == pytest.approx(0.10 + 0.02 / 21, abs=0.01)
    assert replaced / total == pytest.approx(0.02 * 19 / 21, abs=0.005)


def test_nothing_is_dropped_in_evaluation_and_in_vse_plus_plus() -> None:
    items, words = ragged(30, 30), captions(30, 30)
    for pooling, training, changes in (("gpo", True, True), ("gpo", False, False), ("mean", True, False)):
        matcher = make(pooling, training, drop=0.5)
        for encode, given in ((matcher.encode_images, items), (matcher.encode_texts, words)):
            assert torch.equal(encode(given).vectors, encode(given).vectors) is not changes
    assert make("gpo", drop=0.2).words.vectors.num_embeddings == 21  # `<mask>` is the last
    assert make("mean", drop=0.2).words.vectors.num_embeddings == make("gpo").words.vectors.num_embeddings == 20
