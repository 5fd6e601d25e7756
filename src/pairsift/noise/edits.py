"""Planted noise in details: one word of a caption is exchanged for another of its kind, which makes it wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from pairsift.errors import InputError
from pairsift.noise.planted import refuse_noisy, rewritten
from pairsift.pairs.pairs import Pairs

WORD = re.compile(r"[^\W\d_]+")
SIMILAR_COUNTS = 5.0  # largest ratio of two words' counts that are equally frequent
# Words of one line exclude each other: where one is right, the others are wrong. So there are neither synonyms nor
# words that include each other, such as "dog" and "puppy" or "boy" and "child". Singular and plural words, and
# the forms of a verb, are in lines of their own.
KINDS = """
black white red blue green yellow pink purple
two three four five six seven eight nine ten
man woman
men women
boy girl
boys girls
dog cat horse bird cow sheep elephant monkey bear rabbit tiger lion camel goat pig fish snake frog turtle
dogs cats horses birds cows elephants monkeys bears rabbits tigers lions camels goats pigs
running sleeping swimming climbing dancing eating crawling kneeling sitting
runs sleeps swims climbs dances eats crawls kneels sits
bike skateboard motorcycle surfboard sled boat canoe car bus truck train tractor snowboard horse camel
bikes skateboards motorcycles surfboards boats canoes cars buses trucks trains horses
ball frisbee stick kite rope balloon umbrella guitar camera bottle book hammer drum candle
balls frisbees sticks kites ropes balloons umbrellas guitars cameras bottles books drums candles
soccer tennis basketball baseball hockey volleyball rugby golf cricket
beach street forest desert playground kitchen library bridge tunnel stadium
dress bikini sweater vest coat
helmet crown wig
bench couch bed
circle square triangle star heart cross ring diamond
above below
young old
open closed
day night
summer winter
happy sad
"""


def _others() -> dict[str, tuple[str, ...]]:
    """Return for each word the words of its kinds, which exclude it."""
    others: dict[str, tuple[str, ...]] = {}
    for line in KINDS.split("\n"):
        words = tuple(line.split())
        for word in words:
            others[word] = others.get(word, ()) + tuple(other for other in words if other != word)
    return {word: tuple(dict.fromkeys(of_word)) for word, of_word in others.items()}


EXCHANGES: Mapping[str, tuple[str, ...]] = _others()


def plant_edit(pairs: Pairs, ratio: float, seed: int) -> Pairs:
    """Plant noise: make one detail of training captions wrong, by one word.

    A word is exchanged for another of its kind (`KINDS`: colours, numbers, people, animals, actions, things, ...) that
    no caption of the image has. Of these, one is drawn whose count in the training captions lies within a factor of 5
    of the word's own, or else one with the nearest count; words that no caption has are left out. Which captions, and
    which of their words, is random. `a` and `an` before the word, and its capital letter, are made to fit. Exactly
    `round(ratio * n)` of the n training captions are edited, or as many as have such a word.

    An edited caption belongs to no image: its `true_image_of` is -1. The words are English.

    Args:
        pairs: Pairs without planted noise.
        ratio: Share of the training captions to edit, in [0, 1].
        seed: Seed of numpy's default generator, 0 or above.

    Returns:
        The pairs with new `captions`, and with `source_captions`, `true_image_of` and `noise` set.

    Raises:
        InputError: The pairs already have planted noise, or no caption has such a word.
    """
    refuse_noisy(pairs)
    train = pairs.ids("train")
    rng = np.random.default_rng(seed)
    words_of = {int(pair): _words(pairs.captions[pair]) for pair in train}
    counts = Counter(word for words in words_of.values() for word in words)
    words_of_image: dict[int, set[str]] = {}
    for pair, words in words_of.items():
        words_of_image.setdefault(int(pairs.image_of[pair]), set()).update(words)
    captions, true_image_of = list(pairs.captions), pairs.image_of.copy()
    left = wanted = round(ratio * len(train))
    for pair in train[rng.permutation(len(train))].tolist():
        if not left:
            break
        edited = _edited(pairs.captions[pair], words_of_image[int(pairs.image_of[pair])], counts, rng)
        if edited is not None:
            captions[pair], true_image_of[pair] = edited, -1
            left -= 1
    if wanted and left == wanted:
        raise InputError(
            f"{pairs.source}: no training caption has a word that --noise-kind edit can exchange; it knows English "
            "words for colours, numbers, people, animals, actions and things"
        )
    return rewritten(pairs, captions, true_image_of, ratio, seed, "edit")


def _words(caption: str) -> list[str]:
    return [found.group().lower() for found in WORD.finditer(caption)]


def _edited(caption: str, taken: set[str], counts: Mapping[str, int], rng: np.random.Generator) -> str | None:
    """Return the caption with a word exchanged for one that no caption of the image has; None if there is none."""
    places = list(WORD.finditer(caption))
    for number in rng.permutation(len(places)).tolist():
        word = places[number].group()
        possible = [other for other in EXCHANGES.get(word.lower(), ()) if counts.get(other) and other not in taken]
        if possible:
            return _exchanged(caption, places, number, _as_frequent(word.lower(), possible, counts, rng))
    return None


def _as_frequent(word: str, possible: Sequence[str], counts: Mapping[str, int], rng: np.random.Generator) -> str:
    """Draw a word of similar count, or return one with the nearest."""
    distance = np.abs(np.log([counts[other] / counts[word] for other in possible]))
    near = np.flatnonzero(distance <= max(np.log(SIMILAR_COUNTS), distance.min()))
    return possible[int(rng.choice(near))]


def _exchanged(caption: str, places: Sequence[re.Match[str]], number: int, other: str) -> str:
    """Return the caption with another word at a place, and with the article that it takes."""
    place, article = places[number], places[number - 1] if number else None
    word = place.group()
    other = other.upper() if word.isupper() and len(word) > 1 else other.capitalize() if word[0].isupper() else other
    end = place.start()
    if article is None or article.group().lower() not in ("a", "an") or not caption[article.end() : end].isspace():
        return caption[:end] + other + caption[place.end() :]
    fitting = article.group()[0] + ("n" if other[0].lower() in "aeiou" else "")
    return caption[: article.start()] + fitting + caption[article.end() : end] + other + caption[place.end() :]
