"""Methods where the images that captions belong to are missing, as on the web; every run is a row.

A half of the training images of Flickr8k, with five captions each, clean dev and test. In rows `all`, a share of their
captions is permuted among themselves, so that the image that a moved caption belongs to is always there. In rows
`half`, captions are permuted among the captions of all training images, and then the same half of these is kept, so
that about half of the moved captions belong to an image that is not there. Rows of one seed have the same images.
Of the epochs of a method's last phase, the one with the best dev rSum is tested once.

    python benchmarks/partners.py --data ../shared/flickr8k --json benchmarks/results/partners.json

Rows that the file already holds are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np

from option_names import tree
from pairsift.bench.measure import Row, Start, train
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import prepare
from side_by_side import write

KEY = ("partners", "method", "noise", "seed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--methods", nargs="+", default=["plain", "crossfit", "sift"])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.4])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--options", nargs="*", default=[], help="further options of fit: precision=bf16")
    parser.add_argument("--cache", default=None, help="folder of the feature cache")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/partners.json"))
    chosen = parser.parse_args()
    rows: list[Row] = json.loads(chosen.json.read_text())["rows"] if chosen.json.exists() else []
    done = {tuple(row[name] for name in KEY) for row in rows}
    for seed in chosen.seeds:
        for noise in chosen.noise:
            for partners in ("all", "half"):
                places = [dict(zip(KEY, (partners, method, noise, seed), strict=True)) for method in chosen.methods]
                missing = [place for place in places if tuple(place.values()) not in done]
                if missing:
                    for row in measured(missing, chosen.data.resolve(), chosen.cache, chosen.options):
                        rows.append(row)
                        print(json.dumps({name: row[name] for name in (*KEY, "gone", "rsum", "seconds")}), flush=True)
                        write(chosen.json, rows)
    title, _, rest = (__doc__ or "").strip().partition("; ")
    chosen.json.with_suffix(".md").write_text(f"# {title}\n\n{rest[:1].upper()}{rest[1:]}\n\n{table(rows)}\n")


def measured(rows: list[Row], data: Path, cache: str | None, options: list[str]) -> list[Row]:
    """Rows of the same pairs and noise, which share their held-out evidence."""
    first = rows[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        (folder / "model").mkdir(parents=True)
        facts = source(data, Path(name) / "pairs.csv", first["partners"], first["noise"], first["seed"])
        shared = {"source": str(Path(name) / "pairs.csv"), "out": str(folder), "cache": cache, "seed": first["seed"]}
        common = from_tree({**shared, "method": "plain", **tree(options)})
        start = Start.judge(common, prepare(common, folder, progress=False), folder)
        facts |= {"options": options, "estimated_rate": start.facts["estimated_rate"]}
        facts |= {name: start.facts[name] for name in ("versions", "machine")}
        configs = [from_tree({**shared, "method": row["method"], **tree(options)}) for row in rows]
        return [row | train(config, start, folder) | facts for row, config in zip(rows, configs, strict=True)]


def source(data: Path, path: Path, partners: str, noise: float, seed: int) -> Row:
    """Write the table of a row's pairs; the share of captions that moved, and of these, whose image is gone."""
    split_of = {}
    for split in ("train", "dev", "test"):
        split_of |= dict.fromkeys((data / "splits" / f"{split}.txt").read_text(encoding="utf-8").split(), split)
    with (data / "captions.csv").open(encoding="utf-8", newline="") as read:
        pairs = [(row["image"], row["caption"]) for row in csv.DictReader(read) if row["image"] in split_of]
    rng = np.random.default_rng((seed, 31))
    images = rng.permutation([image for image, split in split_of.items() if split == "train"]).tolist()
    kept = set(images[: len(images) // 2])
    among = kept if partners == "all" else set(images)
    pool = [row for row, (image, _) in enumerate(pairs) if image in among]
    moved = rng.permutation(pool)[: round(noise * len(pool))]
    caption_of = np.arange(len(pairs))
    caption_of[moved] = rng.permutation(moved)
    wrong, gone, total = 0, 0, 0
    with path.open("w", encoding="utf-8", newline="") as written:
        table = csv.writer(written)
        table.writerow(("image", "caption", "split"))
        for (image, _), given in zip(pairs, caption_of.tolist(), strict=True):
            if split_of[image] == "train" and image not in kept:
                continue
            owner, caption = pairs[given]
            table.writerow((data / "images" / image, caption, split_of[image]))
            total += split_of[image] == "train"
            wrong += owner != image
            gone += owner != image and owner not in kept
    return {"pairs": total, "wrong": round(wrong / total, 4), "gone": round(gone / max(1, wrong), 4)}


def table(rows: list[Row]) -> str:
    """Test rSum by partners, means over the seeds."""
    methods, noises = (list(dict.fromkeys(row[name] for row in rows)) for name in ("method", "noise"))
    lines = ["| noise | own image gone | " + " | ".join(f"`{method}`" for method in methods) + " | seeds |"]
    lines.append("|---" * (len(methods) + 3) + "|")
    for noise in noises:
        for partners in ("all", "half"):
            group = [row for row in rows if (row["noise"], row["partners"]) == (noise, partners)]
            by_method = [[row["rsum"] for row in group if row["method"] == method] for method in methods]
            cells = [f"{statistics.mean(values):.1f}" if values else "" for values in by_method]
            gone = statistics.mean([row["gone"] for row in group] or [0.0])
            seeds = min(len(values) for values in by_method)
            lines.append("| " + " | ".join([f"{noise:.0%}", f"{gone:.0%}", *cells, str(seeds)]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
