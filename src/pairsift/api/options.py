"""Options of what is read and encoded. Nothing heavy is imported here, so that a wrong option is told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataOptions:
    """What to read, and what noise to plant in it.

    Args:
        reader: Name of the reader; by default the path decides (`pairsift list readers`).
        image_column: Column of the image paths, where the reader cannot tell.
        caption_column: Column of the captions, where the reader cannot tell; for `now` its ids: jieba, bpe or bert.
        image_folder: Folder that relative image paths start from; by default the source's own, or where they are found.
        split_seed: Seed of the split by image, where the source has none.
        noise: Share of the training captions to re-point to other images, [0, 1]; 0 for data with noise of its own.
        noise_seed: Seed of that permutation.
        noise_granularity: `caption` re-points single captions, `image` all captions of an image together.
        noise_index: A .npy file of image indices to use instead (the layout of the published index files).
    """

    reader: str | None = None
    image_column: str | None = None
    caption_column: str | None = None
    image_folder: str | None = None
    split_seed: int = 0
    noise: float = 0.0
    noise_seed: int = 0
    noise_granularity: Literal["caption", "image"] = "caption"
    noise_index: str | None = None


@dataclass(frozen=True)
class EncodeOptions:
    """Which frozen encoders make the features.

    Args:
        image_encoder: Name of the image encoder (`pairsift list encoders`); by default `efficientnet-lite0`, and none
            where the source has features instead of images.
        text_encoder: Name of the text encoder, such as `ngrams` for captions of any language, or several joined by `+`,
            such as `wordllama+ngrams`; by default `wordllama`, or `words` for matchers that learn words, or `ids` where
            the captions are token ids.
        vocabulary: File that numbers the words: a JSON of the SCAN family (`word2idx`), or a run's vocabulary.json; by
            default the source's own, or else one is built from the captions of train and dev.
        min_count: Smallest count of a word that `words` knows; 4 unless given. With it a vocabulary is built always.
        splitter: How `words` cuts captions: plain, treebank (nltk's) or jieba (for Chinese); by default plain, or
            treebank for a vocabulary of the SCAN family.
        bpe_size: Number of ids that `bpe` learns at most.
        cache: Folder for features, and for images that lie within a source; by default in the user's cache folder.
    """

    image_encoder: str | None = None
    text_encoder: str | None = None
    vocabulary: str | None = None
    min_count: int | None = None
    splitter: Literal["plain", "treebank", "jieba"] | None = None
    bpe_size: int = 10_000
    cache: str | None = None
