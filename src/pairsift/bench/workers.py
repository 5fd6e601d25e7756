"""The measurement of a grid by several processes, and the rows that are done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pairsift.bench.child import CELLS, STARTS, Measurer, error_line
from pairsift.bench.grid import Cell
from pairsift.bench.measure import PRIOR, require_unchanged
from pairsift.cores import usable_cores
from pairsift.errors import InputError, writing
from pairsift.files import only_writer, write_json
from pairsift.marker import read_marker, require_own, write_marker
from pairsift.runs.prepare import read_pairs
from pairsift.train.loop import pick_device

ROWS = "rows.json"
PACKAGES = Path(__file__).absolute().parents[2]  # so that workers run the same code
Row = dict[str, Any]
Measure = Callable[[Cell, Callable[[], None]], Row]  # measures a cell, and calls back when its evidence is there


def measure_here(folder: Path) -> Measure:
    """Return the measurement of cells in this process, which raises `InputError` for a cell that fails."""
    measurer = Measurer(folder)

    def measure(cell: Cell, ready: Callable[[], None]) -> Row:
        try:
            return measurer(cell.id, cell.group, cell.tree, ready)
        except InputError:
            raise
        except Exception as error:
            raise InputError(error_line(error)) from error

    return measure


class ProcessWorker:
    """A worker in a process of its own, which the first cell starts."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._process: subprocess.Popen[str] | None = None

    def measure(self, cell: Cell, ready: Callable[[], None]) -> Row:
        """Return the numbers of a cell.

        Raises:
            InputError: The cell fails, or the process was ended from outside.
        """
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        task = {"folder": str(self._folder), "cell": cell.id, "group": cell.group, "tree": cell.tree}
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            report = json.loads(line)
            if "row" in report:
                return dict(report["row"])
            if report.get("ended"):
                process.wait()
                self._process = None
            if "error" in report:
                raise InputError(report["error"])
            ready()
        code, self._process = process.wait(), None
        raise InputError(f"its process ended with code {code}: see what it printed, or take fewer --jobs")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        own = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(self._threads))
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "pairsift.bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **own},
            text=True,
            start_new_session=True,  # a Ctrl-C is for this process, which ends the worker
        )


@dataclass
class CellQueue:
    """The cells that no worker has begun.

    One worker computes the evidence of a group. The others take cells of other groups meanwhile.

    Attributes:
        pending: The cells, in the order of the grid.
        ready: Groups whose evidence is there.
    """

    pending: list[Cell]
    ready: set[str]
    _judging: set[str] = field(default_factory=set)
    _active: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, last: str | None) -> Cell | None:
        """Wait for a cell, if possible of the worker's last group. None if no cell is left."""
        with self._changed:
            while self.pending:
                free = [cell for cell in self.pending if cell.group in self.ready or cell.group not in self._judging]
                if free:
                    cell = min(free, key=lambda cell: (cell.group != last, cell.group in self._active))
                    self.pending.remove(cell)
                    self._active.append(cell.group)
                    if cell.group not in self.ready:
                        self._judging.add(cell.group)
                    return cell
                self._changed.wait()
            return None

    def mark_ready(self, group: str) -> None:
        """Let all workers take cells of a group, since its evidence is there."""
        with self._changed:
            self.ready.add(group)
            self._judging.discard(group)
            self._changed.notify_all()

    def finished(self, cell: Cell) -> None:
        """Note the end of a cell, measured or not."""
        with self._changed:
            self._active.remove(cell.group)
            self._judging.discard(cell.group)
            self._changed.notify_all()

    def stop(self) -> None:
        """Let no worker begin another cell."""
        with self._changed:
            self.pending.clear()
            self._changed.notify_all()


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
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

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
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder):
            if read_marker(self.folder) is None:
                write_marker(self.folder, "grid")
            self._clear(self.rows)
            number = min(jobs or usual_jobs(missing), len(missing))
            ready = {cell.group for cell in missing if (self.folder / STARTS / cell.group / PRIOR).exists()}
            queue = CellQueue(missing, ready)
            if number == 1:
                self._work(measure_here(self.folder), queue, done)
            else:
                self._share(number, queue, done)

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

    def _share(self, number: int, queue: CellQueue, done: Callable[[Cell], None]) -> None:
        """Measure the cells of a queue by a number of processes. A thread here waits for each process."""
        broken: list[BaseException] = []

        def work(worker: ProcessWorker) -> None:
            try:
                self._work(worker.measure, queue, done)
            except BaseException as error:
                broken.append(error)
                queue.stop()

        with ExitStack() as stack:
            workers = [ProcessWorker(self.folder, max(1, usable_cores() // number)) for _ in range(number)]
            for worker in workers:
                stack.callback(worker.close)
            stack.callback(queue.stop)
            threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if broken:
            raise broken[0]

    def _work(self, measure: Measure, queue: CellQueue, done: Callable[[Cell], None]) -> None:
        """Measure cells of a queue until none is left."""
        cell = queue.take(None)
        while cell is not None:
            group = cell.group
            try:
                row = measure(cell, partial(queue.mark_ready, group))
            except InputError as error:
                self.failed[cell.id] = str(error)
            else:
                with self._lock:
                    self._keep(cell, row)
            queue.finished(cell)
            with self._lock:
                done(cell)
            cell = queue.take(group)

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
