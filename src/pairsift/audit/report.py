"""The report: one HTML file that needs nothing else, no script and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa

from pairsift.audit import report_charts as charts
from pairsift.audit import report_parts as parts
from pairsift.audit.report_cards import pair_sections
from pairsift.audit.report_findings import Findings
from pairsift.audit.report_parts import Tree, lookup, number, percent, text
from pairsift.audit.table import PAIRS_FILE, SUSPECTS_FILE, kinds
from pairsift.files import write_text
from pairsift.pairs.pairs import JUDGED, Pairs


def write_report(
    path: Path,
    pairs: Pairs,
    table: pa.Table,
    metrics: Tree,
    log: list[dict[str, Any]],
    config: Tree,
    page: int = 60,
) -> None:
    """Write the report of a run as one self-contained HTML file, whole or not at all.

    The same inputs give the same bytes in the same folder. Whatever is missing from `metrics`, `log` or `config` is
    left out. Epochs are counted from 0 in `metrics` and `log`, and from 1 in the report.

    Args:
        path: The file; its folder exists.
        pairs: All pairs, with the image files that the thumbnails are made from; features get the image's name.
        table: From `pair_table`.
        metrics: `warnings` (sentences that come first), `test` and `dev` (each `ensemble`, `network_0`, ... to the
            keys of `recall`), `detection`, `noise_rate` (`estimated` with `low` and `high`, `true`), `verdicts_given`
            (False makes the table a ranking alone), `pairs`, `best` (`epoch`, `dev_rsum`), `seconds`, `versions`.
        log: The run's events; those with `"event": "epoch"` are drawn.
        config: The run's configuration.
        page: Suspects on a page; further ones are folded, and those beyond `report_cards.SUSPECTS` only counted.
    """
    findings = Findings(pairs, table, metrics, log, path.absolute().parent)
    plain, heading, lead = _title(pairs, config)
    template = Template((files("pairsift.audit") / "report.html").read_text(encoding="utf-8"))
    content = template.substitute(
        page_title=f"{plain} · pairsift",
        heading=heading,
        lead=lead,
        body="\n".join(filter(None, _body(findings, config, page))),
        footer=f"All judged pairs are in {PAIRS_FILE}, the flagged ones in {SUSPECTS_FILE}.",
    )
    write_text(path, content)


def _body(findings: Findings, config: Tree, page: int) -> list[str]:
    """List the sections from the warnings to the provenance; empty where there is nothing to show."""
    return [
        parts.warnings(lookup(findings.metrics, "warnings")),
        parts.skipped_line(findings.pairs),
        _headline(findings),
        charts.retrieval(findings),
        charts.probabilities(findings),
        charts.training(findings),
        pair_sections(findings, page),
        parts.skipped(findings.pairs),
        _provenance(findings, config),
    ]


def _title(pairs: Pairs, config: Tree) -> tuple[str, str, str]:
    """Write the page's title, the heading, and lines below it: the method, what was read, the noise."""
    source = Path(pairs.source)
    name = "/".join([*source.parts[-2:-1], source.name]) or "pairs"
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
    lead = "".join(f'<p class="lead">{line}</p>' for line in lines if line)
    heading = f'<span title="{text(pairs.source)}">{text(parts.middle_cut(name, 80))}</span>'
    return text(parts.middle_cut(name, 80)), heading, lead


def _method(config: Tree) -> str:
    """Return the method's name, from `method: name` or from a nested `name` or `class_path`."""
    found = lookup(config, "method")
    if isinstance(found, Mapping):
        found = found.get("name") or found.get("class_path") or ""
    return str(found or "").rsplit(".", 1)[-1]


def _headline(findings: Findings) -> str:
    """Write the tiles: name, value, what stands beside the value, a line below."""
    table, metrics = findings.table, findings.metrics
    counts = Counter(table["split"].to_pylist())
    splits = " · ".join(f"{counts[name]:,} {name}" for name in (*JUDGED, "unused") if counts[name])
    items = [("Pairs judged", number(len(table), 0), "", splits), _flagged(findings)]
    noise = lookup(metrics, "noise_rate")
    if lookup(noise, "estimated") is not None:
        true = lookup(noise, "true")
        known = f" · true: {percent(true)}" if true is not None else ""
        share = percent(noise["estimated"])
        items.append(("Estimated noise rate", share, parts.interval(noise), f"of the training pairs{known}"))
    for split in ("test", "dev"):
        rsum = lookup(metrics, split, "ensemble", "rsum")
        if rsum is not None:
            best = charts.best_epoch(findings)
            about = "sum of six R@K · ensemble" + (f", epoch {best}" if best is not None else "")
            items.append((f"{split.capitalize()} rSum", number(rsum), "of 600", about))
            break
    auroc = lookup(metrics, "detection", "auroc")
    if auroc is not None:
        precision = number(lookup(metrics, "detection", "average_precision"), 3)
        items.append(("Detection AUROC", number(auroc, 3), "", f"average precision {precision}"))
    return parts.tiles(items)


def _flagged(findings: Findings) -> tuple[str, str, str, str]:
    """Return the tile of the flagged pairs, or that none are."""
    if not findings.verdicts_given:
        return "Verdicts", "none", "", "too few pairs to judge: a ranking alone"
    flag = findings.flag
    share = percent(float(flag.mean())) if len(flag) else parts.DASH
    named = "".join(f" · {n:,} {name}" for name, n in kinds(findings.table).items())
    return "Flagged as mismatched", number(int(flag.sum()), 0), "", f"{share} of the judged pairs{named}"


def _provenance(findings: Findings, config: Tree) -> str:
    """Write the section of hashes, configuration, versions and times."""
    pairs, metrics = findings.pairs, findings.metrics
    hashes = {"source": pairs.source, "data hash": pairs.hash()}
    if pairs.noise is not None:
        hashes["noise index hash"] = pairs.noise.index_hash
    shown: dict[str, Any] = {"Data": hashes, "Configuration": dict(config)}
    titles = {
        "versions": "Versions",
        "seconds": "Seconds",
        "pairs": "Pairs",
        "best": "Best epoch, here counted from 0 as in metrics.json",
    }
    for key, title in titles.items():
        shown[title] = lookup(metrics, key)
    return parts.provenance(shown)
