"""Static word vectors of the package wordllama, whose weights are part of its wheel."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import torch

from pairsift.encode.encoder import MAX_TOKENS, Array, digest, without_surrogates
from pairsift.errors import InputError


class WordLlamaEncoder:
    """An encoder with WordLlama's 256-d vectors, averaged over the tokens of a caption or kept one per token.

    A caption without any token becomes a vector of zeros (one such token if tokens are kept). If tokens are kept, a
    caption is cut after 512 tokens.

    Args:
        tokens: Whether to keep one vector per token.

    Raises:
        InputError: The package is missing or broken.
    """

    name = "wordllama"
    kind: Literal["vector", "tokens", "ids"]

    def __init__(self, tokens: bool = False) -> None:
        self.kind = "tokens" if tokens else "vector"
        package = _import_quietly()
        try:
            folder = Path(str(package.__file__)).parent
            model = package.WordLlama.load(cache_dir=folder, disable_download=True)
        except Exception as error:
            raise InputError(f"wordllama cannot be loaded ({error}); reinstall it: pip install wordllama") from error
        self._tokenizer = model.tokenizer
        self._tokenizer.no_padding()
        self._vectors = np.asarray(model.embedding, np.float32)
        self.dim = int(self._vectors.shape[1])
        steps = f"wordllama {self.kind} {MAX_TOKENS if tokens else ''}"
        self._key = digest([steps, self._tokenizer.to_str()], {"embedding": torch.from_numpy(self._vectors)})

    def key(self) -> str:
        """Return a hexadecimal digest over vectors and tokenizer."""
        return self._key

    def encode(self, captions: list[str]) -> Array | list[Array]:
        """Encode captions, -> (n, 256) float32, or a list of n arrays (length, 256), length at least 1."""
        encodings = self._tokenizer.encode_batch(without_surrogates(captions), add_special_tokens=False)
        ids = [np.minimum(np.asarray(tokens.ids, np.int64), len(self._vectors) - 1) for tokens in encodings]
        if self.kind == "tokens":
            return [self._vectors[tokens[:MAX_TOKENS]] if len(tokens) else self._zeros(1) for tokens in ids]
        pooled = self._zeros(len(captions))
        for row, tokens in enumerate(ids):
            if len(tokens):
                pooled[row] = self._vectors[tokens].mean(0)
        return pooled

    def pieces(self, words: list[str]) -> list[int]:
        """Return the number of tokens that the tokenizer cuts each word into."""
        return [
            len(encoding.ids)
            for encoding in self._tokenizer.encode_batch(without_surrogates(words), add_special_tokens=False)
        ]

    def _zeros(self, rows: int) -> Array:
        return np.zeros((rows, self.dim), np.float32)


def _import_quietly() -> ModuleType:
    """Import wordllama, and undo the setup of the program's logging that the import makes."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        return importlib.import_module("wordllama")
    except ImportError as error:
        raise InputError("wordllama is missing: run `pip install wordllama`") from error
    finally:
        root.setLevel(level)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)
            handler.close()
