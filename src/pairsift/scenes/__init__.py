"""Generated sample data: drawn scenes with captions, for use without any download."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from pairsift.errors import InputError
from pairsift.scenes.backdrops import BACKDROPS, WEATHERS, weather
from pairsift.scenes.canvas import SIZE, Canvas
from pairsift.scenes.captions import Scene, Thing, captions, pick
from pairsift.scenes.things import COLOURS, RGB, SKY_THINGS, THINGS

__all__ = ["Scene", "Thing", "draw", "imagine", "write_scenes"]

HALVES = {"large": (42.0, 50.0), "middle": (30.0, 36.0), "small": (19.0, 23.0)}
MIN_SCENES = 10


def imagine(rng: np.random.Generator) -> Scene:
    """Generate a random scene: a setting, its weather, and two to four different things side by side."""
    setting = pick(rng, tuple(BACKDROPS))
    names = rng.permutation(list(THINGS))[: int(rng.integers(2, 5))].tolist()
    colours = rng.permutation(list(COLOURS))[: len(names)].tolist()
    sizes = ["large", *rng.choice(["middle", "small"], len(names) - 1).tolist()]
    columns = np.linspace(0, SIZE, 2 * len(names) + 1)[1::2]
    columns = rng.permutation(columns) + rng.uniform(-8, 8, len(names))
    things = []
    for name, colour, size, x in zip(names, colours, sizes, columns.tolist(), strict=True):
        half = float(rng.uniform(*HALVES[size]))
        x = min(max(x, half), SIZE - half)
        y = float(rng.uniform(50, 75)) if name in SKY_THINGS else float(rng.uniform(192, 216)) - half
        things.append(Thing(name, colour, size, x, y, half))
    return Scene(setting, pick(rng, WEATHERS[setting]), tuple(things))


def draw(rng: np.random.Generator, scene: Scene) -> Image.Image:
    """Draw the scene as an RGB image, 224 x 224."""
    canvas = Canvas(rng)
    BACKDROPS[scene.setting](canvas)
    if scene.weather in ("sun", "rainbow"):
        weather(canvas, scene.weather)
    for thing in sorted(scene.things, key=lambda thing: -thing.half):  # small things are in front
        canvas.thing(thing.name, shade(rng, COLOURS[thing.colour]), (thing.x, thing.y), thing.half)
    if scene.weather in ("rain", "snowfall"):
        weather(canvas, scene.weather)
    return canvas.finish()


def shade(rng: np.random.Generator, colour: RGB) -> RGB:
    """Return a random variation of a colour."""
    red, green, blue = np.clip(np.array(colour) + rng.integers(-14, 15, 3), 0, 255).tolist()
    return red, green, blue


def write_scenes(folder: Path, n_images: int, seed: int) -> None:
    """Write drawn scenes in the layout that the `flickr8k` reader reads, with five captions each.

    The same seed gives the same bytes, and a larger `n_images` only adds scenes. Of ten consecutive images, the last
    two go to dev and test.

    Args:
        folder: Folder for `images/`, `captions.csv` and `splits/`; it is created if it does not exist.
        n_images: Number of images, at least 10.
        seed: Seed, 0 or above.

    Raises:
        InputError: There are too few images for three splits, or the seed is below 0.
    """
    if n_images < MIN_SCENES or seed < 0:
        raise InputError(
            f"{n_images} scenes with seed {seed}: needs at least {MIN_SCENES} images and a seed of 0 or above"
        )
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "splits").mkdir(exist_ok=True)
    lists: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    with open(folder / "captions.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "caption"])
        for number in range(n_images):
            rng = np.random.default_rng([seed, number])
            scene = imagine(rng)
            name = f"scene_{number:05d}.jpg"
            draw(rng, scene).save(folder / "images" / name, quality=88)
            writer.writerows([name, text] for text in captions(rng, scene))
            lists[{8: "dev", 9: "test"}.get(number % 10, "train")].append(name)
    for split, names in lists.items():
        (folder / "splits" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
