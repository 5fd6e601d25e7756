"""Names of the rows of detection.py, and the tables that show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from side_by_side import Row

KEY = ("collection", "kind", "noise", "seed")
KINDS = ("random", "near", "edit", "vague")
OTHERS = ("cosine", "contrast", "lemon", "cca", "knn")  # the detectors that every row has beside ours


def tables(rows: list[Row]) -> str:
    """AUROC of every detector, then what `ours` says, means over the seeds."""
    names = list(dict.fromkeys(name for row in rows for name in row["detectors"]))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in KEY[:-1]), []).append(row)
    heads = ("collection", "noise", *names, "seeds")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    ours = [
        "| collection | noise | wrong | estimate | AP | precision | calibration error | flagged "
        "| near: estimate | calibration error | flagged | seeds |",
        "|---" * 12 + "|",
    ]
    for (collection, kind, noise), group in sorted(groups.items(), key=lambda item: str(item[0])):
        noisy = f"{noise:.0%} {kind}" if noise else "0%"
        if noise:
            cells = [
                mean(group, lambda row, name=name: row["detectors"].get(name, {}).get("auroc"), ".3f") for name in names
            ]
            lines.append("| " + " | ".join([collection, noisy, *cells, str(len(group))]) + " |")
        cells = [mean(group, lambda row, name=name: row[name], ".1%") for name in ("wrong", "estimate")]
        cells += [
            mean(group, lambda row, name=name: row["detectors"].get("ours", {}).get(name), ".2f")
            for name in ("ap", "precision")
        ]
        cells += [mean(group, lambda row: row["error"], ".3f"), mean(group, lambda row: row["flagged"], ".1%")]
        cells += [
            mean(group, lambda row, name=name: row.get("near", {}).get(name), form)
            for name, form in (("estimate", ".1%"), ("error", ".3f"), ("flagged", ".1%"))
        ]
        ours.append("| " + " | ".join([collection, noisy, *cells, str(len(group))]) + " |")
    return "AUROC:\n\n" + "\n".join(lines) + "\n\nWhat `ours` says:\n\n" + "\n".join(ours)


def by_share(rows: list[Row], kinds: tuple[str, ...], cell: Callable[[list[Row]], str]) -> str:
    """Kinds and collections by the share of mismatched captions; a cell is what the rows of all its seeds say."""
    noises = sorted({row["noise"] for row in rows if row["noise"] and row["kind"] in kinds})
    lines = ["| | " + " | ".join(f"{noise:.0%}" for noise in noises) + " |", "|---" * (1 + len(noises)) + "|"]
    for kind in kinds:
        for collection in dict.fromkeys(row["collection"] for row in rows):
            place = [row for row in rows if (row["kind"], row["collection"]) == (kind, collection)]
            place.sort(key=lambda row: row["seed"])
            cells = [cell([row for row in place if row["noise"] == noise]) for noise in noises]
            if any(cells):
                lines.append(f"| `{kind}`, `{collection}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def aurocs(rows: list[Row]) -> str:
    """AUROC of `ours`, of the best other detector by name, and of `ours_near`: means over the seeds."""

    def cell(group: list[Row]) -> str:
        group = [row for row in group if row["detectors"]]  # none where all captions that could be wrong are
        if not group:
            return ""
        names = ("ours", "ours_near", *OTHERS)
        found = {name: sum(row["detectors"][name]["auroc"] for row in group) / len(group) for name in names}
        other = max(OTHERS, key=lambda name: found[name])
        texts = [format(found[name], ".3f").removeprefix("0") for name in ("ours", other, "ours_near")]
        return f"{texts[0]}, {texts[1]} (`{other}`), {texts[2]}"

    return by_share(rows, KINDS, cell)


def estimates(rows: list[Row]) -> str:
    """Estimates of the default and calibration errors, one a seed."""
    return by_share(rows, KINDS, _shares_and_errors)


def near_estimates(rows: list[Row]) -> str:
    """Estimates and calibration errors where near captions are expected, one a seed."""
    return by_share(rows, ("near", "random"), lambda group: _shares_and_errors([row["near"] for row in group]))


def _shares_and_errors(group: list[Row]) -> str:
    if not group:
        return ""
    shares = ", ".join(format(100 * row["estimate"], ".0f") for row in group)
    errors = ", ".join(format(row["error"], ".3f").removeprefix("0") for row in group)
    return f"{shares}% ({errors})"


def mean(rows: list[Row], value_in: Callable[[Row], float | None], form: str) -> str:
    """The mean of a number over the rows that have it, as text."""
    values = [value for row in rows if (value := value_in(row)) is not None]
    return format(sum(values) / len(values), form) if values else ""


# The tables of a page, by the mark that each of them begins with.
TABLES = {
    "<!-- auroc table -->": aurocs,
    "<!-- estimates table -->": estimates,
    "<!-- near estimates table -->": near_estimates,
}
