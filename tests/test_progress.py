"""Progress: a line for each stage, plain lines in a file or a pipe, the time left, nothing where nothing is wanted."""

import re
import threading

import pytest
from tqdm import tqdm

import pairsift.progress as module
from pairsift.progress import (
    Stage,
    begin_stage,
    duration,
    first_stage,
    part_of_stage,
    progress,
    run_clock,
    set_stages,
    write_sometimes,
)

STAGES = [
    Stage("reading"),
    Stage("encoding", 20.0),
    Stage("judging", 40.0),
    Stage("training", may_end=True),
    Stage("report", 10.0),
]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def take(clock, seconds):
    """Count things, one every half second."""
    things = int(2 * seconds)
    with progress(things, "step", "things") as count:
        for _ in range(things):
            clock[0] += 0.5
            count(1)


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
    with run_clock(False):
        begin_stage("encoding")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys, clock, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with run_clock(True):
        set_stages(STAGES)
        begin_stage("encoding")
        take(clock, 40)
    err = capsys.readouterr().err
    assert "\r" in err and "stage 2 of 5: encoding\n" in err
    assert "about 90 s left until training" in err  # half: 20 s of it, and 40 s at a pace of 1.8


def test_the_parts_of_a_stage_have_one_bar(capsys, clock, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    made = []

    class Bar(tqdm):
        def __init__(self, **options):
            made.append(options["desc"])
            super().__init__(**options)

    monkeypatch.setattr(module, "tqdm", Bar)
    with run_clock(True):
        set_stages([Stage("reading"), Stage("training")])
        begin_stage("training")
        for epoch in range(3):
            with part_of_stage(epoch, 3), progress(10, f"epoch {epoch + 1}", "pairs") as count:
                for _ in range(10):
                    clock[0] += 1
                    count(1)
    err = capsys.readouterr().err
    assert made == ["epoch 1"] and "epoch 3:  50%" in err and "about 10 s left in all" in err


def test_stages_are_numbered_and_none_comes_twice(capsys, clock):
    with run_clock(True):
        set_stages(STAGES)
        begin_stage("encoding")
        begin_stage("judging", "judging 100 pairs")
        begin_stage("encoding")
        begin_stage("of another run")
        begin_stage("report")
    lines = ["stage 2 of 5: encoding", "stage 3 of 5: judging 100 pairs", "stage 5 of 5: report"]
    assert capsys.readouterr().err.splitlines() == lines
    begin_stage("report")
    assert capsys.readouterr().err == ""


def test_the_first_stage_is_told_where_it_takes_long(capsys, monkeypatch):
    with run_clock(True), first_stage("reading pairs.csv"):
        pass
    assert capsys.readouterr().err == ""
    told = threading.Event()
    monkeypatch.setattr(module, "PATIENCE", 0)
    monkeypatch.setattr(module, "write", lambda line: line == "reading pairs.csv" and told.set())
    with run_clock(True), first_stage("reading pairs.csv"):
        assert told.wait(60)


def test_the_time_left_ends_before_the_stage_that_nobody_knows(capsys, clock):
    with run_clock(True):
        set_stages(STAGES)
        begin_stage("encoding")
        take(clock, 40)  # twice as long as measured, and 5 s count as at the pace before: (40 + 5) / (20 + 5)
        begin_stage("judging")
        take(clock, 80)
        begin_stage("training")
        take(clock, 30)
    said = re.findall(r"about (\d+) s left here, (.*)", capsys.readouterr().err)
    assert said[:3] == [
        ("30", "about 2 min left until training"),
        ("20", "about 90 s left until training"),
        ("10", "about 80 s left until training"),
    ]
    assert said[4:6] == [("70", "about 70 s left until training"), ("60", "about 60 s left until training")]
    assert said[-2:] == [("10", "up to about 30 s left in all"), ("1", "up to about 20 s left in all")]


def test_parts_of_a_stage_are_counted_together(capsys, clock):
    with run_clock(True):
        set_stages([Stage("reading"), Stage("training", may_end=True)])
        begin_stage("training")
        for network in range(2):
            with part_of_stage(network, 2):
                for epoch in range(4):
                    with part_of_stage(epoch, 4):
                        take(clock, 10.5)
                    clock[0] += 1.5  # it is measured
    said = re.findall(r"up to about (\d+) s left in all", capsys.readouterr().err)
    assert len(said) == 8
    for number, seconds in enumerate(said):
        assert int(seconds) == pytest.approx(8 * 12 - 12 * number - 10, abs=17)


def test_nothing_is_said_of_a_stage_that_goes_on_after_its_bar(capsys, clock):
    with run_clock(True):
        set_stages([Stage("reading"), Stage("judging", goes_on=True), Stage("report", 1.0)])
        begin_stage("judging")
        take(clock, 25)
    err = capsys.readouterr().err
    assert "about 15 s left\n" in err and "in all" not in err


def test_what_the_cache_had_tells_no_pace(capsys, clock):
    with run_clock(True):
        set_stages([Stage("reading"), Stage("encoding", 20.0), Stage("judging", 40.0), Stage("report", 40.0)])
        begin_stage("encoding")
        clock[0] += 3  # no bar
        begin_stage("judging")
        take(clock, 40)
    assert "about 30 s left here, about 70 s left in all" in capsys.readouterr().err


def test_lines_on_what_is_done_are_far_apart_in_a_run(capsys, clock):
    write_sometimes("before")
    with run_clock(True):
        set_stages([Stage("training", may_end=True), Stage("report", 5.0)])
        for epoch in range(25):
            with part_of_stage(epoch, 25):
                take(clock, 1)
            write_sometimes(f"epoch {epoch + 1}")
    lines = ["before", "epoch 10, up to about 20 s left in all", "epoch 20, up to about 10 s left in all"]
    assert capsys.readouterr().err.splitlines() == lines


def test_durations():
    assert [duration(0.2), duration(94.4), duration(100), duration(3600)] == ["1 s", "94 s", "2 min", "60 min"]
    assert [duration(3, 10), duration(94, 10)] == ["10 s", "90 s"]
