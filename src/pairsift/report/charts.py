"""The report's sections of numbers and plots: recall, match probabilities, training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pairsift.report import parts, plots
from pairsift.report.findings import Findings
from pairsift.report.parts import lookup, number

THRESHOLD = 0.5  # a pair with a lower match probability is flagged
DETECTORS = {
    "linear": "Ridge canonical correlation",
    "cosine": "Cosine of the given vectors",
    "near_images": "Captions of similar images",
    "near_captions": "Images of similar captions",
    "networks": "Networks",
    "memory": "Networks that learned the pairs",
    "siblings": "Other captions of the image",  # of runs before kinds were joined with them
    "linear_siblings": "Correlation and other captions",
    "cosine_siblings": "Cosine and other captions",
    "networks_siblings": "Networks and other captions",
}
LINEAR = "On dev a linear model of the vectors finds as much as the networks of any epoch, or more. It was kept."
NO_VERDICTS = "There are no verdicts: the match probabilities are only a ranking, and no pair is flagged."


def retrieval(findings: Findings) -> str:
    """Write the recall table with a note on R@K and on flagged pairs of dev and test, which count as correct."""
    note = (
        "R@K is the share of queries with a correct answer among the first K, in percent. "
        "rSum is the sum of the six R@K: 600 is perfect."
    )
    rows = findings.in_splits("dev", "test")
    n_flagged = int(findings.flag[rows].sum())
    if n_flagged and findings.truth is None:  # only training pairs have planted noise
        note += (
            f" All pairs of dev and test count as correct, including the {n_flagged:,} of {int(rows.sum()):,} that are "
            "flagged. If these are mismatched, the recall on clean pairs is higher than shown."
        )
    return parts.section("Retrieval", note, parts.recall_table(findings.metrics))


def probabilities(findings: Findings) -> str:
    """Write the distribution of match probabilities, the noise rate, the verdicts, and the detection of the noise."""
    if not len(findings.probability):
        return ""
    has_verdicts, truth = findings.verdicts_given, findings.truth
    names = ["clean", "planted mismatch"] if truth is not None else ["pairs"]
    svg = plots.histogram(findings.probability, truth, THRESHOLD if has_verdicts else None)
    plot = f"<figure>{svg}{plots.legend(names)}</figure>"
    noise = parts.bars(_rates(findings))
    blocks = [
        f"<h3>Noise among training pairs</h3>{noise}" if noise else "",
        _verdicts(findings) if has_verdicts else "",
    ]
    keys = ("precision", "recall", "average_precision") if has_verdicts else ("auroc", "average_precision")
    scores = [
        ("AUROC" if name == "auroc" else name.replace("_", " ").capitalize(), number(value, 3))
        for name in keys
        if (value := lookup(findings.metrics, "detection", name)) is not None
    ]
    blocks.append(f"<h3>Detection of planted noise</h3>{parts.facts(scores)}" if scores else "")
    blocks.append(_detectors(findings))
    card = f'<div class="card">{"".join(blocks)}</div>' if any(blocks) else ""
    content = f'<div class="grid"><div class="card"><h3>Distribution</h3>{plot}</div>{card}</div>'
    rule = f"A pair below {THRESHOLD} is flagged." if has_verdicts else NO_VERDICTS
    note = f"The probability that a caption belongs to its image: near 1 it fits, near 0 it does not. {rule}"
    return parts.section("Match probabilities", note, content)


def _detectors(findings: Findings) -> str:
    """Write the AUROC of each kind of evidence alone; where the truth is not known, write the separation."""
    detectors = lookup(findings.metrics, "detectors") or {}
    key = "auroc" if any("auroc" in values for values in detectors.values()) else "separation"
    scores = [(DETECTORS.get(name, name), number(lookup(values, key), 3)) for name, values in detectors.items()]
    title = "AUROC of each kind of evidence alone" if key == "auroc" else "Share of random pairs with less evidence"
    return f"<h3>{title}</h3>{parts.facts(scores)}" if scores else ""


def _rates(findings: Findings) -> list[tuple[str, float, str, str]]:
    """Return the estimated, the true and the flagged share of mismatched training pairs, as arguments of `bars`."""
    noise, train = lookup(findings.metrics, "noise_rate"), findings.in_splits("train")
    flagged = findings.flag[train].mean() if train.any() else findings.flag.mean()
    estimated, interval = lookup(noise, "estimated"), parts.interval(noise)
    rates = [("estimated", estimated, "s3", interval), ("true", lookup(noise, "true"), "s4", "")]
    if findings.verdicts_given:
        rates.append(("flagged", float(flagged), "bad", ""))
    return [(name, float(value), tone, aside) for name, value, tone, aside in rates if number(value) != parts.DASH]


def _verdicts(findings: Findings) -> str:
    """Draw the shares of the verdicts as a stacked bar."""
    counts = Counter(findings.table["verdict"].to_pylist()).most_common()
    counts.sort(key=lambda item: item[0] != "clean")
    tone_of = {"clean": "clean", "mismatched": "bad"}
    spare_tones = iter(("s5", "s6", "s3", "s4") * len(counts))
    tones = [tone_of.get(name) or next(spare_tones) for name, _ in counts]
    stack = "".join(
        f'<div style="--tone: var(--{tone}); flex: {n} 0 0"></div>' for (_, n), tone in zip(counts, tones, strict=True)
    )
    names = [f"{name} {n:,}" for name, n in counts]
    return f'<h3>Verdicts</h3><figure><div class="stack">{stack}</div>{plots.legend(names, tones)}</figure>'


def training(findings: Findings) -> str:
    """Draw dev rSum and mean loss terms over the epochs; of an epoch that is logged twice, the last line counts."""
    log = findings.log
    lines = {int(line["epoch"]) + 1: line for line in log if line.get("event") == "epoch" and "epoch" in line}
    if not lines:
        return ""
    epochs = sorted(lines)
    phases = [str(lines[epoch].get("phase") or "") for epoch in epochs]
    rsum = [_float(lookup(lines[epoch], "dev", "rsum")) for epoch in epochs]
    terms: dict[str, list[float]] = {}
    for row, epoch in enumerate(epochs):
        for name, value in _mean_terms(lookup(lines[epoch], "loss")).items():
            terms.setdefault(name, [math.nan] * len(epochs))[row] = value
    cards = ""
    if any(map(math.isfinite, rsum)):
        plot = plots.curves("dev", "dev rSum", epochs, {"dev rSum": rsum}, phases, best_epoch(findings))
        cards += f'<div class="card"><h3>Retrieval on dev</h3><figure>{plot}</figure></div>'
    if terms:
        plot = plots.curves("loss", "mean loss", epochs, terms, phases, None)
        names = [name.replace("_", " ") for name in terms]
        cards += f'<div class="card"><h3>Loss terms</h3><figure>{plot}{plots.legend(names)}</figure></div>'
    lead = LINEAR if lookup(findings.metrics, "best", "model") == "linear" else ""
    return parts.section("Training", lead, f'<div class="grid">{cards}</div>' if cards else "")


def best_epoch(findings: Findings) -> int | None:
    """Return the epoch whose networks were saved, counted from 1, or None where it is not known."""
    epoch = lookup(findings.metrics, "best", "epoch")
    return epoch + 1 if isinstance(epoch, int) and epoch >= 0 else None


def _mean_terms(loss: Any) -> dict[str, float]:
    """Average each term over the networks."""
    values_of: dict[str, list[float]] = {}
    for terms in loss.values() if isinstance(loss, Mapping) else ():
        for name, value in terms.items() if isinstance(terms, Mapping) else ():
            values_of.setdefault(str(name), []).append(_float(value))
    return {name: sum(values) / len(values) for name, values in values_of.items()}


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else math.nan
