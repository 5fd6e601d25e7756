"""The report's section on thresholds: what goes below each, and how far the match probabilities can be believed."""

from __future__ import annotations

from pairsift.report import parts, plots
from pairsift.report.charts import NO_VERDICTS, THRESHOLD
from pairsift.report.findings import Findings
from pairsift.report.parts import lookup, number, percent
from pairsift.report.reliability import Reliability, reliability
from pairsift.review.decisions import note_on_rates, threshold_table

THRESHOLDS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
UNKNOWN_TRUTH = (
    "The truth about these pairs is not known, so that calibration cannot be measured without a spot check: pairsift "
    "spot-check draws some pairs, and compares what you decide on them with their match probabilities."
)
SPOT_CHECK = (
    "The truth about these pairs is not known. The match probabilities were recalibrated by a spot check: {} of its "
    "pairs were judged, and {} of these do not match."
)


def thresholds(findings: Findings) -> str:
    """Write the table of thresholds, and beside it the calibration; return an empty string where nothing is judged."""
    if not len(findings.probability):
        return ""
    note = (
        "Dropping all pairs below a match probability also drops good ones. The columns under “expected” say how many, "
        "if the probabilities are right."
    )
    if findings.verdicts_given:
        note = f"{note} {note_on_rates(findings.probability, findings.metrics)}".rstrip()
    else:
        note += f" {NO_VERDICTS} They are not calibrated."
    train = findings.in_splits("train")
    table = f"<h3>Pairs below a match probability</h3>{_table(findings)}"
    if findings.truth is None or not train.any():
        content = f'<div class="card scroll">{table}<p class="aside">{_spot_check(findings)}</p></div>'
    else:
        diagram = _diagram(reliability(findings.probability[train], ~findings.truth[train]))
        content = f'<div class="grid"><div class="card scroll">{table}</div><div class="card">{diagram}</div></div>'
    return parts.section("How many to drop", note, content)


def _table(findings: Findings) -> str:
    """Write for each threshold the pairs below it, and how many of these are expected to match, and truly match."""
    probability, truth = findings.probability, findings.truth
    body = []
    for row in threshold_table(probability, THRESHOLDS).to_pylist():
        share = percent(row["pairs"] / len(probability))
        cells = [f"{row['pairs']:,} <small>{share}</small>"]
        cells += [number(row[name], 0) for name in ("expected_mismatched", "expected_matching")]
        if truth is not None:
            cells.append(number(int((~truth & (probability < row["threshold"])).sum()), 0))
        strong = ' class="strong"' if findings.verdicts_given and row["threshold"] == THRESHOLD else ""
        columns = "".join(f"<td>{cell}</td>" for cell in cells)
        body.append(f'<tr{strong}><th scope="row">{row["threshold"]:.1f}</th>{columns}</tr>')
    known = truth is not None
    groups = '<th colspan="2"></th><th colspan="2">expected</th>' + ("<th>in truth</th>" if known else "")
    names = ("below", "pairs that go", "mismatched", "good", *(["good"] if known else []))
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'<table class="thresholds"><thead><tr>{groups}</tr><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def _spot_check(findings: Findings) -> str:
    """Write what is known about the calibration without the truth."""
    answered, mismatched = (lookup(findings.metrics, "spot_check", name) for name in ("answered", "mismatched"))
    return UNKNOWN_TRUTH if answered is None else SPOT_CHECK.format(number(answered, 0), number(mismatched, 0))


def _diagram(found: Reliability) -> str:
    """Draw the reliability diagram of the training pairs, and write the expected calibration error."""
    legend = plots.legend(["training pairs, with 95% intervals", "perfect calibration"], ["clean", "muted"])
    scores = [("Expected calibration error", number(found.error, 3)), ("Training pairs", f"{found.pairs.sum():,}")]
    return (
        f"<h3>Calibration</h3><figure>{plots.reliability(found)}{legend}</figure>{parts.facts(scores)}"
        '<p class="aside">In ten bins of equal width, over the training pairs, since noise is planted among these '
        "alone. A pair that was not moved counts as good.</p>"
    )
