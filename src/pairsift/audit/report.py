"""The report: one HTML file that needs nothing else, no script and no network."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsift.audit import report_parts as parts
from pairsift.audit import report_plots as plots
from pairsift.audit.report_images import thumbnail
from pairsift.audit.report_parts import Tree, lookup, number, percent, text
from pairsift.audit.table import ISSUES_FILE, PAIRS_FILE, kinds
from pairsift.errors import writing
from pairsift.pairs.pairs import JUDGED, Pairs
from pairsift.retrieve.ranks import FloatArray

UNSURE = 12  # cards of the pairs nearest to the decision boundary
DISAGREE = 0.02  # share of flags that may lie on the wrong side of a boundary worth drawing


def write_report(
    path: Path,
    pairs: Pairs,
    table: pa.Table,
    metrics: Tree,
    log: list[dict[str, Any]],
    config: Tree,
    worst: int = 60,
) -> None:
    """Writes the report of a run as one self-contained HTML file, whole or not at all.

    The same inputs give the same bytes. Whatever is missing from `metrics`, `log` or `config` is left out.

    Args:
        path: The file; its folder exists.
        pairs: All pairs, with the image files that the thumbnails are made from; features get the image's name.
        table: From `issue_table`.
        metrics: `test` and `dev` (each `ensemble`, `network_0`, ... to the keys of `recall`), `detection`,
            `noise_rate` (`estimated`, `true`), `pairs`, `best` (`epoch`, `dev_rsum`), `seconds`, `versions`.
        log: The run's events; those with `"event": "epoch"` are drawn.
        config: The run's configuration.
        worst: Pairs to show, those with the lowest score.
    """
    body = _body(pairs, table, metrics, log, worst)
    heading, lead = _title(pairs, config)
    template = Template((files("pairsift.audit") / "report.html").read_text(encoding="utf-8"))
    page = template.substitute(
        page_title=f"{heading} · pairsift",
        heading=heading,
        lead=lead,
        body="\n".join([part for part in body if part] + [_provenance(pairs, metrics, config)]),
        footer=f"All judged pairs are in {PAIRS_FILE}, the flagged ones in {ISSUES_FILE}.",
    )
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            part.write_text(page, encoding="utf-8", newline="\n")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _body(pairs: Pairs, table: pa.Table, metrics: Tree, log: list[dict[str, Any]], worst: int) -> list[str]:
    """The sections from the headline to what was skipped; empty where there is nothing to show."""
    score = table["mismatch_score"].to_numpy()
    flag = table["is_mismatch"].to_numpy().astype(np.bool_)
    boundary = _boundary(score, flag)
    return [
        _headline(table, metrics, flag),
        _section("Retrieval", _recall_note(table, flag), parts.recall_table(metrics)),
        _section("Mismatch scores", "A score near 1 fits its image, a score near 0 does not.",
                 _scores(table, metrics, score, flag, boundary)),
        _section("Training", "", _training(log, metrics)),
        _cards(pairs, table, worst, score, boundary),
        parts.skipped(pairs),
    ]  # fmt: skip


def _section(title: str, note: str, content: str) -> str:
    about = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{about}{content}</section>" if content else ""


def _recall_note(table: pa.Table, flag: NDArray[np.bool_]) -> str:
    """What recall counts, and how many of the pairs that it takes for right are flagged themselves."""
    held = np.array([split in ("dev", "test") for split in table["split"].to_pylist()], np.bool_)
    doubted = int(flag[held].sum())
    note = "Share of queries with a right answer among the first K, in percent; rSum is the sum."
    if not doubted or "truly_mismatched" in table.column_names:  # then noise was planted, in training pairs alone
        return note
    return (
        f"{note} The given pairs of dev and test count as right, also the {doubted:,} of {int(held.sum()):,} that are "
        "flagged: where they are mismatched, recall on clean pairs is higher than shown."
    )


def _title(pairs: Pairs, config: Tree) -> tuple[str, str]:
    """The heading, and lines below it: the method, what was read, the noise."""
    source = Path(pairs.source)
    heading = text("/".join([*source.parts[-2:-1], source.name]) or "pairs", 120)
    lines = [
        f"Judged by {text(method)}." if (method := _method(config)) else "",
        f"Read: {text(pairs.taken, 400)}" if pairs.taken else "",
    ]
    if pairs.noise is not None:
        noise = pairs.noise
        lines.append(
            f"{percent(noise.ratio, 0)} of the training captions were re-pointed on purpose, by "
            f"{text(noise.granularity)} (seed {noise.seed}), so the truth is known."
        )
    return heading, "".join(f'<p class="lead">{line}</p>' for line in lines if line)


def _method(config: Tree) -> str:
    """The method's name, from `method: name` or from a nested `name` or `class_path`."""
    found = lookup(config, "method")
    if isinstance(found, Mapping):
        found = found.get("name") or found.get("class_path") or ""
    return str(found or "").rsplit(".", 1)[-1]


def _headline(table: pa.Table, metrics: Tree, flag: NDArray[np.bool_]) -> str:
    counts = Counter(table["split"].to_pylist())
    splits = " · ".join(f"{counts[name]:,} {name}" for name in (*JUDGED, "unused") if counts[name])
    items = [("Pairs judged", number(len(table), 0), splits)]
    share = percent(float(flag.mean())) if len(flag) else parts.DASH
    named = "".join(f" · {n:,} {name}" for name, n in kinds(table).items())
    items.append(("Flagged as mismatched", number(int(flag.sum()), 0), f"{share} of the judged pairs{named}"))
    noise = lookup(metrics, "noise_rate")
    if lookup(noise, "estimated") is not None:
        true = lookup(noise, "true")
        known = f" · true: {percent(true)}" if true is not None else ""
        items.append(("Estimated noise rate", percent(noise["estimated"]), f"of the training pairs{known}"))
    for split in ("test", "dev"):
        rsum = lookup(metrics, split, "ensemble", "rsum")
        if rsum is not None:
            best = lookup(metrics, "best", "epoch")
            items.append(
                (
                    f"{split.capitalize()} rSum",
                    number(rsum),
                    f"ensemble, epoch {best}" if best is not None else "ensemble",
                )
            )
            break
    auroc = lookup(metrics, "detection", "auroc")
    if auroc is not None:
        items.append(
            (
                "Detection AUROC",
                number(auroc, 3),
                f"average precision {number(lookup(metrics, 'detection', 'average_precision'), 3)}",
            )
        )
    return parts.tiles(items)


def _scores(table: pa.Table, metrics: Tree, score: FloatArray, flag: NDArray[np.bool_], boundary: float | None) -> str:
    """Distribution, noise rate, verdicts and detection."""
    if not len(score):
        return ""
    truth = table["truly_mismatched"].to_numpy().astype(np.bool_) if "truly_mismatched" in table.column_names else None
    names = ["clean", "re-pointed to another image"] if truth is not None else ["pairs"]
    plot = f"<figure>{plots.histogram(score, truth, boundary)}{plots.legend(names)}</figure>"
    rates = [
        ("estimated", lookup(metrics, "noise_rate", "estimated"), "s3"),
        ("true", lookup(metrics, "noise_rate", "true"), "s4"),
    ]
    shares = [(name, float(value), tone) for name, value, tone in rates if number(value) != parts.DASH]
    train = np.array([split == "train" for split in table["split"].to_pylist()], np.bool_)
    shares.append(("flagged", float(flag[train].mean() if train.any() else flag.mean()), "bad"))
    found = [
        (name.replace("_", " ").capitalize(), number(lookup(metrics, "detection", name), 3))
        for name in ("precision", "recall", "average_precision")
        if lookup(metrics, "detection", name) is not None
    ]
    return (
        f'<div class="grid"><div class="card"><h3>Distribution</h3>{plot}</div>'
        f'<div class="card"><h3>Noise among training pairs</h3>{parts.bars(shares)}{_verdicts(table)}'
        f"{parts.facts(found) if found else ''}</div></div>"
    )


def _verdicts(table: pa.Table) -> str:
    """The verdicts' shares as one stacked bar."""
    counts = Counter(table["verdict"].to_pylist()).most_common()
    counts.sort(key=lambda item: item[0] != "clean")
    known = {"clean": "clean", "mismatched": "bad"}
    others = iter(("s5", "s6", "s3", "s4") * len(counts))
    tones = [known.get(name) or next(others) for name, _ in counts]
    stack = "".join(
        f'<div style="--tone: var(--{tone}); flex: {n} 0 0"></div>' for (_, n), tone in zip(counts, tones, strict=True)
    )
    names = [f"{name} {n:,}" for name, n in counts]
    return f'<h3>Verdicts</h3><figure><div class="stack">{stack}</div>{plots.legend(names, tones)}</figure>'


def _training(log: list[dict[str, Any]], metrics: Tree) -> str:
    """Dev rSum and mean loss terms over the epochs; an epoch logged twice counts as its last line."""
    lines = {int(line["epoch"]): line for line in log if line.get("event") == "epoch" and "epoch" in line}
    if not lines:
        return ""
    epochs = sorted(lines)
    phases = [str(lines[epoch].get("phase") or "") for epoch in epochs]
    rsum = [_float(lookup(lines[epoch], "dev", "rsum")) for epoch in epochs]
    terms: dict[str, list[float]] = {}
    for row, epoch in enumerate(epochs):
        for name, value in _mean_terms(lookup(lines[epoch], "loss")).items():
            terms.setdefault(name, [math.nan] * len(epochs))[row] = value
    drawn = ""
    if any(map(math.isfinite, rsum)):
        plot = plots.curves("dev", "dev rSum", epochs, {"dev rSum": rsum}, phases, lookup(metrics, "best", "epoch"))
        drawn += f'<div class="card"><h3>Retrieval on dev</h3><figure>{plot}</figure></div>'
    if terms:
        plot = plots.curves("loss", "mean loss", epochs, terms, phases, None)
        names = [name.replace("_", " ") for name in terms]
        drawn += f'<div class="card"><h3>Loss terms</h3><figure>{plot}{plots.legend(names)}</figure></div>'
    return f'<div class="grid">{drawn}</div>' if drawn else ""


def _mean_terms(loss: Any) -> dict[str, float]:
    """Each term's mean over the networks."""
    found: dict[str, list[float]] = {}
    for terms in loss.values() if isinstance(loss, Mapping) else ():
        for name, value in terms.items() if isinstance(terms, Mapping) else ():
            found.setdefault(str(name), []).append(_float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else math.nan


def _cards(pairs: Pairs, table: pa.Table, worst: int, score: FloatArray, boundary: float | None) -> str:
    """The worst pairs, and those that could have gone either way."""
    near = np.argsort(np.abs(score - (0.5 if boundary is None else boundary)), kind="stable")[:UNSURE]
    groups = [
        (
            "Worst pairs",
            f"The {min(worst, len(table)):,} lowest scores; beside the line, a caption that would fit better.",
            np.arange(min(worst, len(table))),
        ),
        ("Least certain", "The scores nearest to the decision boundary: look here first to judge the judge.", near),
    ]
    pictures: dict[int, str | None] = {}
    judged = " ✓ and ✗ compare verdict and suggestion with the truth." if pairs.true_image_of is not None else ""
    out = ""
    for title, note, rows in groups:
        cards = []
        for row in table.take(rows).to_pylist():
            image = int(pairs.image_of[row["pair"]])
            if image >= 0 and image not in pictures:
                pictures[image] = thumbnail(pairs.paths[image]) if pairs.features is None else None
            missing = "image cannot be read" if pairs.features is None else f"features only: {row['image']}"
            cards.append(parts.card(row, pictures.get(image), _fits(pairs, row, image), missing))
        out += _section(title, note + judged, f'<ul class="pairs">{"".join(cards)}</ul>' if cards else "")
    return out


def _fits(pairs: Pairs, row: Tree, image: int) -> bool | None:
    """Whether the suggestion is really a caption of the image, where the truth is known."""
    if pairs.true_image_of is None or row["suggested_from_pair"] is None:
        return None
    return bool(pairs.true_image_of[row["suggested_from_pair"]] == image)


def _boundary(score: FloatArray, flag: NDArray[np.bool_]) -> float | None:
    """The score that best separates flagged pairs (below) from the others; None where none does."""
    order = np.argsort(score, kind="stable")
    score, flag = score[order], flag[order]
    if not flag.any() or flag.all():
        return None
    wrong = np.cumsum(~flag)[:-1] + (flag.sum() - np.cumsum(flag)[:-1])  # cut after the first, the second, ...
    wrong = np.where(score[1:] > score[:-1], wrong, len(flag))  # equal scores cannot be told apart
    cut = int(np.argmin(wrong))
    return float(score[cut] + score[cut + 1]) / 2 if wrong[cut] <= DISAGREE * len(flag) else None


def _provenance(pairs: Pairs, metrics: Tree, config: Tree) -> str:
    hashes = {"source": pairs.source, "data hash": pairs.hash()}
    if pairs.noise is not None:
        hashes["noise index hash"] = pairs.noise.index_hash
    shown: dict[str, Any] = {"Data": hashes, "Configuration": dict(config)}
    for key, title in (("versions", "Versions"), ("seconds", "Seconds"), ("pairs", "Pairs"), ("best", "Best epoch")):
        shown[title] = lookup(metrics, key)
    return parts.provenance(shown)
