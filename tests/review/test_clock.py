"""Decisions keep their order whatever the clock of the machine says."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from pairsift.review import Decision, Decisions
from pairsift.review import journal as journal_file

START = datetime(2026, 3, 29, 3, tzinfo=UTC)
CLOCKS = {
    "backwards": [-3600 * step for step in range(99)],
    "still": [0] * 99,
    "to and fro": [86_400 * (-1) ** step for step in range(99)],
    "to another age": [0, -1_700_000_000, 200_000_000_000, *[5] * 99],
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_that_jumps_changes_no_decision_no_undo_and_no_order(tmp_path, monkeypatch, name):
    steps = iter(CLOCKS[name])

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return START + timedelta(seconds=next(steps))

    monkeypatch.setattr(journal_file, "datetime", Clock)
    decisions = Decisions(tmp_path, np.arange(5))

    def valid():
        return dict(zip(*(decisions.table()[column].to_pylist() for column in ("pair", "decision")), strict=True))

    events = [decisions.decide([Decision(1, choice)], "me") for choice in ("keep", "drop", "keep")]
    decisions.decide([Decision(1, "drop"), Decision(2, "drop")], "other")
    assert events == sorted(events) and valid() == {1: "drop", 2: "drop"}
    decisions.undo("other")
    assert valid() == {1: "keep"}
    decisions.undo("me")
    assert valid() == {1: "drop"}
    decisions.redo("me")
    assert valid() == {1: "keep"}
    assert [entry.kind for entry in decisions.history()] == ["redo", "undo", "undo", *["decide"] * 4]
