"""Options of the frozen encoders. Nothing heavy is imported here, so that a wrong option is refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from pairsift.encode.hub_names import sides
from pairsift.errors import dashed
from pairsift.options import OptionError, Options

EMBEDDINGS = "embeddings"  # the text encoder for vectors that came with the source


class EncodeOptions(Options):
    """Which frozen encoders make the features."""

    encoders: str | None = Field(
        default=None,
        description="Model of the Hugging Face hub for images and captions, such as clip or siglip2, or one for each, "
        "such as dinov2+e5 (pairsift list encoders); it stands for --image-encoder and --text-encoder.",
    )
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

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        """Put the encoders' own names in the place of `encoders`."""
        if not isinstance(values, Mapping) or values.get("encoders") is None:
            return values
        name, others = str(values["encoders"]), {**values, "encoders": None}
        try:
            found = sides(name)
        except ValueError as error:
            raise OptionError(("encoders",), f"is {name!r}; {error}") from None
        if taken := [side for side in found if others.get(side) is not None]:
            raise OptionError(("encoders",), f"is {name!r}, which names an encoder too: leave {dashed(taken[0])} out")
        return {**others, **found}

    @property
    def shared_space(self) -> bool:
        """A bool: whether images and captions are encoded into one space."""
        image, text = self.image_encoder, self.text_encoder
        one_checkpoint = image is not None and image == text and image.startswith("hf:")
        return one_checkpoint if self.aligned is None else self.aligned
