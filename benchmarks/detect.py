"""The detector alone: seconds and memory of `find_mismatches` by the number of pairs.

Vectors of 512 numbers a side share 64, captions are eight words that follow from them, and 30% of the captions change
places. Each size runs in a process of its own. Beside the seconds stands the number of products of two float32
matrices of 2,048 x 2,048 that the same process takes in as many: machines differ less by this. AUROC and the estimate
say that the work was done.

    python benchmarks/detect.py --pairs 200 400 8000 40000 100000 1000000
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import time

import pairsift  # before torch: it says how threads wait

# isort: split
import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from rows import Row, markdown, page, parser, read_rows, versions, write_rows

NOISE, SHARED, WIDTH, WORDS, CAPTION = 0.3, 64, 512, 3000, 8
BLOCK = 4096
PRODUCT, REPEATS = 2048, 20


def main() -> None:
    options = parser(__doc__, "detect.json")
    options.add_argument("--pairs", nargs="+", type=int, default=[200, 400, 8000, 40_000, 100_000, 1_000_000])
    options.add_argument("--only", type=int, help="measure this size here, and print its row")
    chosen = options.parse_args()
    if chosen.only:
        print(json.dumps(measure(chosen.only)))
        return
    rows = read_rows(chosen.json)
    for size in chosen.pairs:
        words = [sys.executable, __file__, "--only", str(size)]
        row = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        rows = sorted([*(other for other in rows if other["pairs"] != size), row], key=lambda one: one["pairs"])
        write_rows(chosen.json, rows)
        print(row, flush=True)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)), encoding="utf-8")


def made(size: int) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Vectors of images and captions, the captions, and which of them belong to another image."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((SHARED, WIDTH), np.float32) / 8 for _ in range(2))
    vocabulary = rng.standard_normal((SHARED, WORDS), np.float32)
    shown = rng.standard_normal((size, SHARED), np.float32)
    source = np.arange(size)
    moved = rng.permutation(size)[: round(NOISE * size)]
    source[moved] = np.roll(moved, 1)
    images, captions = (0.7 * rng.standard_normal((size, WIDTH), np.float32) for _ in range(2))
    images += shown @ left
    captions += shown[source] @ right
    texts = []
    for start in range(0, size, BLOCK):
        scores = shown[source[start : start + BLOCK]] @ vocabulary
        top = np.argpartition(-scores, CAPTION, axis=1)[:, :CAPTION]
        texts += [" ".join(f"w{word}" for word in words) for words in top]
    return images, captions, texts, source != np.arange(size)


def measure(size: int) -> Row:
    """One row."""
    images, captions, texts, wrong = made(size)
    a = torch.rand(PRODUCT, PRODUCT)
    began = time.monotonic()
    for _ in range(REPEATS):
        a @ a
    product = (time.monotonic() - began) / REPEATS
    began = time.monotonic()
    found = pairsift.find_mismatches(images, captions, texts)
    seconds = time.monotonic() - began
    return {
        "pairs": size,
        "seconds": round(seconds, 1),
        "products": round(seconds / product),
        "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "auroc": round(float(roc_auc_score(~wrong, found.match_probability)), 4),
        "estimate": found.rate,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "versions": versions(),
    }


def table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        numbers = f"{row['pairs']:,}", f"{row['seconds']:.1f}", f"{row['products']:,}", f"{row['gigabytes']:.2f}"
        lines.append([*numbers, f"{row['auroc']:.4f}", "" if row["estimate"] is None else f"{row['estimate']:.1%}"])
    return markdown(["pairs", "seconds", "products", "GB", "AUROC", "estimate"], lines)


if __name__ == "__main__":
    main()
