"""Frozen encoders and the feature cache: from pixels and words to arrays."""

from typing import TYPE_CHECKING

from pairsift.registry import exported

if TYPE_CHECKING:
    from pairsift.cache_folder import default_cache as default_cache
    from pairsift.encode.bytepairs import BytePairs as BytePairs
    from pairsift.encode.cache import encode_captions as encode_captions
    from pairsift.encode.cache import encode_images as encode_images
    from pairsift.encode.cache import encode_pairs as encode_pairs
    from pairsift.encode.decode import BadImage as BadImage
    from pairsift.encode.decode import open_image as open_image
    from pairsift.encode.encoder import ImageEncoder as ImageEncoder
    from pairsift.encode.encoder import TextEncoder as TextEncoder
    from pairsift.encode.features import Features as Features
    from pairsift.encode.features import Items as Items
    from pairsift.encode.features import Table as Table
    from pairsift.encode.languages import UnknownLanguages as UnknownLanguages
    from pairsift.encode.languages import unknown_language as unknown_language
    from pairsift.encode.ngrams import NgramEncoder as NgramEncoder
    from pairsift.encode.numbering import GivenIds as GivenIds
    from pairsift.encode.numbering import IdsEncoder as IdsEncoder
    from pairsift.encode.numbering import Numbering as Numbering
    from pairsift.encode.numbering import read_numbering as read_numbering
    from pairsift.encode.registry import LEARNED as LEARNED
    from pairsift.encode.registry import image_encoder as image_encoder
    from pairsift.encode.registry import text_encoder as text_encoder
    from pairsift.encode.registry import text_parts as text_parts
    from pairsift.encode.source_vectors import EMBEDDINGS as EMBEDDINGS
    from pairsift.encode.source_vectors import broken_vectors as broken_vectors
    from pairsift.encode.source_vectors import caption_vectors as caption_vectors
    from pairsift.encode.stacked import Stacked as Stacked
    from pairsift.encode.stacked import open_stacked as open_stacked
    from pairsift.encode.thumbnails import Thumbnails as Thumbnails
    from pairsift.encode.words import Vocabulary as Vocabulary

_MODULES = {
    "BadImage": "decode",
    "BytePairs": "bytepairs",
    "EMBEDDINGS": "source_vectors",
    "Features": "features",
    "UnknownLanguages": "languages",
    "GivenIds": "numbering",
    "IdsEncoder": "numbering",
    "ImageEncoder": "encoder",
    "Items": "features",
    "LEARNED": "registry",
    "NgramEncoder": "ngrams",
    "Numbering": "numbering",
    "Stacked": "stacked",
    "Table": "features",
    "TextEncoder": "encoder",
    "Thumbnails": "thumbnails",
    "Vocabulary": "words",
    "broken_vectors": "source_vectors",
    "caption_vectors": "source_vectors",
    "encode_captions": "cache",
    "encode_images": "cache",
    "encode_pairs": "cache",
    "image_encoder": "registry",
    "open_image": "decode",
    "open_stacked": "stacked",
    "read_numbering": "numbering",
    "text_encoder": "registry",
    "text_parts": "registry",
    "unknown_language": "languages",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)
