"""Options of what is read. Nothing heavy is imported here, so that a wrong option is refused at once."""

from __future__ import annotations

from typing import Any, Literal

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
        description="Column of the captions, where the reader cannot tell, or field of the JSON of shards; "
        "with the reader now, the kind of token ids: jieba, bpe or bert.",
    )
    split_column: str | None = Field(
        default=None,
        description="Column of the splits; none to draw splits whatever the source has. By default a column split, "
        "subset or partition that mostly holds train, dev, val and test.",
    )
    lists: Literal["split", "keep"] | None = Field(
        default=None,
        description="Whether a cell of text that lists several captions or images is several (split) or one (keep); by "
        "default what all cells show.",
    )
    image_folder: str | None = Field(
        default=None,
        description="Folder that relative image paths start from; by default the folder of the source, or a folder "
        "where the images are found.",
    )
    text_file: Literal["lines", "whole"] | None = Field(
        default=None,
        description="Whether each line of a text file beside an image is a caption (lines), or the file as a whole; by "
        "default the files decide, and the console says how.",
    )
    quotes: Literal["csv", "backslash", "none"] | None = Field(
        default=None,
        description="How quotes are marked in a CSV or TSV file: doubled (csv), by a backslash, or not at all, as "
        "plain characters (none); by default, all rows together show it.",
    )
    id_column: str | None = Field(
        default=None,
        description="Column with a unique value for each row. It identifies a pair after its image was renamed or "
        "several of its captions were edited; by default, image name and caption identify a pair.",
    )
    keep_empty: bool = Field(
        default=False,
        description="Use captions too that say nothing about a picture (nan, a file name, an address, a number, "
        "untitled), and pictures of one colour. By default such pairs are skipped, counted and listed.",
    )
    verified: str | None = Field(
        default=None,
        description="A text file with the ids of pairs that are known to match, one a line; ids are positions in the "
        "source, from 0. Methods that learn from such pairs (mscn) take the ones in train.",
    )
    verified_column: str | None = Field(
        default=None, description="Column that marks the pairs that are known to match, by 1, true or yes."
    )
    split_seed: int = Field(default=0, ge=0, description="Seed of all draws of images and of captions to read.")
    sample: int | None = Field(
        default=None,
        ge=1,
        description="Number of images to train on, drawn by --split-seed, with all their captions; by default all.",
    )
    dev: int | None = Field(
        default=None,
        ge=1,
        description="Number of images in dev, drawn by --split-seed: from the source's dev where it has one; by "
        "default all of that, else a tenth of the images.",
    )
    test: int | None = Field(default=None, ge=1, description="Number of images in test, drawn as those in dev.")
    captions_per_image: int | None = Field(
        default=None,
        ge=1,
        description="Number of captions to keep for each image, drawn by --split-seed; by default all. With 1, no "
        "image has another caption that could be found for it, as in data from the web.",
    )
    mismatches: Literal["random", "near"] = Field(
        default="random",
        description="Captions that mismatched pairs have, as far as you know: captions of any other images (random), "
        "or also of images that read much alike (near), such as a shop's variants. Match probabilities are about "
        "such captions. With near, two more networks give evidence.",
    )
    noise: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the training captions to move to other images, as planted noise; 0 for data as they are.",
    )
    noise_seed: int = Field(default=0, ge=0, description="Seed of the planted noise.")
    noise_kind: Literal["random", "near", "edit", "vague"] = Field(
        default="random",
        description="Kind of planted noise: captions exchanged among any images (random), or among images that "
        "read much alike (near); captions with one word made wrong, in English (edit); or "
        "captions replaced by short ones that fit many images (vague).",
    )
    noise_splits: Literal["train", "all"] = Field(
        default="train",
        description="Splits that noise is planted in: train alone, as in the papers, or all, as in pairs from the web. "
        "Captions move within their split.",
    )
    noise_granularity: Literal["caption", "image"] = Field(
        default="caption", description="Whether single captions are moved, or all captions of an image together."
    )
    noise_index: str | None = Field(
        default=None,
        description="A .npy file of image indices to use instead (the layout of the published index files).",
    )

    @property
    def columns(self) -> dict[str, Any]:
        """The options of the columns and cells of a table, as `pairsift.load` has them."""
        return {name: getattr(self, name) for name in ("image_column", "caption_column", "split_column", "lists")}

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of images that are asked for, by split."""
        asked = {"train": self.sample, "dev": self.dev, "test": self.test}
        return {split: size for split, size in asked.items() if size is not None}
