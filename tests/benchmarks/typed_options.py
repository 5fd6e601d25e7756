"""What the command line makes of the options that a benchmark types."""

from collections.abc import Iterable

from pairsift.cli.fit import FitCommand
from pairsift.runs.config import Config, from_tree


def typed(words: Iterable[str]) -> Config:
    """The options of `pairsift fit . WORDS`."""
    found = []
    FitCommand(lambda tree, *switches: found.append(tree)).main([".", *words], standalone_mode=False)
    return from_tree(found[0])
