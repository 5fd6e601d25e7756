"""Whether a text encoder knows the scripts and languages of captions, told from the pieces that it cuts words into."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

import numpy as np

from pairsift.encode.encoder import TextEncoder
from pairsift.encode.wordvectors import WordLlamaEncoder

SAMPLE = 5_000  # captions that are looked at, at most
FEWEST = 50  # captions in Latin script below which nothing is said of their language
PIECES = 1.2  # times the pieces of English words; English captions lie at 0.8 to 1.0, German at 1.3, Russian at 1.5
SIGNS = 0.3  # share of captions with a sign of another language; English ones have up to 0.2, others 0.6 and more
NOTABLE = 0.05  # share of all captions below which nothing is said
FREQUENT = 0.1  # share of captions; an accented word in more of them is a brand such as Pokémon
PUNCTUATION = ".,;:!?…\"'()[]«»“”„‘’"
SEED = 0
ADVICE = (
    "give --text-encoder wordllama+ngrams, or a multilingual model such as "
    "hf:sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
)
LATIN, FOREIGN = "Latin", "languages other than English in Latin script"
# English has few words of two letters (units among them); most other languages have common ones that are not these.
_TWO_LETTERS = """
ad ah am an as at be by cm do ex ft go ha he hi id if in is it kg km lb me ml mm my no of oh ok on or ox oz pc pi so to
tv uk up us vs we yo
"""
SHORT = frozenset(_TWO_LETTERS.split())
_NAMES = {"CJK": "Chinese characters", "HIRAGANA": "Japanese", "HALFWIDTH": "Japanese", "HANGUL": "Korean"}


@dataclass(frozen=True)
class Finding:
    """Captions that a text encoder does not know.

    Attributes:
        judged: Number of captions looked at that have letters.
        unknown: Number of those whose script or language the encoder does not know.
        kinds: The same by script, most frequent first.
        sentence: What to tell the user.
    """

    judged: int
    unknown: int
    kinds: dict[str, int]
    sentence: str


def unknown_language(captions: Sequence[str], encoder: TextEncoder) -> Finding | None:
    """Look for captions in scripts and languages that a text encoder does not know.

    A script is unknown where the encoder's tokenizer cuts its words into more pieces than English words of that length.
    In Latin script a caption shows signs of another language where its words are cut like that, where it has letters
    with accents, or words of two letters that English lacks. The signs miss some captions and are seen in some English
    ones, so they count only where at least 30% of the captions in Latin script show them. Names of files, numbers and
    captions without letters do not count.

    Args:
        captions: The captions; of more than 5,000 a random sample is looked at.
        encoder: The text encoder. Of others than `wordllama` nothing is known.

    Returns:
        None where the encoder knows the captions, or nothing can be said.
    """
    if not isinstance(encoder, WordLlamaEncoder):
        return None
    if len(captions) > SAMPLE:
        rows = np.random.default_rng(SEED).choice(len(captions), SAMPLE, replace=False)
        captions = [captions[row] for row in rows]
    by_script: dict[str, list[list[str]]] = {}
    for caption in captions:
        words = _words(caption)
        if script := _script(words):
            by_script.setdefault(script, []).append(words)
    pieces = _pieces([word for found in by_script.values() for words in found for word in words], encoder)
    latin = by_script.pop(LATIN, [])
    kinds = Counter({name: len(found) for name, found in by_script.items() if _broken(chain(*found), pieces)})
    signs = sum(_signs(latin, pieces))
    if len(latin) >= FEWEST and signs >= SIGNS * len(latin):
        kinds[FOREIGN] = signs
    judged, unknown = len(latin) + sum(map(len, by_script.values())), kinds.total()
    if not unknown or unknown < NOTABLE * judged:
        return None
    ordered = dict(kinds.most_common())
    return Finding(judged, unknown, ordered, _sentence(judged, unknown, list(ordered), encoder.name))


def _sentence(judged: int, unknown: int, kinds: list[str], name: str) -> str:
    shown = kinds if len(kinds) <= 8 else [*kinds[:7], f"{len(kinds) - 7} more"]
    share = "all" if unknown == judged else f"at least {100 * unknown // judged}% of the"
    return f"{share} captions are in scripts or languages that {name} does not know ({', '.join(shown)}): {ADVICE}"


def _words(caption: str) -> list[str]:
    """Runs of letters with their marks, but none in Latin letters of a file's name or a number with its unit."""
    words = []
    for chunk in caption.split():
        runs = ["".join(run) for kind, run in groupby(chunk, _kind) if kind == "letter"]
        name = (
            "_" in chunk or "." in chunk.strip(PUNCTUATION) or any(_kind(character) == "digit" for character in chunk)
        )
        words += [run for run in runs if not (name and run.isascii())]
    return words


@cache
def _kind(character: str) -> str:
    return {"L": "letter", "M": "letter", "N": "digit"}.get(unicodedata.category(character)[0], "")


def _script(words: list[str]) -> str | None:
    """The script of most letters; None where there are none."""
    counts = Counter(_script_of(letter) for word in words for letter in word)
    counts.pop("", None)
    if "Japanese" in counts:  # which writes Chinese characters as well
        counts["Japanese"] += counts.pop("Chinese characters", 0)
    return counts.most_common(1)[0][0] if counts else None


@cache
def _script_of(letter: str) -> str:
    """Name of a letter's script, or nothing for marks, which go with every script."""
    name = unicodedata.name(letter, "")
    if unicodedata.category(letter)[0] != "L" or not name:
        return ""
    first = name.split()[0].partition("-")[0]
    return "Japanese" if first == "KATAKANA" else _NAMES.get(first, first.capitalize())


def _pieces(words: list[str], encoder: WordLlamaEncoder) -> dict[str, int]:
    """Number of pieces of each distinct word, lower-cased."""
    distinct = sorted({word.lower() for word in words})
    return dict(zip(distinct, encoder.pieces(distinct), strict=True))


def _broken(words: Iterable[str], pieces: Mapping[str, int]) -> bool:
    """Whether words are cut into many more pieces than English words of as many letters."""
    found = [(pieces[word.lower()], max(1.0, 0.65 + 0.19 * len(word))) for word in words]
    return sum(cut for cut, _ in found) > PIECES * sum(expected for _, expected in found)


def _signs(captions: list[list[str]], pieces: Mapping[str, int]) -> list[bool]:
    """Which captions in Latin script, given as words, show signs of another language than English."""
    frequency = Counter(word for words in captions for word in set(words))
    accented = {word for word, n in frequency.items() if not word.isascii() and n <= FREQUENT * len(captions)}
    short = {word for word in frequency if len(word) == 2 and word.isascii() and word.islower()} - SHORT
    return [
        any(word in accented or word in short for word in words)
        or _broken([word for word in words if len(word) > 2], pieces)
        for words in captions
    ]
