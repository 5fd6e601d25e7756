"""A two-component Gaussian mixture over one number per pair."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pairsift.errors import InputError


@dataclass(frozen=True)
class Mixture:
    """A mixture of two Gaussians, ordered by mean.

    Attributes:
        means: Ascending, (2,), on the scale of the fitted values.
        deviations: Standard deviations, (2,).
        weights: Shares of the two components, (2,); they sum to 1.
        has_two_components: Whether a second component was found; if not, every pair counts as part of the low
            component.
    """

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]
    weights: NDArray[np.float64]
    has_two_components: bool = True

    def log_odds(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return log(posterior of the low component / posterior of the high component), (n,).

        It falls strictly with the value, and has a meaning only where a second component was `has_two_components`.

        A wide component can have the larger posterior again in the far tail of a narrow component. Beyond the means,
        the log-odds therefore continue as straight lines, with the slope at the mean.
        """
        x = np.asarray(values, np.float64)
        inside = np.clip(x, self.means[0], self.means[1])
        low, high = ((inside - mean) / deviation for mean, deviation in zip(self.means, self.deviations, strict=True))
        slope = high / self.deviations[1] - low / self.deviations[0]
        shares = np.log(self.weights / self.deviations)
        return np.asarray(shares[0] - shares[1] + (high**2 - low**2) / 2 + slope * (x - inside))

    def low(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the posterior of the component with the smaller mean, in [0, 1], (n,), never rising with the value."""
        if not self.has_two_components:
            return np.ones(len(values))
        return np.exp(-np.logaddexp(0, -self.log_odds(values)))


def fit_mixture(values: NDArray[np.floating], seed: int) -> Mixture:
    """Fit two Gaussians by EM to values scaled to [0, 1].

    The settings are those of NCR, except for a seed, 100 instead of 10 steps, and a tolerance of 1e-3. The fit stops
    early on purpose: at 80% noise, the converged fit assigns only a few pairs, or nearly all, to the low component.

    Args:
        values: One finite number per pair, (n,).
        seed: Seed of the initial k-means.

    Returns:
        The mixture on the scale of `values`. Its `has_two_components` is False for values without spread, for fewer
        than 10 values, and where the fitted components coincide.

    Raises:
        InputError: A value is not finite.
    """
    x = np.asarray(values, np.float64)
    if not np.isfinite(x).all():
        raise InputError("a mixture needs finite values: look for NaN in the features and for a training that diverged")
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    span = high - low
    if len(x) < 10 or span <= 1e-12 * max(1.0, abs(low)):
        return Mixture(np.full(2, low), np.ones(2), np.array([1.0, 0.0]), has_two_components=False)
    model = GaussianMixture(2, max_iter=100, tol=1e-3, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((x[:, None] - low) / span)
    order = np.argsort(model.means_[:, 0])
    means, shares = model.means_[order, 0], model.weights_[order]
    deviations = np.sqrt(model.covariances_[order, 0, 0])
    distinct = bool(means[1] - means[0] > 1e-3 and shares.min() > 1e-4)
    return Mixture(means * span + low, deviations * span, shares, distinct)
