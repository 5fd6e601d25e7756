"""The captions and the images in a cell: a text, a list, the text of a list, texts between bars, a conversation."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pairsift.pairs.readers.dialects import IMAGE_ENDING
from pairsift.pairs.readers.rows import Roles
from pairsift.pairs.text import as_text

SEPARATORS = ("|", "\n", ";")
IMAGE_SEPARATORS = "|;,\n"
TEXT_FIELDS = ("raw", "caption", "text", "sentence")  # of an object that is a caption
SPEAKERS = ("from", "role")  # fields of the speaker of a turn
MODEL = ("gpt", "assistant", "model")
LITERAL = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
LIST = re.compile(rf"[\[(]\s*(?:(?:{LITERAL})[\s,]*)+[\])]", re.DOTALL)
IMAGE_NAME = re.compile(rf"(?:{IMAGE_ENDING})$", re.IGNORECASE)
MIN_CELLS = 10  # cells that show a separator
NEARLY_ALL = 0.9
DISTINCT = 0.8  # share of different texts between separators; the name of a shop after each title stands below it
SENTENCE = 3  # words


class Item(NamedTuple):
    """An image and a caption of a row.

    Attributes:
        place: Which image and caption of the row it is, such as ` caption 2`; empty for the only one.
        image: Cell of the image.
        caption: Cell of the caption.
    """

    place: str
    image: object
    caption: object


@dataclass(frozen=True)
class Reading:
    """What the cells of a table hold.

    Attributes:
        roles: The columns.
        written: Whether text that is a list is a list of captions.
        separator: What stands between the captions of a cell; empty where a text is one caption.
        images: Whether text that is a list is a list of images.
        paired: Whether the first caption of a row belongs to its first image, and so on. Otherwise each caption belongs
            to each image.
    """

    roles: Roles
    written: bool = False
    separator: str = ""
    images: bool = False
    paired: bool = False

    def items(self, cells: Mapping[str, object]) -> list[Item]:
        """Return the images and captions of a row, at least one."""
        images, captions = self.images_of(cells), self.captions_of(cells)
        if len(images) == len(captions) == 1:
            return [Item("", images[0], captions[0])]
        if self.paired_in(cells):
            couples = list(zip(enumerate(images, 1), enumerate(captions, 1), strict=True))
        else:
            couples = [(image, text) for image in enumerate(images, 1) for text in enumerate(captions, 1)]
        return [
            Item(
                f" image {first}" * (len(images) > 1) + f" caption {second}" * (len(captions) > 1),
                image,
                caption,
            )
            for (first, image), (second, caption) in couples
        ]

    def paired_in(self, cells: Mapping[str, object]) -> bool:
        """Return whether the first caption of a row belongs to its first image, and so on."""
        return self.paired and len(self.images_of(cells)) == len(self.captions_of(cells)) > 1

    def images_of(self, cells: Mapping[str, object]) -> list[object]:
        """Return the images of a row; one without content if it has none."""
        cell = cells.get(self.roles.image)
        if self.images and isinstance(cell, str):
            return list(image_list(cell) or [cell])
        return (cell or [""]) if isinstance(cell, list) else [cell]

    def captions_of(self, cells: Mapping[str, object]) -> list[object]:
        """Return the captions of a row; one without text if it has none."""
        captions = self._of_cell(cells.get(self.roles.caption))
        if not self.roles.further:
            return captions
        further = [text for name in self.roles.further for text in self._of_cell(cells.get(name))]
        return [text for text in [*captions, *further] if as_text(text).strip()] or [""]

    def _of_cell(self, cell: object) -> list[object]:
        if isinstance(cell, str):
            if self.written:
                texts = written_list(cell)
                return [cell] if texts is None else list(texts or [""])
            if self.separator:
                return list(parts(cell, self.separator) or [cell])
            return [cell]
        if isinstance(cell, list):
            answers = answers_of(cell)
            return [caption_of(text) for text in cell] or [""] if answers is None else list(answers or [""])
        found = caption_of(cell)
        return [caption_of(text) for text in found] or [""] if isinstance(found, list) else [found]

    def with_images(self, images: Sequence[object], cell: object) -> object:
        """Return images as a cell in the notation of the cell in their place."""
        if isinstance(cell, list):
            return list(images)
        if isinstance(cell, str) and self.images and image_list(cell):
            return _written(list(map(as_text, images)), cell, next((by for by in IMAGE_SEPARATORS if by in cell), ""))
        return images[0]

    def with_captions(self, kept: Mapping[int, str], cells: Mapping[str, object]) -> dict[str, object]:
        """Return the cells of a row's captions with these texts, by their places, and without the other captions.

        They have the notation of the cells in their place. What an object says beside its caption stays, and so do the
        other turns of a conversation of which no answer is left out.
        """
        caption, further = self.roles.caption, self.roles.further
        if not further:
            return {caption: self._with_captions(kept, cells.get(caption))}
        filled = [name for name in (caption, *further) if as_text(cells.get(name)).strip()]
        return {name: self._with_captions({0: kept.get(place, "")}, cells[name]) for place, name in enumerate(filled)}

    def _with_captions(self, kept: Mapping[int, str], cell: object) -> object:
        texts = list(kept.values())
        if isinstance(cell, list):
            if answers_of(cell) is not None:
                return _with_answers(cell, texts)
            return [_with_text(cell[place], text) for place, text in kept.items()]
        if isinstance(cell, str) and (len(self._of_cell(cell)) > 1 or (self.written and written_list(cell))):
            return _written(texts, cell, self.separator)
        return _with_text(cell, texts[0])


def _with_text(item: object, text: str) -> object:
    """Return a caption with another text: a text, or an object with a field for it."""
    if as_text(caption_of(item)) == text:
        return item
    name = next((name for name in TEXT_FIELDS if isinstance(item, dict) and isinstance(item.get(name), str)), None)
    return {**item, name: text} if isinstance(item, dict) and name is not None else text


def _with_answers(turns: Sequence[object], texts: Sequence[str]) -> object:
    """Return a conversation with other answers; the answers alone if they are not as many."""
    if texts and len(texts) != len(answers_of(turns) or ()):
        return list(texts)
    new, left = [], iter(texts)
    for turn in turns:
        said = next(iter(answers_of([turn]) or ()), None)
        text = said if said is None else next(left)
        name = next((name for name in ("assistant", "value", "content") if isinstance(turn, dict) and name in turn), "")
        new.append(turn if text == said or not isinstance(turn, dict) else {**turn, name: text})
    return new


def _written(texts: Sequence[str], cell: str, separator: str) -> str:
    """Return texts as the text of a cell that lists them, in the notation of the cell in its place."""
    if written_list(cell) is None:
        around = re.search(rf"\s*{re.escape(separator)}\s*", cell)
        return (around[0] if around else separator).join(texts)
    try:
        json.loads(cell)
    except ValueError:
        return repr(list(texts))
    return json.dumps(texts, ensure_ascii=False)


def written_list(cell: str) -> list[str] | None:
    """Return the texts of a list of texts as JSON, Python or NumPy write it; None for any other text."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")) and not (text.startswith("(") and text.endswith(")")):
        return None
    values: object
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = _of_python(text)
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else None


def _of_python(text: str) -> list[str] | None:
    """Return the texts of a list as Python or NumPy writes it, without commas; None for any other text."""
    if not LIST.fullmatch(text):
        return None
    try:
        return [ast.literal_eval(literal) for literal in re.findall(LITERAL, text[1:-1], re.DOTALL)]
    except (ValueError, SyntaxError):
        return None


def parts(cell: str, separator: str) -> list[str]:
    """Return the texts between separators that are not blank."""
    return [text.strip() for text in cell.split(separator) if text.strip()]


def image_list(cell: str) -> list[str] | None:
    """Return the image names of a text that lists several; None for any other text."""
    names = written_list(cell)
    if names is None:
        names = next((found for by in IMAGE_SEPARATORS if len(found := parts(cell, by)) > 1), [])
        names = names if all(map(IMAGE_NAME.search, names)) else []
    return names or None


def answers_of(cell: Sequence[object]) -> list[str] | None:
    """Return what the model says in a conversation, as LLaVA and FineVision store one; None for any other list."""
    turns = [turn for turn in cell if isinstance(turn, dict)]
    if not turns or len(turns) < len(cell):
        return None
    if all("assistant" in turn for turn in turns):
        return [as_text(turn["assistant"]) for turn in turns]
    if not all(any(name in turn for name in SPEAKERS) for turn in turns):
        return None
    said = [turn for turn in turns if any(turn.get(name) in MODEL for name in SPEAKERS)]
    return [_text_of(turn.get("value", turn.get("content"))) for turn in said]


def _text_of(content: object) -> str:
    """Return the text of a turn, which may be in several pieces."""
    if isinstance(content, list):
        return " ".join(as_text(piece.get("text")) for piece in content if isinstance(piece, dict)).strip()
    return as_text(content)


def caption_of(value: object) -> object:
    """Return the caption of an object with a field for it; any other value as it is."""
    if isinstance(value, dict):
        return next((value[name] for name in TEXT_FIELDS if isinstance(value.get(name), str | list)), value)
    return value


def words_in(text: str) -> int:
    """Return the number of words, with two letters of a script without spaces between words as a word."""
    wide = sum("\u3040" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7a3" for letter in text)
    return max(len(text.split()), wide // 2)


def separator_of(texts: Sequence[str], images: Sequence[str]) -> str:
    """Return the separator of the captions in a column's cells; empty where the evidence for one is not strong.

    Nearly all cells must have it, with different sentences between; no image may have two rows; and cells with
    semicolons or with several lines must have as many parts each.

    Args:
        texts: Cells of the caption column that are not empty.
        images: Cells of the image column.
    """
    if len(texts) < MIN_CELLS or len(set(images)) < len(images):
        return ""
    return next((separator for separator in SEPARATORS if _separates(texts, separator)), "")


def _separates(texts: Sequence[str], separator: str) -> bool:
    cells = [parts(text, separator) for text in texts]
    if sum(len(found) > 1 for found in cells) < NEARLY_ALL * len(cells):
        return False
    (_, most), *_ = Counter(map(len, cells)).most_common(1)
    found = [text for cell in cells for text in cell]
    sentences = sum(words_in(text) >= SENTENCE for text in found)
    is_even = separator == "|" or most >= DISTINCT * len(cells)
    return is_even and sentences >= DISTINCT * len(found) and len(set(found)) >= DISTINCT * len(found)


def common_separator(texts: Sequence[str]) -> str:
    """Return the separator that most texts hold; empty where none holds one."""
    counts = {separator: sum(separator in text for text in texts) for separator in SEPARATORS}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else ""


def spread(count: int, most: int) -> Iterator[int]:
    """Yield at most so many positions among `count`, spread evenly."""
    return iter(range(0, count, max(1, -(-count // most))))
