"""Published results of the methods, from `docs/published.csv`, as tables with what speaks against comparing a row."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import epochs
import tables

FILE = Path(__file__).parents[1] / "published.csv"
ASSUMPTIONS = Path(__file__).parents[1] / "assumptions.yaml"
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
DATA = {"F30K": "Flickr30K", "COCO-1K": "COCO, 1K", "CC152K": "CC152K"}
PROTOCOLS = {"regions": "region features", "clip": "CLIP or ALIGN"}
FAMILIES = {"caption": "captions moved", "image": "images moved", "web": "of the web", "": "unknown"}
SOURCES = {
    "PC2": "the paper of PC2",
    "PC2-S": "its supplement",
    "PCSR": "the paper of PCSR",
    "GSC": "the paper of GSC",
    "NPC": "the paper of NPC",
    "RCL-R": "the repository of RCL",
    "DECL-R": "the repository of DECL",
    "OSA-R": "the repository of OSA",
    "CRCL-R": "an issue in the repository of CRCL",
    "UCPM": "the paper of UCPM (TIP 2025)",
}


@dataclass(frozen=True)
class Published:
    """A published row.

    Attributes:
        method: The method's name, also of methods that are not implemented.
        data: `F30K`, `COCO-1K` or `CC152K`.
        noise: Share of planted noise; None for the noise of the web.
        backbone: The matcher; empty where the source does not say it.
        networks: Number of networks whose similarities are averaged; None where the source does not say it.
        protocol: `regions` for region features with a GRU, `clip` for pixels and a pretrained model.
        family: Which noise: `caption`, `image`, `web`, or empty where nobody knows.
        recalls: The six recalls in percent; empty where only their sum was found.
        rsum: Their sum as it is printed, or ours where none is printed.
        source: Key of `SOURCES`.
        comparable: Whether it may stand beside other such rows of the same data, noise, protocol and networks.
        reason: Why not, and what else has to be known.
    """

    method: str
    data: str
    noise: float | None
    backbone: str
    networks: int | None
    protocol: str
    family: str
    recalls: tuple[float, ...]
    rsum: float
    source: str
    comparable: bool
    reason: str


def published() -> list[Published]:
    """Return all rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as stream:
        return [
            Published(
                row["method"],
                row["data"],
                None if row["noise"] == "web" else float(row["noise"]),
                row["backbone"],
                int(row["networks"]) if row["networks"] else None,
                row["protocol"],
                row["family"],
                tuple(float(row[name]) for name in RECALLS if row[name]),
                float(row["rsum"]),
                row["source"],
                {"yes": True, "no": False}[row["comparable"]],
                row["reason"],
            )
            for row in csv.DictReader(stream)
        ]


def described() -> dict[str, dict[str, str]]:
    """Return what each method assumes, and why it has no published numbers where it has none."""
    found: dict[str, dict[str, str]] = yaml.safe_load(ASSUMPTIONS.read_text(encoding="utf-8"))
    return found


def published_table(method: str, rows: Sequence[Published]) -> str:
    """Return the published rows of a method, those that can be compared first; empty where there is none."""
    lines = []
    for row in sorted((row for row in rows if row.method == method), key=lambda row: not row.comparable):
        recalls = " ".join(f"{value:.1f}" for value in row.recalls)
        networks = {None: "", 1: "single"}.get(row.networks, f"{row.networks} networks")
        lines.append(
            [
                DATA[row.data],
                "–" if row.noise is None else f"{row.noise:.0%}",
                ", ".join(filter(None, [row.backbone or "matcher not stated", networks])),
                f"{PROTOCOLS[row.protocol]}; {FAMILIES[row.family]}",
                f"{row.rsum:.1f}",
                recalls,
                row.source,
                ("yes" if row.comparable else "**no**") + (f"; {row.reason}" if row.reason else ""),
            ]
        )
    head = ["data", "noise", "matcher", "protocol; noise", "rSum", "six recalls", "source", "comparable"]
    return tables.markdown(head, lines) if lines else ""


def sources() -> str:
    """Return the sources as a table."""
    return tables.markdown(["source", "what it is"], [[key, about] for key, about in SOURCES.items()])


def glance(method: str, rows: Sequence[tables.Row]) -> str:
    """Return what a method assumes, costs and reaches here with `two_tower`, the default encoders and the preset.

    Args:
        method: The method's name.
        rows: The measured rows of benchmarks/results/default_encoder.json.
    """
    costs = tables.costs_of(method)
    lines = [["assumes", described()[method]["assumes"]], ["networks", tables.networks_of(method)]]
    if costs:
        whole = costs.pop("whole", None)
        text = f"{epochs.span(max(costs.values(), key=max))} times the seconds of one of `plain`, for each network"
        if whole:
            text += f" in the costliest phase, {epochs.span(whole)} times over all phases"
        lines.append(["an epoch", text])
    else:
        lines.append(["an epoch", "as one of `plain`" if method == "plain" else "not timed beside `plain`"])
    for noise, (single, ensemble, plain, seeds) in tables.reached(method, rows).items():
        text = f"rSum {single:.1f} with a single network"
        text += "" if ensemble is None else f", {ensemble:.1f} with two"
        text += "" if plain is None or method == "plain" else f" (`plain`: {plain[0]:.1f} and {plain[1]:.1f})"
        lines.append([f"here, {noise:.0%} noise", f"{text}; {seeds} seed{'s' * (seeds > 1)}"])
    return tables.markdown(["", ""], lines)
