"""The spot check: which pairs it asks for, and what it makes of the answers, against simulations and plain loops."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from scipy.optimize import minimize

from pairsift.errors import InputError
from pairsift.review.decisions import Decision, Decisions
from pairsift.review.spot_check import SpotCheck, evaluate, strata_of, write_sheet

N = 4000


def judged(seed=0, shape=(0.4, 0.3)):
    """A table of pairs, and whether each truly matches, with the chance that the table says."""
    rng = np.random.default_rng(seed)
    probability = np.clip(np.sort(rng.beta(*shape, N)), 1e-9, 1 - 1e-9)
    ids = rng.permutation(3 * N)[:N]
    captions, images = [f"caption {k}" for k in range(N)], [f"{k}.png" for k in range(N)]
    columns = {"pair": ids, "image": images, "given_caption": captions, "match_probability": probability}
    return pa.table(columns), rng.random(N) < probability


def answers(check, table, matches):
    """Decisions as a person makes them who knows the truth."""
    truth = dict(zip(table["pair"].to_pylist(), matches.tolist(), strict=True))
    rows = [{"pair": pair, "decision": "keep" if truth[pair] else "drop", "reason": None} for pair in check.pairs]
    return pa.Table.from_pylist(rows)


def test_pairs_are_drawn_once_each_from_every_stratum_and_more_where_more_is_open():
    table, _ = judged()
    check = SpotCheck.draw(table, 80)
    assert len(set(check.pairs)) == 80 and set(check.pairs) <= set(table["pair"].to_pylist())
    probability_of = dict(zip(table["pair"].to_pylist(), table["match_probability"].to_pylist(), strict=True))
    drawn = np.bincount(strata_of(np.array([probability_of[pair] for pair in check.pairs])), minlength=8)
    size = np.bincount(strata_of(table["match_probability"].to_numpy()), minlength=8)
    assert drawn.min() >= 2
    assert drawn[3] / size[3] > 2 * drawn[0] / size[0]
    assert check == SpotCheck.draw(table, 80) != SpotCheck.draw(table, 80, 1)


def interval_by_loops(probability, answers_of):
    """The stratified rate and its interval, from scipy's quantiles, stratum by stratum."""
    rate = below = above = 0.0
    for low, high in itertools.pairwise((-1, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 2)):
        members = [row for row, p in enumerate(probability) if low <= p < high]
        if not members:
            continue
        answers = [answers_of[row] for row in members if row in answers_of]
        n, k = len(answers), sum(answers)
        share, posterior = k / n, scipy.stats.beta(k + 0.5, n - k + 0.5)
        weight = len(members) / len(probability)
        rate += weight * share
        below += (1 - n / len(members)) * (weight * (share - (posterior.ppf(0.05) if k else 0))) ** 2
        above += (1 - n / len(members)) * (weight * ((posterior.ppf(0.95) if k < n else 1) - share)) ** 2
    least = sum(answers_of.values()) / len(probability)
    return rate, max(rate - math.sqrt(below), least), min(rate + math.sqrt(above), 1)


def test_the_interval_joins_those_of_the_strata():
    table, matches = judged(2)
    check = SpotCheck.draw(table, 40)
    result = evaluate(check, table, answers(check, table, matches))
    rows = {pair: row for row, pair in enumerate(table["pair"].to_pylist())}
    expected = interval_by_loops(
        table["match_probability"].to_pylist(), {rows[pair]: not matches[rows[pair]] for pair in check.pairs}
    )
    assert [result.rate, result.low, result.high] == pytest.approx(expected, abs=1e-12)


def sure(p):
    return 1 / (1 + np.exp(-1 - 2 * np.log(p / (1 - p))))


@pytest.mark.parametrize("asked", [20, 50, 100])
@pytest.mark.parametrize(
    ("shape", "distort"),
    [
        ((0.4, 0.3), lambda p: p),
        ((0.4, 0.3), sure),
        ((9, 0.5), lambda p: p),
        ((9, 0.2), lambda p: 0.5 + p / 2),  # 2% are mismatched, the run says half of it
        ((2, 3), lambda p: 0 * p + 0.7),  # the probabilities say nothing
        ((1e9, 1e-9), lambda p: p),  # all match
    ],
)
def test_the_interval_holds_the_true_rate_whatever_the_run_says(shape, distort, asked):
    held, errors = 0, []
    for seed in range(60):
        table, matches = judged(seed, shape)
        stated = np.clip(distort(table["match_probability"].to_numpy()), 1e-6, 1 - 1e-6)
        table = table.set_column(3, "match_probability", pa.array(stated))
        check = SpotCheck.draw(table, asked, seed)
        result = evaluate(check, table, answers(check, table, matches))
        held += result.low <= 1 - matches.mean() <= result.high
        errors.append(result.rate - (1 - matches.mean()))
        assert result.answered == asked and 0 <= result.low <= result.rate <= result.high <= 1
    assert held >= 48 and abs(np.mean(errors)) < 0.03


def test_a_run_that_is_sure_that_all_match_does_not_make_the_interval_narrow():
    table, _ = judged(0, (1e9, 1e-9))
    check = SpotCheck.draw(table, 50)
    result = evaluate(check, table, answers(check, table, np.ones(N, bool)))
    assert result.rate == result.low == 0 and 0.02 < result.high < 0.06


def test_wrong_probabilities_are_recalibrated_and_right_ones_stay():
    table, matches = judged(3)
    true = table["match_probability"].to_numpy()
    stated = 1 / (1 + np.exp(-(np.log(true / (1 - true)) + 1.5)))
    wrong = table.set_column(3, "match_probability", pa.array(stated))
    changes = {}
    for name, said in (("right", table), ("wrong", wrong)):
        check = SpotCheck.draw(said, 100)
        result = evaluate(check, said, answers(check, said, matches))
        given = said["match_probability"].to_numpy()
        after = result.recalibrated(given)
        changes[name] = np.abs(given - true).mean(), np.abs(after - true).mean()
        assert (np.diff(after) >= 0).all() and result.flagged_after == (after < 0.5).sum()
        assert result.agrees == (name == "right")
    assert changes["right"][1] < 0.06 and changes["wrong"][1] < 0.6 * changes["wrong"][0]


def test_the_recalibration_is_the_greatest_posterior():
    table, matches = judged(1)
    check = SpotCheck.draw(table, 30)
    result = evaluate(check, table, answers(check, table, matches))
    rows = {pair: row for row, pair in enumerate(table["pair"].to_pylist())}

    def loss(theta):
        total = theta[0] ** 2 / 2 + ((theta[1] - 1) / 0.5) ** 2 / 2
        for pair in check.pairs:
            p = min(max(table["match_probability"][rows[pair]].as_py(), 1e-4), 1 - 1e-4)
            chance = 1 / (1 + math.exp(-theta[0] - theta[1] * math.log(p / (1 - p))))
            total -= math.log(chance if matches[rows[pair]] else 1 - chance)
        return total

    best = minimize(loss, np.array([0.0, 1.0]), method="Nelder-Mead", options={"xatol": 1e-6}).x
    assert [result.intercept, result.slope] == pytest.approx(best.tolist(), abs=1e-3)


def test_decisions_by_a_threshold_are_no_answers(tmp_path):
    table, _ = judged()
    check = SpotCheck.draw(table, 40)
    decisions = Decisions(tmp_path, table["pair"].to_numpy())
    for pair in check.pairs[:25]:
        decisions.decide([Decision(pair, "keep")])
    decisions.decide([Decision(pair, "drop", reason="too vague") for pair in check.pairs[25:30]])  # a grid of five
    outside = next(pair for pair in table["pair"].to_pylist() if pair not in check.pairs)
    decisions.decide([Decision(pair, "drop") for pair in (*check.pairs[20:], outside)], "bulk")
    result = evaluate(check, table, decisions.of_sample(check.pairs))
    assert (result.answered, result.mismatched) == (20, 0)
    decisions.undo("bulk")
    result = evaluate(check, table, decisions.of_sample(check.pairs))
    assert (result.answered, result.mismatched) == (30, 0)  # a vague caption belongs to its image
    decisions.decide([Decision(check.pairs[39], "replace", "new")])
    assert evaluate(check, table, decisions.of_sample(check.pairs)).mismatched == 1


def test_a_few_answers_are_counted_and_nothing_more_is_said():
    table, matches = judged()
    check = SpotCheck.draw(table, 20)
    result = evaluate(check, table, answers(check, table, matches).slice(0, 19))
    assert result.answered == 19 and result.rate is None and not result.agrees
    assert np.allclose(result.recalibrated(np.array([0.2, 0.9])), [0.2, 0.9])


def test_a_spot_check_is_written_and_read_again(tmp_path):
    table, _ = judged()
    assert SpotCheck.read(tmp_path) is None
    check = SpotCheck.draw(table, 50)
    check.write(tmp_path)
    assert SpotCheck.read(tmp_path) == check
    lines = write_sheet(check, table, tmp_path).read_text("utf-8-sig").splitlines()
    assert lines[0].replace('"', "") == "pair,image,given_caption,decision,reason" and len(lines) == 51
    (tmp_path / "spot_check.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        SpotCheck.read(tmp_path)


@pytest.mark.parametrize(("n", "message"), [(19, "20 to 100 pairs, not 19"), (101, "not 101"), (60, "30 judged pairs")])
def test_numbers_that_make_no_spot_check_are_refused(n, message):
    with pytest.raises(InputError, match=message):
        SpotCheck.draw(judged()[0].slice(0, 30 if n == 60 else N), n)
