"""The measurement of one training: what cells of the same pairs, noise and seed share, and what each one reaches."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from pairsift.cores import limit_threads
from pairsift.errors import InputError, writing
from pairsift.files import in_turn, make_folder, replacing
from pairsift.methods.base import Method
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.gallery import evaluate
from pairsift.run_folder import CONFIG
from pairsift.runs.config import Config, read_config
from pairsift.runs.fit import begin, facts_of
from pairsift.runs.job import job_of
from pairsift.runs.judge import Judge, of_training
from pairsift.runs.prepare import Prepared, encoder_names, prepare
from pairsift.steps import Prior
from pairsift.train.apart import trainer_of
from pairsift.train.batches import Likeness
from pairsift.train.precision import autocast_context

Row = dict[str, Any]
PROTOCOL = "best on dev of the last phase, one test"
PRIOR = "prior.npz"  # the held-out evidence


@dataclass(frozen=True)
class Start:
    """The pairs and the evidence that trainings of the same noise, matcher and seed share.

    Attributes:
        prepared: The pairs and features.
        prior: What held-out evidence says of the pairs.
        likeness: Groups of images and of captions that are too similar to be each other's negatives.
        facts: What was measured on, and how well the evidence tells mismatched pairs.
    """

    prepared: Prepared
    prior: Prior
    likeness: Likeness
    facts: Row

    @staticmethod
    def open(config: Config, folder: Path) -> Start:
        """Return the start in the folder, or make one and keep it there.

        The text encoder is chosen as `fit` chooses it. Processes with the same parent folder encode one after the
        other, so that nothing is encoded twice.

        Raises:
            InputError: The source or an option cannot be used, or the source has changed since the start was made.
        """
        limit_threads(config.train.threads)
        return Start._read(config, folder) if (folder / PRIOR).exists() else Start._make(config, folder)

    @staticmethod
    def _make(config: Config, folder: Path) -> Start:
        """Encode and judge the pairs, and keep folds, networks and evidence in the folder."""
        make_folder(folder.parent)
        with in_turn(folder.parent / ".encoding.lock"):
            config, prepared = begin(folder, config, progress=False)
        judge = Judge(of_training(prepared), folder, config, False)
        judgement = judge.judge()
        facts = measured_on(config, prepared) | {"estimated_rate": judgement.rate}
        facts["held_out_auroc"] = evidence_auroc(prepared.pairs, judgement.probability, judge)
        facts["encoders"] = encoder_names(config, prepared)
        start = Start(prepared, judge.prior(judgement), judge.likeness(), facts)
        start._write(folder)
        return start

    @staticmethod
    def _read(config: Config, folder: Path) -> Start:
        """Read a start, and prepare its pairs again."""
        chosen = read_config(folder / CONFIG).encode.text_encoder
        config = replace(config, encode=config.encode.replaced(text_encoder=chosen))
        with np.load(folder / PRIOR, allow_pickle=False) as kept:
            prior = Prior(kept["probability"], float(kept["rate"]), float(kept["most"]))
            likeness = Likeness(kept["images"], kept["texts"])
            facts = json.loads(str(kept["facts"]))
        prepared = prepare(config, folder, False)
        require_unchanged(config, prepared.hash, facts, folder)
        return Start(prepared, prior, likeness, facts)

    def _write(self, folder: Path) -> None:
        prior, likeness = self.prior, self.likeness
        with writing(folder / PRIOR), replacing(folder / PRIOR) as part, part.open("wb") as stream:
            np.savez(
                stream,
                probability=prior.probability,
                rate=prior.rate,
                most=prior.most,
                images=likeness.images,
                texts=likeness.texts,
                facts=json.dumps(self.facts),
            )


def require_unchanged(config: Config, digest: str, facts: Row, place: Path) -> None:
    """Refuse a source that has changed since it was measured.

    Args:
        config: The options.
        digest: Hash of the source's pairs.
        facts: The facts of the measurement.
        place: The folder of the measurement, for the message.

    Raises:
        InputError: The source has changed.
    """
    if facts["data_hash"] != digest:
        raise InputError(
            f"{config.source} has changed since it was measured in {place}: name another folder with --out, or remove "
            "that one"
        )


def train(config: Config, start: Start, folder: Path, folds: int = 1) -> Row:
    """Train as a configuration says, or go on from the folder's checkpoint, test once, and return the numbers.

    Args:
        config: The options.
        start: The pairs and their evidence.
        folder: The folder of checkpoints.
        folds: Number of consecutive parts of the test images that are ranked separately, for a mean (5 for COCO-1K).
    """
    began = time.monotonic()
    trainer = trainer_of(job_of(config, start.prepared, folder, start.prior, start.likeness))
    trainer.run(resume=True)
    with autocast_context(trainer.device, config.train):
        matchers = [network.matcher for network in trainer.networks]
        test = evaluate(matchers, start.prepared.features, start.prepared.pairs, "test", folds)
    singles = [view for name, view in test.items() if name != "ensemble"]
    return {
        "rsum": test["ensemble"]["rsum"],
        "rsum_single": mean(view["rsum"] for view in singles),
        "networks": len(singles),
        "folds": folds,
        "dev_rsum": trainer.position.best_rsum,
        "recall": test["ensemble"],
        "recall_single": {name: mean(view[name] for view in singles) for name in test["ensemble"]},
        "trust_auroc": trust_auroc(trainer.method),
        "own_caption": own_caption(trainer.method, start.prepared.pairs),
        "facts": trainer.method.facts(),
        "epochs": len(trainer.log),
        "best_epoch": trainer.position.best_epoch,
        "seconds": round(time.monotonic() - began, 1),
        "train_seconds": round(trainer.position.seconds, 1),
    }


def measured_on(config: Config, prepared: Prepared) -> Row:
    """Return the data, the versions and the machine of a measurement."""
    facts = facts_of(config, prepared)
    return {
        "protocol": PROTOCOL,
        **{name: (facts["noise"] or {}).get(name) for name in ("granularity", "index_hash")},
        "data_hash": facts["data"]["hash"],
        "versions": facts["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def evidence_auroc(pairs: Pairs, probability: np.ndarray, judge: Judge) -> float | None:
    """Return the AUROC of the held-out evidence over the training pairs.

    None where no pair is known to be mismatched.
    """
    training = pairs.split[judge.ids] == "train"
    if pairs.true_image_of is None:
        return None
    wrong = pairs.mismatched()[judge.ids][training]
    return float(roc_auc_score(~wrong, probability[training])) if wrong.any() else None


def trust_auroc(method: Method) -> float | None:
    """Return the AUROC of the method's last trust, the mean of its networks, over the training pairs.

    None without trust or without mismatches.
    """
    matched, ids, values = method.setting.matched, method.setting.ids, method.values_of_pairs()
    if matched is None or matched[ids].all():
        return None
    if "cross_modal" in values:
        names = {"cross_modal": ["cross_modal"], "intra_modal": ["intra_modal"]}
        used = method.model_dump()["indicators"]["use"]
        trust = np.min([values[name] for name in names.get(used, list(names))], axis=0)
    elif known := [values[name] for name in ("clean_probability", "correspondence") if name in values]:
        trust = known[0]
    else:
        return None
    return float(roc_auc_score(matched[ids], trust.mean(0)))


def own_caption(method: Method, pairs: Pairs) -> float | None:
    """Return the share of the noisy pairs whose pseudo-caption truly belongs to their image.

    The mean over the networks; None for a method without pseudo-captions and where the truth is not known.
    """
    pseudo_captions = method.arrays().get("captions.pseudo_caption")
    if pseudo_captions is None or pairs.true_image_of is None:
        return None
    shares = []
    for k in range(method.setting.networks):
        noisy = method.subset("noisy", k)
        captions = pseudo_captions[k, noisy]
        shares.append(float((pairs.true_image_of[captions] == pairs.image_of[noisy]).mean()) if len(noisy) else np.nan)
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else None
