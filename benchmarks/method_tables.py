"""Methods side by side on Flickr8k with planted mismatches; every run is a row, and a table is printed.

Protocol: caption-level noise among the training captions, dev and test clean; of the epochs of a method's last phase,
the one with the best dev rSum is tested once (rows whose protocol says "best on dev" alone: of all epochs). Recovery is
(rSum - plain) / (oracle - plain) at the same noise, loss and encoders, each a mean over the same seeds, of ensembles of
two networks, or of single ones where the method trains one; the oracle is the one with as many steps where the other
was not measured. Lost is what plain training on the clean captions has more. What an epoch costs is measured by itself,
in epochs.py.

Rows of one noise and one seed share the held-out evidence. AUROC tells how well the method's own last trust finds
mismatched training pairs (in rows without `trust_auroc`, which are older: the networks' similarity); `plain` has none.
`mscn` is given every 60th training pair as verified; of these, the ones that noise moved count as any other pair. Rows
of `crossfit` and `sift` on `sgr`, and one of `sift` on `vse` with all epochs in each round, have weights of training
pairs that also knew the pairs of dev and test, as `protocol` says in the JSON: they are too high.

    python benchmarks/flickr8k_parts.py --data ../shared/flickr8k
    pairsift bench benchmarks/flickr8k.yaml --out runs/flickr8k
    python benchmarks/method_tables.py --json runs/flickr8k/rows.json --pages docs/results.md
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairsift.methods import METHODS
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, write_tables

KEY = ("matcher", "method", "loss", "text_encoder", "noise", "seed", "images")
# Rows that are a method's options: PC2* is the papers'; an oracle with as many epochs as plain takes fewer steps.
VARIANTS = {"pc2*": "pc2", "oracle, as many steps": "oracle"}
ORACLES = ("oracle", "oracle, as many steps")
YARDSTICKS = ("plain", *ORACLES)
OURS = ("crossfit", "sift")

ABLATIONS = """The papers' ablations at small scale on Flickr8k; every row that their tables have is a set of options.

Two towers on the first 2,000 training images (10,000 pairs) with planted mismatches, a fifth as many images for dev and
test; or on 6,000 images with one caption each, as data from the web have it, where a search for captions cannot find
another one of the same image. Of the epochs of the method's last phase, the one with the best dev rSum is tested once.
The rows of a study differ in the named options alone. What the papers measured with token-level matchers on larger sets
need not show here: the spread over seeds says how much a difference means. Where the papers search the batch at hand
for captions so do these rows, not the whole epoch as the matcher's preset does: that finds the image's own clean
captions, whatever the classifier says. PCSR's third stage, one epoch of the preset, takes three here, so that what it
adds can show; pairs are divided at 0.5, as in the papers. Which table or figure of a paper a row is from, the grids
say.

AUROC tells how well the method's own last trust, the mean of its networks, finds mismatched training pairs. The
held-out evidence, which all rows of a collection, a noise and a seed share, is judged once for them. "own caption" is
the share of the noisy pairs for whose image the last search of all clean pairs found a caption that truly belongs to
it; "classes" how many pseudo-classes the training images were put into in the last pass.

    pairsift bench benchmarks/ablations/pc2.yaml --out runs/pc2
    python benchmarks/method_tables.py --table ablations --json runs/pc2/rows.json
"""
EVIDENCE = """Published methods as they are, and with the held-out evidence of pairsift inside; every run is a row.

The protocol of the methods' table, three seeds. With evidence, a division calls no more pairs noisy than the evidence
leaves room for, and near-duplicate images and equal captions are no negatives of each other. Rows as published are
those with the default text encoder (default_encoder.json).

    pairsift bench benchmarks/with_evidence.yaml --out runs/with_evidence
    python benchmarks/method_tables.py --table with_evidence --json runs/with_evidence/rows.json
"""
ENCODER = """Methods with the default text encoder, `muse`, by the protocol of the methods' table; every run is a row.

All methods have three seeds. Published methods are as published.

    pairsift bench benchmarks/default_encoder.yaml --out runs/default_encoder
    python benchmarks/method_tables.py --table default_encoder --json runs/default_encoder/rows.json
"""
PARTNERS = """Methods where the images that captions belong to are missing, as on the web; every run is a row.

A half of the training images of Flickr8k, with five captions each, clean dev and test. In rows `all`, a share of their
captions is permuted among themselves, so that the image that a moved caption belongs to is always there. In rows
`half`, captions are permuted among the captions of all training images, and then the same half of these is kept, so
that about half of the moved captions belong to an image that is not there. Rows of one seed have the same images. Of
the epochs of a method's last phase, the one with the best dev rSum is tested once.

    pairsift bench benchmarks/partners.yaml --source runs/parts/partners-half-1.csv --out runs/partners-half-1
    python benchmarks/method_tables.py --table partners --json runs/partners-half-1/rows.json
"""


def main() -> None:
    options = parser(__doc__, "flickr8k_mended.json")
    options.add_argument("--table", choices=list(TABLES), default="methods")
    options.add_argument("--pages", nargs="*", type=Path, default=[], help="pages whose tables are written anew")
    chosen = options.parse_args()
    description, table = TABLES[chosen.table]
    rows = [row_of_grid(row, chosen.json) if "cell" in row else row for row in read_rows(chosen.json)]
    print(table(rows))
    chosen.json.with_suffix(".md").write_text(page(description, table(rows)))
    write_tables(chosen.pages, PAGES.get(chosen.table, {}), rows)


def row_of_grid(row: Row, path: Path) -> Row:
    """Return a row of `pairsift bench` with what the tables look up.

    The name of its source tells the part of Flickr8k and the partners, the folder of the grid its study.
    """
    options, name = row["options"], Path(row["options"]["source"]).stem
    part = re.fullmatch(r"flickr8k-(\d+)", name)
    partners = re.fullmatch(r"partners-(all|half)-\d+", name)
    return row | {
        "matcher": options["matcher"],
        "loss": options["loss"],
        "text_encoder": (options["text_encoder"] or "").partition(":")[0],
        "images": int(part[1]) if part else None,
        "auroc": row["trust_auroc"],
        "noise_rate": {"estimated": row["facts"].get("noise_rate", row["estimated_rate"]), "true": row["noise"]},
        "study": path.parent.name,
        "label": row["method"],
        "partners": partners[1] if partners else None,
    }


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def method_of(row: Row) -> str:
    """Return the method of a row, which may be a variant of it."""
    return VARIANTS.get(row["method"], row["method"])


def own_options(row: Row) -> list[str]:
    """Return the options that set a row apart from the benchmark as it is."""
    return list(row.get("own_options", []))


def beside(rows: list[Row], row: Row, method: str, noise: float | None = None) -> Row | None:
    """Return the row of another method, perhaps of another noise, that is like this one in all else."""
    wanted = {name: row.get(name) for name in KEY}
    return find_row(rows, wanted | {"method": method, "noise": row["noise"] if noise is None else noise})


def column(row: Row) -> str:
    """Return the name of the rSum that a method is compared with, by its number of networks."""
    return "rsum_single" if row["networks"] == 1 else "rsum"


def recovery(rows: list[Row], group: list[Row]) -> float | None:
    """Return (rSum - plain) / (oracle - plain), each summed over the seeds of the group that have all three."""
    values = [
        (row, beside(rows, row, "plain"), next((o for name in ORACLES if (o := beside(rows, row, name))), None))
        for row in group
    ]
    whole = [(row, plain, oracle) for row, plain, oracle in values if plain and oracle]
    gap = sum(oracle[column(row)] - plain[column(row)] for row, plain, oracle in whole)
    return float(sum(row["rsum"] - plain[column(row)] for row, plain, _ in whole) / gap) if gap else None


def lost(rows: list[Row], row: Row) -> float | None:
    """Return what plain training on the clean captions has more. None where this seed lacks it."""
    clean = beside(rows, row, "plain", 0.0)
    return clean[column(row)] - row["rsum"] if clean else None


def setup(row: Row) -> str:
    """Return the matcher, the text encoder, and what else sets a row apart."""
    few = [f"{row['images']} images"] if row.get("images") else []
    return ", ".join([row["matcher"], row["text_encoder"], *few, *own_options(row)])


def spread(group: list[Row]) -> str:
    """Return the mean of rSum, and the highest less the lowest over the seeds."""
    rsum = [row["rsum"] for row in group]
    return f"{statistics.mean(rsum):.1f} ({max(rsum) - min(rsum):.1f}; {len(group)} seed{'s' * (len(group) > 1)})"


def methods_table(rows: list[Row]) -> str:
    """Return the table of means and spreads over the seeds."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((setup(row), *(row[name] for name in ("loss", "noise", "method"))), []).append(row)
    order = {name: place for place, name in enumerate((*METHODS, *VARIANTS))}
    lines = []
    for (place, loss, noise, method), group in sorted(
        groups.items(), key=lambda item: (*item[0][:3], order.get(item[0][3], len(order)))
    ):
        recovered = None if method in YARDSTICKS else recovery(rows, group)
        estimates = [mean((row["noise_rate"][name] for row in group), ".3f") for name in ("estimated", "true")]
        lines.append(
            [
                place,
                loss,
                f"{noise:.0%}",
                method,
                spread(group),
                mean((row["rsum_single"] for row in group), ".1f"),
                mean((row["dev_rsum"] for row in group), ".1f"),
                mean([recovered], ".2f"),
                mean((lost(rows, row) for row in group), ".1f"),
                mean((row["auroc"] for row in group if noise), ".4f"),
                " / ".join(estimates),
            ]
        )
    head = ["matcher, text", "loss", "noise", "method", "rSum (spread)", "single", "dev", "recovery", "lost", "AUROC"]
    return markdown([*head, "rate found / true"], lines)


def ablations_table(rows: list[Row]) -> str:
    """Return a table for each study, with means over the seeds and the spread of rSum."""
    lines: list[str] = []
    for study in dict.fromkeys(row["study"] for row in rows):
        own = select(rows, {"study": study})
        cells = []
        for noise in sorted({row["noise"] for row in own}):
            for label in dict.fromkeys(row["label"] for row in own):
                if group := select(own, {"label": label, "noise": noise}):
                    values = [{**row["facts"], **row} for row in group]
                    single = mean((row["rsum_single"] for row in group), ".1f")
                    forms = {"trust_auroc": ".4f", "own_caption": ".0%", "classes_in_use": ".0f"}
                    means = [mean((row.get(name) for row in values), form) for name, form in forms.items()]
                    cells.append([label, f"{noise:.0%}", spread(group), single, *means])
        head = ["row", "noise", "rSum (spread)", "single", "AUROC", "own caption", "classes"]
        lines += [f"## {study}", "", markdown(head, cells), ""]
    return "\n".join(lines)


def partners_table(rows: list[Row]) -> str:
    """Return the table of rSum by partners, means over the seeds."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for noise in dict.fromkeys(row["noise"] for row in rows):
        for partners in ("all", "half"):
            group = select(rows, {"noise": noise, "partners": partners})
            if group:
                by_method = [[row["rsum"] for row in group if row["method"] == method] for method in methods]
                gone = mean((row.get("gone") for row in group), ".0%") or partners
                seeds = min(len(values) for values in by_method)
                lines.append([f"{noise:.0%}", gone, *(mean(values, ".1f") for values in by_method), str(seeds)])
    return markdown(["noise", "own image gone", *(f"`{method}`" for method in methods), "seeds"], lines)


def two_towers(rows: list[Row], text_encoder: str = "wordllama") -> str:
    """Return the table of two towers with a text encoder, InfoNCE and the presets, by noise."""
    wanted = {"matcher": "two_tower", "text_encoder": text_encoder, "loss": "infonce", "images": None}
    rows = [row for row in select(rows, wanted) if not own_options(row)]
    noises = sorted({row["noise"] for row in rows})
    return by_columns({f"{noise:.0%}": select(rows, {"noise": noise}) for noise in noises}, rows)


def small_matchers(rows: list[Row]) -> str:
    """Return the table of `sgr` on few images, by loss and by noises that have an oracle."""
    columns = {}
    for loss in ("hinge", "infonce"):
        own = [row for row in select(rows, {"matcher": "sgr", "loss": loss}) if row["images"] and not own_options(row)]
        for noise in sorted({row["noise"] for row in select(own, {"method": "oracle"})}):
            columns[f"`sgr`, {loss}, {noise:.0%}"] = select(own, {"noise": noise})
    return by_columns(columns, rows)


def by_columns(columns: dict[str, list[Row]], rows: list[Row]) -> str:
    """Return methods by columns: rSum (recovery), AUROC; means over the seeds."""
    lines = []
    for method in ("plain", *(name for name in METHODS if name not in YARDSTICKS), *ORACLES):
        cells = []
        for own in columns.values():
            group = select(own, {"method": method})
            cell = mean((row["rsum"] for row in group), ".1f")
            if method not in YARDSTICKS and (share := recovery(rows, group)) is not None:
                cell += f" ({share:.2f})"
            if auroc := mean((row["auroc"] for row in group if row["noise"]), ".3f"):
                cell += f", {auroc}"
            cells.append(cell)
        if any(cells):
            lines.append([f"`{method}`", *cells])
    return markdown(["", *columns], lines)


def evidence_table(rows: list[Row]) -> str:
    """Return rSum of each method as published, and what evidence inside adds, by noise; means over the seeds."""
    noises = sorted({row["noise"] for row in rows})
    lines = []
    for method in (name for name in METHODS if select(rows, {"method": name})):
        names = (method, f"{method} with evidence")
        cells = []
        for noise in noises:
            found = [[row["rsum"] for row in select(rows, {"method": name, "noise": noise})] for name in names]
            published, bounded = map(statistics.fmean, found)
            cells.append(f"{published:.1f} {bounded - published:+z.1f}")
        lines.append([f"`{method}`", *cells])
    return markdown(["rSum, and what evidence adds", *(f"{noise:.0%}" for noise in noises)], lines)


def default_encoder(rows: list[Row]) -> str:
    """Return the table of two towers with the default text encoder."""
    return two_towers(rows, "muse")


def sift_beside_others(rows: list[Row]) -> str:
    """Return rSum of plain training, of the best published method and of `sift`, by noise; means over the seeds."""
    noises = sorted({row["noise"] for row in rows})
    published = [name for name in METHODS if name not in (*YARDSTICKS, *OURS)]
    lines = []
    for title, methods in (
        ("plain training", ["plain"]),
        ("best published", published),
        ("`sift`, the default", ["sift"]),
    ):
        cells = []
        for noise in noises:
            own = {name: select(rows, {"method": name, "noise": noise}) for name in methods}
            means = {name: statistics.mean(row["rsum"] for row in group) for name, group in own.items() if group}
            best = max(means, key=means.__getitem__)
            cells.append(f"{means[best]:.1f}" + f" `{best}`" * (len(methods) > 1))
        lines.append([title, *cells])
    return markdown(["", *(f"{noise:.0%}" for noise in noises)], lines)


PAGES: dict[str, dict[str, Callable[[list[Row]], str]]] = {  # by the table that is made
    "methods": {"<!-- word vectors table -->": two_towers, "<!-- small matchers table -->": small_matchers},
    "with_evidence": {"<!-- with evidence table -->": evidence_table},
    "default_encoder": {
        "<!-- default encoder table -->": default_encoder,
        "<!-- sift beside others -->": sift_beside_others,
    },
}
TABLES: dict[str, tuple[str | None, Callable[[list[Row]], str]]] = {
    "methods": (__doc__, methods_table),
    "ablations": (ABLATIONS, ablations_table),
    "partners": (PARTNERS, partners_table),
    "with_evidence": (EVIDENCE, evidence_table),
    "default_encoder": (ENCODER, default_encoder),
}

if __name__ == "__main__":
    main()
