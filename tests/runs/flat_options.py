"""Runs by options as the command line has them: `{"method": "pc2", "pc2.epochs.warmup": 1, "noise": 0.4}`."""

from light_evidence import LIGHT

from pairsift.runs.config import from_tree
from pairsift.runs.fit import fit_config


def tree_of(options):
    """Options by dotted names as a tree."""
    tree = {}
    for name, value in options.items():
        place = tree
        *outer, last = name.split(".")
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = {**place.get(last, {}), **tree_of(value)} if isinstance(value, dict) else value
    return tree


def configured(options):
    """Options as objects, with the lighter detector unless they say another one."""
    return from_tree({"detect": LIGHT, **tree_of(options)})


def fit(source, options=None, progress=True):
    given = {"source": str(source), **(options or {})}
    resume, overwrite = given.pop("resume", False), given.pop("overwrite", False)
    return fit_config(configured(given), resume, overwrite, progress)
