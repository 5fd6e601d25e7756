"""Decisions on pairs: what the journal holds after any sequence of calls, kills and crowds."""

import os
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairsift.errors import InputError, WriteError
from pairsift.review.decisions import (
    DECISIONS_FILE,
    MAX_CAPTION,
    Decision,
    Decisions,
    note_on_rates,
    threshold_table,
    undecided_below,
)

IDS = np.arange(20)


def drop(*pairs, **more):
    return [Decision(pair, "drop", **more) for pair in pairs]


def valid(decisions):
    """The valid decision on each pair."""
    return {row["pair"]: row["decision"] for row in decisions.table().to_pylist()}


class Replay:
    """The same journal as a list of entries, gone through from the beginning for every question."""

    def __init__(self):
        self.entries, self.redoable, self.ticks = [], {}, 0

    def decide(self, choices, who):
        self.entries.append({"who": who, "choices": choices, "place": self.tick()})
        self.redoable[who] = []

    def tick(self):
        self.ticks += 1
        return self.ticks

    def undo(self, who):
        mine = [entry for entry in self.entries if entry["who"] == who and entry["place"] is not None]
        if mine:
            last = max(mine, key=lambda entry: entry["place"])
            last["place"] = None
            self.redoable.setdefault(who, []).append(last)
            return sorted(last["choices"])
        return []

    def redo(self, who):
        if self.redoable.get(who):
            entry = self.redoable[who].pop()
            entry["place"] = self.tick()
            return sorted(entry["choices"])
        return []

    def valid(self):
        result = {}
        for entry in sorted((e for e in self.entries if e["place"] is not None), key=lambda entry: entry["place"]):
            result.update(entry["choices"])
        return {pair: choice for pair, choice in result.items() if choice != "clear"}


STEP = st.one_of(
    st.tuples(
        st.sampled_from("ab"),
        st.dictionaries(st.integers(0, 4), st.sampled_from(["keep", "drop", "clear"]), min_size=1, max_size=3),
    ),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["undo", "redo"])),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=14))
def test_any_sequence_leaves_what_a_replay_leaves(tmp_path_factory, steps):
    folder, replay = tmp_path_factory.mktemp("journal"), Replay()
    for who, what in steps:
        decisions = Decisions(folder, IDS)  # opened again every time, as after a restart
        if isinstance(what, dict):
            decisions.decide([Decision(pair, choice) for pair, choice in what.items()], who)
            replay.decide(what, who)
        else:
            assert getattr(decisions, what)(who) == getattr(replay, what)(who)
        assert valid(decisions) == replay.valid()
    assert Decisions(folder, IDS).decided().tolist() == sorted(replay.valid())


def test_undo_and_redo_go_all_the_way_and_a_new_decision_ends_redo(tmp_path):
    decisions = Decisions(tmp_path, IDS)
    for pair in range(20):
        decisions.decide(drop(pair))
    assert [decisions.undo() for _ in range(21)] == [[pair] for pair in reversed(range(20))] + [[]]
    assert valid(decisions) == {}
    assert [decisions.redo() for _ in range(5)] == [[pair] for pair in range(5)]
    decisions.decide([Decision(9, "keep")])
    assert decisions.redo() == [] and sorted(valid(decisions)) == [0, 1, 2, 3, 4, 9]
    assert [event.kind for event in decisions.history(3)] == ["decide", "redo", "redo"]
    assert len(decisions.history(1000)) == 20 + 20 + 5 + 1  # nothing is ever taken out


def test_undo_takes_back_ones_own_entry_and_leaves_what_another_decided_since(tmp_path):
    decisions = Decisions(tmp_path, IDS)
    decisions.decide(drop(1, 2), "ana")
    decisions.decide([Decision(2, "keep")], "bo")
    assert decisions.undo("ana") == [1, 2] and valid(decisions) == {2: "keep"}
    assert decisions.redo("bo") == [] and decisions.undo("bo") == [2] and valid(decisions) == {}
    assert decisions.redo("ana") == [1, 2] and valid(decisions) == {1: "drop", 2: "drop"}


def test_a_decision_keeps_its_caption_its_origin_and_its_reason(tmp_path):
    decisions = Decisions(tmp_path, IDS)
    text = "<b>Ünïcode</b>,\n=1+1 \ud800"
    decisions.decide([Decision(3, "replace", text, 7, "wrong detail"), Decision(4, "drop", reason="other")], " Ana  B ")
    first, second = decisions.table().to_pylist()
    assert first["new_caption"].rstrip("\ufffd") == "<b>Ünïcode</b>,\n=1+1 " and first["from_pair"] == 7
    assert (first["reason"], first["reviewer"], second["reason"]) == ("wrong detail", "Ana B", "other")
    assert second["new_caption"] is None and second["from_pair"] is None and second["time"].endswith("+00:00")
    assert Decisions(tmp_path / "none", IDS).table().schema == decisions.table().schema
    assert not (tmp_path / "none").exists()  # asking writes nothing


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([Decision(99, "keep")], "no judged pair 99"),
        ([Decision(1, "replace", "text", 99)], "no judged pair 99"),
        ([Decision(1, "keep"), Decision(1, "drop")], "pair 1 is decided twice"),
        ([Decision(1, "kep")], "no decision 'kep'; did you mean keep"),
        ([Decision(1, "drop", reason="wrong imag")], "did you mean wrong image"),
        ([Decision(1, "drop", "a new caption")], "only replace has one"),
        ([Decision(1, "replace", "  ")], "1 to 10,000 characters; it has none"),
        ([Decision(1, "replace", "a" * (MAX_CAPTION + 1))], "it has 10,001 characters"),
    ],
)
def test_a_wrong_decision_is_refused_in_one_line_and_none_is_recorded(tmp_path, wrong, message):
    decisions = Decisions(tmp_path, IDS)
    with pytest.raises(InputError, match=message) as caught:
        decisions.decide([*drop(5), *wrong])
    assert "\n" not in str(caught.value) and valid(decisions) == {}
    with pytest.raises(InputError, match="1 to 100 characters, not 0"):
        decisions.decide(drop(5), " ")


def test_a_repeated_request_is_done_once(tmp_path):
    decisions = Decisions(tmp_path, IDS)
    first = decisions.decide(drop(1), key="a")
    assert decisions.decide(drop(1), key="a") == first
    decisions.decide(drop(2), key="b")
    assert decisions.undo(key="c") == decisions.undo(key="c") == [2]
    assert valid(decisions) == {1: "drop"}
    assert decisions.redo(key="d") == decisions.redo(key="d") == [2]
    assert len(decisions.history()) == 4


def test_fifty_at_once_lose_and_double_nothing(tmp_path):
    ids = np.arange(1000)
    together = threading.Barrier(50)

    def client(number):
        decisions = Decisions(tmp_path, ids)
        together.wait()
        for k in range(4):
            pair = number * 20 + k
            for _ in range(2):  # every request is sent twice
                decisions.decide(drop(pair, 999), f"client {number}", key=f"{number}-{k}")
        decisions.undo(f"client {number}", key=f"{number}-undo")

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(client, range(50)))
    decisions = Decisions(tmp_path, ids)
    expected = {number * 20 + k: "drop" for number in range(50) for k in range(3)}
    assert valid(decisions) == {**expected, 999: "drop"}
    assert len(decisions.history(1000)) == 250


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing_that_was_answered_and_leave_nothing_by_half(tmp_path):
    ids, start = np.arange(10**5), 0
    for kill in range(100):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            decisions = Decisions(tmp_path, ids)
            for pair in range(start, 10**5, 2):
                decisions.decide([Decision(pair, "drop"), Decision(pair + 1, "replace", "new")])
                os.write(writing, f"{pair}\n".encode())
        os.close(writing)
        with os.fdopen(reading) as answers:
            answered = [int(answers.readline()) for _ in range(1 + kill % 3)]
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            answered += [int(line) for line in answers.read().splitlines()]
        decided = Decisions(tmp_path, ids).decided().tolist()
        assert decided == list(range(len(decided)))
        assert len(decided) - answered[-1] in (2, 4)  # the last entry may have been written and not answered
        start = len(decided)


def test_reading_sees_a_whole_entry_or_nothing_of_it_while_others_write(tmp_path):
    ids, over = np.arange(200), threading.Event()
    decisions = Decisions(tmp_path, ids)

    def write():
        for _ in range(15):
            decisions.decide([Decision(pair, "drop") for pair in range(200)])
            decisions.undo()
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    sizes = set()
    while not over.is_set():
        sizes.add(len(decisions.table()))
    writer.join()
    assert sizes <= {0, 200}


def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / DECISIONS_FILE
    path.write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(InputError, match=r"decisions\.sqlite: is damaged \(file is not a database\)"):
        Decisions(tmp_path, IDS).decide(drop(1))
    path.unlink()
    Decisions(tmp_path, IDS).decide(drop(1))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="was written by a newer pairsift"):
        Decisions(tmp_path, IDS).table()
    with pytest.raises(WriteError, match="cannot be opened or written"):
        Decisions(tmp_path / "nowhere", IDS).decide(drop(1))
    monkeypatch.setattr("pairsift.review.journal.WAIT", 0.05)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("PRAGMA user_version = 1")
        other.execute("BEGIN IMMEDIATE")
        assert valid(Decisions(tmp_path, IDS)) == {1: "drop"}  # a writer keeps nobody from reading
        with pytest.raises(InputError, match="another process has been writing"):
            Decisions(tmp_path, IDS).decide(drop(2))


def test_the_threshold_table_counts_what_goes_and_what_of_it_is_good():
    rng = np.random.default_rng(0)
    probability, thresholds = rng.random(500), [0.0, 0.1, 0.5, 1.0]
    for row in threshold_table(probability, thresholds).to_pylist():
        gone = [p for p in probability if p < row["threshold"]]
        assert row["pairs"] == len(gone)
        assert row["expected_matching"] == pytest.approx(sum(gone))
        assert row["expected_mismatched"] == pytest.approx(len(gone) - sum(gone))


def test_the_sum_of_the_probabilities_stands_beside_the_rate():
    probability = np.array([0.1, 0.9, 0.8, 0.6] * 25)
    rate = {"estimated": 0.3125, "low": 0.25, "high": 0.375}
    line = note_on_rates(probability, {"noise_rate": rate})
    assert "40 of all 100 judged pairs (40.0%)" in line and "31.2% (25.0% to 37.5%)" in line
    assert line.endswith("For numbers of pairs, trust the probabilities; for how far both may be wrong, the interval.")
    expected = {"noise_rate": rate, "expected_auroc": {"any": 0.981, "near": 0.742}}
    said = {None: "without --mismatches near", True: "counted too", False: "mostly not counted: such"}
    for counts, words in said.items():
        near = note_on_rates(probability, {**expected, "counts_near": counts})
        assert near.startswith(line) and words in near and "in at most 74% of cases" in near
    assert note_on_rates(probability, {"noise_rate": rate, "expected_auroc": {"any": 0.98, "near": None}}) == line
    checked = note_on_rates(probability, {"noise_rate": {"estimated": 0.3125}, "spot_check": {"answered": 50}})
    assert "31.2%, is from before the spot check" in checked and "interval" not in checked
    assert note_on_rates(probability, {"noise_rate": {"estimated": None}}) == note_on_rates(probability, {}) == ""
    assert note_on_rates(probability[:0], {"noise_rate": rate}) == ""


def test_below_leaves_out_what_is_decided():
    table = pa.table({"pair": [4, 2, 9, 7], "match_probability": [0.05, 0.1, 0.2, 0.9]})
    pairs, probability = undecided_below(table, 0.2, np.array([4]))
    assert pairs.tolist() == [2] and probability.tolist() == [0.1]


def test_a_key_is_of_one_kind_of_request(tmp_path):
    decisions = Decisions(tmp_path, np.arange(5))
    decisions.decide([Decision(1, "drop")], key="a")
    with pytest.raises(InputError, match="'a' was given to another request"):
        decisions.undo(key="a")
    assert decisions.undo(key="b") == decisions.undo(key="b") == [1]
    with pytest.raises(InputError, match="give each request a new key"):
        decisions.decide([Decision(2, "drop")], key="b")
    assert not len(decisions.table())
