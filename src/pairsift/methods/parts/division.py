"""The division of pairs into clean and noisy ones by mixtures of two components over one number per pair."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import betaln
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from pairsift.arrays import Array, Bools, Floats, Ints, Reals
from pairsift.errors import InputError
from pairsift.methods.base import Notes, Part, trust_facts
from pairsift.steps import Observation, Setting

Kind = Literal["gaussian", "beta"]

EDGE = 1e-4  # scaled values closer than this to 0 or 1 are moved there, where the densities of betas are finite
SHARPEST = 500.0  # largest a + b of a component; at a mean of one half its variance is then NCR's least, 5e-4
BETA_STEPS = 10  # of EM, as in the code of BiCro
SUMMARISED = 100_000  # values; more are fitted by means of groups of neighbours


class CleanProbability(Part):
    """The clean probability w of every pair, by a mixture over each network's losses (NCR).

    State: `clean_probability`, (networks, n_pairs), w of network k for every pair; 1 until the first pass; `loss`,
    (networks, n_pairs), the loss that it was fitted to, 0 until then.
    """

    mixture: Kind = Field(
        default="gaussian", description="Components of the mixture: two Gaussians (NCR), or two betas (BiCro, L2RM)."
    )

    def initial_state(self, setting: Setting) -> dict[str, Array]:
        """Return arrays of pairs that all are clean."""
        return {"clean_probability": setting.per_pair(1), "loss": setting.per_pair(0)}

    def observe(self, seen: Observation) -> dict[str, Tensor]:
        """Return the loss that divides pairs, (B,)."""
        return {"loss": seen.loss(self.setting.ranking)}

    def update(self, notes: Notes) -> None:
        """Fit w, the posterior of the mixture component with the smaller loss."""
        for k, noted in enumerate(notes):
            loss = np.asarray(noted["loss"], np.float32)
            mixture = fit_mixture(loss, self.setting.seed, self.mixture)
            self.state["clean_probability"][k, self.setting.ids] = mixture.low(loss)
            self.state["loss"][k, self.setting.ids] = loss

    def clean(self, clean_probability: Array) -> Bools:
        """Return which of the training pairs are more likely clean than noisy, (n,)."""
        return np.asarray(clean_probability > 0.5, np.bool_)

    def facts(self) -> dict[str, float]:
        """Return the estimated share of mismatched pairs; with the truth also the share of pairs on the right side."""
        trust = self.state["clean_probability"][:, self.setting.ids]
        return trust_facts(self.setting, trust, np.stack([self.clean(row) for row in trust]))


class Division(CleanProbability):
    """The division of the training pairs into clean and noisy ones; each network trains by its peer's (co-teaching).

    State: `clean_probability`, as for `CleanProbability`.
    """

    threshold: float = Field(default=0.5, ge=0, le=1, description="Clean probability above which a pair is clean.")

    def clean(self, clean_probability: Array) -> Bools:
        """Return which of the training pairs are clean, (n,).

        Where held-out evidence is known, no more pairs are noisy than it leaves room for.

        Args:
            clean_probability: Of the training pairs, (n,), in [0, 1].
        """
        most = 1.0 if self.setting.prior is None else self.setting.prior.most
        return divide(np.asarray(clean_probability, np.float32), self.threshold, most=most)

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs that the network's peer takes for `clean` or for `noisy`, or `all`.

        Raises:
            KeyError: There is no subset of this name.
        """
        ids = self.setting.ids
        clean = self.clean(self.of_peer("clean_probability", network)[ids])
        return {"clean": ids[clean], "noisy": ids[~clean], "all": ids}[name]

    def noisy_by_itself(self, network: int) -> Ints:
        """Return ids of the pairs that the network itself takes for noisy."""
        ids = self.setting.ids
        return ids[~self.clean(self.state["clean_probability"][network, ids])]


class BetaDivision(Division):
    """The division by a mixture of two betas (BiCro and L2RM)."""

    mixture: Kind = Field(default="beta", description="Components of the mixture: two betas, or two Gaussians (NCR).")


class CoDivision(Division):
    """The division of the training pairs into three sets by the votes of all networks (CREAM).

    A pair is `clean` where every network says so, `noisy` where none does, and `hard` where they disagree; a network
    alone has no hard pairs. Where no pair is clean to all, the mean of the networks decides which pairs are clean.
    """

    def sets(self) -> dict[str, Bools]:
        """Return which of the training pairs are in each set, by its name, (n,)."""
        probability = self.state["clean_probability"][:, self.setting.ids]
        votes = np.stack([self.clean(row) for row in probability]).sum(0)
        clean: Bools = votes == len(probability)
        clean = clean if clean.any() else self.clean(probability.mean(0))
        noisy: Bools = (votes == 0) & ~clean
        return {"clean": clean, "hard": ~clean & ~noisy, "noisy": noisy}

    def subset(self, name: str, network: int) -> Ints:
        """Return ids of the pairs in the set `clean`, `hard` or `noisy`, the same for every network, or `all`."""
        return self.setting.ids if name == "all" else self.setting.ids[self.sets()[name]]

    def facts(self) -> dict[str, float]:
        """Return the facts of `Division`, and the share of hard pairs."""
        return {**super().facts(), "hard": float(self.sets()["hard"].mean())}


def rectified(w: Tensor, prediction: Tensor) -> Tensor:
    """Return the label w + (1 - w) P of pairs with clean probability w and a network's prediction P, (B,) (NCR)."""
    return w + (1 - w) * prediction


def divide(clean_probability: Floats, threshold: float = 0.5, least: float = 0.01, most: float = 1.0) -> Bools:
    """Return which pairs are taken as clean: clean probability above the threshold (co-dividing of NCR).

    Neither side of two or more pairs is left empty: where fewer than `least` of them (or half, if that is less) fall on
    one side, the most extreme ones are put there (ties by position). Where more than `most` would be noisy, the ones
    with the highest clean probability are taken as clean; this comes last.

    Args:
        clean_probability: (n,), in [0, 1].
        threshold: In [0, 1].
        least: Smallest share of each side, [0, 0.5].
        most: Largest share of noisy pairs, [0, 1].

    Returns:
        True at clean pairs, (n,).
    """
    n = len(clean_probability)
    clean = clean_probability > threshold
    side_size = min(int(np.ceil(least * n)), n // 2)
    order = np.argsort(clean_probability, kind="stable")
    if clean.sum() < side_size:
        clean[order[n - side_size :]] = True
    if n - clean.sum() < side_size:
        clean[order[:side_size]] = False
    surplus = int((~clean).sum() - np.floor(most * n))
    if surplus > 0:
        noisy = order[~clean[order]]
        clean[noisy[len(noisy) - surplus :]] = True
    return clean


@dataclass(frozen=True)
class Mixture(ABC):
    """A mixture of two components, ordered by mean.

    Attributes:
        means: Ascending, (2,), on the scale of the fitted values.
        weights: Shares of the two components, (2,); they sum to 1.
        has_two_components: Whether a second component was found; if not, every pair counts as part of the low
            component.
    """

    means: Reals
    weights: Reals
    has_two_components: bool

    @abstractmethod
    def _inside(self, x: Reals) -> tuple[Reals, Reals]:
        """Return the log-odds of values from mean to mean, and their derivative, (n,) each."""

    def log_odds(self, values: NDArray[np.floating]) -> Reals:
        """Return log(posterior of the low component / posterior of the high component), (n,).

        It falls strictly with the value, and has a meaning only where a second component was `has_two_components`.

        A wide component can have the larger posterior again in the far tail of a narrow component. Beyond the means,
        the log-odds therefore continue as straight lines, with the slope at the mean.
        """
        x = np.asarray(values, np.float64)
        inside = np.clip(x, self.means[0], self.means[1])
        odds, slope = self._inside(inside)
        return np.asarray(odds + slope * (x - inside))

    def low(self, values: NDArray[np.floating]) -> Reals:
        """Return the posterior of the component with the smaller mean, in [0, 1], (n,), never rising with the value."""
        if not self.has_two_components:
            return np.ones(len(values))
        return np.exp(-np.logaddexp(0, -self.log_odds(values)))


@dataclass(frozen=True)
class Gaussians(Mixture):
    """A mixture of two Gaussians.

    Attributes:
        deviations: Standard deviations, (2,).
    """

    deviations: Reals

    def _inside(self, x: Reals) -> tuple[Reals, Reals]:
        low, high = ((x - mean) / deviation for mean, deviation in zip(self.means, self.deviations, strict=True))
        shares = np.log(self.weights / self.deviations)
        odds = shares[0] - shares[1] + (high**2 - low**2) / 2
        return np.asarray(odds), np.asarray(high / self.deviations[1] - low / self.deviations[0])


@dataclass(frozen=True)
class Betas(Mixture):
    """A mixture of two beta distributions over values scaled to [0, 1].

    Where the low mean is the smaller one, the log-odds fall all the way from mean to mean. With the densities
    x^(a-1) (1-x)^(b-1) / B(a, b) they turn at most once, at (a_0 - a_1) / (a_0 - a_1 + b_0 - b_1), and the mean of the
    narrower component lies between that point and the mean of the wider one.

    Attributes:
        a: First parameters, above 0, (2,).
        b: Second parameters, above 0, (2,).
        start: The value that is scaled to 0.
        span: The distance from it to the value that is scaled to 1.
    """

    a: Reals
    b: Reals
    start: float
    span: float

    def _inside(self, x: Reals) -> tuple[Reals, Reals]:
        scaled = np.clip((x - self.start) / self.span, EDGE, 1 - EDGE)
        a, b, shares = self.a[0] - self.a[1], self.b[0] - self.b[1], np.log(self.weights) - betaln(self.a, self.b)
        odds = shares[0] - shares[1] + a * np.log(scaled) + b * np.log1p(-scaled)
        return np.asarray(odds), np.asarray((a / scaled - b / (1 - scaled)) / self.span)


def fit_mixture(values: NDArray[np.floating], seed: int, kind: Kind = "gaussian") -> Mixture:
    """Fit two components by EM to values scaled to [0, 1].

    The Gaussians have NCR's settings, except for a seed, 100 instead of 10 steps, and a tolerance of 1e-3.
    The fit stops early on purpose: at 80% noise, the converged fit assigns only a few pairs, or nearly all, to the low
    component. The betas are described at `fit_betas`. Many values are fitted by their `summary`.

    Args:
        values: One finite number per pair, (n,).
        seed: Seed of the initial k-means of the Gaussians.
        kind: What the components are.

    Returns:
        The mixture on the scale of `values`. Its `has_two_components` is False for values without spread, for fewer
        than 10 values, and where the fitted components coincide.

    Raises:
        InputError: A value is not finite.
    """
    x = np.asarray(values, np.float64)
    _require_finite(x)
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    span = high - low
    if len(x) < 10 or span <= 1e-12 * max(1.0, abs(low)):
        return Gaussians(np.full(2, low), np.array([1.0, 0.0]), False, np.ones(2))
    scaled = summary((x - low) / span)
    if kind == "beta":
        a, b, shares = fit_betas(scaled)
        means = a / (a + b)
        return Betas(means * span + low, shares, _distinct(means, shares), a, b, low, span)
    means, deviations, shares = _fit_gaussians(scaled, seed)
    return Gaussians(means * span + low, shares, _distinct(means, shares), deviations * span)


def summary(values: Reals) -> Reals:
    """Return values, or of more than 100,000 the means of as many groups of neighbours in ascending order.

    The groups have equal sizes, or such that differ by one, so that a fit to the means is one to all values but for the
    spread within the groups.

    Args:
        values: Numbers, (n,).

    Returns:
        Numbers, (min(n, 100,000),).
    """
    if len(values) <= SUMMARISED:
        return values
    edges = np.linspace(0, len(values), SUMMARISED + 1).round().astype(np.int64)
    means: Reals = np.add.reduceat(np.sort(values), edges[:-1]) / np.diff(edges)
    return means


def _require_finite(values: Reals) -> None:
    if not np.isfinite(values).all():
        raise InputError("a mixture needs finite values: look for NaN in the features and for a training that diverged")


def _distinct(means: Reals, shares: Reals) -> bool:
    """Return whether two components of values in [0, 1] are really two."""
    return bool(means[1] - means[0] > 1e-3 and shares.min() > 1e-4)


def _fit_gaussians(values: Reals, seed: int) -> tuple[Reals, Reals, Reals]:
    """Return means, standard deviations and shares of two Gaussians, ordered by mean, (2,) each."""
    model = GaussianMixture(2, max_iter=100, tol=1e-3, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(values[:, None])
    order = np.argsort(model.means_[:, 0])
    return model.means_[order, 0], np.sqrt(model.covariances_[order, 0, 0]), model.weights_[order]


def fit_betas(values: Reals, steps: int = BETA_STEPS) -> tuple[Reals, Reals, Reals]:
    """Fit two beta distributions by EM whose second half matches moments: the mean and the variance of each component.

    A mean m and a variance v belong to the parameters a = m t and b = (1 - m) t with t = m (1 - m) / v - 1. Values are
    kept `EDGE` away from 0 and 1, where a density may be infinite, and t lies between 0.01, as for two heaps at 0 and
    at 1, and `SHARPEST`, as for equal values.

    The steps begin with the two groups of 2-means. From Beta(1, 2) and Beta(2, 1), as in the code of BiCro, ten steps
    are far from the end: with 30% of the values from Beta(2, 20) and the others from Beta(4, 4), 80% get into the
    right component, and from the groups 92%. Few steps are meant: the losses of a network are not betas, and with more
    of them one component widens until it holds nearly all pairs.

    Args:
        values: In [0, 1], not all equal, (n,).
        steps: Number of EM steps.

    Returns:
        Both parameters and the shares, ordered by mean, (2,) each.
    """
    x = np.clip(values, EDGE, 1 - EDGE)
    high = two_groups(x)
    return _refitted(x, *_match_moments(x, np.stack([~high, high]).astype(np.float64)), steps)


def fit_known_betas(values: NDArray[np.floating], low: NDArray[np.floating], high: NDArray[np.floating]) -> Betas:
    """Fit two beta distributions by EM that begins with values of known components (MSCN).

    The moments are matched as in `fit_betas`, first to each group of known values, then to all values.

    Args:
        values: In [0, 1], (n,).
        low: Known values of the low component, in [0, 1], at least one.
        high: Known values of the high component, in [0, 1], at least one.

    Returns:
        The mixture of `values`, on their scale.

    Raises:
        InputError: A value is not finite.
    """
    groups = [np.asarray(group, np.float64) for group in (values, low, high)]
    for group in groups:
        _require_finite(group)
    x, *known = (np.clip(summary(group), EDGE, 1 - EDGE) for group in groups)
    starts = [_match_moments(group, np.ones((1, len(group))))[:2] for group in known]
    a, b = (np.concatenate(parameters) for parameters in zip(*starts, strict=True))
    a, b, shares = _refitted(x, a, b, np.full(2, 0.5), BETA_STEPS)
    means = a / (a + b)
    return Betas(means, shares, _distinct(means, shares), a, b, 0.0, 1.0)


def _refitted(x: Reals, a: Reals, b: Reals, shares: Reals, steps: int) -> tuple[Reals, Reals, Reals]:
    """Return two betas and their shares after EM steps from these, ordered by mean, (2,) each."""
    logs = np.log(x), np.log1p(-x)
    for _ in range(steps):
        densities = (a - 1)[:, None] * logs[0] + (b - 1)[:, None] * logs[1] - betaln(a, b)[:, None]
        joint = np.log(shares)[:, None] + densities
        a, b, shares = _match_moments(x, np.exp(joint - np.logaddexp(*joint)))
    order = np.argsort(a / (a + b), kind="stable")
    return a[order], b[order], shares[order]


def _match_moments(x: Reals, posterior: Reals) -> tuple[Reals, Reals, Reals]:
    """Return the parameters and the shares of betas with the moments of values (n,) by their posteriors (2, n)."""
    mass = np.maximum(posterior.sum(1), 1e-12)
    mean = np.clip(posterior @ x / mass, EDGE, 1 - EDGE)
    variance = np.maximum((posterior * (x - mean[:, None]) ** 2).sum(1) / mass, 1e-12)
    size = np.clip(mean * (1 - mean) / variance - 1, 1e-2, SHARPEST)
    return mean * size, (1 - mean) * size, mass / mass.sum()


def two_groups(x: Reals) -> Bools:
    """Return which values are in the upper group of 2-means that begins with the smallest and the largest, (n,)."""
    high: Bools = x > (x.min() + x.max()) / 2
    for _ in range(100):
        before, high = high, x > (x[high].mean() + x[~high].mean()) / 2
        if (before == high).all():
            break
    return high
