"""Results of pure functions, kept for a whole session of tests: whole fits on the same scenes ask for the same ones."""

import functools
import hashlib
import pickle
import sys
from contextlib import contextmanager

import pytest

from pairsift.files import replacing


def constants():
    """The constants of the detector and of n-grams, which tests make lighter."""
    modules = sorted(name for name in sys.modules if name.startswith(("pairsift.detect", "pairsift.encode.ngrams")))
    return repr([(m, n, v) for m in modules for n, v in vars(sys.modules[m]).items() if n.isupper()])


def remembered(function, folder):
    """Return a function that looks for its result in a folder, by the content of its arguments.

    A call that is given a function is made each time.
    """

    @functools.wraps(function)
    def result(*args, **kwargs):
        values = [*args, *kwargs.values()]
        if any(callable(value) for value in values):
            return function(*args, **kwargs)
        asked = pickle.dumps((function.__qualname__, constants(), args, sorted(kwargs.items())))
        path = folder / f"{hashlib.sha256(asked).hexdigest()}.pickle"
        if not path.exists():
            with replacing(path) as part:
                part.write_bytes(pickle.dumps(function(*args, **kwargs)))
        return pickle.loads(path.read_bytes())  # a copy, which the caller may change

    return result


@contextmanager
def remembering(folder, *functions):
    """Remember the results of some functions, given as a module or class and a name, within the context."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for place, name in functions:
            kept = remembered(getattr(place, name), folder)
            patch.setattr(place, name, staticmethod(kept) if isinstance(place, type) else kept)
        yield
