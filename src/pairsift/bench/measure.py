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
from pairsift.files import in_turn, replacing, write_json
from pairsift.methods.base import Method
from pairsift.pairs import Pairs
from pairsift.retrieve.codes import evaluate
from pairsift.run_folder import CONFIG
from pairsift.runs.belief import Believer, of_training
from pairsift.runs.config import Config, read_config
from pairsift.runs.fit import begin, facts_of
from pairsift.runs.job import job_of
from pairsift.runs.prepare import Prepared, encoder_names, prepare
from pairsift.steps import Prior
from pairsift.train.batches import Likeness
from pairsift.train.loop import Trainer, autocast_context

Row = dict[str, Any]
SELECTION = "best on dev of the last phase, one test"
PROTOCOL = f"caption-level noise, clean dev and test, {SELECTION}"
PRIOR, FACTS = "prior.npz", "facts.json"  # of the held-out evidence; PRIOR is written last


@dataclass(frozen=True)
class Start:
    """What trainings of the same pairs, noise, matcher and seed begin with.

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
    def judge(config: Config, prepared: Prepared, folder: Path) -> Start:
        """Judge the pairs by held-out evidence, whose folds and networks are kept in the folder."""
        believer = Believer(of_training(prepared), folder, config, False)
        belief = believer.judge()
        facts = facts_from(config, prepared) | {"estimated_rate": belief.rate}
        facts["held_out_auroc"] = auroc(prepared.pairs, belief.probability, believer)
        return Start(prepared, believer.prior(belief), believer.likeness(), facts)

    @staticmethod
    def open(config: Config, folder: Path) -> Start:
        """Return the start that the folder holds, or make and keep one.

        The text encoder is chosen as `fit` chooses it. Processes that share a parent folder encode one after the
        other, so that none encodes what another one does.

        Raises:
            InputError: The source or an option cannot be used, or the source has changed since the start was made.
        """
        limit_threads(config.train.threads)
        if not (folder / PRIOR).exists():
            with writing(folder):
                folder.parent.mkdir(parents=True, exist_ok=True)
            with in_turn(folder.parent / ".encoding.lock"):
                config, prepared = begin(folder, config, progress=False)
            start = Start.judge(config, prepared, folder)
            start.facts.update(protocol=SELECTION, encoders=encoder_names(config, prepared))
            start._write(folder)
            return start
        chosen = read_config(folder / CONFIG).encode.text_encoder
        config = replace(config, encode=config.encode.replaced(text_encoder=chosen))
        with np.load(folder / PRIOR, allow_pickle=False) as kept:
            prior = Prior(kept["probability"], float(kept["rate"]), float(kept["most"]))
            likeness = Likeness(kept["images"], kept["texts"])
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        prepared = prepare(config, folder, False)
        require_same(config, prepared.hash, facts, folder)
        return Start(prepared, prior, likeness, facts)

    def _write(self, folder: Path) -> None:
        prior, likeness = self.prior, self.likeness
        write_json(folder / FACTS, self.facts)
        with writing(folder / PRIOR), replacing(folder / PRIOR) as part, part.open("wb") as stream:
            np.savez(
                stream,
                probability=prior.probability,
                rate=prior.rate,
                most=prior.most,
                images=likeness.images,
                texts=likeness.texts,
            )


def require_same(config: Config, digest: str, facts: Row, place: Path) -> None:
    """Check that what was measured on is the source as it is now.

    Args:
        config: The options.
        digest: Hash of the source's pairs.
        facts: What was measured on.
        place: Where it is kept, for the message.

    Raises:
        InputError: The source has changed.
    """
    if facts["data_hash"] != digest:
        raise InputError(
            f"{config.source} has changed since it was measured in {place}: name another folder with --out, or remove "
            "that one"
        )


def train(config: Config, start: Start, folder: Path, resume: bool = False) -> Row:
    """Train as a configuration says, test once, and return the numbers.

    Args:
        config: The options.
        start: The pairs and what is known of them.
        folder: Where checkpoints are written.
        resume: Whether to continue from the folder's checkpoint, if there is one.
    """
    began = time.monotonic()
    trainer = Trainer(job_of(config, start.prepared, folder, start.prior, start.likeness))
    trainer.run(resume=resume)
    with autocast_context(trainer.device, config.train):
        matchers = [network.matcher for network in trainer.networks]
        test = evaluate(matchers, start.prepared.features, start.prepared.pairs, "test")
    singles = [view for name, view in test.items() if name != "ensemble"]
    return {
        "rsum": test["ensemble"]["rsum"],
        "rsum_single": mean(view["rsum"] for view in singles),
        "networks": len(singles),
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


def facts_from(config: Config, prepared: Prepared) -> Row:
    """Return what rows were measured on, and with."""
    facts = facts_of(config, prepared)
    return {
        "protocol": PROTOCOL,
        **{name: (facts["noise"] or {}).get(name) for name in ("granularity", "index_hash")},
        "data_hash": facts["data"]["hash"],
        "versions": facts["versions"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def auroc(pairs: Pairs, probability: np.ndarray, believer: Believer) -> float | None:
    """Return the AUROC of the held-out evidence over the training pairs; None where none is mismatched."""
    training = pairs.split[believer.ids] == "train"
    if pairs.true_image_of is None:
        return None
    wrong = pairs.mismatched()[believer.ids][training]
    return float(roc_auc_score(~wrong, probability[training])) if wrong.any() else None


def trust_auroc(method: Method) -> float | None:
    """Return the AUROC of the last trust in the training pairs, mean of the networks.

    None without trust or without mismatches.
    """
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
    """Return the share of the noisy pairs for whose image the last search found a caption that belongs to it."""
    found = method.arrays().get("captions.pseudo_caption")
    if found is None or pairs.true_image_of is None:
        return None
    shares = []
    for k in range(method.setting.networks):
        noisy = method.subset("noisy", k)
        captions = found[k, noisy]
        shares.append(float((pairs.true_image_of[captions] == pairs.image_of[noisy]).mean()) if len(noisy) else np.nan)
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else None
