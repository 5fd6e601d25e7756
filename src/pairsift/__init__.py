"""Train image-text retrieval that survives mismatched captions, and find those captions."""

from typing import TYPE_CHECKING

from pairsift.cores import let_threads_sleep
from pairsift.registry import exported

let_threads_sleep()  # before anything imports torch, numpy or scikit-learn

if TYPE_CHECKING:
    from pairsift.api.fit import fit as fit
    from pairsift.api.options import DataOptions as DataOptions
    from pairsift.api.options import EncodeOptions as EncodeOptions
    from pairsift.api.register import register as register
    from pairsift.api.run import Run as Run
    from pairsift.api.run import open_run as open_run
    from pairsift.errors import InputError as InputError
    from pairsift.pairs.readers import load as load
    from pairsift.train.options import TrainOptions as TrainOptions

_MODULES = {
    "DataOptions": "api.options",
    "EncodeOptions": "api.options",
    "InputError": "errors",
    "Run": "api.run",
    "TrainOptions": "train.options",
    "fit": "api.fit",
    "load": "pairs.readers",
    "open_run": "api.run",
    "register": "api.register",
}
__all__ = list(_MODULES)
__getattr__ = exported(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(_MODULES)
