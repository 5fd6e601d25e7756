"""Text encoders from transformers: language models, and the text side of models like CLIP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from pairsift.arrays import Ints
from pairsift.encode.encoder import MAX_TOKENS, Array, default_device, readable
from pairsift.encode.hub import load, pooled

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_TOKENS = 256  # the length that this model was made for
_TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 65536}


class HubTextEncoder:
    """A language model of transformers, or the text side of a model like CLIP.

    The vector of a caption is the projected vector of a CLIP-like model, else the average of the last layer over the
    caption's tokens. Tokens are the rows of the last layer. Captions are cut at the limit of the model, at most 512
    tokens.

    Args:
        source: Folder or hub id.
        tokens: Whether to keep one vector per token.
        minilm: Whether to use the source as sentence-transformers uses MiniLM: captions are cut at 256 tokens, vectors
            have length 1.

    Raises:
        InputError: The model cannot be loaded.
    """

    kind: Literal["vector", "tokens", "ids"]

    def __init__(self, source: str, tokens: bool = False, minilm: bool = False) -> None:
        self.name = "minilm" if minilm else f"hf:{source}"
        self.kind = "tokens" if tokens else "vector"
        self._device = default_device()
        self._loaded = load(self.name if source == MINILM else f"{self.name} ({source})", source, "tokenizer")
        self._model, self._tokenizer = self._loaded.model.to(self._device), self._loaded.front
        self._tower = getattr(self._model, "text_model", self._model)
        config = getattr(self._model.config, "text_config", None) or self._model.config
        limits = (getattr(config, "max_position_embeddings", None), self._tokenizer.model_max_length)
        self._limit = min(limit for limit in (*limits, _MINILM_TOKENS if minilm else MAX_TOKENS) if limit)
        self._pad = int(self._tokenizer.pad_token_id or 0)
        self._pads_fully = str(self._model.config.model_type).startswith("siglip")  # as in its training
        self._normalised = minilm
        self._tokenizing = threading.Lock()  # a call changes the state of a tokenizer
        self._key: str | None = None
        self.dim = int(self._run([self._ids(["a"])[0]])[1].shape[-1])

    def key(self) -> str:
        """Return a hexadecimal digest over weights and tokenizer."""
        if self._key is None:
            words = sorted(self._tokenizer.get_vocab().items())
            sample = self._ids(["A Dog's naïve, ROUGH-haired friend: 12.5 % of them!\tÉtude 狗"])
            description = f"{type(self._tokenizer).__name__} {words} {sample}"
            self._key = self._loaded.key("hub text", self.kind, str(self._limit), str(self._normalised), description)
        return self._key

    @torch.inference_mode()
    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions, -> (n, dim) float32, or a list of n arrays (length, dim), length at least 1."""
        ids = self._ids(readable(captions))
        vectors = np.zeros((len(ids), self.dim), np.float32)
        tokens: list[Array] = [np.zeros((1, self.dim), np.float32)] * len(ids)
        for rows in self._batches(ids):
            mask, values = self._run([ids[row] for row in rows])
            if self.kind == "vector":
                vectors[rows] = values.numpy()
            else:
                for row, states, real in zip(rows, values, mask, strict=True):
                    tokens[row] = states[real].numpy()
        return vectors if self.kind == "vector" else tokens

    def _ids(self, captions: list[str]) -> list[list[int]]:
        if not captions:
            return []
        with self._tokenizing:
            ids: list[list[int]] = self._tokenizer(captions, truncation=True, max_length=self._limit)["input_ids"]
        return ids

    def _batches(self, ids: list[list[int]]) -> Iterator[Ints]:
        """Yield rows of captions of similar length, which need little padding.

        Captions without any token are left out.
        """
        lengths = np.array([len(caption_ids) for caption_ids in ids], np.int64)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        while len(order):
            count = max(1, _TOKENS_PER_BATCH[self._device.type] // int(lengths[order[-1]]))
            yield order[-count:]
            order = order[:-count]

    def _run(self, ids: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Encode one batch, -> mask of real tokens (n, length), (n, dim) vectors or (n, length, dim) tokens, on CPU."""
        length = self._limit if self._pads_fully else max(map(len, ids))
        padded = np.full((len(ids), length), self._pad, np.int64)
        mask: NDArray[np.bool_] = np.arange(length) < np.array([len(caption_ids) for caption_ids in ids])[:, None]
        padded[mask] = np.concatenate([np.asarray(caption_ids, np.int64) for caption_ids in ids])
        real = torch.from_numpy(mask)
        inputs: dict[str, Any] = {"input_ids": torch.from_numpy(padded).to(self._device)}
        if not self._pads_fully:
            inputs["attention_mask"] = real.to(self._device, torch.int64)
        with torch.inference_mode():
            if self.kind == "vector" and self._loaded.two_sided:
                return real, pooled(self._model.get_text_features(**inputs))
            hidden: Tensor = self._tower(**inputs).last_hidden_state.float().cpu()
        if self.kind == "tokens":
            return real, hidden
        weights = real[:, :, None].to(hidden.dtype)
        vectors = (hidden * weights).sum(1) / weights.sum(1)
        return real, normalize(vectors, dim=-1) if self._normalised else vectors
