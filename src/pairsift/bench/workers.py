"""The measurement of a grid by several processes, and the rows that are done."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor

from pairsift.bench.grid import Cell
from pairsift.bench.measure import PRIOR, Start, require_unchanged, train
from pairsift.cores import limit_threads, usable_cores
from pairsift.errors import InputError
from pairsift.files import make_folder, only_writer, write_json
from pairsift.marker import read_marker, require_own, write_marker
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import read_pairs
from pairsift.train.loop import pick_device

ROWS = "rows.json"
CELLS, STARTS = "cells", "evidence"  # folders within the grid's
Row = dict[str, Any]
_last: dict[str, Start] = {}  # the pairs and evidence that this process has measured with last, by their group


@cache
def end_with(process: int) -> None:
    """End this process soon after its parent, which would else train to the end of a cell for nobody.

    Args:
        process: Id of the process that measures the grid; this one needs no such watch.
    """

    def watch() -> None:
        while os.getppid() == process:
            time.sleep(1)
        os._exit(1)

    if os.getpid() != process:
        threading.Thread(target=watch, daemon=True).start()


def measure_cell(
    folder: Path, cell: str, group: str, tree: dict[str, Any], folds: int, whole: bool, process: int
) -> tuple[str, Row]:
    """Train and test a cell, from its checkpoint if there is one.

    Args:
        folder: The folder of the grid.
        cell: The id of the cell.
        group: The id of the group of cells with the same start.
        tree: The options as `fit` reads them.
        folds: Number of parts of the test images that are ranked separately.
        whole: Whether to train; else the start of the group is made and kept alone.
        process: Id of the process that measures the grid.

    Returns:
        The id of the cell with its numbers, or with a line on what was wrong under `error`.
    """
    end_with(process)
    try:
        config = from_tree(tree)
        if group not in _last:
            _last.clear()
            _last[group] = Start.open(config, folder / STARTS / group)
        if not whole:
            return cell, {}
        limit_threads(config.train.threads)
        place = folder / CELLS / cell
        (place / "model").mkdir(parents=True, exist_ok=True)
        return cell, train(config, _last[group], place, folds) | _last[group].facts
    except InputError as error:
        return cell, {"error": str(error)}
    except Exception as error:
        traceback.print_exception(error)
        return cell, {"error": f"{type(error).__name__}: {' '.join(str(error).split())} (printed above)"}


@dataclass
class Bench:
    """The rows in a grid's folder, and the measurement of the cells without a row.

    Attributes:
        folder: The folder.
        cells: The cells of the grid.
        rows: The measured rows by the id of the cell; of cells of other grids in the folder too.
        failed: What was wrong, by the id of the cell.
    """

    folder: Path
    cells: Sequence[Cell]
    rows: dict[str, Row] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the rows of the folder.

        Raises:
            InputError: They cannot be read, or the folder is somebody else's.
        """
        require_own(self.folder, "grid")
        path = self.folder / ROWS
        if path.exists():
            try:
                self.rows = {row["cell"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{path} holds no rows of a grid: move it away, or name another folder") from None

    @property
    def missing(self) -> list[Cell]:
        """The cells without a row, each once, in the order of the grid."""
        return [cell for cell in {cell.id: cell for cell in self.cells}.values() if cell.id not in self.rows]

    def measure(self, jobs: int | None = None, done: Callable[[Cell], None] = lambda cell: None) -> None:
        """Measure the cells without a row, and write each row as soon as it is there.

        Args:
            jobs: Number of processes; by default as many as there are usable cores, or one on a GPU. With one, cells
                are measured in this process.
            done: Called after each cell, measured or failed.

        Raises:
            InputError: Another process is measuring in the folder, or a source has changed since its rows were
                measured.
            WriteError: A file cannot be written.
        """
        self._require_unchanged_sources()
        missing = self.missing
        if not missing:
            return
        make_folder(self.folder)
        with only_writer(self.folder):
            if read_marker(self.folder) is None:
                write_marker(self.folder, "grid")
            self._clear(self.rows)
            number = min(jobs or usual_jobs(missing), len(missing))
            if number > 1:  # evidence first, which is computed once for all cells of a group
                missing = list(self._with_evidence(missing, number, done))
            for cell, row in self._results(missing, number):
                if "error" in row:
                    self.failed[cell.id] = row["error"]
                else:
                    self._keep(cell, row)
                done(cell)

    def _require_unchanged_sources(self) -> None:
        """Raise an error where the source of a measured cell has changed."""
        hashes: dict[str, str] = {}
        for cell in self.cells:
            if cell.id in self.rows:
                data = cell.config.data.model_dump()
                read = {name: value for name, value in data.items() if not name.startswith(("noise", "verified"))}
                key = json.dumps([cell.config.source, read], default=str)
                if key not in hashes:
                    hashes[key] = read_pairs(cell.config).hash
                require_unchanged(cell.config, hashes[key], self.rows[cell.id], self.folder)

    def _with_evidence(self, cells: Sequence[Cell], number: int, done: Callable[[Cell], None]) -> Iterator[Cell]:
        """Compute the held-out evidence that is not in the folder, and yield the cells that have theirs."""
        lacking = {cell.group: cell for cell in cells if not (self.folder / STARTS / cell.group / PRIOR).exists()}
        rows = {cell.group: row for cell, row in self._results(list(lacking.values()), number, False)}
        for cell in cells:
            if "error" in rows.get(cell.group, {}):
                self.failed[cell.id] = rows[cell.group]["error"]
                done(cell)
            else:
                yield cell

    def _results(self, cells: Sequence[Cell], number: int, whole: bool = True) -> Iterator[tuple[Cell, Row]]:
        """Yield the results of `measure_cell` as they come, from a number of processes; one is this process.

        Raises:
            InputError: A process was ended from outside.
        """
        by_id = {cell.id: cell for cell in cells}
        folder = self.folder.absolute()
        process = os.getpid()
        tasks = (
            delayed(measure_cell)(folder, cell.id, cell.group, cell.tree, cell.folds, whole, process) for cell in cells
        )
        try:
            with parallel_config("loky", inner_max_num_threads=max(1, usable_cores() // number)):
                results = Parallel(number, return_as="generator_unordered", batch_size=1, pre_dispatch=number)(tasks)
            yield from ((by_id[cell], row) for cell, row in results)
        except BrokenProcessPool:
            raise InputError(
                "a process was ended from outside, perhaps for want of memory: repeat the command with fewer --jobs"
            ) from None
        finally:
            _last.clear()
            if number > 1:
                get_reusable_executor().shutdown(kill_workers=True)

    def _keep(self, cell: Cell, row: Row) -> None:
        """Write a row, and remove the checkpoint of its cell."""
        self.rows[cell.id] = {"cell": cell.id, **cell.place, "options": cell.config.tree(), **row}
        write_json(self.folder / ROWS, {"rows": list(self.rows.values())})
        self._clear([cell.id])

    def _clear(self, ids: Iterable[str]) -> None:
        """Remove the folders of measured cells."""
        for name in ids:
            shutil.rmtree(self.folder / CELLS / name, ignore_errors=True)


def usual_jobs(cells: Sequence[Cell]) -> int:
    """Return the usual number of processes: one on a GPU, else one for each core."""
    on_gpu = any(pick_device(cell.config.train.device).type != "cpu" for cell in cells)
    return 1 if on_gpu else usable_cores()
