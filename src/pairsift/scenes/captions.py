"""Five captions of a scene, each with different words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SETTINGS: dict[str, tuple[str, ...]] = {
    "sea": ("at sea", "on the open ocean", "out on the waves", "on deep blue water"),
    "meadow": ("in a meadow", "on a field of grass", "on a green lawn", "in a grassy pasture"),
    "desert": ("in the desert", "among sand dunes", "near a cactus on hot sand", "in dry sandy country"),
    "night": ("at night", "under the stars", "beneath a starry sky", "in the dark under a moon"),
    "snow": ("in the snow", "on a snowy field", "in a white winter landscape", "on frozen ground by white firs"),
    "bricks": (
        "by a brick wall",
        "in front of a wall of bricks",
        "on the pavement by an old wall",
        "against red brickwork",
    ),
    "city": ("in the city", "downtown", "on a street between tall buildings", "in front of skyscrapers"),
    "forest": ("in the forest", "in the woods", "among tall trunks", "deep in a dark wood"),
    "room": ("in a room", "indoors", "on a chequered floor", "inside a house by the window"),
    "mountains": ("in the mountains", "below snowy peaks", "in an alpine valley", "at the foot of high summits"),
    "beach": ("on the beach", "by the shore under a palm", "on a sandy coast", "at the seaside"),
    "underwater": ("under water", "at the bottom of the sea", "among seaweed and bubbles", "deep below the surface"),
}

WEATHER_WORDS: dict[str, tuple[str, ...]] = {
    "clear": ("",),
    "rain": ("in the rain", "during a shower", "on a rainy day"),
    "snowfall": ("while it snows", "in falling snow", "during a snowfall"),
    "rainbow": ("under a rainbow", "with a rainbow behind"),
    "sun": ("in bright sunshine", "under a yellow sun", "on a sunny day"),
}

THING_WORDS: dict[str, tuple[str, ...]] = {
    "ball": ("ball", "beach ball"),
    "house": ("house", "cottage", "home"),
    "tree": ("tree", "leafy tree"),
    "boat": ("boat", "sailboat", "sailing boat"),
    "car": ("car", "automobile", "vehicle"),
    "cat": ("cat", "kitten", "cat's face"),
    "umbrella": ("umbrella", "parasol"),
    "flower": ("flower", "blossom", "daisy"),
    "mushroom": ("mushroom", "toadstool"),
    "tent": ("tent", "camping tent"),
    "cup": ("cup", "mug", "coffee cup"),
    "robot": ("robot", "toy robot", "android"),
    "guitar": ("guitar", "acoustic guitar"),
    "present": ("present", "gift", "gift box"),
    "balloon": ("balloon", "party balloon"),
    "kite": ("kite", "paper kite"),
    "rocket": ("rocket", "spaceship"),
    "fish": ("fish", "swimming fish"),
    "butterfly": ("butterfly", "moth"),
    "bird": ("bird", "songbird"),
    "airplane": ("airplane", "plane", "aircraft"),
    "star": ("star", "five-pointed star"),
}

COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red", "red", "crimson", "scarlet"),
    "orange": ("orange", "orange", "tangerine"),
    "yellow": ("yellow", "yellow", "lemon yellow"),
    "green": ("green", "green", "emerald"),
    "blue": ("blue", "blue", "navy blue"),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink", "pink", "rosy"),
    "white": ("white", "white", "snow-white"),
    "black": ("black", "black", "coal-black"),
    "brown": ("brown", "brown", "chestnut"),
}

SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "large": ("big", "large", "huge"),
    "middle": ("",),
    "small": ("small", "little", "tiny"),
}

TEMPLATES = (
    "{a} {setting}",
    "{a} and {b} {setting}",
    "{setting} there is {a} {relation} {b}",
    "{a} {relation} {b} {setting} {weather}",
    "{all} {setting}",
    "{a} {weather} {setting}",
    "a picture of {all} {setting} {weather}",
    "{a} with {b} nearby, {setting}",
    "{setting} one can see {all}",
    "someone left {a} {setting}, {relation} {b}",
    "{setting}: {b} and {a}",
    "{weather} {setting}, {a} {relation} {b}",
)


@dataclass(frozen=True)
class Thing:
    """A thing of a scene: its name, its colour and size by name, its centre and half its width in pixels."""

    name: str
    colour: str
    size: str
    x: float
    y: float
    half: float


@dataclass(frozen=True)
class Scene:
    """A scene: a setting, the weather, and two to four things, the largest thing first."""

    setting: str
    weather: str
    things: tuple[Thing, ...]


def pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    """Pick one of the words at random."""
    return words[int(rng.integers(len(words)))]


def phrase(rng: np.random.Generator, thing: Thing) -> str:
    """Return the words for a thing: its article, sometimes its size, its colour and its name."""
    size = pick(rng, SIZE_WORDS[thing.size]) if rng.random() < 0.6 else ""
    words = f"{size} {pick(rng, COLOUR_WORDS[thing.colour])} {pick(rng, THING_WORDS[thing.name])}".strip()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def relation(rng: np.random.Generator, subject: Thing, reference: Thing) -> str:
    """Return the words for the position of `subject` relative to `reference`."""
    if abs(subject.y - reference.y) > 45:
        return pick(rng, ("above", "over", "higher than") if subject.y < reference.y else ("below", "under", "beneath"))
    side = "left" if subject.x < reference.x else "right"
    return pick(rng, (f"to the {side} of", f"on the {side} side of", "next to", "beside"))


def caption(rng: np.random.Generator, scene: Scene, template: str) -> str:
    """Describe the scene with one template."""
    companions = scene.things[1:]
    companion = companions[int(rng.integers(len(companions)))]
    phrases = [phrase(rng, thing) for thing in scene.things]
    words = template.format(
        a=phrase(rng, scene.things[0]),
        b=phrase(rng, companion),
        all=f"{', '.join(phrases[:-1])} and {phrases[-1]}",
        relation=relation(rng, scene.things[0], companion),
        setting=pick(rng, SETTINGS[scene.setting]),
        weather=pick(rng, WEATHER_WORDS[scene.weather]),
    )
    words = " ".join(words.split()).replace(" ,", ",").removeprefix(", ")
    return words[0].upper() + words[1:]


def captions(rng: np.random.Generator, scene: Scene, count: int = 5) -> list[str]:
    """Return `count` different captions of a scene, each from another template."""
    texts: list[str] = []
    for index in rng.permutation(len(TEMPLATES))[:count]:
        text = caption(rng, scene, TEMPLATES[int(index)])
        while text in texts:
            text = caption(rng, scene, TEMPLATES[int(index)])
        texts.append(text)
    return [text + ("." if rng.random() < 0.5 else "") for text in texts]
