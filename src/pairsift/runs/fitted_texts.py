"""The text encoder that a run fits to its own captions."""

from __future__ import annotations

from pathlib import Path

from pairsift.encode import NgramEncoder, text_parts
from pairsift.pairs import Pairs


def run_ngrams(pairs: Pairs, name: str, saved: Path, opened: bool) -> NgramEncoder | None:
    """Return the n-grams that encode the captions: what the run's folder holds, else fitted to those of train and dev.

    Args:
        pairs: The pairs.
        name: Name of the text encoder.
        saved: The file in the run's folder, which need not exist where the run is new.
        opened: Whether the run was made before.

    Returns:
        None where the text encoder needs none.

    Raises:
        InputError: The file cannot be used, or an opened run lacks it.
    """
    if "ngrams" not in text_parts(name):
        return None
    if opened or saved.exists():
        return NgramEncoder.load(saved)
    return NgramEncoder.build([pairs.captions[pair] for pair in pairs.ids("train", "dev")])
