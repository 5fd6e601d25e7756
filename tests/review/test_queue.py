"""Filters, orders and pages of the review queue, beside a plain loop over the rows."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.errors import InputError
from pairsift.review.decisions import Decision, Decisions
from pairsift.review.queue import Filter, Queue
from pairsift.suggest.table import SCHEMA

N = 60
SHOPS = ["Ä", "b", "", "a b"]


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    probability = np.sort(rng.integers(0, 10, n) / 10)
    return pa.table(
        {
            "pair": rng.permutation(3 * n)[:n],
            "image": [f"{k}.png" for k in range(n)],
            "given_caption": [" ".join(rng.choice(["Red", "BLUE", "green", "%", "éa"], 3)) for _ in range(n)],
            "split": rng.choice(["train", "dev", "test"], n),
            "match_probability": probability,
            "verdict": np.where(probability < 0.5, "mismatched", "clean"),
            "image_duplicates": pa.array([k // 2 if k % 5 == 0 else None for k in range(n)], pa.int64()),
            "shop": rng.choice(SHOPS, n),
            "price": pa.array([None if k % 7 == 0 else k % 3 for k in range(n)]),
        }
    )


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    """A queue in which a third is decided."""
    rows, folder = table(), tmp_path_factory.mktemp("queue")
    decisions = Decisions(folder, rows["pair"].to_numpy())
    for k, pair in enumerate(rows["pair"].to_pylist()[::3]):
        choice = ("keep", "drop", "replace")[k % 3]
        caption = "new" if choice == "replace" else None
        decisions.decide([Decision(pair, choice, caption, reason="other" if k % 2 else None)])
    return Queue(rows, decisions, SCHEMA.empty_table())


def naive(queue, wanted):
    decided = {row["pair"]: row for row in queue.decisions.table().to_pylist()}
    found = []
    for place, row in enumerate(queue.table.to_pylist()):
        decision = decided.get(row["pair"], {"decision": "undecided", "reason": None})
        if (
            wanted.low <= row["match_probability"] <= wanted.high
            and (not wanted.verdicts or row["verdict"] in wanted.verdicts)
            and (not wanted.splits or row["split"] in wanted.splits)
            and (not wanted.decisions or decision["decision"] in wanted.decisions)
            and (not wanted.reasons or decision["reason"] in wanted.reasons)
            and all(word in row["given_caption"].lower() for word in wanted.text.lower().split())
            and all(("" if row[name] is None else str(row[name])) == value for name, value in wanted.columns.items())
        ):
            found.append(place)
    return found


FILTERS = st.builds(
    Filter,
    low=st.sampled_from([0.0, 0.2]),
    high=st.sampled_from([0.4, 1.0]),
    verdicts=st.sampled_from([(), ("clean",), ("clean", "mismatched"), ("ambiguous",)]),
    decisions=st.sampled_from([(), ("undecided",), ("keep", "drop"), ("replace",)]),
    reasons=st.sampled_from([(), ("other",), ("too vague",)]),
    splits=st.sampled_from([(), ("train",), ("dev", "test")]),
    text=st.sampled_from(["", "red", "RE bl", "É", "%", "nowhere", "d b"]),
    columns=st.sampled_from([{}, {"shop": "Ä"}, {"shop": ""}, {"price": "1"}, {"price": "", "shop": "b"}]),
)


@settings(max_examples=150, deadline=None)
@given(wanted=FILTERS)
def test_a_filter_selects_what_a_loop_selects(queue, wanted):
    assert queue.select(wanted).tolist() == naive(queue, wanted)


@pytest.mark.parametrize("bins", [8, 100])
def test_the_histogram_counts_pairs_by_decision(queue, bins):
    found = queue.histogram(bins)
    expected = {name: [0] * bins for name in found}
    for row in queue.page(np.arange(len(queue))):
        expected[row["decision"] or "undecided"][min(int(row["match_probability"] * bins), bins - 1)] += 1
    assert found == expected
    assert {name: sum(counts) for name, counts in found.items()} == queue.counts()


def test_orders_are_of_the_same_rows(queue):
    ids = queue.ids.tolist()
    for more in ({}, {"splits": ("train",)}):
        worst = queue.select(Filter(**more)).tolist()
        assert queue.select(Filter(order="best", **more)).tolist() == worst[::-1]
        assert [ids[row] for row in queue.select(Filter(order="source", **more))] == sorted(ids[row] for row in worst)
        first, second = (queue.select(Filter(order="random", seed=seed, **more)).tolist() for seed in (0, 1))
        assert sorted(first) == sorted(second) == worst and first != second
    everything = queue.select(Filter(order="random")).tolist()
    train = queue.select(Filter(order="random", splits=("train",))).tolist()
    assert [row for row in everything if row in set(train)] == train  # a filter leaves the order as it is


def test_each_row_is_as_often_at_each_place_of_a_random_order(queue):
    orders = np.array([queue.select(Filter(order="random", seed=seed)) for seed in range(3000)])
    counts = np.array([np.bincount(place, minlength=N) for place in orders.T])
    assert counts.shape == (N, N) and (counts.sum(1) == len(orders)).all()
    expected = len(orders) / N
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - (N - 1) ** 2) < 5 * np.sqrt(2) * (N - 1)
    neighbours = np.diff(orders, axis=1) == 1  # in a part of some rows the second must not follow the first more often
    assert abs(neighbours.mean() - 1 / N) < 5 * np.sqrt(1 / N / neighbours.size)


def test_a_page_has_the_columns_and_what_was_decided(queue):
    rows = queue.select(Filter())[:4]
    page = queue.page(rows)
    assert [row["pair"] for row in page] == queue.ids[rows].tolist()
    assert (page[0]["decision"], page[0]["reason"], page[1]["decision"], page[3]["decision"]) == (
        "keep",
        None,
        None,
        "drop",
    )
    assert page[3]["reason"] == "other" and page[1]["reviewer"] is None
    assert queue.row(page[2]["pair"]) == rows[2]
    assert sum(queue.counts().values()) == N and queue.counts()["undecided"] == N - N // 3


def test_what_is_decided_elsewhere_is_seen_at_the_next_question(tmp_path):
    rows = table()
    queue = Queue(rows, Decisions(tmp_path, rows["pair"].to_numpy()), SCHEMA.empty_table())
    other = Decisions(tmp_path, rows["pair"].to_numpy())
    assert queue.counts() == {"undecided": N, "keep": 0, "drop": 0, "replace": 0}
    pairs = rows["pair"].to_pylist()
    other.decide([Decision(pair, "drop") for pair in pairs[:10]])
    other.decide([Decision(pairs[0], "keep", reason="too vague")], "another")
    assert queue.counts() == {"undecided": N - 10, "keep": 1, "drop": 9, "replace": 0}
    assert queue.select(Filter(reasons=("too vague",))).tolist() == [0]
    other.undo()
    assert queue.counts() == {"undecided": N - 1, "keep": 1, "drop": 0, "replace": 0}
    other.redo()
    assert queue.counts()["drop"] == 10  # redone after the other's decision, and so the last
    other.decide([Decision(pairs[1], "clear")])
    assert queue.counts()["undecided"] == N - 9
    assert Queue(rows, other, SCHEMA.empty_table()).counts() == queue.counts()


def test_many_may_ask_and_decide_at_once(tmp_path):
    rows = table(400)
    pairs = rows["pair"].to_pylist()
    queue = Queue(rows, Decisions(tmp_path, rows["pair"].to_numpy()), SCHEMA.empty_table())
    problems = []

    def reviewer(number):
        try:
            for pair in pairs[number::8][:10]:
                queue.decisions.decide([Decision(pair, "drop")], f"reviewer {number}")
                assert queue.row(pair) in queue.select(Filter(decisions=("drop",)))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=reviewer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert queue.counts()["drop"] == 80


def test_decisions_on_pairs_that_left_the_table_are_left_alone(tmp_path):
    rows = table()
    pairs = rows["pair"].to_pylist()
    Decisions(tmp_path, np.array(pairs)).decide([Decision(pair, "drop") for pair in pairs[:4]])
    shorter = rows.slice(2)
    queue = Queue(shorter, Decisions(tmp_path, shorter["pair"].to_numpy()), SCHEMA.empty_table())
    assert queue.select(Filter(decisions=("drop",))).tolist() == [0, 1]
    assert queue.counts() == {"undecided": N - 4, "keep": 0, "drop": 2, "replace": 0}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Filter(order="wrost"), "no order 'wrost'; did you mean worst"),
        (Filter(decisions=("dropped",)), "no decision 'dropped'; did you mean drop"),
        (Filter(columns={"shpo": "a"}), "no column 'shpo'; did you mean shop"),
    ],
)
def test_what_no_filter_knows_is_refused(queue, wanted, message):
    with pytest.raises(InputError, match=message):
        queue.select(wanted)
    with pytest.raises(InputError, match="no judged pair -1"):
        queue.row(-1)


def test_copies_and_some_pairs_alone_can_be_asked_for(queue):
    rows = queue.table.to_pylist()
    found = queue.select(Filter(duplicates="image"))
    assert found.tolist() == [k for k, row in enumerate(rows) if row["image_duplicates"] is not None]
    ids = np.array([rows[7]["pair"], rows[3]["pair"], 10**9])
    assert queue.select(Filter(pairs=ids)).tolist() == [3, 7]
    assert queue.source_columns() == ["shop", "price"]
    with pytest.raises(InputError, match="no column 'caption_duplicates'"):
        queue.select(Filter(duplicates="caption"))


def test_a_page_says_what_would_fit(tmp_path):
    rows = table()
    ids = rows["pair"].to_pylist()
    suggestions = pa.table(
        [[ids[5]] * 3, [False, False, True], [ids[9], 10**6, ids[1]], [0.75, 0.5, 0.25]], SCHEMA.remove(4)
    )
    queue = Queue(rows, Decisions(tmp_path, rows["pair"].to_numpy()), suggestions)
    first, second = queue.page(np.array([5, 6]))
    caption = rows["given_caption"][9].as_py()
    assert first["captions"] == [{"from_pair": ids[9], "probability": 0.75, "caption": caption}]
    assert first["images"] == [{"from_pair": ids[1], "probability": 0.25, "image": "1.png"}]
    assert second["captions"] == second["images"] == []
