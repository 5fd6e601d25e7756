"""Fits side by side: those of the same pairs, noise and seed share their features and their held-out evidence."""

from __future__ import annotations

import csv
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from option_names import tree
from pairsift.methods.base import Method
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.codes import evaluate
from pairsift.runs.belief import Believer
from pairsift.runs.config import Config, from_tree
from pairsift.runs.fit import facts_of
from pairsift.runs.prepare import Prepared, matcher_factory, prepare
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.loop import Job, Trainer, mixed

Row = dict[str, Any]
PROTOCOL = "caption-level noise, clean dev and test, best on dev of the last phase, one test"


def measured(
    data: Path,
    cache: Path | None,
    rows: list[Row],
    typed: Callable[[Row], tuple[str, list[str]]],
    text_encoder: str = "",
) -> Iterator[Row]:
    """Train and test rows of the same pairs, noise, matcher and seed, and give back each with its numbers.

    Args:
        data: Flickr8k's folder.
        cache: Folder of the feature cache.
        rows: What is wanted: `matcher`, `loss`, `noise`, `seed`, `images` (None for all), perhaps `captions`.
        typed: A row's method and its options, as `fit` knows them.
        text_encoder: Name of the text encoder; empty for the default one, without n-grams beside it.
    """
    if not rows:
        return
    first = rows[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        (folder / "model").mkdir(parents=True)
        shared = {
            "source": str(fewer(data, first["images"], Path(place)) if first["images"] else data),
            "out": str(folder),
            "cache": None if cache is None else str(cache),
            "text_encoder": text_encoder or None,
            "captions_per_image": first.get("captions"),
            "matcher": first["matcher"],
            "noise": first["noise"],
            "noise_seed": first["seed"],
            "seed": first["seed"],
        }
        common = from_tree({**shared, "method": "plain"})
        prepared = prepare(common, folder, progress=False)
        believer = Believer(prepared, folder, first["seed"], common.cache, False)
        belief = believer.judge(common.train)
        known = believer.prior(belief), believer.likeness()
        facts = facts_from(common, prepared)
        facts |= {"estimated_rate": belief.rate, "held_out_auroc": auroc(prepared.pairs, belief.probability, believer)}
        for row in rows:
            method, options = typed(row)
            config = from_tree({**shared, "method": method, "loss": row["loss"], **tree(options)})
            yield row | trained(config, prepared, folder, *known) | facts


def trained(config: Config, prepared: Prepared, folder: Path, prior: Prior, likeness: Likeness) -> Row:
    """Train one row and test it."""
    began = time.monotonic()
    trainer = Trainer(job_of(config, prepared, folder, prior, likeness))
    trainer.run()
    with mixed(trainer.device, config.train):
        test = evaluate([network.matcher for network in trainer.networks], prepared.features, prepared.pairs, "test")
    networks = [view["rsum"] for name, view in test.items() if name != "ensemble"]
    return {
        "rsum": test["ensemble"]["rsum"],
        "rsum_single": statistics.mean(networks),
        "networks": len(networks),
        "dev_rsum": trainer.position.best_rsum,
        "recall": test["ensemble"],
        "trust_auroc": trust_auroc(config.method),
        "own_caption": own_caption(config.method, prepared.pairs),
        "facts": config.method.facts(),
        "epochs": len(trainer.log),
        "best_epoch": trainer.position.best_epoch,
        "seconds": round(time.monotonic() - began, 1),
    }


def job_of(
    config: Config, prepared: Prepared, folder: Path, prior: Prior | None = None, likeness: Likeness | None = None
) -> Job:
    """The training of a configuration on prepared pairs, without progress on the console."""
    parts = config.method, config.loss, config.train, folder, False
    return Job(prepared.pairs, prepared.features, matcher_factory(config, prepared), *parts, prior, likeness)


def facts_from(config: Config, prepared: Prepared) -> Row:
    """What the rows were measured on, and with."""
    facts = facts_of(config, prepared)
    return {
        "protocol": PROTOCOL,
        **{name: (facts["noise"] or {}).get(name) for name in ("granularity", "index_hash")},
        "data_hash": facts["data"]["hash"],
        "versions": facts["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def auroc(pairs: Pairs, probability: np.ndarray, believer: Believer) -> float | None:
    """AUROC of the held-out evidence over the training pairs; None where none is mismatched."""
    training = pairs.split[believer.ids] == "train"
    if pairs.true_image_of is None:
        return None
    wrong = pairs.mismatched()[believer.ids][training]
    return float(roc_auc_score(~wrong, probability[training])) if wrong.any() else None


def trust_auroc(method: Method) -> float | None:
    """AUROC of the last trust in the training pairs, mean of the networks; None without trust or without mismatches."""
    matched, ids, values = method.setting.matched, method.setting.ids, method.values_of_pairs()
    if matched is None or matched[ids].all():
        return None
    if "cross_modal" in values:
        names = {"cross_modal": ["cross_modal"], "intra_modal": ["intra_modal"]}
        used = method.model_dump()["indicators"]["use"]
        trust = np.min([values[name] for name in names.get(used, list(names))], axis=0)
    elif found := [values[name] for name in ("clean_probability", "correspondence") if name in values]:
        trust = found[0]
    else:
        return None
    return float(roc_auc_score(matched[ids], trust.mean(0)))


def own_caption(method: Method, pairs: Pairs) -> float | None:
    """Share of the noisy pairs for whose image the last search found a caption that belongs to it."""
    if "pseudo_caption" not in method.state or pairs.true_image_of is None:
        return None
    shares = []
    for k in range(method.setting.networks):
        noisy = method.subset("noisy", k)
        captions = method.state["pseudo_caption"][k, noisy]
        shares.append(float((pairs.true_image_of[captions] == pairs.image_of[noisy]).mean()) if len(noisy) else np.nan)
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else None


def fewer(data: Path, images: int, place: Path) -> Path:
    """A table of the first `images` training images and a fifth as many dev and test images, with their captions."""
    split_of = {}
    for split, count in (("train", images), ("dev", images // 5), ("test", images // 5)):
        lines = (data / "splits" / f"{split}.txt").read_text(encoding="utf-8").split()
        split_of |= dict.fromkeys(lines[:count], split)
    path = place / "flickr8k.csv"
    with (data / "captions.csv").open(encoding="utf-8", newline="") as read, path.open("w", newline="") as written:
        table = csv.writer(written)
        table.writerow(("image", "caption", "split"))
        for row in csv.DictReader(read):
            if row["image"] in split_of:
                image = (data / "images" / row["image"]).resolve()
                table.writerow((image, row["caption"], split_of[row["image"]]))
    return path


def write(path: Path, rows: list[Row]) -> None:
    """Write rows; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    part.replace(path)
