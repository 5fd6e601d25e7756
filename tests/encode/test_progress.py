"""Progress: plain lines in a file or a pipe, nothing where nothing is wanted."""

import pytest

from pairsift.encode import progress as module
from pairsift.encode.progress import progress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_line_every_ten_seconds_without_carriage_returns(capsys, clock):
    with progress(1000, "encoding", "images", start=100) as count:
        for _ in range(90):
            clock[0] += 0.5
            count(10)
    err = capsys.readouterr().err
    assert err.splitlines() == [
        "encoding: 300 of 1,000 images, about 35 s left",
        "encoding: 500 of 1,000 images, about 25 s left",
        "encoding: 700 of 1,000 images, about 15 s left",
        "encoding: 900 of 1,000 images, about 5 s left",
    ]
    assert "\r" not in err and err.endswith("\n")


def test_nothing_is_shown_of_short_steps_or_where_it_is_not_wanted(capsys, clock):
    with progress(10, "encoding", "images") as count:
        count(10)
    with progress(10, "encoding", "images", shown=False) as count:
        clock[0] += 60
        count(5)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    with progress(10, "encoding", "images") as count:
        count(10)
    assert "\r" in capsys.readouterr().err
