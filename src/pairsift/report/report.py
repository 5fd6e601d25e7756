"""The report: a single HTML file that needs no other file, no script and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pairsift.files import write_text
from pairsift.pairs.pairs import JUDGED, Pairs
from pairsift.report import charts, parts
from pairsift.report.calibration import thresholds
from pairsift.report.duplicates import duplicates
from pairsift.report.findings import Findings
from pairsift.report.pages import pair_sections
from pairsift.report.parts import Tree, lookup, number, percent, text
from pairsift.report.run_card import run_card
from pairsift.table import PAIRS_FILE, SUSPECTS_FILE, count_verdicts

MAX_BYTES = 5_000_000  # largest size of the file
MARGIN = 1000  # bytes for the links to the sections of pairs
PLANTED = {  # what noise did to captions, by its kind
    "near": "exchanged with captions of other images that read much alike",
    "edit": "made wrong in one word",
    "vague": "replaced by captions that fit many images",
}


def write_report(
    path: Path,
    pairs: Pairs,
    table: pa.Table,
    metrics: Tree,
    log: list[dict[str, Any]],
    config: Tree,
    page: int = 60,
    citation: str = "",
) -> None:
    """Write the report of a run as a self-contained HTML file; a failed write keeps the old file.

    The same inputs give the same bytes in the same folder. A section without data in `metrics`, `log` or `config` is
    left out. Epochs are counted from 0 in `metrics` and `log`, and from 1 in the report.

    Args:
        path: Path of the file, in an existing folder.
        pairs: All pairs. Thumbnails are made from the image files; an image of which only features exist is shown by
            its name.
        table: The table from `pair_table`.
        metrics: `warnings` (each with a `text` that the report shows first), `test` and `dev` (each maps `ensemble`,
            `network_0`, ... to the keys of `recall`), `detection`, `detectors`, `noise_rate` (`estimated` with `low`
            and `high`, `true`), `verdicts_given` (False if the table is only a ranking), `pairs`, `best` (`epoch`,
            `dev_rsum`), `seconds`, `versions`, `data` (`hash`), `seed`, `encoders` (`image_encoder`, `text_encoder`).
        log: The run's events; events with `"event": "epoch"` are plotted.
        config: The run's configuration.
        page: Number of suspects on a page. The pages after the first are folded. Suspects beyond `PAIRS` of
            `report_pages`, and those that would make the file larger than `MAX_BYTES`, are only counted.
        citation: BibTeX entry of the paper of the method; empty where there is none.
    """
    findings = Findings(pairs, table, metrics, log, path.absolute().parent)
    top = [
        parts.warnings([warning["text"] for warning in lookup(metrics, "warnings") or ()]),
        parts.skipped_line(pairs),
        _headline(findings),
    ]
    before = [
        charts.retrieval(findings),
        charts.probabilities(findings),
        thresholds(findings),
        charts.training(findings),
    ]
    after = [duplicates(findings), parts.skipped(pairs), run_card(findings, config, citation)]
    size = len(_page(pairs, config, top, [*before, *after]).encode())
    pages = pair_sections(findings, page, MAX_BYTES - MARGIN - size)
    write_text(path, _page(pairs, config, top, [*before, pages, *after]))


def _page(pairs: Pairs, config: Tree, top: list[str], sections: list[str]) -> str:
    """Write the page with links to its sections; a section without content is an empty string."""
    plain, heading, lead = _title(pairs, config)
    footer = f"All judged pairs are in {PAIRS_FILE}, the flagged ones in {SUSPECTS_FILE}."
    titles = {"page_title": f"{plain} · pairsift", "eyebrow": "pairsift report", "heading": heading}
    body = parts.linked("\n".join(filter(None, sections)))
    return parts.page({**titles, "lead": lead, "footer": footer}, [*top, body])


def _title(pairs: Pairs, config: Tree) -> tuple[str, str, str]:
    """Write the page's title, the heading, and the lines below it: the method, the source, the planted noise."""
    source = Path(pairs.source)
    name = "/".join([*source.parts[-2:-1], source.name]) or "pairs"
    lines = [
        f"Method: {text(method)}." if (method := _method(config)) else "",
        f"Read: {text(pairs.description, 400)}" if pairs.description else "",
    ]
    if pairs.noise is not None:
        noise, whose = pairs.noise, "captions of each split" if pairs.noise.splits == "all" else "training captions"
        lines.append(
            f"Planted noise: {percent(noise.ratio, 0)} of the {whose} were "
            f"{PLANTED.get(noise.kind, 'moved to other images')}, by "
            f"{text(noise.granularity)} (seed {noise.seed}), so the truth is known."
        )
    lead = "".join(f'<p class="lead">{line}</p>' for line in lines if line)
    heading = f'<span title="{text(pairs.source)}">{text(parts.middle_cut(name, 80))}</span>'
    return text(parts.middle_cut(name, 80)), heading, lead


def _method(config: Tree) -> str:
    """Return the method's name, from `method: name` or from a nested `name` or `class_path`."""
    method = lookup(config, "method")
    if isinstance(method, Mapping):
        method = method.get("name") or method.get("class_path") or ""
    return str(method or "").rsplit(".", 1)[-1]


def _headline(findings: Findings) -> str:
    """Write the tiles with the headline numbers of the run."""
    table, metrics = findings.table, findings.metrics
    counts = Counter(table["split"].to_pylist())
    splits = " · ".join(f"{counts[name]:,} {name}" for name in (*JUDGED, "unused") if counts[name])
    items = [("Pairs judged", number(len(table), 0), "", splits), _flagged(findings)]
    noise = lookup(metrics, "noise_rate")
    if lookup(noise, "estimated") is not None:
        true = lookup(noise, "true")
        truth = f" · true: {percent(true)}" if true is not None else ""
        share = percent(noise["estimated"])
        items.append(("Estimated noise rate", share, parts.interval(noise), f"of the training pairs{truth}"))
    for split in ("test", "dev"):
        rsum = lookup(metrics, split, "ensemble", "rsum")
        if rsum is not None:
            best = charts.best_epoch(findings)
            details = "sum of six R@K · ensemble" + (f", epoch {best}" if best is not None else "")
            items.append((f"{split.capitalize()} rSum", number(rsum), "of 600", details))
            break
    auroc = lookup(metrics, "detection", "auroc")
    if auroc is not None:
        precision = number(lookup(metrics, "detection", "average_precision"), 3)
        items.append(("Detection AUROC", number(auroc, 3), "", f"average precision {precision}"))
    return parts.tiles(items)


def _flagged(findings: Findings) -> tuple[str, str, str, str]:
    """Return the tile with the number of flagged pairs, or a tile that says that there are no verdicts."""
    if not findings.verdicts_given:
        return "Verdicts", "none", "", "not enough evidence: the pairs are only ranked"
    flag = findings.flag
    share = percent(float(flag.mean())) if len(flag) else parts.DASH
    counts = "".join(f" · {n:,} {name}" for name, n in count_verdicts(findings.table).items())
    return "Flagged as mismatched", number(int(flag.sum()), 0), "", f"{share} of the judged pairs{counts}"
