"""A spot check: a few pairs, drawn by chance, that a person judges, and what they say about all pairs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import beta

from pairsift.arrays import Bools, Ints, Reals
from pairsift.errors import InputError
from pairsift.files import write_json
from pairsift.spreadsheet import keep_filled_in
from pairsift.table import PairRows, write_csv

SPOT_CHECK_FILE = "spot_check.json"
SHEET_FILE = "spot_check.csv"
EDGES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)  # of match probability, between strata
MIN_SPREAD = 0.15  # smallest standard deviation of an answer that counts for the number of pairs of a stratum
MIN_PAIRS, MAX_PAIRS = 20, 100  # of a spot check
MIN_ANSWERS = 20  # from which on there is a result
TAIL = 0.05  # probability on each side of an interval
SPREADS = (1.0, 0.5)  # prior standard deviations of the recalibration's intercept, around 0, and slope, around 1
LOWEST = 1e-4  # smallest probability whose logit is used
OTHER_FAULTS = ("too vague", "duplicate caption")  # reasons to drop or replace a caption that belongs to its image


@dataclass(frozen=True)
class SpotCheck:
    """Pairs that a person judges.

    Attributes:
        pairs: Ids of the pairs, in the order of the queue.
        seed: Seed of the draw.
    """

    pairs: list[int]
    seed: int

    @staticmethod
    def draw(table: pa.Table, n: int, seed: int = 0) -> SpotCheck:
        """Draw pairs: more of them where the run is less certain.

        The pairs are divided into strata by their match probability. A stratum of N pairs with the mean probability p
        gets a number of pairs in proportion to N max(sqrt(p (1 - p)), 0.15), at least two (Neyman's allocation).

        Args:
            table: The table of judged pairs.
            n: Number of pairs, 20 to 100.
            seed: Seed of the draw.

        Raises:
            InputError: The number is outside these bounds, or the run has fewer pairs.
        """
        if not MIN_PAIRS <= n <= MAX_PAIRS:
            raise InputError(f"a spot check has {MIN_PAIRS} to {MAX_PAIRS} pairs, not {n}")
        if len(table) < n:
            raise InputError(f"the run has {len(table)} judged pairs: too few for a spot check of {n}")
        rng = np.random.default_rng((seed, 13))
        ids, probability = table["pair"].to_numpy(), table["match_probability"].to_numpy()
        members = [np.flatnonzero(strata_of(probability) == number) for number in range(len(EDGES) + 1)]
        chosen = [
            rng.permutation(rows)[:count]
            for rows, count in zip(members, _allocation(members, probability, n), strict=True)
        ]
        return SpotCheck(ids[rng.permutation(np.concatenate(chosen))].tolist(), seed)

    def write(self, folder: Path) -> None:
        """Write the spot check into a run's folder."""
        write_json(folder / SPOT_CHECK_FILE, asdict(self))

    @staticmethod
    def read(folder: Path) -> SpotCheck | None:
        """Read the spot check of a run's folder; None if there is none.

        Raises:
            InputError: The file is damaged.
        """
        path = folder / SPOT_CHECK_FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return SpotCheck([int(pair) for pair in content["pairs"]], int(content["seed"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is damaged ({error}); draw a new spot check") from error


@dataclass(frozen=True)
class SpotResult:
    """What the answers to a spot check say.

    Attributes:
        asked: Number of pairs of the spot check.
        answered: Number of them that are decided.
        mismatched: Number of these that do not match.
        expected: Share of mismatched pairs of the run by the match probabilities, [0, 1].
        rate: The same share by the answers, [0, 1]; None with fewer than 20 answers.
        low: Lower end of its 90% interval.
        high: Upper end of its 90% interval.
        intercept: a of the recalibrated probability sigmoid(a + b logit(p)).
        slope: b of the recalibrated probability, above 0.
        flagged: Number of pairs with a probability below 0.5.
        flagged_after: The same after recalibration.
    """

    asked: int
    answered: int
    mismatched: int
    expected: float
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    intercept: float = 0.0
    slope: float = 1.0
    flagged: int = 0
    flagged_after: int = 0

    @property
    def agrees(self) -> bool:
        """Whether the rate by the match probabilities lies in the interval."""
        return self.low is not None and self.high is not None and self.low <= self.expected <= self.high

    def recalibrated(self, probability: Reals) -> Reals:
        """Return match probabilities after recalibration, [0, 1], (n,); their order does not change."""
        return np.asarray(expit(self.intercept + self.slope * _logit(probability)))


def evaluate(check: SpotCheck, table: pa.Table, decisions: pa.Table) -> SpotResult:
    """Estimate the rate and the calibration from the decisions on the pairs of a spot check.

    A pair that is kept matches; one that is dropped or gets another caption does not, unless the reason is that its
    caption is vague or a duplicate. Pairs without a decision are left out, as if by chance.

    The rate is the mean of the strata's shares of mismatched pairs among the answers, weighted by the strata's sizes;
    the match probabilities have no part in it. Its 90% interval joins Jeffreys intervals of the strata (the method of
    variance estimates recovery), with W_h the weight of stratum h, N_h its pairs, n_h its answers, r_h its share:

        low = rate - sqrt(sum_h W_h^2 (1 - n_h / N_h) (r_h - low_h)^2),    high alike.

    The recalibration maximises the likelihood of the answers times a normal prior that changes nothing (Platt scaling):
    with few answers, little changes.

    Args:
        check: The spot check.
        table: The table of judged pairs.
        decisions: The table of decisions.
    """
    rows, mismatched = _answers(check, table, decisions)
    probability = table["match_probability"].to_numpy()
    asked, flagged = len(check.pairs), int((probability < 0.5).sum())
    expected = float(1 - probability.mean())
    if len(rows) < MIN_ANSWERS:
        return SpotResult(asked, len(rows), int(mismatched.sum()), expected, flagged=flagged, flagged_after=flagged)
    stratum, n_strata = strata_of(probability), len(EDGES) + 1
    sizes = np.bincount(stratum, minlength=n_strata)
    answered = np.bincount(stratum[rows], minlength=n_strata)
    wrong: Reals = np.bincount(stratum[rows], mismatched, n_strata).astype(np.float64)
    stated = 1 - np.bincount(stratum, probability, n_strata) / np.maximum(sizes, 1)
    rate, low, high = _rate(sizes, answered, wrong, stated)
    intercept, slope = _recalibration(probability[rows], mismatched)
    after = int((expit(intercept + slope * _logit(probability)) < 0.5).sum())
    return SpotResult(
        asked, len(rows), int(mismatched.sum()), expected, rate, low, high, intercept, slope, flagged, after
    )


def _rate(sizes: Ints, answered: Ints, wrong: Reals, stated: Reals) -> tuple[float, float, float]:
    """Return the rate with its interval.

    Args:
        sizes: Number of pairs of each stratum, (h,).
        answered: Number of answers in each.
        wrong: Number of mismatched pairs among these.
        stated: Share that is mismatched by the match probabilities, used only in strata without answers.
    """
    share = np.where(answered > 0, wrong / np.maximum(answered, 1), stated)
    low_h = np.where(wrong > 0, beta.ppf(TAIL, wrong + 0.5, answered - wrong + 0.5), 0.0)
    high_h = np.where(wrong < answered, beta.ppf(1 - TAIL, wrong + 0.5, answered - wrong + 0.5), 1.0)
    weight = sizes / sizes.sum()
    open_part = weight**2 * (1 - answered / np.maximum(sizes, 1))
    rate = float(weight @ share)
    below = np.sqrt(open_part @ np.square(share - np.where(answered > 0, low_h, 0.0)))
    above = np.sqrt(open_part @ np.square(np.where(answered > 0, high_h, 1.0) - share))
    least = wrong.sum() / sizes.sum()  # these are known
    return rate, float(max(rate - below, least)), float(min(rate + above, 1.0))


def strata_of(probability: Reals) -> Ints:
    """Return the stratum of each match probability, (n,)."""
    return np.searchsorted(EDGES, probability, side="right").astype(np.int64)


def _allocation(members: list[Ints], probability: Reals, n: int) -> list[int]:
    """Return the number of pairs of each stratum; n in all."""
    sizes = np.array([len(rows) for rows in members])
    means = np.array([probability[rows].mean() if len(rows) else 0.0 for rows in members])
    share = sizes * np.maximum(np.sqrt(means * (1 - means)), MIN_SPREAD)
    counts = np.minimum(sizes, 2)
    while counts.sum() < n:
        lacking = np.where(counts < sizes, share / (counts + 1), -1.0)
        counts[lacking.argmax()] += 1
    return [int(count) for count in counts]


def _answers(check: SpotCheck, table: pa.Table, decisions: pa.Table) -> tuple[Ints, Bools]:
    """Return the rows of the table that are decided, and whether each of them does not match."""
    asked = set(check.pairs)
    answers = {
        row["pair"]: row["decision"] != "keep" and row["reason"] not in OTHER_FAULTS
        for row in decisions.to_pylist()
        if row["pair"] in asked
    }
    rows = PairRows(table["pair"].to_numpy()).find(list(answers))
    present = rows >= 0
    return rows[present], np.array(list(answers.values()), np.bool_)[present]


def _recalibration(probability: Reals, mismatched: Bools) -> tuple[float, float]:
    """Return the intercept and the slope of greatest posterior probability."""
    x, match = _logit(probability), (~mismatched).astype(float)

    def loss(theta: Reals) -> float:
        z = theta[0] + theta[1] * x
        prior = (theta[0] / SPREADS[0]) ** 2 + ((theta[1] - 1) / SPREADS[1]) ** 2
        return float((np.logaddexp(0, z) - match * z).sum() + prior / 2)

    best = minimize(loss, np.array([0.0, 1.0]), method="L-BFGS-B", bounds=[(None, None), (0.05, None)]).x
    return float(best[0]), float(best[1])


def _logit(probability: Reals) -> Reals:
    return np.asarray(logit(np.clip(probability, LOWEST, 1 - LOWEST)))


def write_sheet(check: SpotCheck, table: pa.Table, folder: Path) -> Path:
    """Write the pairs of a spot check as `spot_check.csv` with empty columns `decision` and `reason`.

    It does not say what the run thinks of the pairs. A table that a person has filled in is kept under another name.

    Returns:
        The path of the table.
    """
    rows = table.take(PairRows(table["pair"].to_numpy()).find(check.pairs)).select(["pair", "image", "given_caption"])
    path, empty = folder / SHEET_FILE, pa.array([""] * len(rows))
    keep_filled_in(path)
    write_csv(path, rows.append_column("decision", empty).append_column("reason", empty), marked=True)
    return path
