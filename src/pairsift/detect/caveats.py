"""Warnings about the limits of a judgement."""

from __future__ import annotations

from pairsift.detect.judgement import Judgement

WEAK = 0.85  # expected AUROC below which evidence is called weak
WIDE = 0.2  # width of the rate's interval above which evidence is called weak

Caveat = dict[str, str]  # a `code`, which is a key of `TEXTS`, and the `text` with the judgement's numbers
TEXTS = {
    "few-pairs": "{pairs} pairs are too few for verdicts: the pairs are only ranked, the most doubtful first, and none "
    "is flagged. Verdicts need at least {least} pairs.",
    "no-evidence": "The evidence is too weak for verdicts: a mismatched pair is expected to rank below a matching one "
    "in only {auroc:.0%} of cases. The pairs are only ranked, the most doubtful first, and none is flagged.",
    "like-random": "Up to {high:.0%} of the pairs look like random pairs: either almost no caption belongs to its "
    "image, or the encoders do not understand these images or captions. No pair is flagged. Look at the pairs at both "
    "ends of the ranking, and try another text encoder.",
    "weak-evidence": "The evidence is weak: between {low:.0%} and {high:.0%} of the pairs may be mismatched, and "
    "{mismatched} is expected to rank below a matching one in {auroc:.0%} of cases. Read the ranking, and do not "
    "remove pairs by the flag alone.",
    "near-captions": "Captions that read much like the right ones cannot be told here: too few pairs look right, or "
    "these hardly fit better than such captions do. Probabilities and rate are about captions of any other images.",
    "placeholders": "{pairs:,} pairs have an image or a caption that is common to many and fits hardly any of them, "
    "such as a placeholder: they count as mismatched.",
}


def judgement_caveats(judgement: Judgement) -> list[Caveat]:
    """Return the reasons to doubt the verdicts."""
    caveats = _verdict_caveats(judgement)
    if judgement.verdicts and judgement.counts_near is False:
        caveats.append(_caveat("near-captions"))
    if judgement.verdicts and judgement.in_placeholder.any():
        caveats.append(_caveat("placeholders", pairs=judgement.in_placeholder.sum()))
    return caveats


def _caveat(code: str, **facts: object) -> Caveat:
    return {"code": code, "text": TEXTS[code].format(**facts)}


def _verdict_caveats(judgement: Judgement) -> list[Caveat]:
    """Return the reason why there are no verdicts, or a caveat about weak evidence."""
    n_judged = len(judgement.probability)
    if n_judged < judgement.limits.min_pairs:
        return [_caveat("few-pairs", pairs=n_judged, least=judgement.limits.min_pairs)]
    if judgement.auroc < judgement.limits.min_auroc:
        return [_caveat("no-evidence", auroc=judgement.auroc)]
    if not judgement.verdicts:
        return [_caveat("like-random", high=judgement.high)]
    auroc = min(judgement.auroc, judgement.near_auroc or 1.0) if judgement.counts_near else judgement.auroc
    if auroc >= WEAK and judgement.high - judgement.low <= WIDE:
        return []
    mismatched = (
        "a pair whose caption reads much like the right one" if auroc < judgement.auroc else "a mismatched pair"
    )
    return [_caveat("weak-evidence", low=judgement.low, high=judgement.high, mismatched=mismatched, auroc=auroc)]
