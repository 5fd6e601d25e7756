"""The studies of the papers' ablations, which studies.yaml holds: each row is a set of options of `pairsift fit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

IMAGES = 2000


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper.

    Attributes:
        method: The method.
        source: Which table of its paper.
        noise: Noise ratios, as in the paper.
        rows: Options by row label; none for the method as it is.
        base: Options of every row, unless the row has others.
        images: Number of training images.
        captions: Captions of each image; None for all.
    """

    method: str
    source: str
    noise: tuple[float, ...]
    rows: dict[str, list[str]]
    base: tuple[str, ...] = ()
    images: int = IMAGES
    captions: int | None = None

    def options(self, label: str) -> list[str]:
        """All options of a row."""
        chosen = dict(option.split("=", 1) for option in (*self.base, *self.rows[label]))
        return [f"{name}={value}" for name, value in chosen.items()]


def read() -> dict[str, Study]:
    """The studies of studies.yaml by name."""
    tree = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return {
        name: Study(**{key: tuple(value) if key in ("noise", "base") else value for key, value in study.items()})
        for name, study in tree.items()
    }


STUDIES = read()
