"""Methods side by side on Flickr8k with planted mismatches; every run is a row, and a table is printed.

Protocol: caption-level noise among the training captions, dev and test clean; of the epochs of a method's last phase,
the one with the best dev rSum is tested once (rows whose protocol says "best on dev" alone: of all epochs). Recovery is
(rSum - plain) / (oracle - plain) at the same noise, loss and encoders, each a mean over the same seeds, of ensembles of
two networks, or of single ones where the method trains one; the oracle is the one with as many steps where the other
was not measured. Lost is what plain training on the clean captions has more.
What an epoch costs is measured by itself, in epochs.py.

Rows of one noise and one seed share the held-out evidence. AUROC is that of the method's own last trust in the training
pairs (in rows without `trust_auroc`, which are older: of the networks' own similarity); `plain` has none. `mscn` is
given every 60th training pair as verified; of these, the ones that noise moved count as any other pair. Rows of
`crossfit` and `sift` on `sgr`, and one of `sift` on `vse` with all epochs in each round, have weights of training pairs
that also knew the pairs of dev and test, as `protocol` says in the JSON: they are too high.

    python benchmarks/flickr8k.py --data ../shared/flickr8k --json benchmarks/results/flickr8k.json
    python benchmarks/flickr8k.py --matcher sgr --text-encoder words --reduced

Rows that the file already holds are not measured again, so that a long table can be filled in several sittings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

from option_names import present
from pages import END, write_between
from pairsift.bench.measure import Row
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from side_by_side import PRETRAINED, measured, write

KEY = ("matcher", "method", "loss", "text_encoder", "noise", "seed", "images")
# Rows that are a method's options: PC2* is the papers'; an oracle with as many epochs as plain takes fewer steps.
VARIANTS = {
    "pc2*": ("pc2", ["pc2.captions.mismatch_threshold=0.5"]),
    "oracle, as many steps": ("oracle", ["oracle.as_many_steps=true"]),
}
YARDSTICKS = ("plain", "oracle", "oracle, as many steps")
# What token-level matchers run with on two cores: fewer images, smaller codes, fewer epochs, and the mean of all
# negatives, since from so few pairs the hardest make all similarities alike. A GPU takes the paper's.
REDUCED_IMAGES = 1000
REDUCED = {
    "dim": 128,
    "word_dim": 64,
    "similarity_dim": 32,
    "batch_size": 64,
    "lr": 1e-3,
    "schedule": "one_cycle",
    "hinge.negatives": "mean",
    "crossfit.epochs.warmup": 0,
    "crossfit.epochs.train": 10,
    "sift.epochs.warmup": 0,
    "sift.epochs.train": 5,
    "sift.epochs.taught": 5,
    "plain.epochs.warmup": 3,
    "plain.epochs.train": 7,
    "ncr.epochs.warmup": 2,
    "ncr.epochs.clean": 4,
    "ncr.epochs.all": 4,
    "pc2.epochs.warmup": 2,
    "pc2.epochs.clean": 4,
    "pc2.epochs.all": 4,
    "pcsr.epochs.warmup": 2,
    "pcsr.epochs.clean": 4,
    "pcsr.epochs.refine": 2,
    "pcsr.epochs.all": 2,
    "bicro.epochs.warmup": 2,
    "bicro.epochs.clean": 4,
    "bicro.epochs.all": 4,
    "bicro.warmup_share": 1.0,
    "cream.epochs.warmup": 2,
    "cream.epochs.clean": 2,
    "cream.epochs.hard": 2,
    "cream.epochs.all": 4,
    "l2rm.epochs.warmup": 2,
    "l2rm.epochs.train": 8,
    "mscn.epochs.warmup": 2,
    "mscn.epochs.train": 8,
    "gsc.epochs.warmup": 1,
    "gsc.epochs.train": 9,
    "npc.epochs.warmup": 2,
    "npc.epochs.train": 8,
    "rcl.epochs.train": 10,
    "rince.epochs.train": 10,
    "crcl.epochs.first": 3,
    "crcl.epochs.second": 2,
    "crcl.epochs.third": 0,
    "crcl.epochs.last": 5,
    "decl.epochs.warmup": 2,
    "decl.epochs.train": 8,
    "osa.epochs.train": 10,
}
# SGR under InfoNCE starts to tell pairs apart in its third or fourth epoch: no method can divide them before.
SLOW = {
    "ncr.epochs.warmup": 4,
    "ncr.epochs.clean": 3,
    "ncr.epochs.all": 3,
    "pc2.epochs.warmup": 4,
    "pc2.epochs.clean": 3,
    "pc2.epochs.all": 3,
    "pcsr.epochs.warmup": 4,
    "pcsr.epochs.clean": 2,
    "bicro.epochs.warmup": 4,
    "bicro.epochs.clean": 3,
    "bicro.epochs.all": 3,
    "cream.epochs.warmup": 4,
    "cream.epochs.hard": 1,
    "cream.epochs.all": 3,
    "l2rm.epochs.warmup": 4,
    "l2rm.epochs.train": 6,
    "mscn.epochs.warmup": 4,
    "mscn.epochs.train": 6,
    "gsc.epochs.warmup": 4,
    "gsc.epochs.train": 6,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    usual = [name for name in METHODS if name not in PRETRAINED]
    parser.add_argument("--methods", nargs="+", default=[*usual, *VARIANTS])
    parser.add_argument("--matcher", default="two_tower")
    parser.add_argument("--losses", nargs="+", default=["infonce"])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--text-encoder", default="wordllama", help="minilm:<folder> for the second column")
    parser.add_argument("--options", nargs="*", default=[], help="further options of fit: pc2.captions.search=batch")
    parser.add_argument("--reduced", action="store_true", help=f"{REDUCED_IMAGES} training images, small codes")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the feature cache")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/flickr8k.json"))
    parser.add_argument("--pages", nargs="*", type=Path, default=[], help="pages whose tables are written anew")
    chosen = parser.parse_args()
    rows: list[Row] = json.loads(chosen.json.read_text())["rows"] if chosen.json.exists() else []
    done = {(*key(row), *own_options(row)) for row in rows}
    for seed in chosen.seeds:
        for noise in chosen.noise:
            wanted = [
                wanted_row(chosen, method, loss, noise, seed)
                for loss in chosen.losses
                for method in chosen.methods
                if noise or not method.startswith("oracle")  # which is plain training without noise
            ]
            missing = [row for row in wanted if (*key(row), *own_options(row)) not in done]
            for row in measured(chosen.data, chosen.cache, missing, typed, chosen.text_encoder):
                rows.append(finished(row, chosen.text_encoder))
                print(json.dumps({name: rows[-1][name] for name in (*KEY, "rsum", "auroc", "seconds")}), flush=True)
                write(chosen.json, rows)
    print(table(rows))
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))
    for one in chosen.pages:
        show(one, rows)


def key(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def own_options(row: Row) -> list[str]:
    """Options, by their names of today, that set a row apart from the benchmark as it is; the precision does not."""
    usual = reduced(row["matcher"], row["method"], row["loss"]) if row.get("images") else []
    options = [present(option) for option in row["options"]]
    return [option for option in options if option not in usual and not option.startswith("precision=")]


def reduced(matcher: str, method: str, loss: str) -> list[str]:
    """Those of the reduced options that a matcher, a method and a loss have; npc's own preset is for fine-tuning."""
    method, _ = VARIANTS.get(method, (method, []))
    phases = "plain" if method == "oracle" else method
    found = ["preset=scratch"] if method == "npc" else []
    chosen = REDUCED | (SLOW if (matcher, loss) == ("sgr", "infonce") else {})
    for name, value in chosen.items():
        head, _, tail = name.partition(".")
        if tail and head in (phases, loss):
            found.append(f"{method if head == phases else head}.{tail}={value}")
        elif not tail and name in ("batch_size", "lr", "schedule"):
            found.append(f"{name}={value}")
        elif not tail and name in MATCHERS[matcher].options.model_fields:
            found.append(f"{matcher}.{name}={value}")
    return found


def wanted_row(chosen: argparse.Namespace, method: str, loss: str, noise: float, seed: int) -> Row:
    """What a row is looked up by, with the options that it is measured with."""
    return {
        "matcher": chosen.matcher,
        "method": method,
        "loss": loss,
        "text_encoder": chosen.text_encoder.partition(":")[0],
        "noise": noise,
        "seed": seed,
        "images": REDUCED_IMAGES if chosen.reduced else None,
        "options": (reduced(chosen.matcher, method, loss) if chosen.reduced else []) + chosen.options,
    }


def typed(row: Row) -> tuple[str, list[str]]:
    """A row's method and its options as `fit` knows them."""
    method, more = VARIANTS.get(row["method"], (row["method"], []))
    return method, [*more, *row["options"]]


def finished(row: Row, text_encoder: str) -> Row:
    """A measured row with what the table shows: the method's own AUROC and estimate, where it has them."""
    estimate = row["facts"].get("noise_rate", row["estimated_rate"])
    return row | {
        "auroc": row["trust_auroc"],
        "noise_rate": {"estimated": estimate, "true": row["noise"]},
        "text_weights": weights(text_encoder),
    }


def weights(text_encoder: str) -> str | None:
    """SHA-256 of a local text encoder's weights; None for one that comes in a package."""
    _, _, folder = text_encoder.partition(":")
    return hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest() if folder else None


def page(protocol: str | None, tables: str) -> str:
    """The tables below a heading and what the benchmark says of its protocol."""
    title, _, rest = (protocol or "").strip().partition("; ")
    return f"# {title}\n\n{rest[:1].upper()}{rest[1:]}\n\n{tables}\n"


def beside(rows: list[Row], row: Row, method: str, noise: float | None = None) -> Row | None:
    """The row of another method, and perhaps of another noise, with the same matcher, loss, encoder, seed and data."""
    wanted = row | {"method": method, "noise": row["noise"] if noise is None else noise}
    return next((other for other in rows if key(other) == key(wanted)), None)


def column(row: Row) -> str:
    """What a method's rSum is compared with: that of ensembles, or of single networks where it trains one."""
    return "rsum_single" if row["networks"] == 1 else "rsum"


def recovery(rows: list[Row], group: list[Row]) -> float | None:
    """(rSum - plain) / (oracle - plain), each summed over those of the group's seeds that have all three."""
    oracles = ("oracle", "oracle, as many steps")
    found = [
        (row, beside(rows, row, "plain"), next((o for name in oracles if (o := beside(rows, row, name))), None))
        for row in group
    ]
    whole = [(row, plain, oracle) for row, plain, oracle in found if plain and oracle]
    gap = sum(oracle[column(row)] - plain[column(row)] for row, plain, oracle in whole)
    return float(sum(row["rsum"] - plain[column(row)] for row, plain, _ in whole) / gap) if gap else None


def lost(rows: list[Row], group: list[Row]) -> float | None:
    """What plain training on the clean captions has more, mean over those of the group's seeds that have both."""
    found = [(row, beside(rows, row, "plain", 0.0)) for row in group]
    return statistics.mean(costs) if (costs := [c[column(row)] - row["rsum"] for row, c in found if c]) else None


def table(rows: list[Row]) -> str:
    """Means and spreads (highest minus lowest) over the seeds."""
    lines = [
        "| matcher, text | loss | noise | method | rSum (spread) | single | dev | recovery | lost | AUROC "
        "| rate found / true |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        few = f", {row['images']} images" if row.get("images") else ""
        own = "".join(f", {option}" for option in own_options(row))
        setup = f"{row['matcher']}, {row['text_encoder']}{few}{own}"
        groups.setdefault((setup, *(row[name] for name in ("loss", "noise", "method"))), []).append(row)
    order = [*METHODS, *VARIANTS]
    for (setup, loss, noise, method), group in sorted(
        groups.items(), key=lambda item: (*item[0][:3], order.index(item[0][3]))
    ):
        rsum = [row["rsum"] for row in group]
        measured = method not in YARDSTICKS
        cells = [
            setup,
            loss,
            f"{noise:.0%}",
            method,
            f"{statistics.mean(rsum):.1f} ({max(rsum) - min(rsum):.1f}; {len(group)} seed{'s' * (len(group) > 1)})",
            f"{statistics.mean(row['rsum_single'] for row in group):.1f}",
            f"{statistics.mean(row['dev_rsum'] for row in group):.1f}",
            shown(recovery(rows, group) if measured else None, ".2f"),
            shown(lost(rows, group), ".1f"),
            shown(mean_of(group, "auroc") if noise else None, ".4f"),
            f"{statistics.mean(row['noise_rate']['estimated'] for row in group):.3f} / "
            f"{statistics.mean(row['noise_rate']['true'] for row in group):.3f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def two_towers(rows: list[Row]) -> str:
    """Two towers with the default encoders, InfoNCE and the presets, by noise."""
    setup = {"matcher": "two_tower", "text_encoder": "wordllama", "loss": "infonce", "images": None}
    rows = [row for row in having(rows, setup) if not own_options(row)]
    noises = sorted({row["noise"] for row in rows})
    return grid({f"{noise:.0%}": having(rows, {"noise": noise}) for noise in noises}, rows)


def small_matchers(rows: list[Row]) -> str:
    """The matcher `sgr`, which learns words from nothing, on few images, by loss and by noises that have an oracle."""
    columns = {}
    for matcher, loss in (("sgr", "hinge"), ("sgr", "infonce")):
        own = having(rows, {"matcher": matcher, "loss": loss, "images": REDUCED_IMAGES})
        own = [row for row in own if not own_options(row)]
        for noise in sorted({row["noise"] for row in own if row["method"] == "oracle"}):
            columns[f"`{matcher}`, {loss}, {noise:.0%}"] = having(own, {"noise": noise})
    return grid(columns, rows)


PAGE = {"<!-- methods table -->": two_towers, "<!-- small matchers table -->": small_matchers}


def show(page: Path, rows: list[Row]) -> None:
    """Write the tables anew that the page has marks of, each between its mark and the next END."""
    for mark, table_of in PAGE.items():
        write_between(page, mark, END, table_of(rows))


def grid(columns: dict[str, list[Row]], rows: list[Row]) -> str:
    """Methods by columns: rSum (recovery), AUROC; means over the seeds."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    methods = ("plain", *(name for name in METHODS if name not in YARDSTICKS), *YARDSTICKS[1:])
    for method in (name for name in methods if any(having(group, {"method": name}) for group in columns.values())):
        cells = []
        for column_rows in columns.values():
            group = having(column_rows, {"method": method})
            cell = f"{statistics.mean(row['rsum'] for row in group):.1f}" if group else ""
            if group and method not in YARDSTICKS and (found := recovery(rows, group)) is not None:
                cell += f" ({found:.2f})"
            if group and group[0]["noise"] and (auroc := mean_of(group, "auroc")) is not None:
                cell += f", {auroc:.3f}"
            cells.append(cell)
        lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def having(rows: list[Row], wanted: Row) -> list[Row]:
    """Those that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def mean_of(group: list[Row], name: str) -> float | None:
    """The mean over the rows that have the number; None where none has."""
    values = [row[name] for row in group if row[name] is not None]
    return statistics.mean(values) if values else None


def shown(value: float | None, digits: str) -> str:
    return "" if value is None else format(value, digits)


if __name__ == "__main__":
    main()
