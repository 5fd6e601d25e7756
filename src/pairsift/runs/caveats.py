"""Warnings about the limits of a run's results, for its report and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from pairsift.arrays import text_numbers
from pairsift.detect import Judgement
from pairsift.detect.caveats import TEXTS as JUDGEMENT_TEXTS
from pairsift.detect.caveats import Caveat, judgement_caveats
from pairsift.encode.hub_names import HUB_MODELS
from pairsift.encode.languages import unknown_language
from pairsift.pairs.pairs import ADDED, Pairs
from pairsift.progress import duration
from pairsift.runs.prepare import Prepared
from pairsift.runs.source_changes import MENDED

RECALL = {"dev", "test"}  # names of metrics that hold recall
MAX_DUPLICATES = 0.05  # share of dev and test images with a near-duplicate in train above which a warning is given
CHANCE = 3  # recall is called near chance where so many random lists would reach it together
ONE_SPACE = 0.6  # share of random pairs below a pair, by the cosine, from which vectors are taken to share a space
MAPPED = 0.7  # the same by a linear map, from which on the encoders are not the reason
WEAK_EVIDENCE = {"no-evidence", "like-random", "weak-evidence"}  # of these, other encoders are the cure
SHARED_MODEL = "siglip2"  # reads many languages
MAX_BY_CHANCE = 0.25  # largest recall by chance that says whether the networks have learned

TEXTS = {
    **JUDGEMENT_TEXTS,
    "other-encoders": "Encoders that learned images and captions together may say more: --encoders {name} takes about "
    "{time} for these pairs on two cores, and its model is fetched once (pip install 'pairsift[hf]').",
    "mended-suspects": "{mended:,} suspects were mended or removed. Mismatches that remain are hard to find now: the "
    "rate and the number of suspects are too low. Suspects that did not change stay suspects.",
    "unknown-language": "{found}{effect}.",
    "no-common-space": "The vectors do not seem to share a space: by their cosine a pair stands above a random one in "
    "{cosine:.0%} of cases, by a linear map in {linear:.0%}. Recall, search and suggestions start from the cosine: "
    "give --aligned false.",
    "near-chance": "Recall on dev is near chance: R@{k} is {recall:.0f}%, and chance gives {chance:.0f}%. The networks "
    "have learned little from these pairs: do not trust search and suggestions.",
    "duplicates-in-train": "{share:.0%} of the dev and test images have a near-duplicate in train: recall is higher "
    "than on new images.",
    "rates-differ": "{train:.0%} of the training pairs and {others:.0%} of the other pairs are estimated to be "
    "mismatched, although the splits were drawn at random: unless one side alone was mended before, do not trust "
    "either estimate alone.",
}


def rate_of(judgement: Judgement) -> dict[str, float | None]:
    """Return the estimated noise rate and its interval; None where there are no verdicts."""
    rates = {"estimated": judgement.rate, "low": judgement.low, "high": judgement.high}
    return {name: value if judgement.verdicts else None for name, value in rates.items()}


def warnings_of(prepared: Prepared, judgement: Judgement, metrics: Mapping[str, Any]) -> list[Caveat]:
    """Return the reasons to doubt the verdicts or the recall.

    Args:
        prepared: The run's pairs and features.
        judgement: Held-out evidence on the judged pairs.
        metrics: The run's metrics. Recall is doubted only if it is among them.
    """
    pairs, caveats = prepared.pairs, judgement_caveats(judgement)
    if WEAK_EVIDENCE & {caveat["code"] for caveat in caveats}:
        caveats += _advice(prepared)
    if judgement.verdicts and (mended := metrics.get(MENDED, 0)):
        caveats.append(_caveat("mended-suspects", mended=mended))
    if (language := unknown_language(pairs.captions, prepared.texts)) is not None:
        effect = ". Pairs with such captions may count as mismatched" if judgement.verdicts else ""
        caveats.append(_caveat("unknown-language", found=language.message, effect=effect))
    caveats += _space_caveats(prepared, judgement) or _recall_caveats(pairs, metrics)
    if RECALL & metrics.keys() and (share := _duplicates_of_train(pairs, judgement)) > MAX_DUPLICATES:
        caveats.append(_caveat("duplicates-in-train", share=share))
    if judgement.rate_outside_train is not None and not judgement.in_placeholder.any() and _drawn_alike(pairs):
        caveats.append(_caveat("rates-differ", train=judgement.rate, others=judgement.rate_outside_train))
    return caveats


def _advice(prepared: Prepared) -> list[Caveat]:
    """Return what encoders may help, and what they cost, where a run has images and no model of both sides."""
    pairs = prepared.pairs
    if prepared.aligned or prepared.front is not None or pairs.features is not None:
        return []
    images, captions = HUB_MODELS[SHARED_MODEL].speed
    time = duration(pairs.n_images / images + len(pairs) / captions, 10)
    return [_caveat("other-encoders", name=SHARED_MODEL, time=time)]


def _caveat(code: str, **facts: object) -> Caveat:
    return {"code": code, "text": TEXTS[code].format(**facts)}


def _duplicates_of_train(pairs: Pairs, judgement: Judgement) -> float:
    """Return the share of the dev and test images that have a near-duplicate among the training images."""
    if judgement.group is None:
        return 0.0
    ids = pairs.ids()
    held_out = np.isin(pairs.split[ids], ("dev", "test"))
    images, first = np.unique(pairs.image_of[ids][held_out], return_index=True)
    of_train = judgement.group[pairs.split[ids] == "train"]
    return float(np.isin(judgement.group[held_out][first], of_train).mean()) if len(images) else 0.0


def _drawn_alike(pairs: Pairs) -> bool:
    """Return whether the splits were drawn at random, so that other pairs are no noisier than training pairs."""
    return "drawn by image" in pairs.description and pairs.noise is None and not len(pairs.ids(ADDED))


def _space_caveats(prepared: Prepared, judgement: Judgement) -> list[Caveat]:
    """Return a caveat if vectors with a declared common space do not seem to have one."""
    if not prepared.aligned or "cosine" not in judgement.detectors:
        return []
    cosine, linear = (float(judgement.detectors[name].mean()) for name in ("cosine", "linear"))
    if cosine >= ONE_SPACE or linear < MAPPED:
        return []
    return [_caveat("no-common-space", cosine=cosine, linear=linear)]


def _recall_caveats(pairs: Pairs, metrics: Mapping[str, Any]) -> list[Caveat]:
    """Return a caveat if the recall on dev is hardly better than chance.

    Chance gives more than a quarter for R@10 where there are few images, or few different captions. R@5 or R@1 decides
    there.
    """
    ensemble = metrics.get("dev", {}).get("ensemble")
    images = len(pairs.images("dev"))
    if ensemble is None or images < 20:
        return []
    chances = {k: _chance(pairs, k) for k in (10, 5, 1)}
    k = next((k for k, chance in chances.items() if chance <= 100 * MAX_BY_CHANCE), None)
    if k is None:
        return []
    recall, chance = float(np.mean([ensemble[f"i2t_r{k}"], ensemble[f"t2i_r{k}"]])), chances[k]
    if recall >= 100 * (1 - (1 - chance / 100) ** CHANCE):
        return []
    return [_caveat("near-chance", k=k, recall=recall, chance=chance)]


def _chance(pairs: Pairs, k: int) -> float:
    """Return the mean R@K of both directions by random lists on dev, in percent, where equal captions are one."""
    ids = pairs.ids("dev")
    text = text_numbers([pairs.captions[pair] for pair in ids])
    images, owner = np.unique(pairs.image_of[ids], return_inverse=True)
    right, of_text = np.unique(np.stack([owner, text]), axis=1), np.bincount(text)
    sides = (right[0], np.ones(len(images)), len(of_text)), (right[1], of_text, len(images))
    return 50 * sum(
        float(np.average(1 - hypergeom.pmf(0, n, np.bincount(query), min(k, n)), weights=weight))
        for query, weight, n in sides
    )
