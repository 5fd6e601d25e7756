"""The verb `search`: images by a text or by a pair, captions by an image."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairsift.cli.shared import RUN, SOURCE
from pairsift.errors import InputError, writing

if TYPE_CHECKING:
    from pairsift.search.search import Hit


@click.command()
@RUN
@click.argument("text", required=False)
@click.option("--image", metavar="FILE", type=Path, help="Find the captions that describe an image file.")
@click.option("--like", metavar="PAIR", type=int, help="Find images like the image of a pair, by the pair's id.")
@SOURCE
@click.option("-k", type=int, default=10, show_default=True, help="Number of results.")
@click.option("--json", "lines", is_flag=True, help="Print a JSON object for each result: file, pair, caption, score.")
@click.option("--open", "show", is_flag=True, help="Show the results with small images on a page in a browser.")
def search(
    run: Path,
    text: str | None,
    image: Path | None,
    like: int | None,
    source: str | None,
    k: int,
    lines: bool,
    show: bool,
) -> None:
    """Find a run's images by a text, captions by an image, or images like the image of a pair."""
    if sum(query is not None for query in (text, image, like)) != 1:
        raise InputError("search by one thing: give a text, or --image FILE, or --like PAIR")
    from pairsift.runs.search import open_search

    index = open_search(run, source)
    if text is not None:
        title, hits = text, index.by_text(text, k)
    elif image is not None:
        title, hits = f"captions for {image.name}", index.by_image(image, k)
    else:
        assert like is not None
        title, hits = f"images like the image of pair {like}", index.by_pair(like, k)
    for hit in hits:
        print(json.dumps(asdict(hit)) if lines else _line(hit, image is not None))
    approximate = index.approximate_images if image is None else index.approximate_captions
    if approximate is not None:
        print(approximate.line, file=sys.stderr)
    if show:
        _open_page(title, hits)


def _line(hit: Hit, captions: bool) -> str:
    """Return a result as a line of text: the image, or the caption with its pair and image."""
    file = click.format_filename(hit.file)  # a name may be no text
    if not captions:
        return f"{hit.score:.3f}  {file}"
    return f"{hit.score:.3f}  {plain(hit.caption)}  (pair {hit.pair}, {file})"


def plain(text: str) -> str:
    """Return a text as one line without characters that steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def page_of(title: str, hits: Sequence[Hit]) -> str:
    """Return the results as a page that needs no other file, best first, each with a small image if it has a file."""
    from pairsift.report.html import render
    from pairsift.report.images import thumbnail

    rows = [{**asdict(hit), "picture": thumbnail(Path(hit.file))} for hit in hits]
    return render("results.html", title=title, hits=rows)


def _open_page(title: str, hits: list[Hit]) -> None:
    """Write the results as a page into a temporary file, and open it in a browser."""
    number, name = tempfile.mkstemp(".html", "pairsift-search-")
    with writing(Path(name)), os.fdopen(number, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(page_of(title, hits))
    print(f"the page is {name}", file=sys.stderr)
    click.launch(name)
