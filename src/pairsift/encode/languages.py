"""The detection of captions in scripts and languages that a text encoder does not know.

For word vectors, the main evidence is the number of pieces that the encoder cuts words into.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

import numpy as np

from pairsift.encode.encoder import TextEncoder
from pairsift.encode.muse import MuseEncoder
from pairsift.encode.wordllama import WordLlamaEncoder

MAX_CAPTIONS = 5_000  # maximum number of captions that are checked
MIN_LATIN = 50  # captions in Latin script; with fewer, no statement about their language is made
PIECES = 1.2  # limit relative to English words; English captions have 0.8 to 1.0, German 1.3, Russian 1.5
SIGNS = 0.3  # share of captions with a sign of another language; up to 0.2 in English, 0.6 and more in others
NOTABLE = 0.05  # share of all captions; below it, nothing is reported
FREQUENT = 0.1  # share of captions; an accented word in more captions is a brand such as Pokémon
PUNCTUATION = ".,;:!?…\"'()[]«»“”„‘’"
SEED = 0
ADVICE = {
    "wordllama": "leave --text-encoder out for muse, which knows fifteen languages",
    "muse": "--encoders e5 knows about 100 languages (pip install 'pairsift[hf]')",
}
SCRIPTS_OF_MUSE = ("Arabic", "Chinese characters", "Cyrillic", "Japanese", "Korean", "Latin", "Thai")
LATIN, FOREIGN = "Latin", "languages other than English in Latin script"
# The words of two letters in English, including units. Most other languages have other common words of two letters.
_TWO_LETTERS = """
ad ah am an as at be by cm do ex ft go ha he hi id if in is it kg km lb me ml mm my no of oh ok on or ox oz pc pi so to
tv uk up us vs we yo
"""
SHORT = frozenset(_TWO_LETTERS.split())
_NAMES = {"CJK": "Chinese characters", "HIRAGANA": "Japanese", "HALFWIDTH": "Japanese", "HANGUL": "Korean"}


@dataclass(frozen=True)
class UnknownLanguages:
    """The captions that a text encoder does not know, in numbers.

    Attributes:
        checked: Number of checked captions that have letters.
        unknown: Number of these captions whose script or language the encoder does not know.
        scripts: Number of unknown captions by script, most frequent first.
        message: Message for the user.
    """

    checked: int
    unknown: int
    scripts: dict[str, int]
    message: str


def unknown_language(captions: Sequence[str], encoder: TextEncoder) -> UnknownLanguages | None:
    """Look for captions in scripts and languages that a text encoder does not know.

    A script is unknown if the encoder's tokenizer cuts its words into more pieces than English words of that length. In
    Latin script, a caption shows signs of another language if its words are cut like that, if it has letters with
    accents, or if it has words of two letters that English lacks. The signs miss some captions and appear in some
    English captions. Therefore they count only if at least 30% of the captions in Latin script show them. File names,
    numbers and captions without letters do not count.

    For `muse`, the scripts of its fifteen languages are known; of captions in Latin script, no other language is told.

    Args:
        captions: The captions. If there are more than 5,000, a random sample is checked.
        encoder: The text encoder. The check is possible for `wordllama` and `muse` only.

    Returns:
        The result, or None if the encoder knows the captions or no statement is possible.
    """
    if not isinstance(encoder, WordLlamaEncoder | MuseEncoder):
        return None
    if len(captions) > MAX_CAPTIONS:
        rows = np.random.default_rng(SEED).choice(len(captions), MAX_CAPTIONS, replace=False)
        captions = [captions[row] for row in rows]
    by_script: dict[str, list[list[str]]] = {}
    for caption in captions:
        words = _words(caption)
        if script := _script(words):
            by_script.setdefault(script, []).append(words)
    if isinstance(encoder, MuseEncoder):
        scripts = Counter({name: len(found) for name, found in by_script.items() if name not in SCRIPTS_OF_MUSE})
    else:
        scripts = _unknown_to_words(by_script, encoder)
    checked, unknown = sum(map(len, by_script.values())), scripts.total()
    if not unknown or unknown < NOTABLE * checked:
        return None
    counts = dict(scripts.most_common())
    return UnknownLanguages(checked, unknown, counts, _sentence(checked, unknown, list(counts), encoder.name))


def _unknown_to_words(by_script: Mapping[str, list[list[str]]], encoder: WordLlamaEncoder) -> Counter[str]:
    """Return the number of captions that English word vectors do not know, by script.

    Args:
        by_script: The words of each caption, by its script.
        encoder: The word vectors.
    """
    words = [word for captions in by_script.values() for caption in captions for word in caption]
    pieces, latin = _pieces(words, encoder), by_script.get(LATIN, [])
    others = {name: captions for name, captions in by_script.items() if name != LATIN}
    scripts = Counter({name: len(found) for name, found in others.items() if _broken(chain(*found), pieces)})
    signs = sum(_signs(latin, pieces))
    if len(latin) >= MIN_LATIN and signs >= SIGNS * len(latin):
        scripts[FOREIGN] = signs
    return scripts


def _sentence(checked: int, unknown: int, scripts: list[str], name: str) -> str:
    names = scripts if len(scripts) <= 8 else [*scripts[:7], f"{len(scripts) - 7} more"]
    share = "all" if unknown == checked else f"at least {100 * unknown // checked}% of the"
    advice = ADVICE[name.partition("+")[0]]
    return f"{share} captions are in scripts or languages that {name} does not know ({', '.join(names)}): {advice}"


def _words(caption: str) -> list[str]:
    """Return the runs of letters with their marks.

    ASCII runs that belong to a file name or to a number with its unit are left out.
    """
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
    """Return the script of most letters, or None if there are no letters."""
    counts = Counter(_script_of(letter) for word in words for letter in word)
    counts.pop("", None)
    if "Japanese" in counts:  # Japanese is also written with Chinese characters
        counts["Japanese"] += counts.pop("Chinese characters", 0)
    return counts.most_common(1)[0][0] if counts else None


@cache
def _script_of(letter: str) -> str:
    """Return the name of a letter's script, or an empty string for marks, which occur with every script."""
    name = unicodedata.name(letter, "")
    if unicodedata.category(letter)[0] != "L" or not name:
        return ""
    script = name.split()[0].partition("-")[0]
    return "Japanese" if script == "KATAKANA" else _NAMES.get(script, script.capitalize())


def _pieces(words: list[str], encoder: WordLlamaEncoder) -> dict[str, int]:
    """Return the number of pieces of each distinct word, in lower case."""
    distinct = sorted({word.lower() for word in words})
    return dict(zip(distinct, encoder.pieces(distinct), strict=True))


def _broken(words: Iterable[str], pieces: Mapping[str, int]) -> bool:
    """Return whether words are cut into many more pieces than English words with the same number of letters."""
    cuts = [(pieces[word.lower()], max(1.0, 0.65 + 0.19 * len(word))) for word in words]
    return sum(cut for cut, _ in cuts) > PIECES * sum(expected for _, expected in cuts)


def _signs(captions: list[list[str]], pieces: Mapping[str, int]) -> list[bool]:
    """Return whether each caption in Latin script shows signs of a language other than English.

    Args:
        captions: The words of each caption.
        pieces: Number of pieces of each word in lower case.
    """
    frequency = Counter(word for words in captions for word in set(words))
    accented = {word for word, n in frequency.items() if not word.isascii() and n <= FREQUENT * len(captions)}
    unlisted = {word for word in frequency if len(word) == 2 and word.isascii() and word.islower()} - SHORT
    return [
        any(word in accented or word in unlisted for word in words)
        or _broken([word for word in words if len(word) > 2], pieces)
        for words in captions
    ]
