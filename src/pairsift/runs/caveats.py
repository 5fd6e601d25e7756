"""What a run does not know, in sentences for its report and the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairsift.encode import unknown_language
from pairsift.pairs import Pairs
from pairsift.runs.prepare import Prepared
from pairsift.trust.heldout import FEWEST, TELLING, Belief

WEAK = 0.85  # expected AUROC below which evidence is called weak
WIDE = 0.2  # width of an interval from which on it is named
LEAKED = 0.05  # share of dev and test images with a near-duplicate in train from which on it is named
CHANCE = 3.0  # times the recall of chance below which recall is called near chance


def rate_of(belief: Belief) -> dict[str, float | None]:
    """Return the estimated noise rate and its interval; None where there are no verdicts."""
    ends = {"estimated": belief.rate, "low": belief.low, "high": belief.high}
    return {name: value if belief.verdicts else None for name, value in ends.items()}


def warnings_of(prepared: Prepared, belief: Belief, metrics: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each reason to doubt the verdicts or the recall.

    Args:
        prepared: The run's pairs and features.
        belief: What held-out evidence says of the judged pairs.
        metrics: The run's metrics; recall on dev counts where it is there.
    """
    pairs, found = prepared.pairs, []
    judged = len(belief.probability)
    if judged < FEWEST:
        found.append(
            f"{judged} pairs are too few for verdicts: they are ranked, the most doubtful first, and none is flagged. "
            f"From {FEWEST} pairs on each gets a verdict."
        )
    elif belief.auroc < TELLING:
        found.append(
            "The evidence is too weak for verdicts: a mismatched pair is expected to rank below a matching one in only "
            f"{belief.auroc:.0%} of cases. The pairs are ranked, the most doubtful first, and none is flagged."
        )
    elif not belief.verdicts:
        found.append(
            f"Up to {belief.high:.0%} of the pairs look like random ones: either hardly a caption belongs to its image "
            "or the encoders do not understand these images or captions. No pair is flagged; look at the pairs at both "
            "ends of the ranking, and try another text encoder."
        )
    elif belief.auroc < WEAK or belief.high - belief.low > WIDE:
        found.append(
            f"The evidence is weak: between {belief.low:.0%} and {belief.high:.0%} of the pairs may be mismatched, and "
            f"a mismatched pair is expected to rank below a matching one in {belief.auroc:.0%} of cases. Read the "
            "ranking, and do not drop pairs by the flag alone."
        )
    if (language := unknown_language(pairs.captions, prepared.texts)) is not None:
        found.append(language.sentence)
    if (chance := _near_chance(pairs, metrics)) is not None:
        found.append(chance)
    if belief.leaked > LEAKED:
        found.append(
            f"{belief.leaked:.0%} of the dev and test images have a near-duplicate in train: recall is better than on "
            "new images."
        )
    if belief.others is not None and "drawn by image" in pairs.taken and pairs.noise is None:
        found.append(
            f"{belief.rate:.0%} of the training pairs are estimated to be mismatched, and {belief.others:.0%} of the "
            "others, though the splits were drawn at random: trust neither estimate alone."
        )
    return found


def _near_chance(pairs: Pairs, metrics: Mapping[str, Any]) -> str | None:
    """Return a warning where the recall on dev is hardly better than chance."""
    ensemble = metrics.get("dev", {}).get("ensemble")
    images = len(pairs.images("dev"))
    if ensemble is None or images < 20:
        return None
    reached, chance = float(np.mean([ensemble["i2t_r10"], ensemble["t2i_r10"]])), min(100.0, 1000 / images)
    if reached >= min(CHANCE * chance, 90):
        return None
    return (
        f"Recall on dev is near chance: R@10 is {reached:.0f}% where chance gives {chance:.0f}%. The networks have "
        "learned little from these pairs: search and suggestions are not to be trusted."
    )
