"""Options of `pairsift fit` as a benchmark writes them, `name=value`: on the command line, as a tree, and in old rows.

Rows that were measured before a method's options had groups keep the names of that time in benchmarks/results/*.json,
such as `pc2.search=batch` for `pc2.captions.search=batch`. Whoever looks a row up by its options compares `present`
ones, so that no such row is measured again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PHASES = {
    "warmup_epochs": "epochs.warmup",
    "clean_epochs": "epochs.clean",
    "refine_epochs": "epochs.refine",
    "all_epochs": "epochs.all",
    "epochs": "epochs.train",
}
GROUPED = {
    "ncr": {"threshold": "division.threshold"},
    "pc2": {
        "threshold": "division.threshold",
        "classes": "classifier.classes",
        "rectify": "stability.rectify",
        "search": "captions.search",
        "alike": "captions.compare",
        "mismatch_threshold": "captions.mismatch_threshold",
        "noisy_weight": "weights.noisy",
        "pseudo_weight": "weights.pseudo",
        "entropy_weight": "weights.entropy",
    },
    "pcsr": {
        "threshold": "division.threshold",
        "classes": "classifier.classes",
        "search": "captions.search",
        "noisy": "noisy.train",
        "noisy_loss": "noisy.loss",
    },
    "gsc": {
        "beta1": "indicators.beta1",
        "beta2": "indicators.beta2",
        "indicators": "indicators.use",
        "block": "indicators.block",
        "gamma": "intra_modal.gamma",
    },
    "npc": {"threshold": "bank.threshold", "bank_weight": "bank.weight", "weigh": "impact.weigh"},
}


def present(option: str) -> str:
    """Return an option by its name of today, with underscores."""
    name, _, value = option.partition("=")
    part, _, own = name.replace("-", "_").partition(".")
    own = {**PHASES, **GROUPED.get(part, {})}.get(own, own)
    return f"{part}.{own}={value}" if own else f"{part}={value}"


def flag(option: str) -> str:
    """Return an option as it is typed."""
    name, _, value = option.partition("=")
    return f"--{name.replace('_', '-')}={value}"


def tree(options: Iterable[str]) -> dict[str, Any]:
    """Return options as `from_tree` takes them."""
    found: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        place = found
        *outer, last = name.replace("-", "_").split(".")
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return found
