"""The vocabulary that numbers the captions of a run."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from pairsift.encode import LEARNED, BytePairs, GivenIds, Numbering, Vocabulary, read_numbering
from pairsift.encode.options import EncodeOptions
from pairsift.encode.pickled import MARK, read_pickled
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs

MIN_COUNT = 4

log = logging.getLogger(__name__)


def check_numbering(encode: EncodeOptions, name: str) -> None:
    """Raise an error for options of vocabularies that exclude each other or do not fit the text encoder.

    Args:
        encode: The options.
        name: Name of the text encoder.

    Raises:
        InputError: An option cannot be used.
    """
    if encode.vocabulary is not None and name not in LEARNED:
        raise InputError(f"--vocabulary has no effect on the text encoder {name}: use it with {', '.join(LEARNED)}")
    if encode.vocabulary is not None and not Path(encode.vocabulary).is_file():
        raise InputError(f"there is no vocabulary file {encode.vocabulary}")
    if encode.vocabulary is not None and encode.min_count is not None:
        raise InputError("--vocabulary and --min-count exclude each other: give one of them")
    if encode.splitter is not None and name != "words":
        raise InputError(f"--splitter has no effect on the text encoder {name}: use it with words")


def run_numbering(pairs: Pairs, name: str, encode: EncodeOptions, saved: Path) -> Numbering | None:
    """Return the vocabulary of a run: from the run's folder, else from a file, else built from the captions.

    Args:
        pairs: The pairs; words and byte pairs are learned from those of train and dev.
        name: Name of the text encoder.
        encode: The options.
        saved: The file in the run's folder, which need not exist.

    Returns:
        The vocabulary; None where the text encoder needs none.

    Raises:
        InputError: A file cannot be used, a package is missing, or captions should be token ids but are not.
    """
    if name not in LEARNED:
        return None
    if saved.exists():
        return read_file(saved)
    vocabulary, file = _file_vocabulary(pairs, name, encode)
    if vocabulary is not None and vocabulary.name != ("bpe" if name == "bpe" else "words"):
        raise InputError(f"{file}: is a vocabulary of {vocabulary.name}, which the text encoder {name} cannot use")
    if isinstance(vocabulary, BytePairs):
        return vocabulary
    assert vocabulary is None or isinstance(vocabulary, Vocabulary)
    if name == "ids":
        return GivenIds.from_captions(pairs.captions, vocabulary)
    if vocabulary is not None:
        return vocabulary if encode.splitter is None else replace(vocabulary, splitter=encode.splitter)
    captions = [pairs.captions[pair] for pair in pairs.ids("train", "dev")]
    return BytePairs.build(captions, encode.bpe_size) if name == "bpe" else _build(captions, encode)


def _build(captions: list[str], encode: EncodeOptions) -> Vocabulary:
    minimum = MIN_COUNT if encode.min_count is None else encode.min_count
    return Vocabulary.build(captions, minimum, encode.splitter or "plain")


def _file_vocabulary(pairs: Pairs, name: str, encode: EncodeOptions) -> tuple[Numbering | None, Path | None]:
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
        log.warning("%s; the captions' ids are used unchanged", error)
        return None, None


def read_file(path: Path) -> Numbering:
    """Read a vocabulary file: JSON, or a pickle, of which nothing is run.

    Raises:
        InputError: The file cannot be read, or is not a vocabulary.
    """
    try:
        data = path.read_bytes()
        return read_pickled(data) if data.startswith(MARK) else read_numbering(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
