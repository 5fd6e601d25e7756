"""Names of the rows of verdicts.py, and the tables that show them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
SIZES = (30, 100, 200, 400, 800, 1600, 6000)
FIVE = ("flickr-400-five", "flickr-2000-five", "flickr-five")
OTHERS = ("emoji", "emoji-400", "emoji-languages", "scenes-100", "scenes-1600")
COLLECTIONS = (*(f"flickr-{size}" for size in SIZES), *FIVE, *OTHERS)
DRAWINGS = ("stamps", "clipart-800", "clipart")  # of debian_pictures.py; no constant of verdicts was chosen on them
EVIDENCE = "training pairs, images joined with their captions"  # what today's weights of training pairs come from
WHERE = ("all", "train", "all, image", "all, caption")  # the last two with a placeholder
PLACES = dict(zip(WHERE, ("", " of train", " and a blank image", " and an empty caption"), strict=True))
KEY = ("kind", "collection", "noise", "where", "seed", "method")


def groups(rows: list[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Rows that differ in the seed alone; those of older weights are apart."""
    names = [*(name for name in KEY if name != "seed"), "evidence"]
    order = {name: place for place, name in enumerate((*COLLECTIONS, *DRAWINGS))}
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row.get(name, "") for name in names), []).append(row)
    for key in sorted(grouped, key=lambda key: (key[0], order.get(key[1], 99), key)):
        yield dict(zip(names, key, strict=True)), grouped[key]


def page(rows: list[Row], text: str) -> str:
    """A text, and the rows as tables: means over the seeds, and of the estimate the largest error."""
    title, _, rest = text.strip().partition("; ")
    heads = ("collection", "pairs", "noise", "flagged", "estimate", "largest error", "AUROC", "of train", "CCA", "k-NN")
    heads = (*heads, "precision", "recall", "calibration error", "seconds", "seeds")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    heads = ("collection", "noise", "method", "weights from", "rSum on true test pairs", "training seconds", "seeds")
    fits = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for key, group in groups(rows):
        noise = f"{key['noise']:.0%}" + PLACES[key["where"]]
        if key["kind"] == "recall":
            source = "training pairs" if key["evidence"] else "all pairs"
            cells = [key["collection"], noise, key["method"], "" if key["method"] == "plain" else source]
            cells += [mean(group, "rsum", ".1f"), mean(group, "train_seconds", ".0f"), str(len(group))]
            fits.append("| " + " | ".join(cells) + " |")
            continue
        error = max(abs(row["estimate"] - true_rate(row)) for row in group)
        cells = [key["collection"], str(group[0]["pairs"]), noise, mean(group, "flagged", ".1%")]
        cells += [mean(group, "estimate", ".1%"), f"{error:.1%}"]
        cells += [mean(group, name, ".3f") for name in ("auroc", "auroc_train", "auroc_cca", "auroc_knn")]
        cells += [mean(group, "precision", ".2f"), mean(group, "recall", ".2f"), mean(group, "calibration", ".3f")]
        lines.append("| " + " | ".join([*cells, mean(group, "evidence_seconds", ".0f"), str(len(group))]) + " |")
    return f"# {title}\n\n{rest[:1].upper()}{rest[1:]}\n\n" + "\n".join(lines) + "\n\n" + "\n".join(fits) + "\n"


def true_rate(row: Row) -> float:
    """Return the share of mismatched pairs among training pairs or all pairs, whichever the estimate is about."""
    return float(row.get("true_rate", row["noise"] if row["where"] == "train" else row["wrong"]))


def summary(rows: list[Row]) -> str:
    """Collections by noise in all splits: the flags at 0%, elsewhere estimate, largest error and AUROC."""
    found: dict[str, dict[float, list[Row]]] = {}
    for key, group in groups([row for row in rows if row["kind"] == "verdicts" and row["where"] == "all"]):
        found.setdefault(key["collection"], {})[key["noise"]] = group
    noises = sorted({noise for cells in found.values() for noise in cells})
    heads = ["collection", "pairs", *(f"{noise:.0%}" if noise else "0%: flagged" for noise in noises)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for collection, cells in found.items():
        line = [f"`{collection}`", f"{next(iter(cells.values()))[0]['pairs']:,}"]
        for noise in noises:
            group = cells.get(noise, [])
            error = max((abs(row["estimate"] - row["wrong"]) for row in group), default=0)
            if not any(row["verdicts"] for row in group):
                line.append("no verdicts" if group else "")
            elif noise:
                line.append(f"{mean(group, 'estimate', '.0%')} ({error:.1%}), {mean(group, 'auroc', '.3f')}")
            else:
                line.append(mean(group, "flagged", ".1%"))
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def recall_summary(rows: list[Row]) -> str:
    """Collections by noise: recall of `crossfit`, that of `plain` in brackets, over the seeds that both have."""
    order = {name: place for place, name in enumerate((*COLLECTIONS, *DRAWINGS))}
    both: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    for row in rows:
        if row["kind"] == "recall" and row["method"] in ("crossfit", "plain"):
            noise = f"{row['noise']:.0%}" + PLACES[row["where"]]
            seeds = both.setdefault(row["collection"], {}).setdefault(noise, {})
            seeds.setdefault(row["seed"], {})[row["method"]] = row["rsum"]
    noises = sorted({noise for cells in both.values() for noise in cells}, key=lambda noise: (len(noise), noise))
    lines = ["| " + " | ".join(["collection", *noises]) + " |", "|---" * (1 + len(noises)) + "|"]
    for collection in sorted(both, key=lambda name: order.get(name, 99)):
        cells = []
        for noise in noises:
            runs = [run for run in both[collection].get(noise, {}).values() if len(run) == 2]
            ours, plain = (
                format(sum(run[m] for run in runs) / max(1, len(runs)), ".0f") for m in ("crossfit", "plain")
            )
            cells.append(f"{ours} ({plain})" + (f", {len(runs)} seeds" if len(runs) > 1 else "") if runs else "")
        if any(cells):
            lines.append(f"| `{collection}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def taught_summary(rows: list[Row]) -> str:
    """Collections by the number of training pairs: recall of `crossfit` and `sift`, and what the second gains."""
    present = [row for row in rows if row.get("evidence") == EVIDENCE]
    found: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in present:
        key = (row["training_pairs"], row["collection"], row["noise"], row["where"], row["seed"])
        found.setdefault(key, {})[row["method"]] = row
    lines = ["| collection | training pairs | noise | seed | `crossfit` | `sift` | gain |", "|---" * 7 + "|"]
    for (pairs, collection, noise, where, seed), both in sorted(found.items()):
        if {"crossfit", "sift"} <= both.keys():
            before, after = both["crossfit"]["rsum"], both["sift"]["rsum"]
            cells = [f"`{collection}`", f"{pairs:,}", f"{noise:.0%}" + PLACES[where], str(seed)]
            lines.append("| " + " | ".join([*cells, f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}"]) + " |")
    return "\n".join(lines)


def linear_summary(rows: list[Row]) -> str:
    """Collections by noise: what the linear model that competes with the networks adds to the rSum of `crossfit`."""
    found: dict[str, dict[str, list[float]]] = {}
    order = {name: place for place, name in enumerate((*COLLECTIONS, *DRAWINGS))}
    for row in sorted(rows, key=lambda row: row["seed"]):
        if row["kind"] == "recall" and row["method"] == "crossfit" and row.get("networks_rsum") is not None:
            noise = f"{row['noise']:.0%}" + PLACES[row["where"]]
            found.setdefault(row["collection"], {}).setdefault(noise, []).append(row["rsum"] - row["networks_rsum"])
    noises = sorted({noise for cells in found.values() for noise in cells}, key=lambda noise: (len(noise), noise))
    lines = ["| " + " | ".join(["collection", *noises]) + " |", "|---" * (1 + len(noises)) + "|"]
    for collection in sorted(found, key=lambda name: order.get(name, 99)):
        cells = [", ".join(f"{gain:+.1f}" for gain in found[collection].get(noise, [])) for noise in noises]
        lines.append(f"| `{collection}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean(group: list[Row], name: str, digits: str) -> str:
    found = [row[name] for row in group if row.get(name) is not None]
    return format(statistics.mean(found), digits) if found else ""


# The tables of a page, by the mark that each of them begins with.
TABLES = {
    "<!-- verdicts table -->": summary,
    "<!-- recall table -->": recall_summary,
    "<!-- linear table -->": linear_summary,
    "<!-- taught table -->": taught_summary,
}
