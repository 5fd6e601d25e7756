"""The verb `bench`: a grid of runs and its tables."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pairsift.errors import InputError


@click.command()
@click.argument("grid", type=Path)
@click.option("--out", type=Path, metavar="FOLDER", help="Folder of the rows; by default the grid's, or runs/<grid>.")
@click.option("--source", type=Path, metavar="PATH", help="Take the pairs from here instead of the grid's source.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes; by default one for each core with one thread each, or one on a GPU.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def bench(grid: Path, out: Path | None, source: Path | None, jobs: int | None, quiet: bool) -> None:
    """Measure methods, matchers, noise and seeds side by side, and write tables of recall.

    GRID is a YAML file with a source, lists of methods, matchers, noise and seeds, and options of fit. A finished cell
    is not measured again: repeat the command to go on after a stop, or after the lists have grown.
    """
    if not grid.is_file():
        raise InputError(f"there is no grid {grid}: give a YAML file with `source` and `methods`")
    from pairsift.bench.grid import Cell, read_grid
    from pairsift.bench.tables import markdown, sheets, write_tables
    from pairsift.bench.workers import Bench

    read = read_grid(grid, source)
    folder = out or read.out or Path("runs") / grid.stem
    rows = Bench(folder, read.cells)
    number, missing = len({cell.id for cell in read.cells}), len(rows.missing)
    if not quiet:
        print(f"{number} cells, {number - missing} of them measured before; rows: {folder}", file=sys.stderr)
    finished = number - missing

    def write() -> list[Path]:
        tables = sheets(read, rows.rows)
        return write_tables(folder, tables) if tables else []  # tables of another grid stay

    def done(cell: Cell) -> None:
        nonlocal finished
        finished += 1
        write()
        if not quiet:
            row = rows.rows.get(cell.id)
            result = rows.failed[cell.id] if row is None else f"rSum {row['rsum']:.1f}, {row['train_seconds']:.0f} s"
            print(f"{finished}/{number} {cell}: {result}", file=sys.stderr, flush=True)

    try:
        rows.measure(jobs, done)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("repeat the command to go on") from None
    paths = write()
    if paths and not quiet:
        print(markdown(sheets(read, rows.rows)))
        print(f"tables: {', '.join(map(str, paths))}")
    if rows.failed:
        cell = next(cell for cell in read.cells if cell.id in rows.failed)
        raise InputError(f"{len(rows.failed)} of {number} cells failed; {cell}: {rows.failed[cell.id]}")
