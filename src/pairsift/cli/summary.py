"""The summary of a run on the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
TITLES = {key: key.replace("_r", " R@") for key in KEYS}
OTHERS = {"median_rank": "MedR", "map_at_r": "mAP@R", "r_precision": "R-P"}
MORE = {f"{way}_{key}": f"{way} {word}" for way in ("i2t", "t2i") for key, word in OTHERS.items()}


def recall_table(splits: Mapping[str, Mapping[str, Mapping[str, float]]], titles: Mapping[str, str] = TITLES) -> str:
    """Return measures of retrieval as a text table with a line for each split and view."""
    width = max([20, *(len(f"{split} {view} ") for split, views in splits.items() for view in views)])
    column = max(map(len, titles.values())) + 1
    rows = [" " * width + "".join(title.rjust(column) for title in titles.values())]
    for split, views in splits.items():
        for view, recall in views.items():
            numbers = "".join(f"{recall[key]:{column}.1f}" for key in titles)
            rows.append(f"{split.replace('_', ', ')} {view}".ljust(width) + numbers)
    return "\n".join(rows)


def print_summary(folder: Path, metrics: Mapping[str, object], worst: Sequence[Mapping[str, Any]] = ()) -> None:
    """Print a run's estimated noise rate, its worst pairs, its warnings, its recall, and where to look next.

    Args:
        folder: The run's folder.
        metrics: The content of its `metrics.json`.
        worst: Rows of the table of suspects, the worst first.
    """
    rate: Mapping[str, float | None] = metrics["noise_rate"]  # type: ignore[assignment]
    print(f"\nestimated share of mismatched training pairs: {_rate(rate)}")
    detection: Mapping[str, float] | None = metrics.get("detection")  # type: ignore[assignment]
    if detection and detection["auroc"] is not None:
        scores = (
            f", precision {detection['precision']:.1%}, recall {detection['recall']:.1%}"
            if detection["flagged"]
            else ""
        )
        print(f"mismatched training pairs: {detection['flagged']} flagged{scores}, AUROC {detection['auroc']:.4f}")
    if kinds := metrics.get("verdicts"):
        print(f"kinds of mismatch, all splits: {', '.join(f'{n} {name}' for name, n in kinds.items())}")  # type: ignore[attr-defined]
    if worst:
        print("the worst pairs:")
    for row in worst:
        print(f"  {row['image']}: {_short(row['given_caption'])}")
        if row["suggested_caption"] is not None:
            print(f"    would fit: {_short(row['suggested_caption'])}")
    for warning in metrics.get("warnings", ()):  # type: ignore[attr-defined]
        print(f"warning: {warning['text']}")
    recall = {name: metrics[name] for name in ("test", "test_matching", "dev") if name in metrics}
    if recall:
        print(recall_table({name: {"ensemble": views["ensemble"]} for name, views in recall.items()}))  # type: ignore[index]
    notes: Mapping[str, Sequence[str]] = metrics.get("recall_notes", {})  # type: ignore[assignment]
    for note in dict.fromkeys(note for name in recall for note in notes.get(name, ())):
        print(f"note: {note}")
    best: Mapping[str, object] = metrics.get("best", {})  # type: ignore[assignment]
    if best.get("model") == "linear":
        print("kept: a linear model, which finds as much on dev as the networks of any epoch, or more")
    print(f"table of suspects: {folder / 'suspects.csv'}\nreport: {folder / 'report.html'}")
    print(f"next: pairsift serve {folder}")


def _short(caption: str) -> str:
    """Return a caption in one line of at most 100 characters."""
    return shorten(caption, 100, placeholder=" ...") or caption[:100]


def _rate(rate: Mapping[str, float | None]) -> str:
    """Return an estimate with its interval, and the truth where it is known."""
    if rate["estimated"] is None:
        return "unknown (too few pairs or too little evidence)"
    interval = f" ({rate['low']:.1%} to {rate['high']:.1%})" if rate.get("low") is not None else ""
    truth = f", true: {rate['true']:.1%}" if rate.get("true") is not None else ""
    return f"{rate['estimated']:.1%}{interval}{truth}"
