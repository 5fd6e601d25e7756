"""Train image-text retrieval that survives mismatched captions, and find those captions."""

from typing import TYPE_CHECKING

from pairsift.cores import let_threads_sleep, say_less
from pairsift.registry import exported

let_threads_sleep()  # before anything imports torch, numpy or scikit-learn
say_less()

if TYPE_CHECKING:
    from pairsift.encode.options import EncodeOptions as EncodeOptions
    from pairsift.errors import InputError as InputError
    from pairsift.mismatches import MismatchDetector as MismatchDetector
    from pairsift.mismatches import Mismatches as Mismatches
    from pairsift.mismatches import find_mismatches as find_mismatches
    from pairsift.pairs.options import DataOptions as DataOptions
    from pairsift.pairs.readers import load as load
    from pairsift.runs.compare import compare as compare
    from pairsift.runs.fit import check as check
    from pairsift.runs.fit import fit as fit
    from pairsift.runs.register import register as register
    from pairsift.runs.run import Run as Run
    from pairsift.runs.run import open_run as open_run
    from pairsift.train.options import TrainOptions as TrainOptions

_MODULES = {
    "DataOptions": "pairs.options",
    "EncodeOptions": "encode.options",
    "InputError": "errors",
    "MismatchDetector": "mismatches",
    "Mismatches": "mismatches",
    "Run": "runs.run",
    "TrainOptions": "train.options",
    "check": "runs.fit",
    "compare": "runs.compare",
    "find_mismatches": "mismatches",
    "fit": "runs.fit",
    "load": "pairs.readers",
    "open_run": "runs.run",
    "register": "runs.register",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(_MODULES)
