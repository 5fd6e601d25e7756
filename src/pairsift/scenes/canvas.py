"""The drawing of scenes: a canvas at twice the final size, and the shapes and things on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw

from pairsift.scenes.things import RGB, THINGS, TONES

SIZE = 224
SCALE = 2  # drawn at twice the size and averaged down, which smooths the edges


def mix(start: RGB, end: RGB, share: float) -> RGB:
    """Return the colour at this share of the way from `start` to `end`."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return red, green, blue


class Canvas:
    """A square picture with coordinates from 0 to `SIZE`, y downwards."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.image = Image.new("RGB", (SIZE * SCALE, SIZE * SCALE))
        self.pen = ImageDraw.Draw(self.image)

    def fade(self, top: float, bottom: float, start_colour: RGB, end_colour: RGB) -> None:
        """Fill the rows from `top` to `bottom` with a colour that fades into another."""
        start, stop = round(top * SCALE), round(bottom * SCALE)
        share = np.linspace(0, 1, stop - start)[:, None]
        rows = np.array(start_colour) * (1 - share) + np.array(end_colour) * share
        strip = Image.fromarray(rows.astype(np.uint8)[:, None, :])
        self.image.paste(strip.resize((SIZE * SCALE, stop - start)), (0, start))

    def poly(self, points: Sequence[float], fill: RGB, edge: RGB | None = None) -> None:
        """Draw a filled polygon of points x, y, x, y, ..."""
        scaled = [value * SCALE for value in points]
        self.pen.polygon(scaled, fill=fill)
        if edge is not None:
            self.pen.line([*scaled, *scaled[:4]], fill=edge, width=SCALE, joint="curve")

    def box(self, points: Sequence[float], fill: RGB, edge: RGB | None = None) -> None:
        """Draw a filled rectangle between two corners."""
        self.pen.rectangle(self._corners(points), fill=fill, outline=edge, width=SCALE)

    def oval(self, points: Sequence[float], fill: RGB, edge: RGB | None = None) -> None:
        """Draw a filled ellipse in the box between two corners."""
        self.pen.ellipse(self._corners(points), fill=fill, outline=edge, width=SCALE)

    def line(self, points: Sequence[float], fill: RGB, width: float = 1) -> None:
        """Draw a line through points x, y, x, y, ..."""
        self.pen.line([value * SCALE for value in points], fill=fill, width=max(1, round(width * SCALE)), joint="curve")

    def thing(self, name: str, colour: RGB, centre: tuple[float, float], half: float) -> None:
        """Draw a thing at a place; `half` is half the width of its box. It is mirrored with probability 0.5."""
        dark, light = mix(colour, (0, 0, 0), 0.35), mix(colour, (255, 255, 255), 0.45)
        if sum(colour) > 650:  # white: its lighter shade is grey
            light = mix(colour, (120, 140, 170), 0.3)
        tones = {**TONES, "main": colour, "dark": dark, "light": light}
        edge = mix(colour, (20, 20, 30), 0.6)
        turn = 1 if self.rng.random() < 0.5 else -1
        for kind, tone, numbers in THINGS[name]:
            points = [
                centre[0] + turn * half * value if axis % 2 == 0 else centre[1] + half * value
                for axis, value in enumerate(numbers)
            ]
            if kind == "line":
                self.line(points, tones[tone], half * 0.07)
            else:
                getattr(self, kind)(points, tones[tone], edge)

    def spread(self, count: int, top: float, bottom: float) -> Iterator[tuple[float, float]]:
        """Yield random places in the rows from `top` to `bottom`, upper places first."""
        xs, ys = self.rng.uniform(-5, SIZE + 5, count), self.rng.uniform(top, bottom, count)
        order = np.argsort(ys)
        yield from zip(xs[order].tolist(), ys[order].tolist(), strict=True)

    def finish(self) -> Image.Image:
        """Return the picture at its final size."""
        return self.image.reduce(SCALE)

    def _corners(self, points: Sequence[float]) -> list[float]:
        x0, y0, x1, y1 = (value * SCALE for value in points)
        return [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]
