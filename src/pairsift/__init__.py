"""Train image-text retrieval that survives mismatched captions, and find those captions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairsift.cores import let_threads_sleep
from pairsift.errors import InputError

let_threads_sleep()  # before anything imports torch, numpy or scikit-learn

if TYPE_CHECKING:
    from pairsift.api.fit import fit
    from pairsift.api.run import Run as open_run
    from pairsift.pairs import load

__all__ = ["InputError", "fit", "load", "open_run"]


def __getattr__(name: str) -> object:
    """Load the rooms behind `fit`, `load` and `open_run` when they are first asked for."""
    if name == "load":
        from pairsift.pairs import load

        return load
    if name == "fit":
        from pairsift.api.fit import fit

        return fit
    if name == "open_run":
        from pairsift.api.run import Run

        return Run
    raise AttributeError(f"module 'pairsift' has no attribute {name!r}")
