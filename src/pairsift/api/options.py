"""Options of what is read and encoded. Nothing heavy is imported here, so that a wrong option is told at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pairsift.options import Options


class DataOptions(Options):
    """What to read, and what noise to plant in it."""

    reader: str | None = Field(
        default=None, description="Name of the reader; by default the path decides (pairsift list readers)."
    )
    image_column: str | None = Field(
        default=None, description="Column of the image paths, where the reader cannot tell."
    )
    caption_column: str | None = Field(
        default=None,
        description="Column of the captions, where the reader cannot tell; for now its ids: jieba, bpe or bert.",
    )
    image_folder: str | None = Field(
        default=None,
        description="Folder that relative image paths start from; by default the source's own, or where they are "
        "found.",
    )
    split_seed: int = Field(default=0, ge=0, description="Seed of the split by image, where the source has none.")
    noise: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the training captions to re-point to other images; 0 for data with noise of its own.",
    )
    noise_seed: int = Field(default=0, ge=0, description="Seed of that permutation.")
    noise_granularity: Literal["caption", "image"] = Field(
        default="caption", description="Whether single captions are re-pointed, or all captions of an image together."
    )
    noise_index: str | None = Field(
        default=None,
        description="A .npy file of image indices to use instead (the layout of the published index files).",
    )


class EncodeOptions(Options):
    """Which frozen encoders make the features."""

    image_encoder: str | None = Field(
        default=None,
        description="Name of the image encoder (pairsift list encoders); by default efficientnet-lite0, and none where "
        "the source has features instead of images.",
    )
    text_encoder: str | None = Field(
        default=None,
        description="Name of the text encoder, such as ngrams for captions of any language, or several joined by +, "
        "such as wordllama+ngrams; by default wordllama, or words for matchers that learn words, or ids where the "
        "captions are token ids.",
    )
    vocabulary: str | None = Field(
        default=None,
        description="File that numbers the words: a JSON of the SCAN family (word2idx), or a run's vocabulary.json; by "
        "default the source's own, or else one is built from the captions of train and dev.",
    )
    min_count: int | None = Field(
        default=None,
        ge=1,
        description="Smallest count of a word that words knows; 4 unless given. With it a vocabulary is built always.",
    )
    splitter: Literal["plain", "treebank", "jieba"] | None = Field(
        default=None,
        description="How words cuts captions: plain, treebank (nltk's) or jieba (for Chinese); by default plain, or "
        "treebank for a vocabulary of the SCAN family.",
    )
    bpe_size: int = Field(default=10_000, ge=1, description="Number of ids that bpe learns at most.")
    cache: str | None = Field(
        default=None,
        description="Folder for features, and for images that lie within a source; by default in the user's cache "
        "folder.",
    )
