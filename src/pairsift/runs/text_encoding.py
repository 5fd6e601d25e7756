"""The vocabulary and the n-grams of a run's text encoder."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from pairsift.encode.ngrams import NgramEncoder
from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import ID_ENCODERS, TEXT_ENCODER, text_parts
from pairsift.encode.vocabularies import BytePairs, GivenIds, Numbering, Vocabulary, read_vocabulary_file
from pairsift.errors import InputError
from pairsift.pairs.pairs import Pairs

WITH_NGRAMS = f"{TEXT_ENCODER}+ngrams"  # the text encoder of a run that names none, where n-grams help
MIN_COUNT = 4  # smallest count of a word in a vocabulary, unless an option says another

log = logging.getLogger(__name__)


def check_numbering(encode: EncodeOptions, name: str) -> None:
    """Raise an error for options of vocabularies that exclude each other or do not fit the text encoder.

    Args:
        encode: The options.
        name: Name of the text encoder.

    Raises:
        InputError: An option cannot be used.
    """
    if encode.vocabulary is not None and name not in ID_ENCODERS:
        raise InputError(f"--vocabulary has no effect on the text encoder {name}: use it with {', '.join(ID_ENCODERS)}")
    if encode.vocabulary is not None and not Path(encode.vocabulary).is_file():
        raise InputError(f"there is no vocabulary file {encode.vocabulary}")
    if encode.vocabulary is not None and encode.min_count is not None:
        raise InputError("--vocabulary and --min-count exclude each other: give one of them")
    if encode.splitter is not None and name != "words":
        raise InputError(f"--splitter has no effect on the text encoder {name}: use it with words")


def run_numbering(pairs: Pairs, name: str, encode: EncodeOptions, saved: Path) -> Numbering | None:
    """Return the vocabulary of a run: from the run's folder, else from a file, else built from the captions.

    Args:
        pairs: The pairs; words and byte pairs are learned from the captions of train and dev.
        name: Name of the text encoder.
        encode: The options.
        saved: The file in the run's folder, which need not exist.

    Returns:
        The vocabulary; None where the text encoder needs none.

    Raises:
        InputError: A file cannot be used, a package is missing, or captions should be token ids but are not.
    """
    if name not in ID_ENCODERS:
        return None
    if saved.exists():
        return read_vocabulary_file(saved)
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
    return BytePairs.build(captions, encode.bpe_size) if name == "bpe" else _word_vocabulary(captions, encode)


def _word_vocabulary(captions: list[str], encode: EncodeOptions) -> Vocabulary:
    return Vocabulary.build(captions, encode.min_count or MIN_COUNT, encode.splitter or "plain")


def _file_vocabulary(pairs: Pairs, name: str, encode: EncodeOptions) -> tuple[Numbering | None, Path | None]:
    """Return the vocabulary of the user's file or of the file beside the source. None if there is neither."""
    if encode.vocabulary is not None:
        return read_vocabulary_file(Path(encode.vocabulary)), Path(encode.vocabulary)
    file = None if pairs.features is None else pairs.features.vocabulary
    if file is None or encode.min_count is not None or name == "bpe":
        return None, None
    try:
        return read_vocabulary_file(file), file
    except InputError as error:
        if name == "words":
            raise InputError(f"{error}; or build one from the captions with --min-count {MIN_COUNT}") from error
        log.warning("%s; the captions' ids are used unchanged", error)
        return None, None


def run_ngrams(pairs: Pairs, name: str, saved: Path, opened: bool) -> NgramEncoder | None:
    """Return the n-gram encoder of a run, from the run's folder or else fitted to the captions of train and dev.

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
