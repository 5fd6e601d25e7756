"""Whole fits at less cost: short vectors of n-grams, and what is pure computed once in a session of tests."""

import functools
import hashlib
import os
import pickle
from contextlib import contextmanager

import pytest

from pairsift.detect import judged_pairs
from pairsift.encode import ngrams
from pairsift.files import replacing
from pairsift.runs import judge

# Functions whose results follow from their arguments and the length of n-grams' vectors, with where they are looked up.
PURE = ((judge, "judge_pairs"), (judged_pairs.Reduction, "fit"), (ngrams.NgramEncoder, "build"))


def remembered(function, folder):
    """Return a function that looks for its result in a folder, by the content of its arguments.

    A call that is given a function is made each time.
    """

    @functools.wraps(function)
    def result(*args, **kwargs):
        if any(callable(value) for value in (*args, *kwargs.values())):
            return function(*args, **kwargs)
        asked = pickle.dumps((function.__qualname__, ngrams.MAX_DIM, args, sorted(kwargs.items())))
        path = folder / f"{hashlib.sha256(asked).hexdigest()}.pickle"
        if not path.exists():
            with replacing(path) as part:
                part.write_bytes(pickle.dumps(function(*args, **kwargs)))
        return pickle.loads(path.read_bytes())  # a copy, which the caller may change

    return result


@contextmanager
def quick_fits(factory):
    """Make the fits within the context cheap. The workers of a session share what is remembered.

    Args:
        factory: The fixture `tmp_path_factory`.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "remembered"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "MAX_DIM", 48)
        for place, name in PURE:
            kept = remembered(getattr(place, name), folder)
            patch.setattr(place, name, staticmethod(kept) if isinstance(place, type) else kept)
        yield
