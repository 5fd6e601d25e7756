"""Arguments and options that several verbs have."""

from __future__ import annotations

from pathlib import Path

import click

from pairsift.run_folder import require_finished

QUIET_HELP = "Print nothing but errors."
OVERWRITE_HELP = "Replace a run in the folder; one that holds decisions is set aside."


def _finished(context: click.Context, parameter: click.Parameter, folder: Path) -> Path:
    """Return the folder of a finished run.

    Raises:
        InputError: The folder holds no finished run.
    """
    if not context.resilient_parsing:
        require_finished(folder)
    return folder


RUN = click.argument("run", type=click.Path(path_type=Path), callback=_finished)
SOURCE = click.option("--source", metavar="PATH", help="New path of the run's source, if it has moved.")
QUIET = click.option("--quiet", is_flag=True, help=QUIET_HELP)
OVERWRITE = click.option("--overwrite", is_flag=True, help=OVERWRITE_HELP)


def in_words(n: int, noun: str = "pair") -> str:
    """Return a number of things in words, such as `1 pair` or `1,200 pairs`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"
