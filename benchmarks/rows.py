"""What the benchmarks share: files of rows, tables in pages, options of a fit, and versions."""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, Any]
END = "<!-- end -->"  # of every table in a page; each has a mark of its own that it begins with
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("pairsift", "torch", "numpy", "scikit-learn", "scipy")


def parser(description: str | None, json_file: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with the option `--json`, by default a file in benchmarks/results or none."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = None if json_file is None else Path("benchmarks/results") / json_file
    options.add_argument("--json", type=Path, default=default, metavar="FILE", help="file of the rows")
    return options


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file. There are none where there is no file."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return rows


def write_rows(path: Path | None, rows: Sequence[Row], facts: Mapping[str, Any] | None = None) -> None:
    """Write rows, and facts that hold for all of them.

    A reader sees the old file or the new one.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rows": rows, **(facts or {})}, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def find_row(rows: Iterable[Row], wanted: Row) -> Row | None:
    """Return the first row with these values."""
    return next(iter(select(rows, wanted)), None)


def select(rows: Iterable[Row], wanted: Row) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def mean(values: Iterable[float | None], form: str) -> str:
    """Return the mean of the numbers as text. Values that are None do not count."""
    present = [value for value in values if value is not None]
    return format(statistics.mean(present), form) if present else ""


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first = "|" + "|".join(f" {name} " if name else " " for name in head) + "|"
    return "\n".join([first, "|---" * len(head) + "|", *("| " + " | ".join(line) + " |" for line in lines)])


def page(description: str | None, tables: str) -> str:
    """Return tables below the heading and the protocol of a benchmark."""
    title, rest = re.split(r"; |: |\n\n", (description or "").strip(), maxsplit=1)
    return f"# {title}\n\n{rest[:1].upper()}{rest[1:]}\n\n{tables}\n"


def write_between(path: Path | None, mark: str, content: str, end: str = END) -> None:
    """Write content anew between two marks in a page. A page without the first mark stays as it is."""
    if path is None:
        return
    head, separator, rest = path.read_text(encoding="utf-8").partition(mark)
    if separator:
        path.write_text(f"{head}{mark}\n{content}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def write_tables(pages: Iterable[Path], tables: Mapping[str, Callable[[list[Row]], str]], rows: list[Row]) -> None:
    """Write the tables anew whose marks the pages have."""
    for path in pages:
        for mark, table in tables.items():
            write_between(path, mark, table(rows))


def option_tree(options: Iterable[str]) -> Row:
    """Return options such as `pc2.captions.search=batch` as the tree that `from_tree` takes."""
    tree: Row = {}
    for option in options:
        name, _, value = option.partition("=")
        place = tree
        *outer, last = name.replace("-", "_").split(".")
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages, by default `PACKAGES`, and of Python."""
    return {name: version(name) for name in packages or PACKAGES} | {"python": platform.python_version()}
