"""Frozen encoders and the feature cache: pixels and words to arrays."""

from pairsift.encode.cache import default_cache, encode_captions, encode_pairs
from pairsift.encode.decode import BadImage, open_image
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.features import Features, Items, Table
from pairsift.encode.registry import image_encoder, image_encoders, text_encoder, text_encoders
from pairsift.encode.stacked import Stacked, open_stacked
from pairsift.encode.words import Vocabulary, WordsEncoder

__all__ = [
    "BadImage",
    "Features",
    "ImageEncoder",
    "Items",
    "Stacked",
    "Table",
    "TextEncoder",
    "Vocabulary",
    "WordsEncoder",
    "default_cache",
    "encode_captions",
    "encode_pairs",
    "image_encoder",
    "image_encoders",
    "open_image",
    "open_stacked",
    "text_encoder",
    "text_encoders",
]
