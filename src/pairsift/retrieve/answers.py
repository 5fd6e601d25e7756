"""Right answers that were collected beyond each pair's own, such as ECCV Caption and CxC for COCO's test images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairsift.arrays import Ints
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.text import parse_json
from pairsift.retrieve.ranks import Links, RightAnswers, SimilarityRows, count_wrong

ID_COLUMNS = (("cocoid", "sentid"), ("image_id", "id"))  # ids of image and caption in Karpathy's and in COCO's files


@dataclass(frozen=True)
class Answers:
    """The right answers of queries; an image or a caption without an entry is no query, but is among the items.

    Ids are text. They are those of COCO where the source has them (`cocoid` and `sentid` in Karpathy's file, `image_id`
    and `id` in COCO's), else names of images, and ids of captions in the column that identifies rows or positions in
    the source, from 0.

    Attributes:
        captions: Ids of the right captions of each image.
        images: Ids of the right images of each caption.
    """

    captions: Mapping[str, Iterable[str]]
    images: Mapping[str, Iterable[str]]

    @staticmethod
    def read(captions: str | Path, images: str | Path) -> Answers:
        """Read two JSON files, each an object of lists of ids by id: captions by image, and images by caption.

        Raises:
            InputError: A file is missing or has another form.
        """
        return Answers(_lists(Path(captions)), _lists(Path(images)))

    def links(self, pairs: Pairs, rows: Ints, ids: Ints) -> tuple[Links, Links]:
        """Return the right answers among these images and captions, image to text and text to image.

        Args:
            pairs: The pairs of the source.
            rows: Rows of the images, (n_images,).
            ids: Ids of the pairs with the captions, (n_texts,).

        Returns:
            Positions of images in `rows` and of captions in `ids`. Ids that are not among them are left out.

        Raises:
            InputError: No query of a direction has an answer among them.
        """
        columns = next((both for both in ID_COLUMNS if set(both) <= set(pairs.columns)), None)
        if columns is None:
            images, captions = pairs.names, pairs.row_ids or [str(pair) for pair in range(len(pairs))]
        else:
            own, captions = (pairs.columns[name] for name in columns)
            owner = dict(zip(pairs.source_image_of.tolist(), own, strict=True))
            images = [owner.get(row, "") for row in range(pairs.n_images)]
        image_at = {images[row]: place for place, row in enumerate(rows)}
        caption_at = {captions[pair]: place for place, pair in enumerate(ids)}
        by_image = [(image, caption) for image, right in self.captions.items() for caption in right]
        by_caption = [(image, caption) for caption, right in self.images.items() for image in right]
        found = [
            sorted((image_at[i], caption_at[t]) for i, t in set(named) if i in image_at and t in caption_at)
            for named in (by_image, by_caption)
        ]
        if not all(found):
            example = f"image {images[rows[0]]!r} and caption {captions[ids[0]]!r}"
            raise InputError(f"none of the right answers are among the pairs of {pairs.source}; ids there: {example}")
        first, second = (np.array(links, np.int64).T for links in found)
        return (first[0], first[1]), (second[0], second[1])


def answered(
    block: SimilarityRows, i2t: Links, t2i: Links, sizes: tuple[int, int], chunk: int = 256
) -> list[dict[str, float]]:
    """Return the measures of retrieval in each view where queries have several right answers, as `recall` does.

    Args:
        block: As for `ranks_by_view`.
        i2t: Images and their right captions.
        t2i: Captions and their right images.
        sizes: Numbers of images and of captions.
        chunk: Number of images in a block.
    """
    right = RightAnswers.among_all(i2t, t2i, sizes)
    return [right.measures(view) for view in count_wrong(block, [right], sizes, chunk)[0]]


def _lists(path: Path) -> dict[str, list[str]]:
    """Read an object of lists of ids, numbers or text, as text."""
    value = parse_json(path)[0]
    if not isinstance(value, dict) or not all(isinstance(ids, list) for ids in value.values()):
        raise InputError(f"{path}: needs an object with a list of ids under each id")
    return {key: [str(each) for each in ids] for key, ids in value.items()}
