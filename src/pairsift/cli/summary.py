"""What a run found, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")


def recall_table(splits: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return a table of recall, a line for each split and view."""
    rows = [f"{'':20}" + "".join(f"{key.replace('_r', ' R@'):>9}" for key in KEYS)]
    for split, views in splits.items():
        for view, recall in views.items():
            rows.append(f"{split + ' ' + view:20}" + "".join(f"{recall[key]:9.1f}" for key in KEYS))
    return "\n".join(rows)


def print_summary(folder: Path, metrics: Mapping[str, object]) -> None:
    """Print what a run found."""
    print(recall_table({name: metrics[name] for name in ("test", "dev") if name in metrics}))  # type: ignore[misc]
    rate: Mapping[str, float | None] = metrics["noise_rate"]  # type: ignore[assignment]
    print(f"\nestimated share of mismatched training pairs: {_rate(rate)}")
    found: Mapping[str, float] | None = metrics.get("detection")  # type: ignore[assignment]
    if found and found["auroc"] is not None:
        right = (
            f", {found['precision']:.1%} of them rightly, {found['recall']:.1%} of all found"
            if found["flagged"]
            else ""
        )
        print(f"mismatched training pairs: {found['flagged']} flagged{right}, AUROC {found['auroc']:.4f}")
    if kinds := metrics.get("verdicts"):
        print(f"kinds of mismatch, all splits: {', '.join(f'{n} {name}' for name, n in kinds.items())}")  # type: ignore[attr-defined]
    for warning in metrics.get("warnings", ()):  # type: ignore[attr-defined]
        print(f"warning: {warning}")
    print(f"table of suspects: {folder / 'suspects.csv'}\nreport: {folder / 'report.html'}")


def _rate(rate: Mapping[str, float | None]) -> str:
    """Return an estimate with its interval, and the truth where it is known."""
    if rate["estimated"] is None:
        return "there are too few pairs, or too little evidence, to tell"
    ends = f" ({rate['low']:.0%} to {rate['high']:.0%})" if rate.get("low") is not None else ""
    known = f", true: {rate['true']:.1%}" if rate.get("true") is not None else ""
    return f"{rate['estimated']:.1%}{ends}{known}"
