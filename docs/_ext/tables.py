"""Tables of the site, as Markdown: options from their classes, measured rows from `benchmarks/results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from pydantic_core import PydanticUndefined

import epochs
import matchers
import method_tables
import rows as results
from pairsift.errors import dashed
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.methods.presets import Preset
from pairsift.options import Options, accepts, groups

Row = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """One option as a page shows it.

    Attributes:
        name: The option as it is typed.
        takes: What it accepts, in words.
        default: Its default as text, followed by defaults of presets that differ.
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
            f"`{preset}`: {as_text(values[name])}"
            for preset, values in presets.items()
            if name in values and values[name] != default
        ]
        yield Option(
            dashed(*path, name), accepts(field), "; ".join([as_text(default), *others]), field.description or ""
        )


def as_text(value: object) -> str:
    """Return a default as a cell has it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; bars within a cell are escaped."""
    text: str = results.markdown(head, [[cell.replace("|", "\\|") for cell in row] for row in rows])
    return text


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
        loss = [f"`{dashed(preset.loss, key)} {as_text(value)}`" for key, value in _of_loss(preset).items()]
        loop = [f"`{dashed(key)} {as_text(value)}`" for key, value in preset.train.items()]
        rows.append([f"`{name}`", " ".join([f"`{preset.loss}`", *loss]), ", ".join(loop) or "the loop's defaults"])
    return markdown(["preset", "loss", "loop"], rows)


def _of_loss(preset: Preset) -> Mapping[str, Any]:
    return preset.losses.get(preset.loss, {})


def _literal(text: str) -> str:
    """Keep characters of a description that Markdown would read as marks."""
    return "".join("\\" + mark if mark in "*_<>$" else mark for mark in text)


def measured(name: str) -> list[Row]:
    """Return the rows of a file in benchmarks/results."""
    rows: list[Row] = results.read_rows(results.RESULTS / f"{name}.json")
    return rows


def older_rows(rows: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """Return the rows of matchers, encoders, losses and noise at which a method has none that is newer.

    Rows of the same place stay together, since they are compared with each other.
    """

    def methods_of(rows: Sequence[Row]) -> dict[tuple[Any, ...], set[str]]:
        found: dict[tuple[Any, ...], set[str]] = {}
        for row in rows:
            found.setdefault(_place(row), set()).add(method_tables.method_of(row))
        return found

    known, given = methods_of(newer), methods_of(rows)
    return [row for row in rows if given[_place(row)] - known.get(_place(row), set())]


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("matcher", "text_encoder", "loss", "images", "noise"))


def method_scores(method: str, rows: Sequence[Row]) -> str:
    """Return the measured rows of a method, means over the seeds, with `plain` at the same place; empty for none."""
    groups_of: dict[tuple[int, str, str, float], list[Row]] = {}
    for row in rows:
        if method_tables.method_of(row) == method:
            place = list(MATCHERS).index(row["matcher"])
            groups_of.setdefault((place, _setup(row), row["loss"], row["noise"]), []).append(row)
    lines = []
    for (_, setup, loss, noise), group in sorted(groups_of.items(), key=lambda item: item[0]):
        rsum = [row["rsum"] for row in group]
        compared = method not in method_tables.YARDSTICKS
        plain = [other["rsum"] for row in group if (other := method_tables.beside(list(rows), row, "plain"))]
        recovery = method_tables.recovery(list(rows), group) if compared else None
        lines.append(
            [
                setup,
                loss,
                f"{noise:.0%}",
                f"{mean(row['rsum_single'] for row in group):.1f}",
                f"{mean(rsum):.1f}",
                str(len(group)),
                f"{max(rsum) - min(rsum):.1f}" if len(group) > 1 else "",
                f"{mean(plain):.1f}" if plain and compared else "",
                "" if recovery is None else f"{recovery:.2f}",
                results.mean((row["auroc"] for row in group if noise), ".3f"),
            ]
        )
    head = ["matcher, text", "loss", "noise", "single", "rSum", "seeds", "spread", "`plain`", "recovery", "AUROC"]
    return markdown(head, lines) if lines else ""


def _setup(row: Row) -> str:
    """Return the matcher, the text encoder, and what else sets a row apart."""
    few = [f"{row['images']:,} images"] if row.get("images") else []
    variant = [f"as `{row['method']}`"] if row["method"] in method_tables.VARIANTS else []
    options = [f"`{option}`" for option in method_tables.own_options(row)]
    return ", ".join([row["matcher"], row["text_encoder"], *few, *variant, *options])


def matcher_scores(matcher: str, rows: Sequence[Row]) -> str:
    """Return the methods' scores on a matcher by text encoder, loss and noise; empty where none is measured."""
    own = [row for row in rows if row["matcher"] == matcher and not method_tables.own_options(row)]
    columns: dict[str, list[Row]] = {}
    for row in sorted(own, key=lambda row: (row["text_encoder"], row["loss"], row["noise"])):
        columns.setdefault(f"{row['text_encoder']}, {row['loss']}, {row['noise']:.0%}", []).append(row)
    if not columns:
        return ""
    table: str = method_tables.by_columns(columns, list(rows))
    return table


def matcher_costs(matcher: str) -> str:
    """Return what a matcher holds and costs, and what was timed of it."""
    [row] = results.select(measured("matchers"), {"matcher": matcher})
    return markdown(matchers.HEAD, [matchers.cells(row)])


def matcher_speed(matcher: str) -> str:
    """Return how much faster than a loop over captions a matcher runs here; empty where none was timed."""
    rows = [
        [
            f"`{row['name']}`",
            f"{row['ratio']:.2f}x",
            f"{row['loop_seconds']:.1f}",
            f"{row['seconds']:.2f}",
        ]
        for row in measured("similarity")
        if row["name"].partition("_")[0] == matcher
    ]
    return markdown(["row", "against the loop", "loop, s", "here, s"], rows) if rows else ""


def epoch_costs(method: str) -> str:
    """Return what an epoch of each phase costs against one of `plain`, in float32; empty where none was timed."""
    rows = [[phase, epochs.span(costs)] for phase, costs in costs_of(method).items()]
    return markdown(["phase", "epochs of `plain`"], rows) if rows else ""


def costs_of(method: str) -> dict[str, list[float]]:
    """Return the costs of each phase of a method, one for each run that timed it in float32, in epochs of `plain`.

    With several phases the last cost is `whole`, the mean over a training run as the preset has it.
    """
    found: dict[str, list[float]] = {}
    for row in results.select(measured("epochs"), {"method": method, "options": []}):
        for phase, cost in epochs.costs_of(row).items():
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

    Args:
        method: The method's name.
        rows: The measured rows, with one text encoder.

    Returns:
        rSum of single networks, of ensembles (None where the method trains one network), both of `plain` at the same
        seeds (None where it was not measured at all of them), and the number of seeds.
    """
    setup = {"matcher": "two_tower", "loss": "infonce", "images": None}
    own = [row for row in results.select(list(rows), setup) if not method_tables.own_options(row)]
    found: dict[float, Reached] = {}
    for noise in sorted({row["noise"] for row in own}):
        group = results.select(own, {"method": method, "noise": noise})
        if not group:
            continue
        beside = [other for row in group if (other := method_tables.beside(own, row, "plain"))]
        plain = None
        if len(beside) == len(group):
            plain = mean(row["rsum_single"] for row in beside), mean(row["rsum"] for row in beside)
        ensemble = mean(row["rsum"] for row in group) if min(row["networks"] for row in group) > 1 else None
        found[noise] = mean(row["rsum_single"] for row in group), ensemble, plain, len(group)
    return found
