"""The settings of the scenes: a backdrop for each setting, and the weather."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pairsift.scenes.canvas import SCALE, SIZE, Canvas, mix

Backdrop = Callable[[Canvas], None]


def sea(canvas: Canvas) -> None:
    """Draw rows of waves under a pale sky."""
    canvas.fade(0, 90, (150, 205, 240), (222, 240, 248))
    canvas.fade(90, SIZE, (40, 130, 190), (10, 60, 125))
    for x, y in canvas.spread(60, 95, SIZE):
        width = 5 + (y - 90) / 8
        crest = (x - width, y, x - width / 2, y - width / 4, x, y, x + width / 2, y - width / 4, x + width, y)
        canvas.line(crest, (150, 205, 232), 1.2)


def meadow(canvas: Canvas) -> None:
    """Draw grass with small flowers."""
    canvas.fade(0, 110, (120, 190, 245), (205, 232, 250))
    canvas.fade(110, SIZE, (120, 190, 80), (58, 140, 48))
    for x, y in canvas.spread(170, 114, SIZE):
        canvas.line((x, y, x + canvas.rng.uniform(-3, 3), y - 9), (44, 120, 40), 1)
    for x, y in canvas.spread(22, 125, SIZE):
        canvas.oval((x - 2, y - 2, x + 2, y + 2), ((255, 255, 255), (255, 225, 90), (250, 160, 190))[int(x) % 3])


def desert(canvas: Canvas) -> None:
    """Draw dunes and a cactus under a hot sky."""
    canvas.fade(0, 105, (250, 200, 120), (255, 236, 190))
    canvas.fade(105, SIZE, (232, 186, 112), (206, 146, 76))
    for level, tone in ((112, (222, 172, 98)), (145, (214, 158, 84)), (182, (200, 140, 70))):
        shift, swell = canvas.rng.uniform(0, 6), canvas.rng.uniform(8, 14)
        ridge = [v for x in range(0, SIZE + 8, 8) for v in (x, level + swell * np.sin(x / 34 + shift))]
        canvas.poly([*ridge, SIZE, SIZE, 0, SIZE], tone)
    x = canvas.rng.uniform(15, 205)
    for stem in ((x, 82, x, 130), (x - 12, 96, x - 12, 110, x, 112), (x + 12, 90, x + 12, 104, x, 106)):
        canvas.line(stem, (70, 120, 62), 5)


def night(canvas: Canvas) -> None:
    """Draw stars and a moon over dark hills."""
    canvas.fade(0, 165, (8, 10, 40), (40, 44, 98))
    for x, y in canvas.spread(90, 0, 150):
        size = canvas.rng.uniform(0.5, 1.6)
        canvas.oval((x - size, y - size, x + size, y + size), (255, 252, 225))
    x = canvas.rng.uniform(25, 200)
    canvas.oval((x - 17, 10, x + 17, 44), (250, 244, 205))
    canvas.oval((x - 7, 4, x + 23, 36), (12, 14, 46))
    canvas.fade(165, SIZE, (24, 30, 52), (12, 16, 32))
    canvas.poly((0, 175, 50, 148, 100, 172, 160, 142, 224, 170, 224, 190, 0, 190), (24, 30, 52))


def snow(canvas: Canvas) -> None:
    """Draw white ground with white firs."""
    canvas.fade(0, 112, (176, 200, 222), (228, 236, 244))
    canvas.fade(112, SIZE, (250, 252, 255), (212, 224, 238))
    for x, y in canvas.spread(7, 105, 130):
        for level in (0, 9, 18):
            canvas.poly(
                (x - 7 - level / 2, y - 22 + level, x, y - 42 + level, x + 7 + level / 2, y - 22 + level),
                (92, 128, 122),
            )
            canvas.poly((x - 3, y - 34 + level, x, y - 42 + level, x + 3, y - 34 + level), (250, 252, 255))
    for x, y in canvas.spread(40, 130, SIZE):
        canvas.line((x - 6, y, x + 6, y + 1), (196, 210, 228), 1)


def bricks(canvas: Canvas) -> None:
    """Draw a brick wall over a pavement."""
    canvas.box((0, 0, SIZE, 168), (214, 200, 186))
    for row in range(0, 168, 14):
        for column in range(-28, SIZE, 28):
            tone = mix((168, 78, 58), (140, 58, 44), canvas.rng.random())
            edge = column + (row % 28)
            canvas.box((edge + 1, row + 1, edge + 27, row + 13), tone)
    canvas.fade(168, SIZE, (170, 170, 172), (128, 128, 132))
    for x in range(-40, SIZE, 44):
        canvas.line((x + 30, 168, x, SIZE), (104, 104, 108), 1)


def city(canvas: Canvas) -> None:
    """Draw towers with lit windows along a street."""
    canvas.fade(0, 170, (196, 176, 206), (250, 214, 190))
    for edge in range(-6, SIZE, 26):
        top, tone = canvas.rng.uniform(25, 105), mix((92, 98, 122), (128, 130, 148), canvas.rng.random())
        canvas.box((edge, top, edge + 25, 172), tone)
        for y in np.arange(top + 5, 160, 10).tolist():
            for x in (edge + 4, edge + 11, edge + 18):
                canvas.box((x, y, x + 4, y + 5), (255, 226, 130) if canvas.rng.random() < 0.6 else (70, 74, 96))
    canvas.fade(170, SIZE, (84, 84, 90), (60, 60, 66))
    for x in range(0, SIZE, 46):
        canvas.box((x, 195, x + 24, 199), (240, 236, 220))


def forest(canvas: Canvas) -> None:
    """Draw trunks and dark leaves."""
    canvas.fade(0, 160, (44, 92, 56), (128, 168, 104))
    for depth, tone in enumerate(((104, 96, 70), (84, 66, 46), (62, 46, 32))):
        for x in canvas.rng.uniform(-5, SIZE, 5).tolist():
            canvas.box((x, 0, x + 5 + 4 * depth, 150 + 10 * depth), tone)
    canvas.fade(160, SIZE, (74, 92, 44), (50, 62, 30))
    for x, y in canvas.spread(70, -5, 48):
        canvas.oval((x - 13, y - 9, x + 13, y + 9), mix((24, 70, 38), (60, 120, 58), canvas.rng.random()))
    for x, y in canvas.spread(28, 165, SIZE):
        for lean in (-7, 0, 7):
            canvas.line((x, y, x + lean, y - 10), (88, 132, 60), 1.5)


def room(canvas: Canvas) -> None:
    """Draw a papered wall with a window over a chequered floor."""
    canvas.fade(0, 150, (244, 226, 196), (236, 212, 178))
    for x in range(0, SIZE, 16):
        canvas.line((x, 0, x, 150), (228, 200, 166), 2)
    edge = canvas.rng.uniform(20, 130)
    canvas.box((edge, 22, edge + 66, 92), (250, 250, 246), (140, 104, 70))
    canvas.box((edge + 5, 27, edge + 61, 87), (166, 212, 240))
    canvas.line((edge + 33, 24, edge + 33, 90), (250, 250, 246), 3)
    canvas.line((edge, 57, edge + 66, 57), (250, 250, 246), 3)
    for row, (top, bottom) in enumerate(((150, 162), (162, 178), (178, 199), (199, SIZE))):
        for column in range(-8, 9):
            across = [112 + (column + side) * 28 * (1 + (y - 150) / 60) for y in (top, bottom) for side in (0, 1)]
            tone = (60, 52, 56) if (row + column) % 2 else (238, 232, 224)
            canvas.poly((across[0], top, across[1], top, across[3], bottom, across[2], bottom), tone)


def mountains(canvas: Canvas) -> None:
    """Draw peaks with snow behind a green valley."""
    canvas.fade(0, 150, (96, 156, 222), (214, 228, 240))
    for x in (*canvas.rng.uniform(-20, 240, 3).tolist(), canvas.rng.uniform(60, 160)):
        top = canvas.rng.uniform(22, 60)
        canvas.poly((x - 85, 155, x, top, x + 85, 155), mix((92, 98, 116), (124, 126, 138), canvas.rng.random()))
        canvas.poly((x - 22, top + 34, x, top, x + 22, top + 34, x + 8, top + 26, x - 4, top + 36), (250, 252, 255))
    canvas.fade(150, SIZE, (112, 146, 92), (82, 116, 66))
    for x, y in canvas.spread(24, 158, SIZE):
        canvas.oval((x - 4, y - 2, x + 4, y + 2), (146, 146, 140))


def beach(canvas: Canvas) -> None:
    """Draw sand, a strip of water and a palm."""
    canvas.fade(0, 85, (112, 200, 246), (206, 240, 250))
    canvas.fade(85, 128, (28, 168, 190), (110, 214, 214))
    canvas.fade(128, SIZE, (250, 228, 176), (236, 202, 140))
    canvas.line([v for x in range(-8, 240, 8) for v in (x, 128 + 3 * np.sin(x / 14))], (255, 255, 255), 4)
    for x, y in canvas.spread(90, 136, SIZE):
        canvas.oval((x - 1, y - 1, x + 1, y + 1), (212, 174, 112))
    x = canvas.rng.choice([24.0, 200.0])
    canvas.line((x, 165, x + 4, 110, x + 2, 60), (140, 100, 60), 6)
    for dx, dy in ((-34, 8), (-26, -14), (0, -22), (26, -14), (34, 8)):
        canvas.poly((x + 2, 60, x + dx * 0.6, 54 + dy, x + dx, 66 + dy), (40, 146, 72))


def underwater(canvas: Canvas) -> None:
    """Draw deep water with bubbles, weed, and sand below."""
    canvas.fade(0, SIZE, (36, 168, 196), (6, 52, 96))
    canvas.fade(190, SIZE, (150, 152, 120), (112, 112, 92))
    for x in canvas.rng.uniform(0, SIZE, 14).tolist():
        height, shift = canvas.rng.uniform(30, 85), canvas.rng.uniform(0, 6)
        weed = [v for step in range(0, int(height), 6) for v in (x + 5 * np.sin(step / 11 + shift), 198 - step)]
        canvas.line(weed, (30, 120, 84), 4)
    for x, y in canvas.spread(34, 5, 185):
        size = canvas.rng.uniform(2, 5)
        canvas.oval((x - size, y - size, x + size, y + size), (92, 196, 216), (196, 236, 244))


def weather(canvas: Canvas, kind: str) -> None:
    """Draw rain, falling snow, a rainbow or a sun over the picture; draw nothing for `clear`."""
    if kind == "rain":
        for x, y in canvas.spread(150, -10, SIZE):
            canvas.line((x, y, x - 4, y + 13), (206, 220, 236), 1)
    elif kind == "snowfall":
        for x, y in canvas.spread(110, 0, SIZE):
            size = canvas.rng.uniform(1.2, 3)
            canvas.oval((x - size, y - size, x + size, y + size), (255, 255, 255))
    elif kind == "rainbow":
        bands = ((226, 60, 60), (246, 150, 50), (250, 220, 80), (80, 180, 90), (70, 120, 220), (140, 80, 190))
        for step, tone in enumerate(bands):
            inset = 5 * step
            corners = [value * SCALE for value in (-20 + inset, 12 + inset, 244 - inset, 276 - inset)]
            canvas.pen.arc(corners, 195, 345, fill=tone, width=5 * SCALE)
    elif kind == "sun":
        x = canvas.rng.choice([34.0, 190.0])
        for angle in np.arange(0, 2 * np.pi, np.pi / 6).tolist():
            dx, dy = np.cos(angle), np.sin(angle)
            canvas.line((x + 21 * dx, 34 + 21 * dy, x + 31 * dx, 34 + 31 * dy), (255, 206, 50), 3)
        canvas.oval((x - 17, 17, x + 17, 51), (255, 216, 60), (246, 180, 40))


BACKDROPS: dict[str, Backdrop] = {
    draw.__name__: draw
    for draw in (sea, meadow, desert, night, snow, bricks, city, forest, room, mountains, beach, underwater)
}
WEATHERS: dict[str, tuple[str, ...]] = {
    "sea": ("clear", "rain", "sun", "rainbow"),
    "meadow": ("clear", "rain", "sun", "rainbow"),
    "desert": ("clear", "sun"),
    "night": ("clear", "snowfall", "rain"),
    "snow": ("clear", "snowfall", "sun"),
    "bricks": ("clear", "rain", "snowfall"),
    "city": ("clear", "rain", "snowfall", "rainbow"),
    "forest": ("clear", "rain", "snowfall"),
    "room": ("clear",),
    "mountains": ("clear", "sun", "rain", "snowfall", "rainbow"),
    "beach": ("clear", "sun", "rain", "rainbow"),
    "underwater": ("clear",),
}
