"""The verb `encode`: vectors of a source's images and captions, shard by shard."""

from __future__ import annotations

from pathlib import Path

import click

from pairsift.cli.shared import QUIET, in_words
from pairsift.remote import is_remote
from pairsift.source_path import require_path


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--out", required=True, type=Path, metavar="FOLDER", help="The folder of the vectors.")
@click.option("--shard", metavar="I/N", help="Work on every N-th shard, from I; other processes do the others.")
@click.option("--ray", metavar="ADDRESS", help="Work on a Ray cluster at this address, or local.")
@click.option("--encoders", metavar="NAME", help="Model of the hub for both sides, such as clip; or one for each.")
@click.option("--image-encoder", metavar="NAME", help="Image encoder (pairsift list encoders).")
@click.option("--text-encoder", metavar="NAME", help="Text encoder that gives one vector for a caption.")
@click.option("--reader", metavar="NAME", help="Reader of the source; by default the one that fits.")
@click.option("--image-column", metavar="NAME", help="Image column of a table.")
@click.option("--caption-column", metavar="NAME", help="Caption column of a table, or field of shards.")
@click.option("--image-folder", metavar="PATH", help="Folder that relative image paths start from.")
@QUIET
def encode(
    source: tuple[str, ...], out: Path, shard: str | None, ray: str | None, quiet: bool, **named: str | None
) -> None:
    """Encode a source's images and captions into a folder of vectors, of which `check` judges millions.

    SOURCE is what `check` takes. Tar files are shards, and so are every 10,000 rows of Parquet files or of other lists.
    Tar and Parquet files may lie at other places, such as https://HOST/{00000..00831}.tar or s3://BUCKET/*.tar. A
    command that was killed goes on when it is repeated. The folder has the layout of clip-retrieval: img_emb,
    text_emb and metadata.
    """
    from pairsift.runs.encoding import encode_source

    place = " ".join(source) if all(map(is_remote, source)) else require_path(source)
    done = encode_source(place, out, shard, ray, named, shown=not quiet)
    if quiet:
        return
    if done.problems is None:
        print(f"{in_words(done.left, 'shard')} of {done.shards:,} left to the others")
        return
    if done.note:
        print(done.note)
    found = done.problems
    counts = ((found.shards, "shard"), (found.records, "record"))
    if unusable := " and ".join(in_words(count, noun) for count, noun in counts if count):
        print(f"not usable: {unusable}, the first: {found.first}; all: column 'problem' of {out}/metadata")
    print(f"{out}: {in_words(done.shards, 'shard')}; next: pairsift check {out}")
