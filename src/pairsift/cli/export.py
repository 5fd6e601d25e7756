"""The verb `export`: the cleaned data in the formats that people use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pairsift.cli.shared import QUIET, RUN, SOURCE, in_words


@click.command()
@RUN
@click.option("--out", required=True, type=Path, metavar="PATH", help="File or folder to write.")
@SOURCE
@click.option(
    "--drop-below",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="P",
    help="Leave out undecided pairs with a smaller match probability.",
)
@click.option(
    "--replace-above",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Give undecided suspects the suggested caption if its probability is at least P.",
)
@click.option("--weights", is_flag=True, help="Add a column weight, the match probability; 1 for decided pairs.")
@click.option(
    "--splits", is_flag=True, help="Write the run's splits too, so that a run on them has the same test images."
)
@QUIET
def export(run: Path, out: Path, source: str | None, quiet: bool, **rules: Any) -> None:
    """Write a run's pairs with the decisions applied.

    Dropped pairs are left out, replaced captions are replaced, and all else stays as it is in the source. The ending of
    the path decides on the format: .csv, .tsv, .jsonl or .parquet for a table, .json for the layout of a source that is
    COCO captions, Karpathy's splits or rows as pandas and others write them, and COCO captions of others, coco.json for
    these always, .txt for the ids of the pairs, .fiftyone for a folder that FiftyOne opens, shards (such as
    clean-shards) for a folder of tar files, and no ending for a folder of images with their captions.
    """
    from pairsift.runs.exporting import expected_mismatches, export_run, gives_verdicts

    selection, images = export_run(run, out, source=source, **rules)
    counts = selection.counts
    if not gives_verdicts(run) and (counts["below"] or rules["weights"]):
        print(
            f"{run} gives no verdicts: its probabilities only rank the pairs, and do not say how many are mismatched",
            file=sys.stderr,
        )
    if quiet:
        return
    left_out = [
        f"{counts['dropped']:,} dropped" * bool(counts["dropped"]),
        f"{counts['repeated']:,} whose image has the new caption already" * bool(counts["repeated"]),
        f"{counts['below']:,} below {rules['drop_below']:g}" * bool(counts["below"]),
        f"{counts['skipped']:,} that could not be used" * bool(counts["skipped"]),
    ]
    line = f"{out}: {in_words(counts['kept'])}"
    line += f"; {counts['rewritten']:,} with a new caption" * bool(counts["rewritten"])
    print(line + f"; left out: {', '.join(filter(None, left_out))}" * any(left_out))
    if expected := round(expected_mismatches(run, selection) or 0.0):
        unseen = "; a new fit cannot find these again, and its noise rate will be too low" * bool(counts["below"])
        judged, others = counts["judged"], counts["kept"] - counts["judged"]
        of = f"{judged:,} judged pairs ({others:,} were not judged)" if others else f"{judged:,} pairs"
        print(f"about {expected:,} of the {of} are expected to be mismatched{unseen}")
    if images is not None:
        print(f"its image names start from {images}: read it with --image-folder {images}")
