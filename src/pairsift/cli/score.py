"""The verb `score`: match probabilities of new pairs by a finished run."""

from __future__ import annotations

from pathlib import Path

import click

from pairsift.cli.shared import RUN, SOURCE, in_words


@click.command()
@RUN
@click.argument("new")
@click.option("--out", required=True, type=Path, metavar="FILE", help="The table to write: .parquet or .csv.")
@click.option("--reader", metavar="NAME", help="Reader of the new pairs; by default the one that fits.")
@click.option("--image-column", metavar="NAME", help="Image column of a table.")
@click.option("--caption-column", metavar="NAME", help="Caption column of a table, or field of shards.")
@click.option("--image-folder", metavar="PATH", help="Folder that relative image paths start from.")
@click.option(
    "--quotes", type=click.Choice(["csv", "backslash", "none"]), help="How quotes are marked in a CSV or TSV."
)
@click.option("--lists", type=click.Choice(["split", "keep"]), help="Whether a cell that lists captions is several.")
@click.option("--shard", metavar="I/N", help="Work on every N-th shard, from I; other processes do the others.")
@click.option("--ray", metavar="ADDRESS", help="Work on a Ray cluster at this address, or local.")
@SOURCE
def score(run: Path, new: str, out: Path, source: str | None, **options: str | None) -> None:
    """Judge new pairs by a finished run.

    NEW is a table, a folder or any other source that fit reads. Nothing is trained. A call that was killed can be
    repeated: it goes on. The pairs of a part, up to about 20,000, are judged beside each other: scored with other new
    pairs, a pair gets another probability, and sometimes another flag where the new pairs are few.
    """
    from pairsift.runs.run import Run

    opened = Run(run, source=source)
    rows = opened.score(new, out, **options)
    print(f"{out}: {in_words(rows)}" if rows is not None else f"the process that ends last writes {out}")
