"""The probability that one of several candidates is the missing partner of an image or a caption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from pairsift.arrays import Reals

SLOPE = np.log(1.5)  # prior mean of log(a)
SLOPE_SPREAD = 0.5  # prior standard deviation of log(a)
INTERCEPT = -3.0  # prior mean of b, at the mean information of first candidates: none of them is right
INTERCEPT_SPREAD = 2.0  # prior standard deviation of b
STARTS = (-4.0, -1.0, 2.0)  # of b
BOUNDS = ((-3.0, 3.0), (-15.0, 15.0))
MAX_LISTS = 5000  # from twice this number of lists on, the model is fitted to a part of them
LEAST = 0.05  # smallest probability that counts for the pair that a candidate is given in to be mismatched


@dataclass(frozen=True)
class Choice:
    """A conditional logit model of the right candidate in a list, with "none of these" as an alternative.

        P(j | list) = x_j / (1 + sum_k x_k),    x_k = exp(a e_k + b) m_k / m

    e_k is the mutual information of a candidate. m_k is the probability that the pair that it is given in is
    mismatched. The caption that an image lacks is mismatched where it is given; of wrong candidates, the share m is,
    which the second half of the lists shows. Where several candidates are right, they share the probability.

    The images for a caption follow the same law: e is symmetric, and m_k is the number of the image's pairs that are
    expected to be mismatched, since the right image lacks its caption.

    Attributes:
        slope: a, above 0.
        intercept: b.
    """

    slope: float
    intercept: float

    @staticmethod
    def fit(information: Reals, mismatched: Reals) -> Choice:
        """Fit the model to lists whose right candidates are not known.

        If the candidates with the greatest information are in mismatched pairs more often than those at the end of the
        lists, some of them must be right. a and b maximise the likelihood of this, the sum over lists of

            log(1 + sum_k x_k) - log(1 + sum_k exp(a e_k + b)),

        with weak priors. Where the right captions are not in the collection, or the lists say nothing, b is small.

        Args:
            information: Mutual information of the candidates, the best first, -inf where there is none, (n, k). From
                twice 5,000 lists on, the model is fitted to a part of them, evenly spaced.
            mismatched: m_k of each candidate, (n, k).
        """
        step = max(1, len(information) // MAX_LISTS)
        information, mismatched = information[::step], mismatched[::step]
        present = np.isfinite(information)
        if not present.any():
            return Choice(float(np.exp(SLOPE)), 0.0)
        centre = float(information.max(1)[present.any(1)].mean())
        values, ratio = np.where(present, information - centre, 0.0), _log_ratio(information, mismatched)

        def loss(theta: Reals) -> float:
            scores = np.where(present, np.exp(theta[0]) * values + theta[1], -np.inf)
            prior = ((theta[0] - SLOPE) / SLOPE_SPREAD) ** 2 + ((theta[1] - INTERCEPT) / INTERCEPT_SPREAD) ** 2
            return float(prior / 2 + (_log_total(scores) - _log_total(scores + ratio)).sum())

        fits = [minimize(loss, np.array([SLOPE, start]), method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
        best = min(fits, key=lambda fit: float(fit.fun)).x
        slope = float(np.exp(best[0]))
        return Choice(slope, float(best[1]) - slope * centre)

    def probability(self, information: Reals, mismatched: Reals) -> Reals:
        """Return the probability that each candidate is right, [0, 1], 0 where there is none, (n, k).

        Args:
            information: Mutual information of the candidates, -inf where there is none, (n, k).
            mismatched: m_k of each candidate, (n, k).
        """
        present = np.isfinite(information)
        scores = np.where(present, self.slope * np.where(present, information, 0.0) + self.intercept, -np.inf)
        scores = scores + _log_ratio(information, mismatched)
        return np.asarray(np.exp(scores - _log_total(scores)[:, None]))


def _log_ratio(information: Reals, mismatched: Reals) -> Reals:
    """Return log(m_k / m), with m the mean over the second half of the lists, (n, k)."""
    present = np.isfinite(information)
    last = present.copy()
    last[:, : information.shape[1] // 2] = False
    chosen = last if last.any() else present
    raised = np.maximum(mismatched, LEAST)
    return np.asarray(np.log(raised / (raised[chosen].mean() if chosen.any() else 1.0)))


def _log_total(scores: Reals) -> Reals:
    """Return log(1 + sum exp(scores)) of each row, (n,)."""
    return np.asarray(np.logaddexp(0.0, logsumexp(scores, axis=1)))
