"""The four papers' ablations at small scale on Flickr8k; every row that their tables have is a set of options.

Two towers on the first 2,000 training images (10,000 pairs) with planted mismatches, a fifth as many images for dev and
test. Of the epochs of the method's last phase, the one with the best dev rSum is tested once. The rows of a study
differ in the named options alone. What the papers measured with token-level matchers on larger sets need not show here:
the spread over seeds says how much a difference means. Where the papers search the batch at hand for captions so do
these rows, not the whole epoch as the matcher's preset does: that finds the image's own clean captions, whatever the
classifier says. PCSR's third stage, one epoch of the preset, takes three here, so that what it adds can show; pairs are
divided at 0.5, as in the papers.

    python benchmarks/ablations.py --data ../shared/flickr8k --json benchmarks/results/ablations.json

Rows that the file already holds are not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flickr8k import measure, page, write
from option_names import present

IMAGES = 2000
Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper.

    Attributes:
        method: The method.
        source: Which table of its paper.
        noise: Noise ratios, as in the paper.
        rows: Options by row label; none for the method as it is.
        base: Options of every row, unless the row has others.
    """

    method: str
    source: str
    noise: tuple[float, ...]
    rows: dict[str, list[str]]
    base: tuple[str, ...] = ()

    def options(self, label: str) -> list[str]:
        """All options of a row."""
        chosen = dict(option.split("=", 1) for option in (*self.base, *self.rows[label]))
        return [f"{name}={value}" for name, value in chosen.items()]


WHOLE: dict[str, list[str]] = {"whole": []}
PC2 = ("pc2.captions.search=batch",)
PCSR = (
    "pcsr.division.threshold=0.5",
    "pcsr.captions.search=batch",
    "pcsr.epochs.clean=2",
    "pcsr.epochs.refine=1",
    "pcsr.epochs.all=3",
)
STUDIES: dict[str, Study] = {
    "pc2_components": Study(
        "pc2",
        "Table 3",
        (0.4,),
        WHOLE
        | {
            "no rectification": ["pc2.stability.rectify=false"],
            "no pseudo-captions": ["pc2.weights.noisy=0"],
            "pseudo-classification alone": ["pc2.stability.rectify=false", "pc2.weights.noisy=0"],
            "pseudo-captions by embeddings": [
                "pc2.stability.rectify=false",
                "pc2.captions.compare=embedding",
                "pc2.weights.pseudo=0",
                "pc2.weights.entropy=0",
            ],
            "PC2* (supplement, Table 3)": ["pc2.captions.mismatch_threshold=0.5"],
            "search among all clean pairs (not in the paper)": ["pc2.captions.search=epoch"],
        },
        PC2,
    ),
    "pc2_classes": Study(
        "pc2",
        "Table 4",
        (0.4,),
        WHOLE | {f"K = {k}": [f"pc2.classifier.classes={k}"] for k in (32, 512, 2048, 8192)},
        PC2,
    ),
    "pc2_curve": Study(
        "pc2", "Figure 5", (0.4,), WHOLE | {f"m = {m}": [f"infonce.base={m}"] for m in (1.5, 5, 20, 50)}, PC2
    ),
    "pc2_networks": Study("pc2", "(none)", (0.4,), WHOLE | {"one network": ["pc2.networks=1"]}, PC2),
    "pcsr_classes": Study(
        "pcsr",
        "Table 3",
        (0.6,),
        WHOLE | {f"K = {k}": [f"pcsr.classifier.classes={k}"] for k in (32, 64, 128, 512)},
        PCSR,
    ),
    "pcsr_subsets": Study(
        "pcsr",
        "Table 4",
        (0.6,),
        WHOLE
        | {
            "clean and refinable": ["pcsr.noisy.train=refinable"],
            "clean and ambiguous": ["pcsr.noisy.train=ambiguous"],
            "clean": ["pcsr.noisy.train=none"],
            "search among all clean pairs (not in the paper)": ["pcsr.captions.search=epoch"],
        },
        PCSR,
    ),
    "pcsr_components": Study(
        "pcsr",
        "Table 5; its last row is PC2",
        (0.6,),
        WHOLE
        | {"all noisy as refinable": ["pcsr.noisy.loss=refinable"], "all as ambiguous": ["pcsr.noisy.loss=ambiguous"]},
        PCSR,
    ),
    "pcsr_without_division": Study("pc2", "PCSR's Table 5, last row", (0.6,), WHOLE, PC2),
    "gsc_components": Study(
        "gsc",
        "Table 5; the indicators alone are not in it",
        (0.4,),
        WHOLE
        | {
            "no averages": [
                "gsc.indicators.beta1=1",
                "gsc.indicators.beta2=1",
                "gsc.epochs.warmup=2",
                "gsc.epochs.train=6",
            ],
            "one network": ["gsc.networks=1"],
            "no intra-modal loss": ["gsc.intra_modal.gamma=0"],
            "cross-modal indicator alone": ["gsc.indicators.use=cross_modal"],
            "intra-modal indicator alone": ["gsc.indicators.use=intra_modal"],
        },
    ),
    "gsc_weights": Study(
        "gsc",
        "Figure 4",
        (0.4,),
        WHOLE
        | {f"gamma = {g}": [f"gsc.intra_modal.gamma={g}"] for g in (0.001, 0.1, 1)}
        | {f"beta_{k} = {b}": [f"gsc.indicators.beta{k}={b}"] for k in (1, 2) for b in (0.5, 0.9)}
        | {f"both betas = {b}": [f"gsc.indicators.beta1={b}", f"gsc.indicators.beta2={b}"] for b in (0.5, 0.9)},
    ),
    "gsc_batch": Study(
        "gsc",
        "Table 6; B of the losses and of y_CM, S_IM stays with 1,024",
        (0.4,),
        {"B = 512, y_CM by 32": []}
        | {f"B = {b}": [f"batch_size={b}", f"gsc.indicators.block={b}"] for b in (32, 64, 128, 192)},
    ),
    "npc_components": Study(
        "npc",
        "Table 6",
        (0.2, 0.4, 0.6),
        WHOLE
        | {
            "weights alone": ["npc.bank.weight=0"],
            "bank's loss alone": ["npc.impact.weigh=false"],
            "neither": ["npc.impact.weigh=false", "npc.bank.weight=0"],
        },
    ),
    "npc_threshold": Study(
        "npc",
        "Table 5; 0.8 is the preset",
        (0.0, 0.6),
        {"tau = 0.8": []} | {f"tau = {t}": [f"npc.bank.threshold={t}"] for t in (0.5, 0.7, 0.99)},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/ablations.json"))
    chosen = parser.parse_args()
    rows: list[Row] = json.loads(chosen.json.read_text())["rows"] if chosen.json.exists() else []
    done = {key(row) for row in rows}
    for seed in chosen.seeds:
        for study in (STUDIES[name] for name in chosen.studies):
            for noise in study.noise:
                for options in map(study.options, study.rows):
                    wanted = {"matcher": "two_tower", "method": study.method, "loss": "infonce", "noise": noise}
                    wanted |= {"seed": seed, "images": IMAGES, "options": options}
                    if key(wanted) in done:
                        continue
                    rows.append(measure(chosen.data, wanted, "", options))
                    done.add(key(wanted))
                    print(
                        json.dumps({name: rows[-1][name] for name in ("method", "noise", "options", "rsum")}),
                        flush=True,
                    )
                    write(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))
    print(tables(rows))


def key(row: Row) -> tuple[object, ...]:
    """What a row is looked up by, its options by their names of today: older rows have others."""
    return (row["method"], row["noise"], row["seed"], row["images"], *map(present, row["options"]))


def tables(rows: list[Row]) -> str:
    """One table for each study, from the rows that are there: means over the seeds, and highest minus lowest."""
    lines = []
    for name, study in STUDIES.items():
        shown = []
        for noise in study.noise:
            for label in study.rows:
                options = study.options(label)
                group = [row for row in rows if key(row | {"seed": 0}) == (study.method, noise, 0, IMAGES, *options)]
                if group:
                    rsum, single, auroc = ([row[name] for row in group] for name in ("rsum", "rsum_single", "auroc"))
                    spread = f"({max(rsum) - min(rsum):.1f}; {len(group)} seed{'s' * (len(group) > 1)})"
                    found = f"{statistics.mean(auroc):.4f}" if noise else ""
                    alone = f"{statistics.mean(single):.1f}"
                    shown.append(
                        f"| {label} | {noise:.0%} | {statistics.mean(rsum):.1f} {spread} | {alone} | {found} |"
                    )
        if shown:
            head = ["| row | noise | rSum (spread) | single | AUROC |", "|---|---|---|---|---|"]
            lines += [f"## {name} ({study.method}, {study.source})", "", *head, *shown, ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
