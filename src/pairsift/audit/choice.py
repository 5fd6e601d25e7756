"""The probability that one of several candidates is the missing partner of an image or a caption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from pairsift.arrays import Reals

SLOPE = np.log(1.5)  # prior mean of log(a)
SLOPE_SPREAD = 0.5  # prior standard deviation of log(a)
INTERCEPT_SPREAD = 3.0  # prior standard deviation of b, at the mean information of first candidates
STARTS = (-4.0, -1.0, 2.0)  # of b
BOUNDS = ((-3.0, 3.0), (-15.0, 15.0))
MAX_LISTS = 5000  # from twice this number of lists on, the model is fitted to a part of them
MIN_FREE = 0.05  # smallest probability that counts for the pair that a candidate is given in to be mismatched


@dataclass(frozen=True)
class Choice:
    """A conditional logit model of the right candidate in a list, with "none of these" as an alternative.

        P(j | list) = x_j / (1 + sum_k x_k),    x_k = exp(a e_k + b) f_k / f

    e_k is the mutual information of a candidate. f_k is the probability that the pair that it is given in is
    mismatched. The caption that an image lacks is mismatched where it is given; of wrong candidates, the share f is.
    Where several candidates are right, they share the probability.

    Attributes:
        slope: a, above 0.
        intercept: b.
        free: f, [0, 1].
    """

    slope: float
    intercept: float
    free: float

    @staticmethod
    def fit(information: Reals, free: Reals) -> Choice:
        """Fit the model to lists whose right candidates are not known.

        If the candidates with the greatest information are in mismatched pairs more often than those at the end of the
        lists, some of them must be right. a and b maximise the likelihood of this, the sum over lists of

            log(1 + sum_k x_k) - log(1 + sum_k exp(a e_k + b)),

        with weak priors. Where the right captions are not in the collection, b becomes small.

        Args:
            information: Mutual information of the candidates, the best first, -inf where there is none, (n, k). From
                twice 5,000 lists on, the model is fitted to a part of them, evenly spaced.
            free: Probability that the pair that each candidate is given in is mismatched, [0, 1], (n, k).
        """
        step = max(1, len(information) // MAX_LISTS)
        information, free = information[::step], free[::step]
        present = np.isfinite(information)
        if not present.any():
            return Choice(float(np.exp(SLOPE)), 0.0, 1.0)
        last = present.copy()
        last[:, : information.shape[1] // 2] = False
        base = float(np.maximum(free[last if last.any() else present], MIN_FREE).mean())
        centre = float(information.max(1)[present.any(1)].mean())
        values, ratio = np.where(present, information - centre, 0.0), _log_ratio(free, base)

        def loss(theta: Reals) -> float:
            scores = np.where(present, np.exp(theta[0]) * values + theta[1], -np.inf)
            prior = ((theta[0] - SLOPE) / SLOPE_SPREAD) ** 2 + (theta[1] / INTERCEPT_SPREAD) ** 2
            return float(prior / 2 + (_log_total(scores) - _log_total(scores + ratio)).sum())

        fits = [minimize(loss, np.array([SLOPE, start]), method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
        best = min(fits, key=lambda fit: float(fit.fun)).x
        slope = float(np.exp(best[0]))
        return Choice(slope, float(best[1]) - slope * centre, base)

    def probability(self, information: Reals, free: Reals | None = None) -> Reals:
        """Return the probability that each candidate is right, [0, 1], 0 where there is none, (n, k).

        Args:
            information: Mutual information of the candidates, -inf where there is none, (n, k).
            free: Probability that the pair that each is given in is mismatched, (n, k); None where this is not known.
        """
        present = np.isfinite(information)
        scores = np.where(present, self.slope * np.where(present, information, 0.0) + self.intercept, -np.inf)
        if free is not None:
            scores = scores + _log_ratio(free, self.free)
        return np.asarray(np.exp(scores - _log_total(scores)[:, None]))


def _log_ratio(free: Reals, base: float) -> Reals:
    return np.asarray(np.log(np.maximum(free, MIN_FREE) / base))


def _log_total(scores: Reals) -> Reals:
    """Return log(1 + sum exp(scores)) of each row, (n,)."""
    return np.asarray(np.logaddexp(0.0, logsumexp(scores, axis=1)))
