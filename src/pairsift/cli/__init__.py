"""The command line: verbs over the Python interface."""

from pairsift.cli.main import main

__all__ = ["main"]
