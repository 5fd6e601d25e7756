"""The encoders by name."""

from __future__ import annotations

import re

from pairsift.encode.efficientnet import SIZES, EfficientNetLite
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.hub_images import HubImageEncoder
from pairsift.encode.hub_texts import MINILM, HubTextEncoder
from pairsift.encode.joined import JoinedEncoder
from pairsift.encode.names import IMAGE_ENCODERS, TEXT_ENCODERS
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.numbering import IdsEncoder, Numbering
from pairsift.encode.source_vectors import EMBEDDINGS
from pairsift.encode.wordvectors import WordLlamaEncoder
from pairsift.errors import InputError

LEARNED = ("words", "bpe", "ids")  # text encoders that number tokens; a matcher learns the vectors
_SEAM = re.compile(
    r"\+(?=(?:wordllama|ngrams|minilm|words|bpe|ids|embeddings)(?:$|[+:])|hf:)"
)  # skips a `+` in a folder's name


def image_encoder(spec: str = "efficientnet-lite0", regions: bool = False) -> ImageEncoder:
    """Load an image encoder by name.

    Args:
        spec: A name from `IMAGE_ENCODERS`, or `module:attribute` of a custom encoder.
        regions: Whether to keep one vector for each region of an image instead of one vector for the image.

    Raises:
        InputError: The name is unknown, or its package or weights are missing.
    """
    if spec in SIZES:
        return EfficientNetLite(spec, regions)
    if spec.startswith("hf:"):
        return HubImageEncoder(spec.removeprefix("hf:"), regions)
    return IMAGE_ENCODERS.find(spec)()


def check_names(image: str | None, text: str | None) -> None:
    """Check the names of encoders; None is a default. Weights are not loaded, folders not opened.

    Raises:
        InputError: There is no such encoder.
    """
    if image is not None and image not in IMAGE_ENCODERS and not image.startswith("hf:"):
        IMAGE_ENCODERS.find(image)
    for part in text_parts(text or "wordllama"):
        if part not in TEXT_ENCODERS and not part.startswith(("minilm:", "hf:")):
            TEXT_ENCODERS.find(part)


def text_parts(spec: str) -> list[str]:
    """Return the names of the text encoders that `+` joins in a name; a single name if nothing is joined."""
    return _SEAM.split(spec)


def text_encoder(
    spec: str = "wordllama",
    tokens: bool = False,
    vocabulary: Numbering | None = None,
    ngrams: NgramEncoder | None = None,
) -> TextEncoder:
    """Load a text encoder by name.

    Args:
        spec: A name from `TEXT_ENCODERS`, or `module:attribute` of a custom encoder.
        tokens: Whether to keep one vector for each token of a caption instead of one vector for the caption; `words`,
            `bpe` and `ids` always have one id per token.
        vocabulary: Numbering of the tokens of a caption, needed by `words`, `bpe` and `ids` and by no other encoder.
        ngrams: Encoder fitted to the captions, needed by `ngrams` and by no other encoder.

    Raises:
        InputError: The name is unknown, its package, weights, vocabulary or n-grams are missing, it has no vectors of
            tokens, or it joins an encoder that has no vectors.
    """
    parts = text_parts(spec)
    if tokens and (len(parts) > 1 or spec in ("ngrams", EMBEDDINGS)):
        raise InputError(
            f"the text encoder `{spec}` gives one vector for a caption and none for its tokens: give another"
        )
    if len(parts) > 1:
        if learned := [part for part in parts if part in LEARNED]:
            raise InputError(f"`{learned[0]}` in the text encoder `{spec}` numbers words and gives no vectors to join")
        if EMBEDDINGS in parts:
            raise InputError(f"the text encoder `{spec}` joins `{EMBEDDINGS}`, which encodes no text: give it alone")
        return JoinedEncoder([text_encoder(part, tokens, vocabulary, ngrams) for part in parts])
    if spec == "ngrams":
        if ngrams is None:
            raise InputError("the text encoder `ngrams` must be fitted to captions: make one with NgramEncoder.build")
        return ngrams
    if spec == "wordllama":
        return WordLlamaEncoder(tokens)
    if spec in LEARNED:
        return _numbered(spec, vocabulary)
    if spec == "minilm" or spec.startswith(("minilm:", "hf:")):
        kind, _, place = spec.partition(":")
        return HubTextEncoder(MINILM if spec == "minilm" else place, tokens, minilm=kind == "minilm")
    return TEXT_ENCODERS.find(spec)()


def _numbered(spec: str, vocabulary: Numbering | None) -> TextEncoder:
    """Return the encoder of captions to ids by a vocabulary.

    Raises:
        InputError: The vocabulary is missing, or is of another encoder.
    """
    if vocabulary is None or vocabulary.name != spec:
        actual = "" if vocabulary is None else f", not of {vocabulary.name}"
        raise InputError(
            f"the text encoder `{spec}` needs a vocabulary of {spec}{actual}: make one with "
            "Vocabulary.build, BytePairs.build or GivenIds.from_captions"
        )
    return IdsEncoder(vocabulary)
