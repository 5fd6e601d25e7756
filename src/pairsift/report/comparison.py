"""The page of runs side by side: a single HTML file that needs no other file, no script and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pairsift.files import write_text
from pairsift.report import parts
from pairsift.report.parts import DASH, RECALLS, Tree, lookup, number, percent, text, titled

LONGEST = 48  # characters of a run's name


def write_comparison(path: Path, comparison: Tree) -> None:
    """Write runs side by side as a self-contained HTML file; a failed write keeps the old file.

    Args:
        path: Path of the file, in an existing folder.
        comparison: The comparison as plain values, from `Comparison.tree`.
    """
    runs, split = comparison["runs"], comparison["split"]
    lead = (
        f"Measured on the {comparison['images']:,} images and {comparison['captions']:,} captions that all runs have "
        f"in {text(split)}. Brackets hold {percent(comparison['level'], 0)} of {comparison['samples']:,} resamples of "
        f"the images, each with all its captions (seed {comparison['seed']}). They show the chance in the choice of "
        "images, not that of another training seed."
    )
    texts = {
        "page_title": f"{len(runs)} runs · pairsift",
        "eyebrow": "pairsift comparison",
        "heading": f"{len(runs)} runs side by side",
        "lead": f'<p class="lead">{lead}</p>',
        "footer": "Recall in percent, of the ensembles. rSum is the sum of the six recalls.",
    }
    sections = [
        parts.warnings(comparison["notes"], "Note"),
        _sums(runs),
        parts.section("Recall", "", _recall_table(runs, "recall")),
        parts.section(f"Minus {_name(runs[0])}", _paired(runs), _recall_table(runs[1:], "difference")),
        parts.section("Mismatched training pairs", AUDIT, _audit_table(runs)),
        parts.section("Options that differ", "", _options_table(runs, comparison["options"])),
    ]
    write_text(path, parts.page(texts, sections))


AUDIT = (
    "The estimated share of mismatched training pairs with its 90% interval, the flagged pairs of all splits, and, "
    "where the truth is known, how well the mismatched training pairs were found."
)


def _paired(runs: Sequence[Tree]) -> str:
    return (
        f"Differences to {_name(runs[0])} on the same resamples. Where an interval does not hold 0, the difference is "
        "hardly due to the choice of images."
    )


def _name(run: Tree) -> str:
    return titled(run["run"], LONGEST)


def _sums(runs: Sequence[Tree]) -> str:
    """Draw the rSum of each run, and the differences to the first run."""
    sums = [(_name(run), run["recall"]["rsum"]) for run in runs]
    differences = [(_name(run), run["difference"]["rsum"]) for run in runs[1:]]
    return (
        f'<div class="grid"><div class="card"><h3>rSum</h3>{_ranges(sums, "")}</div>'
        f'<div class="card"><h3>rSum minus that of {_name(runs[0])}</h3>{_ranges(differences, "+")}</div></div>'
    )


def _ranges(items: Sequence[tuple[str, Tree]], sign: str) -> str:
    """Draw numbers with their intervals on a common scale; with a sign, the scale includes 0 and marks it."""
    ends = [estimate[end] for _, estimate in items for end in ("low", "high", "value")] + [0.0] * bool(sign)
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 1.0
    start, width = low - margin, high - low + 2 * margin

    def place(value: float) -> str:
        return f"{100 * (value - start) / width:.2f}%"

    zero = f'<i class="zero" style="left: {place(0.0)}"></i>' if sign else ""
    rows = (
        f'<span class="name">{name}</span><div class="range">{zero}<i class="span" style="left: {place(one["low"])}; '
        f'width: {100 * (one["high"] - one["low"]) / width:.2f}%"></i>'
        f'<i class="value" style="left: {place(one["value"])}"></i></div>'
        f'<span class="num">{one["value"]:{sign}.1f}<small>{_interval(one, 1, sign)}</small></span>'
        for name, one in items
    )
    return f'<div class="estimates">{"".join(rows)}</div>'


def _recall_table(runs: Sequence[Tree], kind: str) -> str:
    """Write the recall of each run, or the differences to the first run, with intervals."""
    sign = "+" if kind == "difference" else ""
    ks = "".join(f'<th scope="col">R@{k}</th>' for k in (1, 5, 10))
    head = (
        '<tr><th></th><th colspan="3">image to text</th><th colspan="3">text to image</th><th></th></tr>'
        f'<tr><th></th>{ks}{ks}<th scope="col">rSum</th></tr>'
    )
    rows = []
    for run in runs:
        cells = "".join(
            f"<td{parts.SUM if key == 'rsum' else ''}>{run[kind][key]['value']:{sign}.1f}"
            f"<small>{_interval(run[kind][key], 1, sign)}</small></td>"
            for key in RECALLS
        )
        rows.append(f'<tr><th scope="row">{_name(run)}</th>{cells}</tr>')
    return _table(head, rows)


def _audit_table(runs: Sequence[Tree]) -> str:
    """Write what the audit of each run says."""
    titles = {"auroc": "AUROC", "precision": "Precision", "recall": "Recall"}
    measures = [name for name in titles if any(name in run["detection"] for run in runs)]
    names = ["Noise rate", "True", "Suspects", "Judged", *(titles[name] for name in measures)]
    head = "<tr><th></th>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr>"
    rows = []
    for run in runs:
        rate = run["noise_rate"]
        interval = f"<small>{_interval(rate, 1, '', 100)}</small>" if number(lookup(rate, "low")) != DASH else ""
        cells = [f"{percent(lookup(rate, 'estimated'))}{interval}", percent(lookup(rate, "true"))]
        cells += [number(run["suspects"], 0), number(run["judged"], 0)]
        for name in measures:
            one = run["detection"].get(name)
            cells.append(DASH if one is None else f"{one['value']:.3f}<small>{_interval(one, 3)}</small>")
        rows.append(f'<tr><th scope="row">{_name(run)}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return _table(head, rows)


def _options_table(runs: Sequence[Tree], options: Tree) -> str:
    if not options:
        return ""
    head = "<tr><th></th>" + "".join(f'<th scope="col">{_name(run)}</th>' for run in runs) + "</tr>"
    rows = [
        f'<tr><th scope="row">{text(name)}</th>'
        + "".join(f"<td>{DASH if value is None else titled(value, LONGEST)}</td>" for value in values)
        + "</tr>"
        for name, values in options.items()
    ]
    return _table(head, rows, "runs options")


def _table(head: str, rows: Sequence[str], kind: str = "runs") -> str:
    body = "".join(rows)
    return f'<div class="card scroll"><table class="{kind}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _interval(estimate: Tree, digits: int, sign: str = "", scale: float = 1.0) -> str:
    low, high = (estimate[end] * scale for end in ("low", "high"))
    return f"[{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"
