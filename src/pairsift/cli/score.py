"""The verb `score`: match probabilities of pairs that a run was not made of."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run")
@click.argument("new")
@click.option("--out", required=True, type=Path, metavar="FILE", help="The table to write: .parquet or .csv.")
@click.option("--reader", metavar="NAME", help="Reader of the new pairs; by default the one that fits.")
@click.option("--image-column", metavar="NAME", help="Image column of a table.")
@click.option("--caption-column", metavar="NAME", help="Caption column of a table, or field of shards.")
@click.option("--image-folder", metavar="PATH", help="Folder that relative image paths start from.")
@click.option("--source", metavar="PATH", help="New path of the run's source, if it has moved.")
def score(
    run: str,
    new: str,
    out: Path,
    reader: str | None,
    image_column: str | None,
    caption_column: str | None,
    image_folder: str | None,
    source: str | None,
) -> None:
    """Judge new pairs by a finished run.

    NEW is a table, a folder or any other source that fit reads. Nothing is trained. A call that was killed can be
    repeated: it goes on. The pairs of a part, up to about 20,000, are judged beside each other: scored with other new
    pairs, a pair gets another probability, and sometimes another flag where the new pairs are few.
    """
    from pairsift.run_folder import require_finished

    require_finished(Path(run))
    from pairsift.runs.run import Run

    opened = Run(run, source=source)
    columns = {"reader": reader, "image_column": image_column, "caption_column": caption_column}
    rows = opened.score(new, out, image_folder=image_folder, **columns)
    print(f"{out}: {rows:,} pair{'s' * (rows != 1)}")
