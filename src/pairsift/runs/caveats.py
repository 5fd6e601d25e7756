"""Warnings about the limits of a run's results, for its report and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairsift.detect.heldout import MIN_AUROC, MIN_PAIRS, Belief
from pairsift.detect.near import MAX_BELOW_NEAR
from pairsift.encode.languages import unknown_language
from pairsift.pairs.pairs import ADDED, Pairs
from pairsift.runs.mending import MENDED
from pairsift.runs.prepare import Prepared

WEAK = 0.85  # expected AUROC below which evidence is called weak
WIDE = 0.2  # width of the rate's interval above which evidence is called weak
MAX_DUPLICATES = 0.05  # share of dev and test images with a near-duplicate in train above which a warning is given
GONE = 0.05  # share of the judged pairs from which pairs that are gone from the source are mentioned
UNKNOWN = ". Pairs with such captions may count as mismatched"
CHANCE = 3  # recall is called near chance where so many random lists would reach it together
ONE_SPACE = 0.6  # share of random pairs below a pair, by the cosine, from which vectors are taken to share a space
MAPPED = 0.7  # the same by a linear map, from which on the encoders are not the reason
MAX_BY_CHANCE = 0.25  # largest recall by chance that says whether the networks have learned


def rate_of(belief: Belief) -> dict[str, float | None]:
    """Return the estimated noise rate and its interval; None where there are no verdicts."""
    rates = {"estimated": belief.rate, "low": belief.low, "high": belief.high}
    return {name: value if belief.verdicts else None for name, value in rates.items()}


def expected_auroc(belief: Belief) -> dict[str, float | None]:
    """Return the expected AUROC for captions of `any` other images, and for `near` ones; None where it is not known."""
    return {"any": belief.auroc, "near": belief.near_auroc}


def warnings_of(prepared: Prepared, belief: Belief, metrics: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each reason to doubt the verdicts or the recall.

    Args:
        prepared: The run's pairs and features.
        belief: Held-out evidence on the judged pairs.
        metrics: The run's metrics; the recall on dev is used if it is among them.
    """
    pairs, sentences = prepared.pairs, []
    auroc = min(belief.auroc, belief.near_auroc or 1.0) if belief.counts_near else belief.auroc
    mismatched = "a pair whose caption reads much like the right one" if auroc < belief.auroc else "a mismatched pair"
    n_judged = len(belief.probability)
    if n_judged < MIN_PAIRS:
        sentences.append(
            f"{n_judged} pairs are too few for verdicts: the pairs are only ranked, the most doubtful first, and none "
            f"is flagged. Verdicts need at least {MIN_PAIRS} pairs."
        )
    elif belief.auroc < MIN_AUROC:
        sentences.append(
            "The evidence is too weak for verdicts: a mismatched pair is expected to rank below a matching one in only "
            f"{belief.auroc:.0%} of cases. The pairs are only ranked, the most doubtful first, and none is flagged."
        )
    elif not belief.verdicts:
        sentences.append(
            f"Up to {belief.high:.0%} of the pairs look like random pairs: either almost no caption belongs to its "
            "image, or the encoders do not understand these images or captions. No pair is flagged. Look at the pairs "
            "at both ends of the ranking, and try another text encoder."
        )
    elif auroc < WEAK or belief.high - belief.low > WIDE:
        sentences.append(
            f"The evidence is weak: between {belief.low:.0%} and {belief.high:.0%} of the pairs may be mismatched, and "
            f"{mismatched} is expected to rank below a matching one in {auroc:.0%} of cases. Read the "
            "ranking, and do not remove pairs by the flag alone."
        )
    if belief.verdicts and belief.counts_near is False:
        sentences.append(
            f"Captions that read much like the right ones cannot be told here: {_untold(belief)}. Probabilities and "
            "rate are about captions of any other images."
        )
    if belief.verdicts and belief.in_placeholder.any():
        sentences.append(
            f"{belief.in_placeholder.sum():,} pairs have an image or a caption that is common to many and fits hardly "
            "any of them, such as a placeholder: they count as mismatched."
        )
    gone = 0 if prepared.changes is None else prepared.changes.gone
    if belief.verdicts and (mended := metrics.get(MENDED, 0)):
        sentences.append(
            f"{mended:,} suspects were mended or removed. Mismatches that are left look right: the rate and the number "
            "of suspects are too low. Suspects that are as they were stay suspects."
        )
    elif belief.verdicts and gone > GONE * n_judged:
        sentences.append(
            f"{gone:,} pairs of the fit are gone from the source. If they were removed because they looked mismatched, "
            "more of the others are mismatched than estimated: those that look right."
        )
    if (language := unknown_language(pairs.captions, prepared.texts)) is not None:
        sentences.append(language.message + UNKNOWN if belief.verdicts else language.message)
    if (apart := _no_common_space(prepared, belief) or _near_chance(pairs, metrics)) is not None:
        sentences.append(apart)
    if (duplicates := _duplicates_of_train(pairs, belief)) > MAX_DUPLICATES:
        sentences.append(
            f"{duplicates:.0%} of the dev and test images have a near-duplicate in train: recall is higher than on new "
            "images."
        )
    if belief.rate_outside_train is not None and not belief.in_placeholder.any() and _drawn_alike(pairs):
        sentences.append(
            f"{belief.rate:.0%} of the training pairs and {belief.rate_outside_train:.0%} of the other pairs are "
            "estimated to be mismatched, although the splits were drawn at random: unless one side alone was mended "
            "before, do not trust either estimate alone."
        )
    return sentences


def _untold(belief: Belief) -> str:
    """Return why near captions are not counted."""
    if belief.near_auroc is None:
        return "too few pairs, or too few such captions, fit better than captions of any images do"
    if belief.below_near > MAX_BELOW_NEAR:
        return f"{belief.below_near:.0%} of the training pairs that look right fit worse than 95% of such captions do"
    if belief.near_auroc < MIN_AUROC:
        return f"a pair with one is expected to rank below a matching one in only {belief.near_auroc:.0%} of cases"
    return "it may be that almost all pairs that look right fit no better than such captions do"


def _duplicates_of_train(pairs: Pairs, belief: Belief) -> float:
    """Return the share of the dev and test images that have a near-duplicate among the training images."""
    if belief.group is None:
        return 0.0
    ids = pairs.ids()
    held_out = np.isin(pairs.split[ids], ("dev", "test"))
    images, first = np.unique(pairs.image_of[ids][held_out], return_index=True)
    of_train = belief.group[pairs.split[ids] == "train"]
    return float(np.isin(belief.group[held_out][first], of_train).mean()) if len(images) else 0.0


def _drawn_alike(pairs: Pairs) -> bool:
    """Return whether chance alone decided which pairs are training pairs, so that the others are no noisier."""
    return "drawn by image" in pairs.description and pairs.noise is None and not len(pairs.ids(ADDED))


def _no_common_space(prepared: Prepared, belief: Belief) -> str | None:
    """Return a warning if vectors that are said to share a space do not seem to, else None."""
    if not prepared.aligned or "cosine" not in belief.detectors:
        return None
    cosine, linear = (float(belief.detectors[name].mean()) for name in ("cosine", "linear"))
    if cosine >= ONE_SPACE or linear < MAPPED:
        return None
    return (
        f"The vectors do not seem to share a space: by their cosine a pair stands above a random one in {cosine:.0%} "
        f"of cases, by a linear map in {linear:.0%}. Recall, search and suggestions start from the cosine: give "
        "--aligned false."
    )


def _near_chance(pairs: Pairs, metrics: Mapping[str, Any]) -> str | None:
    """Return a warning if the recall on dev is hardly better than chance, else None.

    Chance gives more than a quarter for R@10 where there are few images, so that R@5 decides there.
    """
    ensemble = metrics.get("dev", {}).get("ensemble")
    images = len(pairs.images("dev"))
    if ensemble is None or images < 20:
        return None
    k = 10 if images >= 10 / MAX_BY_CHANCE else 5
    recall, chance = float(np.mean([ensemble[f"i2t_r{k}"], ensemble[f"t2i_r{k}"]])), 100 * k / images
    if recall >= 100 * (1 - (1 - chance / 100) ** CHANCE):
        return None
    found = f"Recall on dev is near chance: R@{k} is {recall:.0f}%, and chance gives {chance:.0f}%. "
    ids = pairs.ids("dev")
    different = len({pairs.captions[pair] for pair in ids})
    if different <= len(ids) / 2:
        return (
            f"{found}Its {len(ids):,} captions are {different:,} different texts, and the same text with another image "
            "counts as wrong: recall says little here."
        )
    return found + "The networks have learned little from these pairs: do not trust search and suggestions."
