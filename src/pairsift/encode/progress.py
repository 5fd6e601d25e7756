"""The progress of a slow step: a bar in a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

EVERY = 10.0  # seconds from one line to the next


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
    if shown and sys.stderr.isatty():
        with tqdm(total=total, initial=start, desc=title, unit=f" {unit}", leave=False) as bar:
            yield bar.update
    else:
        yield _Lines(total, title, unit, start).update if shown else lambda count: None


class _Lines:
    """A progress display with a line about every ten seconds, each with an end of line and no carriage return."""

    def __init__(self, total: int, title: str, unit: str, start: int) -> None:
        self.total, self.title, self.unit, self.start, self.done = total, title, unit, start, start
        self.began = self.last = time.monotonic()

    def update(self, count: int) -> None:
        """Count items as done, and print a line if ten seconds have passed since the last line."""
        self.done += count
        moment = time.monotonic()
        if moment - self.last < EVERY or self.done <= self.start:
            return
        self.last = moment
        remaining = (moment - self.began) / (self.done - self.start) * (self.total - self.done)
        share = f"{self.done:,} of {self.total:,} {self.unit}"
        print(f"{self.title}: {share}, about {remaining:.0f} s left", file=sys.stderr, flush=True)
