"""Detectors of mismatched pairs on the same embeddings; every row is a collection, a kind of noise, a ratio and a seed.

Noise is planted among the training captions, and training pairs alone are measured. `flickr-N` are the first N training
images of Flickr8k with five captions each, `flickr-N-one` with one, `scenes-N` drawn scenes, `emoji` has one caption an
image. In `edit` rows the detectors are measured on the captions that have a word which can be exchanged (`measured`, a
share of the pairs): others are always right, and what tells them apart need not see any mistake. In `mixed` rows half
of the ratio is `near`, and as many captions are then permuted among each other: at 40% about 36% are mismatched. All
detectors read the default encoders' vectors of the given training pairs; none knows which are wrong.

- `ours`: one minus the match probability by held-out evidence.
- `ours_near`: the same where near captions are expected (`--mismatches near`).
- `cosine`: one minus the cosine under one `two_tower` network, trained by `plain` on all pairs.
- `contrast`: the same network's similarity less the mean log-sum-exp over all captions and over all images.
- `cca`: one minus the cosine of ridge canonical correlation, fitted on all pairs (128 directions, ridge 0.1).
- `lemon`: LEMoN with its fixed constants (k = 30, beta = gamma = 5, tau 0.1 and 5), by distances under the network.
- `knn`: share of the 30 nearest images whose captions lie in another of 100 clusters of captions.
- `ncr`, `pc2`, `gsc`: one minus the method's own last trust, with `--methods`.

AUROC has a 90% interval by the bootstrap over images; AP is the average precision; `precision` counts as many pairs as
`ours` estimates to be mismatched. `error` is the calibration error of `ours` over 15 bins of equal mass, `estimate` its
rate of mismatches; the last three columns are about `ours_near`.

    python benchmarks/detection.py --json benchmarks/results/detection.json --pages docs/noise.md

Rows that the file already holds are not measured again. With `--again`, `ours` and `ours_near` are, in rows whose
`evidence` names another version; the other detectors keep what they had but their precision, which depends on the
estimate. `options` are further options of the runs: rows with `precision=bf16` train in mixed precision.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from sklearn.metrics import average_precision_score, roc_auc_score

from flickr8k_parts import fewer
from pairsift.bench.measure import measured_on
from pairsift.detect.judgement import Judgement
from pairsift.noise.edits import plant_edit
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.bootstrap import draw_images
from pairsift.runs.config import from_tree
from pairsift.runs.job import job_of
from pairsift.runs.judge import Judge, of_training
from pairsift.runs.prepare import Prepared, prepare
from pairsift.train.loop import Trainer
from rows import Row, find_row, markdown, option_tree, page, parser, read_rows, write_rows, write_tables
from simple_detectors import cosine, root
from verdicts import EVIDENCE, calibration, records, write_source

COLLECTIONS = ("flickr-2000", "flickr-6000-one", "scenes-1600", "emoji")
KEY = ("collection", "kind", "noise", "seed")
KINDS = ("random", "near", "edit", "vague")
PLANTED = (*KINDS, "mixed")
OTHERS = ("cosine", "contrast", "lemon", "cca", "knn")  # the detectors that every row has beside ours
NEIGHBOURS, CLUSTERS = 30, 100
SAMPLES = 200  # of the bootstrap
BLOCK = 512


def main() -> None:
    options = parser(__doc__, "detection.json")
    options.add_argument("--data", type=Path, default=Path("../shared"), help="folder of flickr8k and emoji")
    options.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    options.add_argument("--kinds", nargs="+", default=list(PLANTED), choices=PLANTED)
    options.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.05, 0.2, 0.4, 0.6, 0.8])
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options.add_argument("--methods", nargs="*", default=[], help="whose own trust is measured too")
    options.add_argument("--options", nargs="*", default=[], help="further options of fit: precision=bf16")
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    options.add_argument("--pages", nargs="*", type=Path, default=[], help="pages whose tables are written anew")
    options.add_argument("--again", action="store_true", help="measure `ours` again in rows of other versions")
    chosen = options.parse_args()
    rows = read_rows(chosen.json)
    for wanted in wanted_rows(chosen):
        old = find_row(rows, wanted)
        if old is None or (chosen.again and old.get("evidence") != EVIDENCE):
            row = measure(wanted, chosen, old)
            rows = [*(other for other in rows if other is not old), row]
            print(json.dumps({name: value for name, value in rows[-1].items() if name != "versions"}), flush=True)
            write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, tables(rows)))
    write_tables(chosen.pages, TABLES, rows)


def wanted_rows(chosen: argparse.Namespace) -> Iterator[Row]:
    """Without noise, all kinds are one."""
    for seed in chosen.seeds:
        for collection in chosen.collections:
            for noise in chosen.noise:
                for kind in chosen.kinds if noise else ["random"]:
                    yield dict(zip(KEY, (collection, kind, noise, seed), strict=True))


def measure(wanted: Row, chosen: argparse.Namespace, old: Row | None = None) -> Row:
    """One row; with an old one, only what held-out evidence says is measured."""
    mixed = wanted["kind"] == "mixed"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = place / "run"
        (folder / "model").mkdir(parents=True)
        shared = {
            "source": str(source_of(wanted, chosen.data.resolve(), place)),
            "out": str(folder),
            "cache": chosen.cache,
            "captions_per_image": 1 if wanted["collection"].endswith("-one") else None,
            "noise": wanted["noise"] / (2 if mixed else 1),
            "noise_kind": "near" if mixed else wanted["kind"],
            "noise_seed": wanted["seed"],
            "seed": wanted["seed"],
        }
        config = from_tree({**shared, "method": "plain", **option_tree(["plain.networks=1", *chosen.options])})
        prepared = prepare(config, folder, progress=False)
        if mixed:
            prepared = replace(prepared, pairs=permute(prepared.pairs, wanted["noise"] / 2, wanted["seed"]))
        judge = Judge(of_training(prepared), folder, config, False)
        judgement = judge.judge()
        expecting = replace(config, data=config.data.replaced(mismatches="near"))
        near = Judge(of_training(prepared), place / "near", expecting, False)
        shutil.copytree(folder / "model", place / "near" / "model")  # the networks of the folds are the same
        near_judgement = near.judge()
        known = judge.prior(judgement), judge.likeness()
        train = judge.judged.in_train
        ids = judge.ids[train]
        wrong = prepared.pairs.mismatched()[ids] if wanted["noise"] else np.zeros(len(ids), np.bool_)
        measured = could_be_wrong(prepared.pairs)[ids]
        image = prepared.pairs.image_of[ids]
        scores = {"ours": -judgement.probability[train], "ours_near": -near_judgement.probability[train]}
        if old is None:
            scores |= others(config, prepared, folder, known, ids)
            for method in chosen.methods:
                own = from_tree({**shared, "method": method, **option_tree(chosen.options)})
                scores[method] = 1 - own_trust(own, prepared, folder, known)
        facts = measured_on(config, prepared)
        if mixed:  # the hash knows the near captions alone
            facts["index_hash"] = None
    detectors: Row = {}
    if 0 < wrong[measured].mean() < 1:
        detectors = {
            name: quality(score[measured], wrong[measured], image[measured], judgement.rate)
            for name, score in scores.items()
        }
    if old is not None:
        assert old.get("options", []) == chosen.options, "the other detectors have other options"
        assert (old["data_hash"], old["wrong"]) == (facts["data_hash"], round(float(wrong.mean()), 4)), "other pairs"
        kept = {name: {**values, "precision": None} for name, values in old["detectors"].items()}
        detectors = {**kept, **detectors}
    return {
        **wanted,
        "evidence": EVIDENCE,
        "options": chosen.options,
        "pairs": len(ids),
        "measured": round(float(measured.mean()), 4),
        "wrong": round(float(wrong.mean()), 4),
        **verdict_facts(judgement, train, wrong),
        "near": verdict_facts(near_judgement, train, wrong),
        "detectors": detectors,
        **{name: facts[name] for name in ("data_hash", "index_hash", "versions", "machine")},
    }


def others(
    config: Any, prepared: Prepared, folder: Path, known: tuple[Any, Any], ids: np.ndarray
) -> dict[str, np.ndarray]:
    """What the other detectors say of these pairs."""
    image = prepared.pairs.image_of[ids]
    trainer = Trainer(job_of(config, prepared, folder, *known))
    trainer.run()
    x, y = codes(trainer, prepared, ids)
    frozen = [table.batch(rows).values.numpy() for table, rows in _sides(prepared, image, ids)]
    return {
        **by_network(x, y, float(trainer.networks[0].matcher.scale().detach()), image),
        "cca": cca(*frozen),
        "knn": knn(*frozen, image, config.train.seed),
    }


def permute(pairs: Pairs, share: float, seed: int) -> Pairs:
    """Permute a share of the training captions among each other; the truth stays."""
    rng, train = np.random.default_rng((seed, 99)), pairs.ids("train")
    chosen, image_of = rng.permutation(train)[: round(share * len(train))], pairs.image_of.copy()
    image_of[chosen] = image_of[rng.permutation(chosen)]
    return replace(pairs, image_of=image_of)


def could_be_wrong(pairs: Pairs) -> np.ndarray:
    """Whether noise of the kind that was planted could have made each pair wrong, (number of pairs,)."""
    if pairs.noise is None or pairs.noise.kind != "edit":
        return np.ones(len(pairs), np.bool_)
    captions = pairs.source_captions
    given = replace(pairs, captions=captions, source_captions=None, true_image_of=None, noise=None)
    return plant_edit(given, 1.0, 0).mismatched()


def verdict_facts(judgement: Judgement, train: np.ndarray, wrong: np.ndarray) -> Row:
    """What a judge says of the training pairs, and how wrong it is."""
    probability = judgement.probability[train]
    return {
        "estimate": round(judgement.rate, 4),
        "low": round(judgement.low, 4),
        "high": round(judgement.high, 4),
        "error": round(calibration(probability, ~wrong), 4),
        "flagged": round(float((probability < 0.5).mean()), 4),
        "verdicts": judgement.verdicts,
    }


def source_of(wanted: Row, data: Path, place: Path) -> Path:
    """A table of the collection's pairs."""
    name, _, size = wanted["collection"].removesuffix("-one").partition("-")
    if name == "flickr":
        return fewer(data / "flickr8k", int(size), place)
    return write_source(records(wanted["collection"], data, wanted["seed"], place), place)


def _sides(prepared: Prepared, image: np.ndarray, ids: np.ndarray) -> list[tuple[Any, np.ndarray]]:
    return [(prepared.features.images, image), (prepared.features.texts, ids)]


def own_trust(config: Any, prepared: Prepared, folder: Path, known: tuple[Any, Any]) -> np.ndarray:
    """Mean of the networks' last trust in each training pair."""
    Trainer(job_of(config, prepared, folder, *known)).run()
    values = config.method.values_of_pairs()
    if "clean_probability" in values:
        trust = values["clean_probability"]
    else:
        trust = np.min([values["cross_modal"], values["intra_modal"]], axis=0)
    return np.asarray(trust.mean(0), np.float64)


def codes(trainer: Trainer, prepared: Prepared, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of the pairs' images and captions under the network."""
    matcher = trainer.networks[0].matcher.eval()
    encode = matcher.encode_images, matcher.encode_texts
    sides = []
    with torch.no_grad():
        for side, (table, rows) in enumerate(_sides(prepared, prepared.pairs.image_of[ids], ids)):
            parts = [table.batch(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK)]
            sides.append(torch.cat([encode[side](part).vectors for part in parts]).float().numpy())
    return sides[0], sides[1]


def by_network(x: np.ndarray, y: np.ndarray, scale: float, image: np.ndarray) -> dict[str, np.ndarray]:
    """The detectors that read the network's vectors: cosine, contrast, LEMoN."""
    cos = (x * y).sum(1)
    parts = []
    for a, b in ((x, y), (y, x)):
        blocks = [scale * (a[start : start + BLOCK] @ b.T) for start in range(0, len(a), BLOCK)]
        parts.append(np.concatenate([np.logaddexp.reduce(block, 1) for block in blocks]))
    near_images, near_texts = (lemon(a, b, image) for a, b in ((x, y), (y, x)))
    return {
        "cosine": 1 - cos,
        "contrast": (parts[0] + parts[1]) / 2 - scale * cos,
        "lemon": 1 - cos + 5 * near_images + 5 * near_texts,
    }


def neighbours(x: np.ndarray, image: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each pair its nearest pairs of other images by unit vectors, and their cosines, in blocks."""
    k = min(NEIGHBOURS, len(x) - 1)
    for start in range(0, len(x), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(x)))
        near = x[rows] @ x.T
        near[image[rows][:, None] == image[None, :]] = -np.inf
        nearest = np.argpartition(-near, k - 1, axis=1)[:, :k]
        yield rows, nearest, np.take_along_axis(near, nearest, 1)


def lemon(x: np.ndarray, y: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Mean over the nearest pairs by x: how far their y is, where they are near and fit themselves."""
    own = 1 - (x * y).sum(1)
    scores = np.zeros(len(x))
    for rows, nearest, near in neighbours(x, image):
        far = 1 - (y[rows][:, None] * y[nearest]).sum(-1)
        scores[rows] = (far * np.exp(-0.1 * (1 - np.maximum(near, -1))) * np.exp(-5 * own[nearest])).mean(1)
    return scores


def knn(images: np.ndarray, texts: np.ndarray, image: np.ndarray, seed: int) -> np.ndarray:
    """Share of the nearest images whose captions lie in another cluster."""
    x, y = (side - side.mean(0) for side in (images, texts))
    x, y = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9) for side in (x, y))
    clusters = min(CLUSTERS, max(2, len(y) // 20))
    _, cluster = kmeans2(y.astype(np.float64), clusters, minit="++", seed=seed)
    scores = np.zeros(len(x))
    for rows, nearest, _ in neighbours(x, image):
        scores[rows] = (cluster[nearest] != cluster[rows][:, None]).mean(1)
    return scores


def cca(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """One minus the cosine under ridge canonical correlation, fitted on the pairs themselves."""
    x, y = images - images.mean(0), texts - texts.mean(0)
    a, b = (root(side.T @ side) for side in (x, y))
    u, _, v = np.linalg.svd(a @ (x.T @ y) @ b, full_matrices=False)
    return np.asarray(1 - cosine(x @ a @ u[:, :128], y @ b @ v[:128].T))


def quality(score: np.ndarray, wrong: np.ndarray, image: np.ndarray, rate: float) -> Row:
    """How well a score finds the mismatched pairs."""
    number = np.unique(image, return_inverse=True)[1]
    resampled = []
    for drawn in draw_images(int(number.max()) + 1, SAMPLES):
        weight = drawn[number].astype(np.float64)
        if (weight * wrong).any() and (weight * ~wrong).any():
            resampled.append(roc_auc_score(wrong, score, sample_weight=weight))
    low, high = np.quantile(resampled, [0.05, 0.95])
    taken = np.argsort(-score, kind="stable")[: round(rate * len(score))]
    return {
        "auroc": round(float(roc_auc_score(wrong, score)), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "ap": round(float(average_precision_score(wrong, score)), 4),
        "precision": round(float(wrong[taken].mean()), 4) if len(taken) else None,
    }


def tables(rows: list[Row]) -> str:
    """AUROC of every detector, then what `ours` says, means over the seeds."""
    names = list(dict.fromkeys(name for row in rows for name in row["detectors"]))
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in KEY[:-1]), []).append(row)
    lines, ours = [], []
    for (collection, kind, noise), group in sorted(groups.items(), key=lambda item: str(item[0])):
        noisy = f"{noise:.0%} {kind}" if noise else "0%"
        if noise:
            values_of = [[row["detectors"].get(name, {}).get("auroc") for row in group] for name in names]
            lines.append([collection, noisy, *(mean(values, ".3f") for values in values_of), str(len(group))])
        cells = [mean((row[name] for row in group), ".1%") for name in ("wrong", "estimate")]
        own = [row["detectors"].get("ours", {}) for row in group]
        cells += [mean((numbers.get(name) for numbers in own), ".2f") for name in ("ap", "precision")]
        cells += [mean((row[name] for row in group), form) for name, form in (("error", ".3f"), ("flagged", ".1%"))]
        near = [row.get("near", {}) for row in group]
        forms = {"estimate": ".1%", "error": ".3f", "flagged": ".1%"}
        cells += [mean((numbers.get(name) for numbers in near), form) for name, form in forms.items()]
        ours.append([collection, noisy, *cells, str(len(group))])
    measures = ("estimate", "calibration error", "flagged")
    heads = [
        "collection",
        "noise",
        "wrong",
        "estimate",
        "AP",
        "precision",
        *measures[1:],
        f"near: {measures[0]}",
        *measures[1:],
    ]
    parts = markdown(["collection", "noise", *names, "seeds"], lines), markdown([*heads, "seeds"], ours)
    return f"AUROC:\n\n{parts[0]}\n\nWhat `ours` says:\n\n{parts[1]}"


def by_share(rows: list[Row], kinds: tuple[str, ...], cell: Callable[[list[Row]], str]) -> str:
    """Kinds and collections by the share of mismatched captions; a cell is what the rows of all its seeds say."""
    noises = sorted({row["noise"] for row in rows if row["noise"] and row["kind"] in kinds})
    lines = []
    for kind in kinds:
        for collection in dict.fromkeys(row["collection"] for row in rows):
            place = [row for row in rows if (row["kind"], row["collection"]) == (kind, collection)]
            place.sort(key=lambda row: row["seed"])
            cells = [cell([row for row in place if row["noise"] == noise]) for noise in noises]
            if any(cells):
                lines.append([f"`{kind}`, `{collection}`", *cells])
    return markdown(["", *(f"{noise:.0%}" for noise in noises)], lines)


def aurocs(rows: list[Row]) -> str:
    """AUROC of `ours`, of the best other detector by name, and of `ours_near`: means over the seeds."""

    def cell(group: list[Row]) -> str:
        group = [row for row in group if row["detectors"]]  # none where all captions that could be wrong are
        if not group:
            return ""
        names = ("ours", "ours_near", *OTHERS)
        means = {name: sum(row["detectors"][name]["auroc"] for row in group) / len(group) for name in names}
        other = max(OTHERS, key=lambda name: means[name])
        texts = [format(means[name], ".3f").removeprefix("0") for name in ("ours", other, "ours_near")]
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


def mean(values: Iterable[float | None], form: str) -> str:
    """The mean of the numbers that are there, added one after the other, as text."""
    present = [value for value in values if value is not None]
    return format(sum(present) / len(present), form) if present else ""


# The tables of a page, by the mark that each of them begins with.
TABLES = {
    "<!-- auroc table -->": aurocs,
    "<!-- estimates table -->": estimates,
    "<!-- near estimates table -->": near_estimates,
}


if __name__ == "__main__":
    main()
