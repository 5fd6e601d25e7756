"""What an audit says beside the verdicts: suggestions, vague captions, copies and spot checks, on many collections.

A collection is read as a user's table, see verdicts.py. Planted into it are: `noise`, a share of the captions exchanged
with captions of any images, or where it says near, with one among the nearest 1% by wordllama, where the share
`missing` of the pairs finds its own caption in no pair of the collection; vague captions such as "photo", 2% of the
pairs but at least 6 of each; copies of 2% of the images at half the size, as JPEG files of low quality, with the same
caption. A row is a whole fit of the default method, with `--mismatches near` where the noise is near.

`hit@1` and `hit@5`: of the truly mismatched pairs that have suggestions, and whose own caption (image) is given in
another pair, for how many it is the first suggestion, or one of five.
`stated`: mean probability of the first suggestions of mismatched pairs, and
`right`: how many of these are right; `error`: the calibration error of all five. `vague`: how many planted vague
captions are called so, and how many others are. `copies`: how many planted copies are in a group with their original,
and how many images are in groups that were not planted. `spot check`: of 200 checks of 50 pairs with true answers, how
many of the 90% intervals hold the true rate, their mean width, and the calibration error of match probabilities before
and after a recalibration.

Rows with a field `splits` are of fits whose copies had absolute names. Splits are drawn by names: a repetition draws
others. Their suggestions were made anew by the present code from the kept evidence of these fits. The row of
`scenes-1600` is of before images with several captions were joined with them.

    python benchmarks/audit.py --json benchmarks/results/audit.json

Rows that the file already holds are not measured again.
"""

from __future__ import annotations

import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from PIL import Image

from pairsift.arrays import unit_rows
from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import text_encoder
from pairsift.pairs.options import DataOptions
from pairsift.review.spot_check import SpotCheck, evaluate
from pairsift.runs.fit import fit
from pairsift.train.options import TrainOptions
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, versions, write_rows
from verdicts import Record, calibration, records, write_source

COLLECTIONS = (
    "flickr-200",
    "flickr-800",
    "flickr-1600",
    "flickr-6000",
    "emoji-400",
    "emoji",
    "scenes-100",
    "scenes-1600",
)
CONDITIONS = (  # kind, noise, missing
    ("random", 0.0, 0.0),
    ("random", 0.1, 0.0),
    ("random", 0.3, 0.0),
    ("random", 0.3, 1.0),
    ("random", 0.6, 0.0),
    ("random", 0.6, 1.0),
    ("near", 0.3, 0.0),
)
NEAREST = 0.01  # share of the captions that read like one
VAGUE = ("photo", "image", "untitled picture")
SHARE = 0.02  # of pairs with vague captions, and of images with copies
CHECKS, CHECKED = 200, 50  # spot checks of a run, and pairs of each
KEY = ("collection", "kind", "noise", "missing", "seed")


def main() -> None:
    options = parser(__doc__, "audit.json")
    options.add_argument("--data", type=Path, default=Path("../shared"), help="folder of flickr8k and emoji")
    options.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    options.add_argument("--kinds", nargs="+", default=["random", "near"], choices=("random", "near"))
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    rows = read_rows(chosen.json)
    for seed in chosen.seeds:
        for collection in chosen.collections:
            for kind, noise, missing in CONDITIONS:
                wanted = dict(zip(KEY, (collection, kind, noise, missing, seed), strict=True))
                if kind in chosen.kinds and not find_row(rows, wanted):
                    rows.append(measured(wanted, chosen.data.resolve(), chosen.cache))
                    print(json.dumps(rows[-1]), flush=True)
                    write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))
    print(tables(rows))


def measured(wanted: Row, data: Path, cache: str | None) -> Row:
    """Plant, fit, and measure."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        true = records(wanted["collection"], data, wanted["seed"], place)
        rng = np.random.default_rng((wanted["seed"], 23))
        given, owner = mismatched(true, wanted, rng)
        vague = plant_vague(given, rng)
        original = plant_copies(given, place, rng)
        owner = np.concatenate([owner, owner[original]])
        vague = np.concatenate([vague, vague[original]])
        began = time.monotonic()
        options = {"train": TrainOptions(seed=wanted["seed"]), "encode": EncodeOptions(cache=cache)}
        options["data"] = DataOptions(mismatches=wanted["kind"])
        run = fit(write_source(given, place), out=place / "run", progress=False, **options)
        seconds = round(time.monotonic() - began, 1)
        judged, suggestions = run.pairs().sort_by("pair"), pq.read_table(place / "run" / "suggestions.parquet")
    image = same_number([record[0] for record in given])
    image[len(owner) - len(original) :] = image[original]  # a copy is the same image
    wrong = (owner != image) & ~vague
    return {
        **wanted,
        "pairs": len(given),
        "verdicts": run.metrics["verdicts_given"],
        "captions": hits(suggestions, False, image, owner, wrong, vague),
        "images": hits(suggestions, True, image, owner, wrong, vague),
        "vague": vague_counts(judged, vague),
        "copies": copy_counts(judged, original, image),
        "spot_check": checks(judged, wrong, vague),
        "seconds": seconds,
        "versions": versions(),
        "machine": platform.machine(),
    }


def mismatched(true: list[Record], wanted: Row, rng: np.random.Generator) -> tuple[list[Record], np.ndarray]:
    """Give a share of the pairs captions of other images, and leave out the pairs of a share of these images.

    Pairs exchange captions in twos. Where a pair's own caption shall be missing, the other pair of the two is left out.

    Returns:
        The pairs, and the number of the image that each caption belongs to, (n,); images are numbered in the order of
        the pairs, those that are left out from the number of pairs on.
    """
    n, noise, missing = len(true), wanted["noise"], wanted["missing"]
    # Of `twos` exchanges, a share loses one of its two pairs; the noise counts the pairs that are left.
    twos = round(noise * n / (2 - missing + noise * missing))
    exchange = exchanged_near if wanted["kind"] == "near" else exchanged
    first, second = exchange(true, twos, rng)
    kept = [*true]
    for a, b in zip(first, second, strict=True):
        kept[a], kept[b] = (true[a][0], true[b][1], true[a][2]), (true[b][0], true[a][1], true[b][2])
    image, partner = same_number([record[0] for record in true]), np.arange(n)
    partner[first], partner[second] = second, first
    owner = image[partner]
    left = np.ones(n, np.bool_)
    left[second[: round(missing * twos)]] = False
    names = same_number([record[0] for record, one in zip(kept, left, strict=True) if one])
    number = {int(old): int(new) for old, new in zip(image[left], names, strict=True)}
    return (
        [record for record, one in zip(kept, left, strict=True) if one],
        np.array([number.get(int(one), n + int(one)) for one in owner[left]], np.int64),
    )


def exchanged(true: list[Record], twos: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that exchange captions in twos, any with any, (2, twos)."""
    return rng.permutation(len(true))[: 2 * twos].reshape(2, -1)


def exchanged_near(true: list[Record], twos: int, rng: np.random.Generator) -> np.ndarray:
    """Rows that exchange captions in twos, one among the nearest of the other, (2, at most twos)."""
    vectors = unit_rows(np.asarray(text_encoder("wordllama").encode([record[1] for record in true])))
    image, free = same_number([record[0] for record in true]), np.ones(len(true), np.bool_)
    swaps: list[tuple[int, int]] = []
    for row in rng.permutation(len(true)).tolist():
        cosine = np.where(image == image[row], -np.inf, vectors @ vectors[row])
        near = np.argsort(-cosine, kind="stable")[: max(1, round(NEAREST * len(true)))]
        if free[row] and free[near].any() and len(swaps) < twos:
            swaps.append((row, int(rng.choice(near[free[near]]))))
            free[list(swaps[-1])] = False
    return np.array(swaps, np.int64).reshape(-1, 2).T


def same_number(names: list[str]) -> np.ndarray:
    """Number names in the order of their first occurrence."""
    number: dict[str, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], np.int64)


def plant_vague(given: list[Record], rng: np.random.Generator) -> np.ndarray:
    """Replace some captions by vague ones; whether each pair has one, (n,)."""
    each = max(6, round(SHARE * len(given) / len(VAGUE)))
    vague = np.zeros(len(given), np.bool_)
    for text, rows in zip(VAGUE, np.split(rng.permutation(len(given))[: each * len(VAGUE)], len(VAGUE)), strict=True):
        vague[rows] = True
        for row in rows:
            given[row] = (given[row][0], text, given[row][2])
    return vague


def plant_copies(given: list[Record], place: Path, rng: np.random.Generator) -> np.ndarray:
    """Append pairs with copies of images; the pair that each is a copy of, (m,)."""
    original = rng.permutation(len(given))[: max(4, round(SHARE * len(given)))]
    (place / "copies").mkdir()  # named from the table's folder, since splits are drawn by the names
    for row in original:
        path, caption, split = given[row]
        target = f"copies/{row}.jpg"
        with Image.open(place / path) as opened:
            image = opened.convert("RGBA") if opened.mode in ("P", "RGBA", "LA") else opened.convert("RGB")
            if image.mode == "RGBA":
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
            image.resize((max(32, image.width // 2), max(32, image.height // 2))).save(place / target, quality=60)
        given.append((target, caption, split))
    return original


def hits(
    suggestions: pa.Table, is_image: bool, image: np.ndarray, owner: np.ndarray, wrong: np.ndarray, vague: np.ndarray
) -> Row | None:
    """How often suggestions for mismatched pairs are right, and how sure they are; None without such pairs."""
    chosen = suggestions.filter(pa.compute.equal(suggestions["is_image"], is_image))
    pair, source, stated = (chosen[name].to_numpy() for name in ("pair", "from_pair", "probability"))
    right = image[source] == owner[pair] if is_image else (owner[source] == image[pair]) & ~vague[source]
    available = np.isin(owner, image) if is_image else np.isin(image, owner[~vague])
    first = np.append(True, pair[1:] != pair[:-1])
    counted = wrong[pair]
    if not counted.any():
        return None
    lists = pair[first & counted]
    hit_1 = dict(zip(lists.tolist(), right[first & counted].tolist(), strict=True))
    hit_5 = set(pair[counted & right].tolist())
    possible = [query for query in hit_1 if available[query]]
    shares = {
        "lists": len(lists),
        "possible": len(possible),
        "hit_1": statistics.mean(hit_1[query] for query in possible) if possible else None,
        "hit_5": statistics.mean(query in hit_5 for query in possible) if possible else None,
        "stated": float(stated[first & counted].mean()),
        "right": float(right[first & counted].mean()),
        "sure": int((stated[first & counted] >= 0.5).sum()),
        "sure_right": int(right[first & counted & (stated >= 0.5)].sum()),
        "error": calibration(stated[counted], right[counted]),
    }
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in shares.items()}


def vague_counts(judged: pa.Table, vague: np.ndarray) -> Row:
    called = np.array(judged["verdict"].to_pylist()) == "vague"
    pair = judged["pair"].to_numpy()
    return {
        "planted": int(vague.sum()),
        "found": int(called[vague[pair]].sum()),
        "others": int(called[~vague[pair]].sum()),
    }


def copy_counts(judged: pa.Table, original: np.ndarray, image: np.ndarray) -> Row:
    """Copies in a group with their original, and the images in groups of different images."""
    group = dict(zip(judged["pair"].to_pylist(), judged["image_duplicates"].to_pylist(), strict=True))
    start = len(image) - len(original)
    hits = sum(
        group.get(start + place) is not None and group.get(start + place) == group.get(int(row))
        for place, row in enumerate(original)
    )
    members: dict[int, set[int]] = {}
    for pair, number in group.items():
        if number is not None:
            members.setdefault(number, set()).add(int(image[pair]))
    others = sum(len(images) for images in members.values() if len(images) > 1)
    return {"planted": len(original), "found": int(hits), "others": others}


def checks(judged: pa.Table, wrong: np.ndarray, vague: np.ndarray) -> Row | None:
    """Spot checks with true answers; a vague caption is dropped for being vague."""
    if len(judged) < CHECKED:
        return None
    pair, probability = judged["pair"].to_numpy(), judged["match_probability"].to_numpy()
    truth = float(wrong[pair].mean())
    inside, widths, after, estimates = [], [], [], []
    for seed in range(CHECKS):
        check = SpotCheck.draw(judged, CHECKED, seed)
        asked = np.array(check.pairs)
        decisions = pa.table(
            {
                "pair": asked,
                "decision": np.where(wrong[asked] | vague[asked], "drop", "keep"),
                "reason": np.where(vague[asked], "too vague", "other"),
            }
        )
        result = evaluate(check, judged, decisions)
        inside.append(result.low <= truth <= result.high)
        widths.append(result.high - result.low)
        estimates.append(abs(result.rate - truth))
        after.append(calibration(result.recalibrated(probability), ~wrong[pair]))
    numbers = {
        "true": truth,
        "expected": float(1 - probability.mean()),
        "inside": statistics.mean(inside),
        "width": statistics.mean(widths),
        "rate_error": statistics.mean(estimates),
        "before": calibration(probability, ~wrong[pair]),
        "after": statistics.mean(after),
    }
    return {name: round(float(value), 4) for name, value in numbers.items()}


def tables(rows: list[Row]) -> str:
    """Suggestions, and the rest; means over the seeds, counts as sums."""
    heads = ["collection", "pairs", "noise", "missing", "seeds"]
    kinds = ("hit@1", "hit@5", "stated", "right", "error")
    columns = [*heads, *(f"{name}: {kind}" for name in ("caption", "image") for kind in kinds)]
    others = [*heads, "vague found", "others called so", "copies found", "others grouped"]
    others += ["true rate", "stated", "in the interval", "width", "error of the rate", "calibration error", "after"]
    suggestions, rest = [], []
    for key in dict.fromkeys(tuple(row[name] for name in KEY[:-1]) for row in rows):
        group = select(rows, dict(zip(KEY, key, strict=False)))
        collection, kind, noise, missing = key
        noisy = f"{noise:.0%}{' near' if kind == 'near' else ''}"
        cells = [collection, str(group[0]["pairs"]), noisy, f"{missing:.0%}", str(len(group))]
        if noise:
            names = ("hit_1", "hit_5", "stated", "right", "error")
            parts = [
                mean(((row[kind] or {}).get(name) for row in group), ".3f")
                for kind in ("captions", "images")
                for name in names
            ]
            suggestions.append([*cells, *parts])
        counts = [
            text
            for kind in ("vague", "copies")
            for text in (
                f"{sum(row[kind]['found'] for row in group)} of {sum(row[kind]['planted'] for row in group)}",
                str(sum(row[kind]["others"] for row in group)),
            )
        ]
        names = ("true", "expected", "inside", "width", "rate_error", "before", "after")
        parts = [mean(((row["spot_check"] or {}).get(name) for row in group), ".3f") for name in names]
        rest.append([*cells, *counts, *parts])
    return markdown(columns, suggestions) + "\n\n" + markdown(others, rest)


if __name__ == "__main__":
    main()
