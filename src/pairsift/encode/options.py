"""Options of the frozen encoders. Nothing heavy is imported here, so that a wrong option is refused at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pairsift.options import Options

EMBEDDINGS = "embeddings"  # the text encoder for vectors that came with the source


class EncodeOptions(Options):
    """Which frozen encoders make the features."""

    image_encoder: str | None = Field(
        default=None,
        description="Name of the image encoder (pairsift list encoders); by default efficientnet-lite0, and none where "
        "the source has features instead of images.",
    )
    text_encoder: str | None = Field(
        default=None,
        description="Name of the text encoder, such as muse for fifteen languages, ngrams for any, or several joined "
        "by +; by default muse, with ngrams where they separate held-out pairs better, or wordllama for matchers that "
        "read tokens, words for those that learn words, ids where the captions are token ids, and embeddings where the "
        "source has their vectors.",
    )
    aligned: bool | None = Field(
        default=None,
        description="Whether the vectors of images and of captions share a space, so that their cosine says how well "
        "they fit before any training; by default for matchers that can start from it (two_tower), where both encoders "
        "are the same hf: checkpoint.",
    )
    vocabulary: str | None = Field(
        default=None,
        description="File that numbers the words: a JSON or pickle of the SCAN family (word2idx), or a run's "
        "vocabulary.json; by default the source's own, or else one is built from the captions of train and dev.",
    )
    min_count: int | None = Field(
        default=None,
        ge=1,
        description="Smallest count of a word in the vocabulary of words; by default 4. If given, a vocabulary is "
        "always built.",
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

    @property
    def shared_space(self) -> bool:
        """A bool: whether images and captions are encoded into one space."""
        image, text = self.image_encoder, self.text_encoder
        one_checkpoint = image is not None and image == text and image.startswith("hf:")
        return one_checkpoint if self.aligned is None else self.aligned
