"""The log for TensorBoard."""

import pytest

from pairsift.train.record import make_board, numbers

LINE = {"event": "epoch", "epoch": 3, "dev": {"rsum": 250.5}, "loss": {"network_0": {"clean": 1.5}}, "done": True}


def test_the_numbers_of_a_line_are_named_by_their_path():
    assert numbers(LINE) == {"epoch": 3.0, "dev/rsum": 250.5, "loss/network_0/clean": 1.5}


def test_scalars_can_be_read_back(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = make_board(tmp_path)
    board(LINE, 3)
    board({**LINE, "dev": {"rsum": 251.5}}, 4)
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("dev/rsum")] == [(3, 250.5), (4, 251.5)]
