"""Frozen encoders and the feature cache: pixels and words to arrays."""

from pairsift.cache_folder import default_cache
from pairsift.encode.bytepairs import BytePairs
from pairsift.encode.cache import encode_captions, encode_pairs
from pairsift.encode.decode import BadImage, open_image
from pairsift.encode.encoder import ImageEncoder, TextEncoder
from pairsift.encode.features import Features, Items, Table
from pairsift.encode.languages import Finding, unknown_language
from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.numbering import GivenIds, IdsEncoder, Numbering, read_numbering
from pairsift.encode.registry import LEARNED, image_encoder, image_encoders, text_encoder, text_encoders, text_parts
from pairsift.encode.stacked import Stacked, open_stacked
from pairsift.encode.words import Vocabulary

__all__ = [
    "LEARNED",
    "BadImage",
    "BytePairs",
    "Features",
    "Finding",
    "GivenIds",
    "IdsEncoder",
    "ImageEncoder",
    "Items",
    "NgramEncoder",
    "Numbering",
    "Stacked",
    "Table",
    "TextEncoder",
    "Vocabulary",
    "default_cache",
    "encode_captions",
    "encode_pairs",
    "image_encoder",
    "image_encoders",
    "open_image",
    "open_stacked",
    "read_numbering",
    "text_encoder",
    "text_encoders",
    "text_parts",
    "unknown_language",
]
