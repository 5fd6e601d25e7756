"""What is in a suggestion: hit rates of suggested captions and images, and whether their probabilities are right.

A run with planted noise knows which image every caption belongs to. Of its truly mismatched pairs with suggestions, a
row counts how often the first caption, or one of five, belongs to the pair's image (`hit@1`, `hit@5`), how often the
first image, or one of five, is the caption's own, and, by stated probability, which share of the suggestions is right.

    python benchmarks/suggestions.py runs/demo runs/flickr --json benchmarks/results/suggestions.json
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
KINDS = {False: "captions", True: "images"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/suggestions.json"))
    chosen = parser.parse_args()
    rows = [row for folder in chosen.runs for row in measured(folder)]
    chosen.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    title, _, rest = (__doc__ or "").partition(":")
    page = f"# {title}\n\n{rest.strip()[:1].upper()}{rest.strip()[1:]}\n\n{table(rows)}\n"
    chosen.json.with_suffix(".md").write_text(page)
    print(table(rows))


def measured(folder: Path) -> list[dict[str, Any]]:
    """Return a row for captions and a row for images."""
    pairs = pq.read_table(folder / "pairs.parquet")
    suggestions = pq.read_table(folder / "suggestions.parquet")
    metrics = json.loads((folder / "metrics.json").read_text())
    given = dict(zip(pairs["pair"].to_pylist(), pairs["image"].to_pylist(), strict=True))
    true = dict(zip(pairs["pair"].to_pylist(), pairs["true_image"].to_pylist(), strict=True))
    wrong = {pair for pair in given if given[pair] != true[pair]}
    facts = {
        "run": folder.name,
        "pairs": len(pairs),
        "images": len(set(given.values())),
        "noise": metrics["noise"]["ratio"],
        "index_hash": metrics["noise"]["index_hash"],
        "data_hash": metrics["data"]["hash"],
        "seed": metrics["seed"],
        "versions": metrics["versions"],
    }
    rows = []
    for is_image, kind in KINDS.items():
        lists: dict[int, list[tuple[bool, float]]] = {}
        chosen = suggestions.filter(pa.compute.equal(suggestions["is_image"], is_image))
        for pair, source, probability in zip(
            *(chosen[name].to_pylist() for name in ("pair", "from_pair", "probability")), strict=True
        ):
            if pair in wrong:
                right = given[source] == true[pair] if is_image else true[source] == given[pair]
                lists.setdefault(pair, []).append((right, probability))
        hits = np.array([[found[0][0], any(right for right, _ in found)] for found in lists.values()])
        right, stated = np.array([item for found in lists.values() for item in found]).T
        rows.append(
            {**facts, "kind": kind, "lists": len(lists), "hit_1": hits[:, 0].mean(), "hit_5": hits[:, 1].mean()}
        )
        rows[-1]["bins"] = [
            {
                "from": low,
                "to": high,
                "n": int(inside.sum()),
                "stated": stated[inside].mean(),
                "right": right[inside].mean(),
            }
            for low, high in itertools.pairwise(EDGES)
            if (inside := (stated >= low) & ((stated < high) | (high == 1))).any()
        ]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; each bin as the share that is right of so many."""
    heads = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(EDGES)]
    lines = [f"| run | pairs | noise | kind | hit@1 | hit@5 | right, by probability: {' | '.join(heads)} |"]
    lines.append("|" + "---|" * (6 + len(heads)))
    for row in rows:
        bins = {item["from"]: f"{item['right']:.2f} of {item['n']:,}" for item in row["bins"]}
        cells = [row["run"], f"{row['pairs']:,}", f"{row['noise']:.0%}", row["kind"], f"{row['hit_1']:.3f}"]
        cells += [f"{row['hit_5']:.3f}", *(bins.get(low, "") for low in EDGES[:-1])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
