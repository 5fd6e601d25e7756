"""The n-gram encoder that a run fits to its captions."""

from __future__ import annotations

from pathlib import Path

from pairsift.encode import NgramEncoder, text_parts
from pairsift.pairs.pairs import Pairs


def run_ngrams(pairs: Pairs, name: str, saved: Path, opened: bool) -> NgramEncoder | None:
    """Return the n-gram encoder of a run: loaded from the run's folder, else fitted to the captions of train and dev.

    Args:
        pairs: The pairs.
        name: Name of the text encoder.
        saved: The file in the run's folder, which need not exist for a new run.
        opened: Whether a finished run is opened again.

    Returns:
        The encoder; None where the text encoder needs no n-grams.

    Raises:
        InputError: The file cannot be used, or an opened run lacks it.
    """
    if "ngrams" not in text_parts(name):
        return None
    if opened or saved.exists():
        return NgramEncoder.load(saved)
    return NgramEncoder.build([pairs.captions[pair] for pair in pairs.ids("train", "dev")])
