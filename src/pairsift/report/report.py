"""The report: a single HTML file that needs no other file, no script and no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from pairsift.files import write_text
from pairsift.pairs.pairs import JUDGED, Pairs
from pairsift.pairs.skips import count_reasons
from pairsift.report import plots
from pairsift.report.cards import pair_sections
from pairsift.report.findings import THRESHOLD, Findings, Section
from pairsift.report.html import Tree, interval, number, percent, render
from pairsift.report.reliability import reliability
from pairsift.review.decisions import note_on_rates, threshold_table
from pairsift.table import VAGUE, count_verdicts

MAX_BYTES = 5_000_000  # largest size of the file
MARGIN = 3000  # bytes for the headings, notes and links of the sections of pairs
PLANTED = {  # what noise did to captions, by its kind
    "near": "exchanged with captions of other images that read much alike",
    "edit": "made wrong in one word",
    "vague": "replaced by captions that fit many images",
}
DETECTORS = {
    "linear": "Ridge canonical correlation",
    "cosine": "Cosine of the given vectors",
    "near_images": "Captions of similar images",
    "near_captions": "Images of similar captions",
    "networks": "Networks",
    "memory": "Networks that learned the pairs",
    "linear_siblings": "Correlation and other captions",
    "cosine_siblings": "Cosine and other captions",
    "networks_siblings": "Networks and other captions",
}
THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
GROUPS = 12  # groups of duplicates that are shown of each kind, the largest first
MEMBERS = 4  # names that are shown of a group
REASONS, SKIPS = 20, 50  # reasons and records that the section of skipped records shows
OF_CHECK = ("image_encoder", "text_encoder", "seed")  # choices that matter where nothing is trained
CHOICES = ("method", "matcher", "loss", "preset", "image_encoder", "text_encoder", "device", "precision", "seed")
CITE_PAIRSIFT = (
    "The pairsift authors, “pairsift: image-text retrieval under noisy correspondence, and the pairs that are "
    "mismatched”, software{version}, Apache-2.0."
)


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
        pairs: All pairs. Thumbnails are made from the image files. Where the source has features instead of images,
            names are shown.
        table: The table from `pair_table`.
        metrics: The content of `metrics.json`, and the names of the `encoders`.
        log: The run's events; those of epochs are plotted.
        config: The run's options.
        page: Number of suspects on a page. The pages after the first are folded. Suspects beyond `PAIRS` of
            `pairsift.report.cards`, and those that would make the file larger than `MAX_BYTES`, are only counted.
        citation: BibTeX entry of the paper of the method; empty where there is none.
    """
    findings = Findings(pairs, table, metrics, log, path.absolute().parent)
    source = Path(pairs.source)
    facts = {
        "source": pairs.source,
        "name": "/".join([*source.parts[-2:-1], source.name]) or "pairs",
        "method": config.get("method"),
        "description": pairs.description,
        "noise": pairs.noise,
        "planted": None if pairs.noise is None else PLANTED.get(pairs.noise.kind, "moved to other images"),
        "warnings": [warning["text"] for warning in metrics.get("warnings", ())],
        "n_skips": len(pairs.skipped),
        "skipped": _skipped_line(pairs),
        "tiles": _tiles(findings),
    }
    before = [_retrieval(findings), _probabilities(findings), _thresholds(findings), _training(findings)]
    after = [_duplicates(findings), _skipped(pairs), _run_card(findings, config, citation)]

    def content(cards: list[Section]) -> str:
        return render("report.html", **facts, sections=[part for part in (*before, *cards, *after) if part is not None])

    room = MAX_BYTES - MARGIN - len(content([]).encode())
    write_text(path, content(pair_sections(findings, page, room)))


def _skipped_line(pairs: Pairs) -> str:
    """Return how many pairs were skipped, and how many are no longer in the source."""
    gone, present = pairs.n_gone, len(pairs) - pairs.n_gone
    line = f"{pairs.n_skipped - gone:,} of {present:,} pairs were skipped"
    return line + f", and {gone:,} pairs of the run are no longer in the source" * bool(gone)


def _tiles(findings: Findings) -> list[tuple[str, str, str, str]]:
    """Return the headline numbers: of each a name, a value, a small text beside it, and a line below."""
    table, metrics = findings.table, findings.metrics
    counts = Counter({row["values"]: row["counts"] for row in table["split"].value_counts().to_pylist()})
    splits = " · ".join(f"{counts[name]:,} {name}" for name in (*JUDGED, "unused") if counts[name])
    tiles = [("Pairs judged", number(len(table), 0), "", splits), _flagged(findings)]
    noise = metrics.get("noise_rate", {})
    if noise.get("estimated") is not None:
        truth = f" · true: {percent(noise['true'])}" if "true" in noise else ""
        share = percent(noise["estimated"])
        tiles.append(("Estimated noise rate", share, interval(noise), f"of the training pairs{truth}"))
    if "test" in metrics:
        best = _best_epoch(findings)
        details = "sum of six R@K · ensemble" + (f", epoch {best}" if best is not None else "")
        tiles.append(("Test rSum", number(metrics["test"]["ensemble"]["rsum"]), "of 600", details))
    found = metrics.get("detection", {})
    if found.get("auroc") is not None:
        precision = f"average precision {number(found['average_precision'], 3)}"
        tiles.append(("Detection AUROC", number(found["auroc"], 3), "", precision))
    return tiles


def _flagged(findings: Findings) -> tuple[str, str, str, str]:
    """Return the tile with the number of flagged pairs, or a tile that says that there are no verdicts."""
    if not findings.verdicts_given:
        return "Verdicts", "none", "", "not enough evidence: the pairs are only ranked"
    flag = findings.flag
    share = percent(flag.mean() if len(flag) else None)
    counts = "".join(f" · {n:,} {name}" for name, n in count_verdicts(findings.table).items())
    return "Flagged as mismatched", number(int(flag.sum()), 0), "", f"{share} of the judged pairs{counts}"


def _retrieval(findings: Findings) -> Section | None:
    """Return the recall of each network, and the number of flagged pairs of dev and test, which count as correct."""
    titles = {"test": "test", "test_matching": "test, truly matching pairs alone", "dev": "dev"}
    splits = [
        {"title": title, "recalls": findings.metrics[split]}
        for split, title in titles.items()
        if split in findings.metrics
    ]
    if not splits:
        return None
    rows = findings.in_splits("dev", "test")
    flagged = int(findings.flag[rows].sum()) if findings.truth is None else 0  # only training pairs have planted noise
    return {
        "kind": "retrieval",
        "title": "Retrieval",
        "splits": splits,
        "notes": [note for notes in findings.metrics.get("recall_notes", {}).values() for note in notes],
        "flagged": flagged,
        "held_out": int(rows.sum()),
    }


def _probabilities(findings: Findings) -> Section | None:
    """Return the distribution of match probabilities, and the detection of planted noise."""
    if not len(findings.probability):
        return None
    given, metrics = findings.verdicts_given, findings.metrics
    names = ["clean", "planted mismatch"] if findings.truth is not None else ["pairs"]
    measures = ("precision", "recall", "average_precision") if given else ("auroc", "average_precision")
    values = {name: metrics.get("detection", {}).get(name) for name in measures}
    titles = {name: "AUROC" if name == "auroc" else name.replace("_", " ").capitalize() for name in measures}
    detectors = metrics.get("detectors", {}).items()
    return {
        "kind": "probabilities",
        "title": "Match probabilities",
        "verdicts_given": given,
        "threshold": THRESHOLD,
        "plot": plots.histogram(findings.probability, findings.truth, THRESHOLD if given else None),
        "legend": plots.legend(names),
        "scores": [(titles[name], number(value, 3)) for name, value in values.items() if value is not None],
        "detectors": [(DETECTORS.get(name, name), number(found["auroc"], 3)) for name, found in detectors],
    }


def _thresholds(findings: Findings) -> Section | None:
    """Return the pairs below each threshold, how many of these are expected to match, and the calibration."""
    probability, truth, train = findings.probability, findings.truth, findings.in_splits("train")
    if not len(probability):
        return None
    rows = threshold_table(probability, THRESHOLDS).to_pylist()
    for row in rows:
        row["share"] = row["pairs"] / len(probability)
        row["strong"] = findings.verdicts_given and row["threshold"] == THRESHOLD
        row["good"] = None if truth is None else int((~truth & (probability < row["threshold"])).sum())
    calibration = None
    if truth is not None and train.any():
        found = reliability(probability[train], ~truth[train])
        calibration = {"plot": plots.reliability(found), "error": found.error, "pairs": int(found.pairs.sum())}
    return {
        "kind": "thresholds",
        "title": "How many to drop",
        "verdicts_given": findings.verdicts_given,
        "rates": note_on_rates(probability, findings.metrics),
        "truth_known": truth is not None,
        "rows": rows,
        "calibration": calibration,
        "spot_check": findings.metrics.get("spot_check"),
    }


def _training(findings: Findings) -> Section | None:
    """Return plots of dev rSum and mean loss terms; of an epoch that is logged twice, the last line counts."""
    lines = {line["epoch"] + 1: line for line in findings.log if line["event"] == "epoch"}
    if not lines:
        return None
    epochs = sorted(lines)
    phases = [lines[epoch]["phase"] for epoch in epochs]
    rsum = [lines[epoch]["dev"]["rsum"] for epoch in epochs]
    losses = [_mean_terms(lines[epoch]["loss"].values()) for epoch in epochs]
    terms = {name: [loss.get(name, math.nan) for loss in losses] for name in dict.fromkeys(chain(*losses))}
    return {
        "kind": "training",
        "title": "Training",
        "linear": findings.metrics.get("best", {}).get("model") == "linear",
        "recall_plot": plots.curves("dev", "dev rSum", epochs, {"dev rSum": rsum}, phases, _best_epoch(findings)),
        "loss_plot": plots.curves("loss", "mean loss", epochs, terms, phases, None),
        "loss_legend": plots.legend([name.replace("_", " ") for name in terms]),
    }


def _best_epoch(findings: Findings) -> int | None:
    """Return the epoch whose networks were saved, counted from 1, or None where it is not known."""
    epoch = findings.metrics.get("best", {}).get("epoch", -1)
    return epoch + 1 if epoch >= 0 else None


def _mean_terms(networks: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Average each term over the networks."""
    values_of: dict[str, list[float]] = {}
    for name, value in chain.from_iterable(terms.items() for terms in networks):
        values_of.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in values_of.items()}


def _duplicates(findings: Findings) -> Section | None:
    """Return the largest groups of copies of images, of equal captions and of vague captions."""
    table = findings.table
    vague = table.filter(pa.compute.equal(table["verdict"], VAGUE))
    captions, vague_captions = (_groups(rows, "caption_duplicates", "given_caption") for rows in (table, vague))
    found = (
        ("Copies of images", "images", _groups(table, "image_duplicates", "image")),
        ("Captions of several images", "pairs", [(size, names[:1]) for size, names in captions]),
        ("Vague captions", "pairs", [(size, names[:1]) for size, names in vague_captions]),
    )
    kinds = [
        {"title": title, "unit": unit, "n_groups": len(groups), "groups": groups[:GROUPS]}
        for title, unit, groups in found
        if groups
    ]
    return {"kind": "duplicates", "title": "Duplicates", "kinds": kinds, "members": MEMBERS} if kinds else None


def _groups(table: pa.Table, column: str, name: str) -> list[tuple[int, list[str]]]:
    """Return the size of each group and the different names in it, the largest group first.

    The size counts different images for copies, and pairs for captions.
    """
    if column not in table.column_names:
        return []
    members: dict[int, list[str]] = {}
    rows = table.filter(pa.compute.is_valid(table[column])).select([column, name])
    for group, value in zip(rows[column].to_pylist(), rows[name].to_pylist(), strict=True):
        members.setdefault(group, []).append(value)
    groups = [(len(set(names)) if name == "image" else len(names), sorted(set(names))) for names in members.values()]
    return sorted(groups, key=lambda group: (-group[0], group[1]))


def _skipped(pairs: Pairs) -> Section | None:
    """Return the number of skipped records and images for each reason, and the first of them."""
    if not pairs.skipped:
        return None
    return {
        "kind": "skipped",
        "title": "Skipped",
        "reasons": count_reasons(skip.reason for skip in pairs.skipped)[:REASONS],
        "skips": pairs.skipped[:SKIPS],
        "n_skips": len(pairs.skipped),
    }


def _run_card(findings: Findings, config: Tree, citation: str) -> Section:
    """Return the run's options, data, versions, times and citations."""
    metrics = findings.metrics
    cards = (
        [("Options", _options(metrics, config))],
        [("Data", _data(findings))],
        [("Versions", [*metrics.get("versions", {}).items()]), ("Time", _seconds(metrics.get("seconds", {})))],
    )
    present = [[(title, rows) for title, rows in blocks if rows] for blocks in cards]
    version = metrics.get("versions", {}).get("pairsift")
    best = "Best epoch, here counted from 0 as in metrics.json"
    details = [("Configuration", dict(config)), (best, metrics.get("best"))]
    return {
        "kind": "run_card",
        "title": "Run card",
        "cards": [blocks for blocks in present if blocks],
        "cite": CITE_PAIRSIFT.format(version=f" version {version}" if version else ""),
        "citation": citation.strip(),
        "details": [(title, value) for title, value in details if value],
    }


def _options(metrics: Tree, config: Tree) -> list[tuple[str, object]]:
    """Return the choices that matter first."""
    chosen = {**config, **metrics.get("encoders", {})}
    names = OF_CHECK if config.get("method") == "linear" else CHOICES
    return [(name.replace("_", " "), chosen[name]) for name in names if chosen.get(name) is not None]


def _data(findings: Findings) -> list[tuple[str, object]]:
    """Return the source, its hash, the numbers of pairs, and what is known about planted noise."""
    pairs, noise = findings.pairs, findings.pairs.noise
    rows: list[tuple[str, object]] = [("source", pairs.source)]
    rows += [("data hash", findings.metrics["data"]["hash"])] if "data" in findings.metrics else []
    rows += [(f"{name} pairs", number(n, 0)) for name, n in findings.metrics.get("pairs", {}).items()]
    if noise is not None:
        planted = f"{percent(noise.rate)} of the training pairs ({noise.kind}), seed {noise.seed}"
        rows += [("planted noise", planted), ("noise index hash", noise.index_hash)]
    return rows


def _seconds(seconds: Mapping[str, float]) -> list[tuple[str, object]]:
    """Return the duration of each step and of all together."""
    rows = {**seconds, "all": sum(seconds.values())} if seconds else {}
    steps = [(name, value) for name, value in rows.items() if value]  # a check trains for no time
    return [(name, f"{number(value / 60)} min" if value >= 120 else f"{number(value)} s") for name, value in steps]
