"""Which vocabulary a run's captions are numbered by."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from pairsift.encode import LEARNED, BytePairs, GivenIds, Numbering, Vocabulary, read_numbering
from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError
from pairsift.pairs import Pairs

MIN_COUNT = 4

log = logging.getLogger(__name__)


def check_numbering(encode: EncodeOptions, name: str) -> None:
    """Refuse options of vocabularies that cannot go together.

    Args:
        encode: The options.
        name: Name of the text encoder.

    Raises:
        InputError: They cannot.
    """
    if encode.vocabulary is not None and name not in LEARNED:
        raise InputError(f"--vocabulary is of no use to the text encoder {name}: it goes with {', '.join(LEARNED)}")
    if encode.vocabulary is not None and not Path(encode.vocabulary).is_file():
        raise InputError(f"there is no vocabulary file {encode.vocabulary}")
    if encode.vocabulary is not None and encode.min_count is not None:
        raise InputError("--vocabulary and --min-count exclude each other: give one of them")
    if encode.splitter is not None and name != "words":
        raise InputError(f"--splitter is of no use to the text encoder {name}: it goes with words")


def run_numbering(pairs: Pairs, name: str, encode: EncodeOptions, saved: Path) -> Numbering | None:
    """Return the vocabulary of a run: that of the run's folder, else of a file, else one built from the captions.

    Args:
        pairs: The pairs; words and byte pairs are learned from those of train and dev.
        name: Name of the text encoder.
        encode: The options.
        saved: The file in the run's folder, which need not exist.

    Returns:
        None where the text encoder needs none.

    Raises:
        InputError: A file cannot be used, a package is missing, or captions that should be token ids are none.
    """
    if name not in LEARNED:
        return None
    if saved.exists():
        return read_file(saved)
    known, file = _known(pairs, name, encode)
    if known is not None and known.name != ("bpe" if name == "bpe" else "words"):
        raise InputError(f"{file}: is a vocabulary of {known.name}, which the text encoder {name} cannot use")
    if isinstance(known, BytePairs):
        return known
    assert known is None or isinstance(known, Vocabulary)
    if name == "ids":
        return GivenIds.of(pairs.captions, known)
    if known is not None:
        return known if encode.splitter is None else replace(known, splitter=encode.splitter)
    captions = [pairs.captions[one] for one in pairs.ids("train", "dev")]
    return BytePairs.build(captions, encode.bpe_size) if name == "bpe" else _build(captions, encode)


def _build(captions: list[str], encode: EncodeOptions) -> Vocabulary:
    minimum = MIN_COUNT if encode.min_count is None else encode.min_count
    return Vocabulary.build(captions, minimum, encode.splitter or "plain")


def _known(pairs: Pairs, name: str, encode: EncodeOptions) -> tuple[Numbering | None, Path | None]:
    """Return the vocabulary of the user's file or of the file beside the source; None if there is neither."""
    if encode.vocabulary is not None:
        return read_file(Path(encode.vocabulary)), Path(encode.vocabulary)
    file = None if pairs.features is None else pairs.features.vocabulary
    if file is None or encode.min_count is not None or name == "bpe":
        return None, None
    try:
        return read_file(file), file
    except InputError as error:
        if name == "words":
            raise InputError(f"{error}; or build one from the captions with --min-count {MIN_COUNT}") from error
        log.warning("%s; the captions' ids are taken as they are", error)
        return None, None


def read_file(path: Path) -> Numbering:
    """Read a vocabulary file.

    Raises:
        InputError: It cannot be read or is none.
    """
    try:
        return read_numbering(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
