"""Tables of the site, as Markdown: options from their classes, measured rows from `benchmarks/results`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic_core import PydanticUndefined

from pairsift.errors import dashed
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.methods.presets import Preset
from pairsift.options import Options, accepts, groups

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.append(str(ROOT / "benchmarks"))

import epochs  # noqa: E402
import flickr8k  # noqa: E402

Row = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """One option as a page shows it.

    Attributes:
        name: The option as it is typed.
        takes: What it accepts, in words.
        default: Its default as text; those of presets that differ come after it.
        about: What it does.
    """

    name: str
    takes: str
    default: str
    about: str


def options_of(
    kind: type[Options], path: tuple[str, ...] = (), presets: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Option]:
    """Return every option of a class, options of its groups included.

    Args:
        kind: The class.
        path: Names before each option's own.
        presets: Values that a preset puts in place of a default, by the name of the preset.
    """
    inner, presets = groups(kind), presets or {}
    for name, field in kind.model_fields.items():
        if name in inner:
            below = {preset: dict(values.get(name) or {}) for preset, values in presets.items()}
            yield from options_of(inner[name], (*path, name), below)
            continue
        default = None if field.default is PydanticUndefined else field.default
        others = [
            f"`{preset}`: {shown(values[name])}"
            for preset, values in presets.items()
            if name in values and values[name] != default
        ]
        yield Option(dashed(*path, name), accepts(field), "; ".join([shown(default), *others]), field.description or "")


def shown(value: object) -> str:
    """Return a default as a cell has it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; bars within a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def options_table(
    kind: type[Options], path: tuple[str, ...] = (), presets: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Return the options of a class as a table; empty where it has none."""
    rows = [[f"`{one.name}`", one.takes, one.default, _literal(one.about)] for one in options_of(kind, path, presets)]
    return markdown(["option", "takes", "default", "meaning"], rows) if rows else ""


def presets_table(presets: Mapping[str, Preset]) -> str:
    """Return what each preset sets beside the method's own options: the loss and the loop."""
    rows = []
    for name, preset in presets.items():
        loss = [f"`{dashed(preset.loss, key)} {shown(value)}`" for key, value in _of_loss(preset).items()]
        loop = [f"`{dashed(key)} {shown(value)}`" for key, value in preset.train.items()]
        rows.append([f"`{name}`", " ".join([f"`{preset.loss}`", *loss]), ", ".join(loop) or "the loop's defaults"])
    return markdown(["preset", "loss", "loop"], rows)


def _of_loss(preset: Preset) -> Mapping[str, Any]:
    return preset.losses.get(preset.loss, {})


def _literal(text: str) -> str:
    """Keep characters of a description that Markdown would read as marks."""
    return "".join("\\" + mark if mark in "*_<>$" else mark for mark in text)


def results(name: str) -> list[Row]:
    """Return the rows of a results file."""
    rows: list[Row] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def older(rows: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """Return the rows of matchers, encoders, losses and noise at which a method has none that is newer.

    Rows of the same place stay together, since they are compared with each other.
    """

    def methods_of(measured: Sequence[Row]) -> dict[tuple[Any, ...], set[str]]:
        found: dict[tuple[Any, ...], set[str]] = {}
        for row in measured:
            found.setdefault(_place(row), set()).add(flickr8k.VARIANTS.get(row["method"], (row["method"],))[0])
        return found

    known, given = methods_of(newer), methods_of(rows)
    return [row for row in rows if given[_place(row)] - known.get(_place(row), set())]


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("matcher", "text_encoder", "loss", "images", "noise"))


def method_scores(method: str, rows: Sequence[Row]) -> str:
    """Return the measured rows of a method, means over the seeds, with `plain` at the same place; empty for none."""
    groups_of: dict[tuple[int, str, str, float], list[Row]] = {}
    for row in rows:
        if flickr8k.VARIANTS.get(row["method"], (row["method"],))[0] == method:
            place = list(MATCHERS).index(row["matcher"])
            groups_of.setdefault((place, _setup(row), row["loss"], row["noise"]), []).append(row)
    lines = []
    for (_, setup, loss, noise), group in sorted(groups_of.items(), key=lambda item: item[0]):
        rsum = [row["rsum"] for row in group]
        measured = method not in flickr8k.YARDSTICKS
        plain = [other["rsum"] for row in group if (other := flickr8k.beside(list(rows), row, "plain"))]
        recovery = flickr8k.recovery(list(rows), group) if measured else None
        lines.append(
            [
                setup,
                loss,
                f"{noise:.0%}",
                f"{mean(row['rsum_single'] for row in group):.1f}",
                f"{mean(rsum):.1f}",
                str(len(group)),
                f"{max(rsum) - min(rsum):.1f}" if len(group) > 1 else "",
                f"{mean(plain):.1f}" if plain and measured else "",
                "" if recovery is None else f"{recovery:.2f}",
                flickr8k.shown(flickr8k.mean_of(group, "auroc") if noise else None, ".3f"),
            ]
        )
    head = ["matcher, text", "loss", "noise", "single", "rSum", "seeds", "spread", "`plain`", "recovery", "AUROC"]
    return markdown(head, lines) if lines else ""


def _setup(row: Row) -> str:
    few = f", {row['images']:,} images" if row.get("images") else ""
    own = [*([f"as `{row['method']}`"] if row["method"] in flickr8k.VARIANTS else []), *flickr8k.own_options(row)]
    words = [option if option.startswith("as ") else f"`{option}`" for option in own]
    return ", ".join([f"{row['matcher']}, {row['text_encoder']}{few}", *words])


def matcher_scores(matcher: str, rows: Sequence[Row]) -> str:
    """Return the methods' scores on a matcher by text encoder, loss and noise; empty where none is measured."""
    own = [row for row in rows if row["matcher"] == matcher and not flickr8k.own_options(row)]
    columns: dict[str, list[Row]] = {}
    for row in sorted(own, key=lambda row: (row["text_encoder"], row["loss"], row["noise"])):
        columns.setdefault(f"{row['text_encoder']}, {row['loss']}, {row['noise']:.0%}", []).append(row)
    if not columns:
        return ""
    head, rule, *lines = flickr8k.grid(columns, list(rows)).splitlines()
    return "\n".join([head, rule, *(line for line in lines if line.partition(" | ")[2].strip(" |"))])


def matcher_costs(matcher: str) -> str:
    """Return what a matcher holds and costs, and what was timed of it."""
    [row] = [row for row in results("matchers") if row["matcher"] == matcher]
    cells = [
        "inner product" if row["factorises"] else "needs tokens",
        str(row["dim"]),
        f"{row['parameters'] / 1e6:.1f}",
        f"{row['encoder_gflop']:.1f}",
        f"{row['pair_mflop']:.3g}",
    ]
    head = ["similarity", "global vector", "parameters, M", "encoders, GFLOP for 128 pairs", "MFLOP a pair"]
    return markdown(head, [cells])


def matcher_speed(matcher: str) -> str:
    """Return how much faster than a loop over captions a matcher runs here; empty where none was timed."""
    rows = [
        [
            f"`{row['name']}`",
            f"{row['ratio']:.2f}x",
            f"{row['loop_seconds']:.1f}",
            f"{row['seconds']:.2f}",
        ]
        for row in results("similarity")
        if row["name"].partition("_")[0] == matcher
    ]
    return markdown(["row", "against the loop", "loop, s", "here, s"], rows) if rows else ""


def epoch_costs(method: str) -> str:
    """Return what an epoch of each phase costs against one of `plain`, in float32; empty where none was timed."""
    rows = [[phase, span(costs)] for phase, costs in costs_of(method).items()]
    return markdown(["phase", "epochs of `plain`"], rows) if rows else ""


def span(costs: Sequence[float]) -> str:
    """Return the lowest and the highest of costs as text."""
    return " to ".join(f"{cost:.2f}" for cost in sorted({min(costs), max(costs)}))


def costs_of(method: str) -> dict[str, list[float]]:
    """Return the costs of each phase of a method, one for each run that timed it in float32, in epochs of `plain`.

    The last one, of several phases, is `whole`: the mean over the epochs of a training run with the preset's lengths.
    """
    runs = json.loads((RESULTS / "epochs.json").read_text(encoding="utf-8"))["runs"]
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in run["rows"]:
            if row["method"] == method and not run["options"]:
                for phase, cost in (row["costs"] | epochs.whole(method, run["matcher"], row["costs"])).items():
                    found.setdefault(phase, []).append(cost)
    return found


def networks_of(method: str) -> str:
    """Return how many networks a method trains, and whether another number is possible."""
    kind = METHODS[method]
    field = kind.model_fields["networks"]
    usual = {one: preset.method.get("networks", field.default) for one, preset in kind.presets.items()}
    others = [f"`{one}`: {number}" for one, number in usual.items() if number != field.default]
    return "; ".join([f"{field.default} by default", *others])


Reached = tuple[float, float | None, tuple[float, float] | None, int]


def reached(method: str, rows: Sequence[Row]) -> dict[float, Reached]:
    """Return what a method reached with `two_tower` and its preset, by noise, as means over the seeds.

    Returns:
        rSum of single networks, of ensembles (None where the method trains one network), both of `plain` at the same
        seeds (None where it was not measured at all of them), and the number of seeds.
    """
    setup = {"matcher": "two_tower", "text_encoder": "wordllama", "loss": "infonce", "images": None}
    own = [row for row in flickr8k.having(list(rows), setup) if not flickr8k.own_options(row)]
    found: dict[float, Reached] = {}
    for noise in sorted({row["noise"] for row in own}):
        group = flickr8k.having(own, {"method": method, "noise": noise})
        if not group:
            continue
        beside = [other for row in group if (other := flickr8k.beside(own, row, "plain"))]
        plain = None
        if len(beside) == len(group):
            plain = mean(row["rsum_single"] for row in beside), mean(row["rsum"] for row in beside)
        ensemble = mean(row["rsum"] for row in group) if min(row["networks"] for row in group) > 1 else None
        found[noise] = mean(row["rsum_single"] for row in group), ensemble, plain, len(group)
    return found
