"""The report's sections of numbers and plots: recall, match probabilities, training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pairsift.audit import report_parts as parts
from pairsift.audit import report_plots as plots
from pairsift.audit.report_findings import Findings
from pairsift.audit.report_parts import lookup, number

THRESHOLD = 0.5  # a pair with a lower match probability is flagged
DETECTORS = {
    "linear": "Ridge canonical correlation",
    "near_images": "Captions of like images",
    "near_captions": "Images of like captions",
    "networks": "Networks",
    "siblings": "Other captions of the image",
}
NO_VERDICTS = "No verdicts are given, so the match probabilities are a ranking alone and no pair is flagged."


def retrieval(findings: Findings) -> str:
    """Write the table of recall, what it counts, and how many of the pairs taken for right are flagged themselves."""
    note = (
        "R@K is the share of queries with a right answer among the first K, in percent. "
        "rSum is the sum of the six R@K: 600 is perfect."
    )
    held = findings.held("dev", "test")
    doubted = int(findings.flag[held].sum())
    if doubted and findings.truth is None:  # planted noise is in training pairs alone
        note += (
            f" The given pairs of dev and test count as right, also the {doubted:,} of {int(held.sum()):,} that are "
            "flagged: where they are mismatched, recall on clean pairs is higher than shown."
        )
    return parts.section("Retrieval", note, parts.recall_table(findings.metrics))


def probabilities(findings: Findings) -> str:
    """Write the distribution of probabilities, the noise rate, the verdicts, and how well planted noise was found."""
    if not len(findings.probability):
        return ""
    given, truth = findings.verdicts_given, findings.truth
    names = ["clean", "re-pointed to another image"] if truth is not None else ["pairs"]
    drawn = plots.histogram(findings.probability, truth, THRESHOLD if given else None)
    plot = f"<figure>{drawn}{plots.legend(names)}</figure>"
    noise = parts.bars(_rates(findings))
    right = [f"<h3>Noise among training pairs</h3>{noise}" if noise else "", _verdicts(findings) if given else ""]
    keys = ("precision", "recall", "average_precision") if given else ("auroc", "average_precision")
    found = [
        ("AUROC" if name == "auroc" else name.replace("_", " ").capitalize(), number(value, 3))
        for name in keys
        if (value := lookup(findings.metrics, "detection", name)) is not None
    ]
    right.append(f"<h3>Detection of planted noise</h3>{parts.facts(found)}" if found else "")
    right.append(_detectors(findings))
    beside = f'<div class="card">{"".join(right)}</div>' if any(right) else ""
    content = f'<div class="grid"><div class="card"><h3>Distribution</h3>{plot}</div>{beside}</div>'
    rule = f"A pair below {THRESHOLD} is flagged." if given else NO_VERDICTS
    note = f"The probability that a caption belongs to its image: near 1 it fits, near 0 it does not. {rule}"
    return parts.section("Match probabilities", note, content)


def _detectors(findings: Findings) -> str:
    """List what each kind of evidence tells by itself: the AUROC where the truth is known, the separation elsewhere."""
    known = lookup(findings.metrics, "detectors") or {}
    key = "auroc" if any("auroc" in one for one in known.values()) else "separation"
    found = [(DETECTORS.get(name, name), number(lookup(one, key), 3)) for name, one in known.items()]
    title = "AUROC of each kind of evidence alone" if key == "auroc" else "Given pairs above random ones, by evidence"
    return f"<h3>{title}</h3>{parts.facts(found)}" if found else ""


def _rates(findings: Findings) -> list[tuple[str, float, str, str]]:
    """List the shares of mismatched training pairs as `bars` takes them."""
    noise, train = lookup(findings.metrics, "noise_rate"), findings.held("train")
    flagged = findings.flag[train].mean() if train.any() else findings.flag.mean()
    estimated, interval = lookup(noise, "estimated"), parts.interval(noise)
    rates = [("estimated", estimated, "s3", interval), ("true", lookup(noise, "true"), "s4", "")]
    if findings.verdicts_given:
        rates.append(("flagged", float(flagged), "bad", ""))
    return [(name, float(value), tone, more) for name, value, tone, more in rates if number(value) != parts.DASH]


def _verdicts(findings: Findings) -> str:
    """Draw the verdicts' shares as one stacked bar."""
    counts = Counter(findings.table["verdict"].to_pylist()).most_common()
    counts.sort(key=lambda item: item[0] != "clean")
    known = {"clean": "clean", "mismatched": "bad"}
    others = iter(("s5", "s6", "s3", "s4") * len(counts))
    tones = [known.get(name) or next(others) for name, _ in counts]
    stack = "".join(
        f'<div style="--tone: var(--{tone}); flex: {n} 0 0"></div>' for (_, n), tone in zip(counts, tones, strict=True)
    )
    names = [f"{name} {n:,}" for name, n in counts]
    return f'<h3>Verdicts</h3><figure><div class="stack">{stack}</div>{plots.legend(names, tones)}</figure>'


def training(findings: Findings) -> str:
    """Draw dev rSum and mean loss terms over the epochs; an epoch logged twice counts as its last line."""
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
    drawn = ""
    if any(map(math.isfinite, rsum)):
        plot = plots.curves("dev", "dev rSum", epochs, {"dev rSum": rsum}, phases, best_epoch(findings))
        drawn += f'<div class="card"><h3>Retrieval on dev</h3><figure>{plot}</figure></div>'
    if terms:
        plot = plots.curves("loss", "mean loss", epochs, terms, phases, None)
        names = [name.replace("_", " ") for name in terms]
        drawn += f'<div class="card"><h3>Loss terms</h3><figure>{plot}{plots.legend(names)}</figure></div>'
    return parts.section("Training", "", f'<div class="grid">{drawn}</div>' if drawn else "")


def best_epoch(findings: Findings) -> int | None:
    """Return the epoch whose networks were kept, counted from 1, or None where it is not known."""
    epoch = lookup(findings.metrics, "best", "epoch")
    return epoch + 1 if isinstance(epoch, int) and epoch >= 0 else None


def _mean_terms(loss: Any) -> dict[str, float]:
    """Average each term over the networks."""
    found: dict[str, list[float]] = {}
    for terms in loss.values() if isinstance(loss, Mapping) else ():
        for name, value in terms.items() if isinstance(terms, Mapping) else ():
            found.setdefault(str(name), []).append(_float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else math.nan
