"""What can be refused at once: a wrong option, path or column, before anything heavy is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pairsift.api.options import DataOptions, EncodeOptions
from pairsift.api.wording import plainly
from pairsift.errors import InputError
from pairsift.train.options import TrainOptions

FLAGS = ("--resume", "--overwrite", "--quiet", "--help", "-h")
OTHERS = ("--out", "--config", "--method", "--matcher", "--loss", "--preset", "--epochs", "--print_config")
PARTS = ("--pc2", "--two_tower", "--infonce", "--hinge")  # whose options may come as one mapping


def check_words(words: Sequence[str]) -> None:
    """Refuse the command line of `fit` where an option is unknown, or its source or a column is not there.

    What is right here may still be wrong for the parser, which knows the parts' own options and all values.

    Args:
        words: The command line without the verb.

    Raises:
        InputError: It cannot be used.
    """
    given, sources = _read(words)
    if "--help" in given or "-h" in given:
        return
    groups = (DataOptions, EncodeOptions, TrainOptions)
    names = [f"--{part.name}" for group in groups for part in dataclasses.fields(group)]
    known = [*names, *FLAGS, *OTHERS]
    chosen = [f"--{given[part]}" for part in ("--method", "--matcher", "--loss") if part in given]
    for name in given:
        if "." not in name and name not in (*known, *PARTS, *chosen):
            raise InputError(plainly(f"unrecognized arguments: {name}", known, lambda part: None))
    if len(sources) == 1:
        _check_source(Path(sources[0]).resolve(), given)


def _read(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the words that are neither."""
    given: dict[str, str] = {}
    rest: list[str] = []
    waiting = ""
    for word in words:
        if waiting and not word.startswith("--"):
            given[waiting], waiting = word, ""
        elif word.startswith("--") or word == "-h":
            name, sign, value = word.partition("=")
            name = name[:2] + name[2:].replace("-", "_")
            given[name] = value
            waiting = "" if sign or name in FLAGS else name
        else:
            rest.append(word)
    return given, rest


def _check_source(source: Path, given: dict[str, str]) -> None:
    """Refuse a source that is not there, or a table that lacks a column."""
    demand_source(source)
    if source.is_file() and "--config" not in given and given.get("--reader", "table") == "table":
        from pairsift.pairs.readers.tables import check_columns
        from pairsift.pairs.records import Columns

        check_columns(source, Columns(given.get("--image_column"), given.get("--caption_column")))


def demand_source(source: Path) -> None:
    """Refuse a source that is not there.

    Raises:
        InputError: It is not.
    """
    if not source.exists():
        raise InputError(f"there is nothing at {source}: give a file or a folder of image-caption pairs")
