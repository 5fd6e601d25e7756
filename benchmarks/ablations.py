"""The four papers' ablations at small scale on Flickr8k; every row that their tables have is a set of options.

Two towers on the first 2,000 training images (10,000 pairs) with planted mismatches, a fifth as many images for dev and
test; or on 6,000 images with one caption each, as data from the web have it, where a search for captions cannot find
another one of the same image. Of the epochs of the method's last phase, the one with the best dev rSum is tested once.
The rows of a study differ in the named options alone. What the papers measured with token-level matchers on larger sets
need not show here: the spread over seeds says how much a difference means. Where the papers search the batch at hand
for captions so do these rows, not the whole epoch as the matcher's preset does: that finds the image's own clean
captions, whatever the classifier says. PCSR's third stage, one epoch of the preset, takes three here, so that what it
adds can show; pairs are divided at 0.5, as in the papers.

AUROC is that of the method's own last trust in the training pairs, in the mean of its networks. The held-out evidence,
which all rows of a collection, a noise and a seed share, is judged once for them. "own caption" is the share of the
noisy pairs for whose image the last search of all clean pairs found a caption that truly belongs to it; "classes" how
many pseudo-classes the training images were put into in the last pass.

    python benchmarks/ablations.py --data ../shared/flickr8k --json benchmarks/results/ablations.json

Rows that the file already holds are not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from flickr8k import page
from option_names import present
from pairsift.bench.measure import Row
from side_by_side import measured, write
from studies import STUDIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cache", type=Path, default=None, help="folder of the feature cache")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/ablations.json"))
    chosen = parser.parse_args()
    rows: list[Row] = json.loads(chosen.json.read_text())["rows"] if chosen.json.exists() else []
    done = {key(row) for row in rows}
    for seed in chosen.seeds:
        wanted = [row for row in wanted_rows(chosen.studies, seed) if key(row) not in done]
        for collection in dict.fromkeys(map(collection_of, wanted)):
            missing = {key(row): row for row in wanted if collection_of(row) == collection}
            for row in measured(chosen.data, chosen.cache, list(missing.values()), typed):
                rows.append(row)
                print(json.dumps({name: row[name] for name in ("method", "noise", "options", "rsum")}), flush=True)
                write(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))
    print(tables(rows))


def wanted_rows(names: list[str], seed: int) -> Iterator[Row]:
    """What each row of the studies is looked up by."""
    for study in (STUDIES[name] for name in names):
        for noise in study.noise:
            for options in map(study.options, study.rows):
                wanted = {"matcher": "two_tower", "method": study.method, "loss": "infonce", "noise": noise}
                yield wanted | {"seed": seed, "images": study.images, "captions": study.captions, "options": options}


def collection_of(row: Row) -> tuple[object, ...]:
    """What rows have in common that share pairs, noise and held-out evidence."""
    return row["images"], row.get("captions"), row["noise"], row["seed"]


def key(row: Row) -> tuple[object, ...]:
    """What a row is looked up by, its options by their names of today: older rows have others."""
    return (row["method"], *collection_of(row), *map(present, row["options"]))


def typed(row: Row) -> tuple[str, list[str]]:
    """A row's method and its options."""
    return row["method"], row["options"]


def tables(rows: list[Row]) -> str:
    """One table for each study, from the rows that are there: means over the seeds, and highest minus lowest."""
    lines = []
    for name, study in STUDIES.items():
        shown = []
        for noise in study.noise:
            for label in study.rows:
                wanted = (study.method, study.images, study.captions, noise, 0, *study.options(label))
                if group := [row for row in rows if key(row | {"seed": 0}) == wanted]:
                    shown.append(line(label, noise, group))
        if shown:
            heads = ("row", "noise", "rSum (spread)", "single", "AUROC", "own caption", "classes")
            head = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
            lines += [f"## {name} ({study.method}, {study.source})", "", *head, *shown, ""]
    return "\n".join(lines)


def line(label: str, noise: float, group: list[Row]) -> str:
    """A line of a table: means over the seeds, and the spread of rSum."""
    rsum = [row["rsum"] for row in group]
    spread = f"({max(rsum) - min(rsum):.1f}; {len(group)} seed{'s' * (len(group) > 1)})"
    single = f"{statistics.mean(row['rsum_single'] for row in group):.1f}"
    cells = [label, f"{noise:.0%}", f"{statistics.mean(rsum):.1f} {spread}", single]
    for name, digits in (("trust_auroc", ".4f"), ("own_caption", ".0%"), ("classes_in_use", ".0f")):
        values = [value for row in group if (value := {**row.get("facts", {}), **row}.get(name)) is not None]
        cells.append(format(statistics.mean(values), digits) if values else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
