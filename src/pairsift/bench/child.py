"""A worker process of a grid, which reads cells from its standard input and writes rows to its output.

A line of the input is a JSON object with the folder of the grid, the ids and the options of a cell. The lines of the
answer are `{"ready": group}` as soon as the held-out evidence is there, and `{"row": ...}` or `{"error": ...}` at the
end, with `"ended": true` where the process ends with the error. It also ends with its input, so that none goes on when
the process that started it was killed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairsift.cores import let_threads_sleep, limit_threads
from pairsift.errors import InputError

Report = dict[str, Any]
CELLS, STARTS = "cells", "evidence"  # folders within the grid's


@dataclass
class Measurer:
    """Measures cells one after the other, and keeps the pairs and features of the last one.

    Attributes:
        folder: The folder of the grid.
        last: The group of the last cell with its start; empty before the first.
    """

    folder: Path
    last: dict[str, Any] = field(default_factory=dict)

    def __call__(self, cell: str, group: str, tree: dict[str, Any], ready: Callable[[], None]) -> Report:
        """Train and test a cell, from its checkpoint if there is one, and return its numbers.

        Args:
            cell: The id of the cell.
            group: The id of the group of cells with the same start.
            tree: The options as `fit` reads them.
            ready: Called as soon as the start of the group is in the folder.

        Raises:
            InputError: The source or an option cannot be used, or the training diverged.
        """
        from pairsift.bench.measure import Start, train
        from pairsift.runs.config import from_tree

        config = from_tree(tree)
        if group not in self.last:
            self.last.clear()
            self.last[group] = Start.open(config, self.folder / STARTS / group)
        ready()
        limit_threads(config.train.threads)
        place = self.folder / CELLS / cell
        (place / "model").mkdir(parents=True, exist_ok=True)
        start = self.last[group]
        row: Report = train(config, start, place)
        row.update(start.facts)
        return row


def error_line(error: Exception) -> str:
    """Print the traceback of an error, and return the error as one line."""
    traceback.print_exception(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())} (printed above)"


def main() -> None:
    """Answer until the input ends."""
    let_threads_sleep()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    measurer: Measurer | None = None

    def say(report: Report) -> None:
        replies.write(json.dumps(report) + "\n")
        replies.flush()

    while True:
        task = json.loads(lines.get())
        measurer = measurer or Measurer(Path(task["folder"]))
        group = task["group"]
        try:
            row = measurer(task["cell"], group, task["tree"], lambda group=group: say({"ready": group}))  # type: ignore[misc]
            say({"row": row})
        except InputError as error:
            say({"error": str(error)})
        except Exception as error:  # it may have left the process, or its GPU, in a state that fails every further cell
            say({"error": error_line(error), "ended": True})
            os._exit(1)
        except BaseException:  # the thread that reads would keep the process from ending by itself
            traceback.print_exc()
            os._exit(1)


def _read(lines: queue.Queue[str]) -> None:
    """Put the lines of the input into a queue, and end the process with the input.

    No file is left half written, since files are replaced at once.
    """
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
