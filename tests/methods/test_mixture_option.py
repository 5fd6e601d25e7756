"""The option of a division that says what the components of its mixture are."""

import numpy as np
import pytest

from pairsift.errors import InputError
from pairsift.loss.ranking import InfoNCE
from pairsift.methods.ncr import NCR
from pairsift.methods.npc import NPC
from pairsift.methods.parts.division import BetaDivision, Division, fit_mixture
from pairsift.steps import Setting

IDS = np.arange(5, 405)


def losses(k: int) -> np.ndarray:
    rng = np.random.default_rng(k)
    return np.concatenate([rng.gamma(2, 0.3, 250), rng.gamma(9, 0.6, 150)]).astype(np.float32)


@pytest.mark.parametrize("kind", ["gaussian", "beta"])
def test_clean_probabilities_are_posteriors_of_the_mixture_that_was_chosen(kind: str) -> None:
    method = NCR(division={"mixture": kind})
    method = method.begin(Setting(IDS, np.arange(405), 405, None, InfoNCE(), 3))
    method.update([{"division.loss": losses(k)} for k in range(2)], 0)
    for k in range(2):
        expected = fit_mixture(losses(k), 3, kind).low(losses(k))
        np.testing.assert_array_equal(method.division.state["clean_probability"][k, IDS], expected.astype(np.float32))
        other = fit_mixture(losses(k), 3, "beta" if kind == "gaussian" else "gaussian").low(losses(k))
        assert np.abs(expected - other).max() > 0.01


def test_only_the_division_by_betas_has_them_by_default() -> None:
    assert Division().mixture == NPC().bank.mixture == "gaussian"
    assert BetaDivision().mixture == BetaDivision(threshold=0.7).mixture == "beta"
    assert BetaDivision(mixture="gaussian").mixture == "gaussian"
    with pytest.raises(InputError, match=r"^mixture is 'cauchy'; choose from gaussian, beta$"):
        Division(mixture="cauchy")
