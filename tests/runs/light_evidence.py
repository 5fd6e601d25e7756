"""Held-out evidence at less cost, for tests of runs."""

from contextlib import contextmanager

import pytest

from pairsift.detect import calibration, judgement


@contextmanager
def light_evidence():
    """Divide pairs into folds once, in two folds within a fold, and look for intervals less closely.

    These tests are about runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AVERAGED_PAIRS": 1, "INNER_FOLDS": 2, "RESAMPLES": 12}.items():
            patch.setattr(judgement, name, value)
        patch.setattr(calibration, "MIN_RESAMPLES", 4)
        patch.setattr(calibration, "HALVINGS", 4)
        yield
