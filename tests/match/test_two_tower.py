"""The two-tower head against plain loops, and its temperature."""

from __future__ import annotations

import math

import pytest
import torch

from pairsift.encode.features import Items
from pairsift.match.heads import normalised
from pairsift.match.two_tower import TwoTower, TwoTowerOptions

Vector = list[float]


def linear(x: Vector, layer: torch.nn.Module) -> Vector:
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def layer_norm(x: Vector, layer: torch.nn.Module) -> Vector:
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    parts = zip(x, layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [(v - mean) / deviation * w + b for v, w, b in parts]


def gelu(x: Vector) -> Vector:
    return [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]


def by_hand(x: Vector, head: torch.nn.Module) -> Vector:
    x = linear(layer_norm(x, head.project[0]), head.project[2])
    for block in head.blocks:
        added = linear(gelu(linear(layer_norm(x, block[0]), block[1])), block[4])
        x = [a + b for a, b in zip(x, added, strict=True)]
    length = math.sqrt(sum(v * v for v in x))
    return [v / length for v in x]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_heads_match_plain_loops(depth: int) -> None:
    torch.manual_seed(depth)
    matcher = TwoTower(5, 4, TwoTowerOptions(dim=3, hidden=6, depth=depth)).double().eval()
    for parameter in matcher.parameters():
        torch.nn.init.normal_(parameter)
    left, right = torch.randn(3, 5, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    images, texts = matcher.encode_images(Items(left)).vectors, matcher.encode_texts(Items(right)).vectors
    for got, values, head in ((images, left, matcher.image_head), (texts, right, matcher.text_head)):
        expected = torch.tensor([by_hand(x.tolist(), head) for x in values], dtype=torch.float64)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


def test_training_starts_from_the_linear_projection() -> None:
    matcher = TwoTower(5, 4, TwoTowerOptions(dim=3, hidden=6, depth=2)).eval()
    x = torch.randn(7, 5)
    plain = matcher.image_head.project(x)
    torch.testing.assert_close(matcher.image_head(x), plain)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    matcher, items = TwoTower(50, 40, TwoTowerOptions(dim=8, dropout=0.5)), Items(torch.randn(4, 50))
    assert not torch.equal(matcher.encode_images(items).vectors, matcher.encode_images(items).vectors)
    matcher.eval()
    assert torch.equal(matcher.encode_images(items).vectors, matcher.encode_images(items).vectors)


@pytest.mark.parametrize(("temperature", "scale"), [(0.07, 1 / 0.07), (1.0, 1.0), (0.01, 100.0), (0.001, 100.0)])
def test_scale_is_the_inverse_temperature_and_at_most_100(temperature: float, scale: float) -> None:
    matcher = TwoTower(2, 2, TwoTowerOptions(temperature=temperature))
    assert matcher.scale().item() == pytest.approx(scale, rel=1e-5)


@pytest.mark.parametrize("temperature", [0.07, 0.001])
def test_temperature_keeps_a_gradient_even_at_the_limit(temperature: float) -> None:
    matcher = TwoTower(2, 2, TwoTowerOptions(temperature=temperature))
    matcher.scale().backward()
    assert matcher.log_scale.grad is not None
    assert float(matcher.log_scale.grad) == pytest.approx(float(matcher.scale().detach()), rel=1e-5)


@pytest.mark.parametrize("directions", [2, 3, 6])
def test_a_head_starts_as_a_linear_map_of_normalised_vectors(directions: int) -> None:
    torch.manual_seed(1)
    head = TwoTower(5, 4, TwoTowerOptions(dim=3, hidden=6, depth=2)).eval().image_head
    mean, projection, x = torch.randn(5), torch.randn(5, directions), torch.randn(7, 5)
    head.start_linear(mean, projection)
    scaled = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(normalised(x), scaled)
    expected = torch.nn.functional.pad(((scaled - mean) @ projection)[:, :3], (0, max(0, 3 - directions)))
    torch.testing.assert_close(head(x), expected)
