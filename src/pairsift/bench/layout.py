"""The tables of a grid as Markdown, CSV and LaTeX, in the layout of the papers: methods by noise, six recalls, rSum."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from pairsift.bench.means import ENSEMBLE, INTERVAL, KEYS, Line, Mean, Sheet
from pairsift.files import write_text

HEAD = tuple(key.replace("i2t_r", "i2t R@").replace("t2i_r", "t2i R@").replace("rsum", "rSum") for key in KEYS)
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}


def write_tables(folder: Path, sheets: Sequence[Sheet]) -> list[Path]:
    """Write `table.md`, `table.csv` and `table.tex`, and return their paths.

    Raises:
        WriteError: A file cannot be written.
    """
    texts = {"table.md": markdown(sheets), "table.csv": comma_separated(sheets), "table.tex": latex(sheets)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def markdown(sheets: Sequence[Sheet]) -> str:
    """Return a table for each matcher and kind of noise, and what its intervals are.

    AUROC is that of the method's own trust in the training pairs, where it has any.
    """
    lines = []
    for sheet in sheets:
        lines += [f"## {_title(sheet)}", "", _bars(["noise", "method", "networks", "seeds", *HEAD, "AUROC"])]
        lines.append(_bars(["---"] * (5 + len(HEAD))))
        for block in sheet.blocks:
            for line in block.lines:
                cells = [
                    f"**{shown(mean, '±')}**" if key in line.best else shown(mean, "±")
                    for key, mean in line.means.items()
                ]
                cells.append("" if line.auroc is None else f"{line.auroc:.3f}")
                lines.append(_bars([f"{block.noise:.4g}", line.method.replace("|", "\\|"), *_counts(line), *cells]))
        lines.append("")
    return "\n".join([*lines, INTERVAL, ""])


def comma_separated(sheets: Sequence[Sheet]) -> str:
    """Return all tables as one: a column for each mean and one for half of its interval, empty where there is none.

    The last column is the AUROC of the method's trust. Lines without noise, which are in the tables of all kinds, are
    written once.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    halves = [name for key in KEYS for name in (key, f"{key}_half")]
    writer.writerow(["matcher", "noise_kind", "noise", "method", "view", "networks", "seeds", *halves, "trust_auroc"])
    written = set()
    for sheet in sheets:
        for block in sheet.blocks:
            for line in block.lines:
                numbers = [x for key in KEYS for x in (line.means[key].value, line.means[key].half)]
                counts = [line.networks, line.means["rsum"].seeds]
                kind = sheet.kind if block.noise and sheet.kind else ""  # without noise, all kinds are one
                place = (sheet.matcher, kind, block.noise, line.method, line.view)
                if place not in written:
                    writer.writerow([*place, *counts, *("" if x is None else repr(x) for x in [*numbers, line.auroc])])
                written.add(place)
    return text.getvalue()


def latex(sheets: Sequence[Sheet]) -> str:
    """Return a `tabular` for each matcher and kind of noise; it needs no package."""
    lines = [f"% {INTERVAL}"]
    for sheet in sheets:
        lines += [
            "",
            f"% {_title(sheet)}",
            r"\begin{tabular}{ll" + "r" * (2 + len(KEYS)) + "}",
            r"\hline",
            r" & & & & \multicolumn{3}{c}{Image to text} & \multicolumn{3}{c}{Text to image} & \\",
            r"Noise & Method & Networks & Seeds & R@1 & R@5 & R@10 & R@1 & R@5 & R@10 & rSum \\",
        ]
        for block in sheet.blocks:
            lines.append(r"\hline")
            for number, line in enumerate(block.lines):
                noise = "" if number else escaped(f"{100 * block.noise:.4g}%")
                cells = [_latex_cell(mean, key in line.best) for key, mean in line.means.items()]
                lines.append(" & ".join([noise, escaped(line.method), *_counts(line), *cells]) + r" \\")
        lines += [r"\hline", r"\end{tabular}"]
    return "\n".join([*lines, ""])


def escaped(text: str) -> str:
    """Return a text as LaTeX sets it, letter by letter."""
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def shown(mean: Mean, sign: str) -> str:
    """Return a mean with half of its interval, both with one digit."""
    return f"{mean.value:.1f}" if mean.half is None else f"{mean.value:.1f} {sign} {mean.half:.1f}"


def _latex_cell(mean: Mean, best: bool) -> str:
    value = rf"\textbf{{{mean.value:.1f}}}" if best else f"{mean.value:.1f}"
    return value if mean.half is None else rf"{value} $\pm$ {mean.half:.1f}"


def _counts(line: Line) -> list[str]:
    """Return which networks a line is of, and its number of seeds."""
    of = str(line.networks) if line.view == ENSEMBLE else "1" if line.networks == 1 else f"1 of {line.networks}"
    return [of, str(line.means["rsum"].seeds)]


def _title(sheet: Sheet) -> str:
    return sheet.matcher if sheet.kind is None else f"{sheet.matcher}, noise {sheet.kind}"


def _bars(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
