"""How far a run is: a line for each stage, a bar or plain lines within it, and the time left."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Timer
from typing import NoReturn

from tqdm import tqdm

EVERY = 10.0  # seconds from one line to the next
PATIENCE = 1.0  # seconds before the line of the first stage
LEAST = 2.0  # seconds after which the speed of a bar counts
FORMER = 5.0  # seconds of a stage that always count as if they had the pace of the stage before


@dataclass(frozen=True)
class Stage:
    """A stage of a run.

    Attributes:
        name: What the run is doing.
        seconds: How long the stage took where it was measured; None where nobody knows.
        may_end: Whether the stage may end before its bar does.
        goes_on: Whether the stage goes on after its bar, nobody knows how long.
    """

    name: str
    seconds: float | None = None
    may_end: bool = False
    goes_on: bool = False


class Clock:
    """The stages of a run, and the time that is left for all of them.

    The stage that runs is as fast as its bar. A stage ahead takes as long as where it was measured, times the pace of
    this machine: how much longer than there the last stage with a bar takes here.

    Args:
        stages: The stages, in order; the first one runs. Without stages, no time is known.
    """

    def __init__(self, stages: Sequence[Stage] = ()) -> None:
        self.stages, self.place, self.pace = stages, 0, 1.0
        self.span = 0.0, 1.0
        self.printed = self.began = time.monotonic()
        self.counted: list[tuple[float, float]] = []  # share of the stage that was done at first and at last, and when
        self.bar: tqdm[NoReturn] | None = None

    def begin(self, name: str) -> bool:
        """Begin the stage of this name if it lies ahead, and return whether it does."""
        names = [stage.name for stage in self.stages[self.place + 1 :]]
        if name not in names:
            return False
        self.close()
        self.pace = self._pace()
        self.place += 1 + names.index(name)
        self.began, self.counted = time.monotonic(), []
        return True

    def close(self) -> None:
        """Remove the bar, if there is one."""
        if self.bar is not None:
            self.bar.close()
        self.bar = None

    @contextmanager
    def part(self, number: int, parts: int) -> Iterator[None]:
        """Count within one of several equal parts of the stage, numbered from 0."""
        first, last = self.span
        width = (last - first) / parts
        self.span = first + number * width, first + (number + 1) * width
        try:
            yield
        finally:
            self.span = first, last

    def count(self, share: float) -> None:
        """Note the share of the present part that is done, [0, 1]."""
        first, last = self.span
        share = first + share * (last - first)
        began = self.counted[:1] if self.counted and share >= self.counted[-1][0] else []  # else, another bar begins
        self.counted = [*began, (share, time.monotonic())]

    def left(self) -> str:
        """Return the time left for all stages in words; nothing before the speed of the running stage is known.

        The time ends before a stage of which nobody knows how long it takes.
        """
        if not self.counted or not self.stages or self.stages[self.place].goes_on:
            return ""
        (first, start), (share, last) = self.counted[0], self.counted[-1]
        if last - start < LEAST or share <= first:
            return ""
        seconds = max(0.0, (last - start) / (share - first) * (1 - share) - (time.monotonic() - last))
        ahead = self.stages[self.place + 1 :]
        unknown = next((row for row, stage in enumerate(ahead) if stage.seconds is None), len(ahead))
        seconds += self._pace() * sum(stage.seconds or 0.0 for stage in ahead[:unknown])
        most = "up to about" if self.stages[self.place].may_end else "about"
        end = "in all" if unknown == len(ahead) else f"until {ahead[unknown].name}"
        return f"{most} {duration(seconds, 10)} left {end}"

    def _pace(self) -> float:
        """Return how much longer the running stage takes than where it was measured; else, the stage before."""
        seconds = self.stages[self.place].seconds
        if seconds is None or not self.counted or self.counted[0][0] > 0 or not self.counted[-1][0]:
            return self.pace
        (_, start), (share, last) = self.counted[0], self.counted[-1]
        taken = max(time.monotonic(), start + (last - start) / share) - self.began
        return (taken + FORMER * self.pace) / (seconds + FORMER)


def duration(seconds: float, step: int = 1) -> str:
    """Return a duration in words: minutes, or from a minute and a half down seconds, in steps and at least one."""
    return f"{max(step, step * round(seconds / step))} s" if seconds < 95 else f"{round(seconds / 60)} min"


_clock: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def run_clock(shown: bool) -> Iterator[None]:
    """Show the stages of a run in this block, unless nothing is to be shown."""
    clock = Clock()
    token = _clock.set(clock if shown else None)
    try:
        yield
    finally:
        clock.close()
        _clock.reset(token)


@contextmanager
def first_stage(line: str) -> Iterator[None]:
    """Print a line on the first stage of a run if it takes more than a second, so that a wrong source is one line."""
    clock = _clock.get()
    timer = Timer(PATIENCE, write, [line])
    timer.daemon = True
    if clock is not None and not clock.stages:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def set_stages(stages: Sequence[Stage]) -> None:
    """Say what stages the run has, the first of which is running, if nobody has said it."""
    clock = _clock.get()
    if clock is not None and not clock.stages:
        clock.stages = stages


def begin_stage(name: str, line: str = "") -> None:
    """Begin a stage of the run and print a line, if stages are shown and this one lies ahead.

    Args:
        name: The name of the stage.
        line: What it does, in more words than its name.
    """
    clock = _clock.get()
    if clock is not None and clock.begin(name):
        write(f"stage {clock.place + 1} of {len(clock.stages)}: {line or name}")


@contextmanager
def part_of_stage(number: int, parts: int) -> Iterator[None]:
    """Let the bars of this block count as one of several equal parts of the running stage, numbered from 0."""
    with (_clock.get() or Clock()).part(number, parts):
        yield


def write(line: str) -> None:
    """Print a line beside the bars."""
    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()
    if clock := _clock.get():
        clock.printed = time.monotonic()


def write_sometimes(line: str) -> None:
    """Print a line on what is done; in a run that shows its stages, one every ten seconds, with the time left."""
    clock = _clock.get()
    if clock is None:
        write(line)
    elif time.monotonic() - clock.printed >= EVERY:
        write(f"{line}, {left}" if (left := clock.left()) else line)


@contextmanager
def progress(
    total: int, title: str, unit: str, shown: bool = True, start: int = 0
) -> Iterator[Callable[[int], object]]:
    """Show the progress of a step on the standard error stream.

    Args:
        total: Number of items of the whole step.
        title: Name of the step.
        unit: Name of the items.
        shown: Whether to show anything.
        start: Number of items that are done already.

    Yields:
        A function that counts more items as done.
    """
    if not shown:
        yield lambda count: None
        return
    clock, done = _clock.get() or Clock(), start
    clock.count(done / max(1, total))
    bar, lines = _bar(clock, total, title, unit, start), _Lines(total, title, unit, start)

    def update(count: int) -> None:
        nonlocal done
        done += count
        clock.count(done / max(1, total))
        if bar is None:
            lines.update(done, clock)
        else:
            bar.set_postfix_str(clock.left(), refresh=False)
            bar.update(count)

    try:
        yield update
    finally:
        if clock.span == (0, 1):  # the parts of a stage have one bar
            clock.close()


def _bar(clock: Clock, total: int, title: str, unit: str, start: int) -> tqdm[NoReturn] | None:
    """Return the bar of the running stage, made or begun again; None where lines are to be printed."""
    bar, bar_class = clock.bar, _bar_class()
    if bar is not None:
        bar.set_description(title, refresh=False)
        bar.reset(total)
        bar.n = bar.initial = start
    elif bar_class is not None:
        clock.bar = bar = bar_class(total=total, initial=start, desc=title, unit=f" {unit}", leave=False)
    return bar


def _bar_class() -> type[tqdm[NoReturn]] | None:
    """Return the class of bars for a terminal or a notebook; None where lines are to be printed."""
    if sys.stderr.isatty():
        return tqdm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that notebooks are an experiment, or lack the widgets
        from tqdm.autonotebook import tqdm as fitting
    return None if fitting is tqdm else fitting


class _Lines:
    """A progress display with a line about every ten seconds, each with an end of line and no carriage return."""

    def __init__(self, total: int, title: str, unit: str, start: int) -> None:
        self.total, self.title, self.unit, self.start = total, title, unit, start
        self.began = self.last = time.monotonic()

    def update(self, done: int, clock: Clock) -> None:
        """Print a line on the items that are done, if ten seconds have passed since the last line."""
        moment = time.monotonic()
        if moment - max(self.last, clock.printed) < EVERY or done <= self.start:
            return
        self.last = clock.printed = moment
        remaining = (moment - self.began) / (done - self.start) * (self.total - done)
        share, whole = f"{done:,} of {self.total:,} {self.unit}", clock.left()
        here = f"about {duration(remaining)} left" + (f" here, {whole}" if whole else "")
        print(f"{self.title}: {share}, {here}", file=sys.stderr, flush=True)
