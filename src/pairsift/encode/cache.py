"""The features of pairs, computed once and stored on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsift.arrays import Array, Bools, Ints
from pairsift.cache_folder import default_cache
from pairsift.encode.cache_entry import Chunk, Entry, Layout, Writer, known_images, mark_of
from pairsift.encode.decode import DECODING, BadImage, open_image
from pairsift.encode.encoder import ImageEncoder, JoinedEncoder, TextEncoder, digest
from pairsift.encode.features import Features, Table
from pairsift.encode.parallel import map_in_threads
from pairsift.errors import InputError, WriteError
from pairsift.pairs.pairs import SKIPPED, Pairs
from pairsift.progress import progress

CAPTIONS_PER_CHUNK = 512

Encoding = Callable[[Ints, list[str]], Array | list[Array]]  # of captions, from their rows and texts


def encode_pairs(
    pairs: Pairs,
    image_encoder: ImageEncoder,
    text_encoder: TextEncoder,
    cache: Path | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> tuple[Features, dict[int, str]]:
    """Encode all images and captions, or open the result of an earlier call with the same data and encoders.

    The arrays are memory-mapped .npy files: float32 for vectors, float16 for regions and tokens (which take many times
    the space), int32 for ids. Their keys are the encoder (weights and preprocessing), the decoding, and the images'
    paths, sizes and modification times, or the captions' text. Neither splits nor planted noise matter. An image file
    with the same content as in an earlier call is not encoded again. A call that was killed continues where it stopped.
    Two simultaneous calls on the same data do the work once.

    Args:
        pairs: The pairs. An image is encoded if a pair that is not skipped points at it.
        image_encoder: Encoder from `image_encoder(...)`.
        text_encoder: Encoder from `text_encoder(...)`.
        cache: Folder for the arrays; None takes `$XDG_CACHE_HOME/pairsift` or `~/.cache/pairsift`.
        batch_size: Number of images decoded and encoded together, at least 1.
        progress: Whether to show progress bars.

    Returns:
        The features, row i of `images` for image i and row i of `texts` for pair i, and the images that could not be
        read, as a dict from row to reason. Rows without an encoding contain zeros, or are empty where rows are ragged.

    Raises:
        WriteError: The cache folder cannot be written.
        InputError: An array does not read back as it was written.
        ValueError: `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
    images, failures = encode_images(pairs, image_encoder, cache, batch_size, "images" if progress else None)
    return Features(images, encode_captions(pairs, text_encoder, cache, progress)), failures


def encode_images(
    pairs: Pairs, encoder: ImageEncoder, cache: Path | None = None, batch_size: int = 32, bar: str | None = None
) -> tuple[Table, dict[int, str]]:
    """Encode all images, as `encode_pairs` does.

    Args:
        pairs: The pairs.
        encoder: Encoder from `image_encoder(...)`.
        cache: Folder for the arrays; None takes `$XDG_CACHE_HOME/pairsift` or `~/.cache/pairsift`.
        batch_size: Number of images decoded and encoded together, at least 1.
        bar: Name of the images in a progress bar; None for no bar.

    Returns:
        The features, row i for image i, and the images that could not be read, as a dict from row to reason.

    Raises:
        WriteError: The cache folder cannot be written.
        InputError: An array does not read back as it was written.
    """
    folder = default_cache() if cache is None else Path(cache)
    # Noise may leave an image without a caption, so the true pairs of the source decide.
    truth = pairs.source_image_of
    image_rows = truth[(pairs.split != SKIPPED) & (truth >= 0)]
    needed = np.zeros(pairs.n_images, np.bool_)
    needed[image_rows] = True
    vector = encoder.kind == "vector"
    item = (encoder.dim,) if vector else (encoder.regions, encoder.dim)
    layout = Layout(pairs.n_images, item, "<f4" if vector else "<f2", ragged=False)
    prefix = f"images-{digest(['images', DECODING, encoder.key()])[:12]}-"
    entry = Entry(folder, f"{prefix}{digest(_stamps(pairs.paths))[:20]}")
    found = entry.load(layout, needed)
    if found is None:
        known = known_images(folder, prefix)  # also from the entry itself, where it lacks rows
        encode = partial(_image_chunk, pairs.paths, needed, known, encoder, layout)
        found = _filled(entry, layout, needed, encode, batch_size, bar)
    table, failures = found
    return table, {row: reason for row, reason in failures.items() if needed[row]}


def encode_captions(pairs: Pairs, encoder: TextEncoder, cache: Path | None = None, progress: bool = True) -> Table:
    """Encode all captions, as `encode_pairs` does, for images that need no encoder.

    Args:
        pairs: The pairs.
        encoder: Encoder from `text_encoder(...)`.
        cache: Folder for the arrays; None takes `$XDG_CACHE_HOME/pairsift` or `~/.cache/pairsift`.
        progress: Whether to show a progress bar.

    Returns:
        The features, row i for pair i.

    Raises:
        WriteError: The cache folder cannot be written.
        InputError: An array does not read back as it was written.
    """
    folder = default_cache() if cache is None else Path(cache)
    needed = np.array([bool(caption.strip()) for caption in pairs.captions], np.bool_)
    ragged = encoder.kind != "vector"
    dtype = {"vector": "<f4", "tokens": "<f2", "ids": "<i4"}[encoder.kind]
    layout = Layout(len(pairs), () if encoder.kind == "ids" else (encoder.dim,), dtype, ragged)
    entry, bar = _text_entry(folder, encoder, pairs.captions), "captions" if progress else None
    if (found := entry.load(layout, needed)) is not None:
        return found[0]
    encode = partial(_text_chunk, pairs.captions, needed, _encoding(pairs, encoder, folder, needed), layout)
    return _filled(entry, layout, needed, encode, CAPTIONS_PER_CHUNK, bar)[0]


def _encoding(pairs: Pairs, encoder: TextEncoder, folder: Path, needed: Bools) -> Encoding:
    """Return the encoding of captions by an encoder; a joined one takes the vectors that the cache has of its parts."""
    if not isinstance(encoder, JoinedEncoder):
        return lambda _, texts: encoder.encode(texts)
    layouts = [Layout(len(pairs), (part.dim,), "<f4", ragged=False) for part in encoder.parts]
    entries = [_text_entry(folder, part, pairs.captions) for part in encoder.parts]
    known = [entry.load(layout, needed) for entry, layout in zip(entries, layouts, strict=True)]

    def joined(rows: Ints, texts: list[str]) -> Array:
        parts = zip(encoder.parts, known, strict=True)
        return encoder.joined(
            [np.asarray(part.encode(texts) if found is None else found[0].values[rows]) for part, found in parts]
        )

    return joined


def _text_entry(folder: Path, encoder: TextEncoder, captions: list[str]) -> Entry:
    return Entry(folder, f"texts-{digest(['texts', encoder.key(), *captions])}")


def _stamps(paths: list[Path]) -> Iterator[str]:
    """Yield a text for each image file that changes when the file changes."""
    for path in paths:
        try:
            status = os.stat(path)
            yield f"{os.path.abspath(path)}\0{status.st_size} {status.st_mtime_ns}"
        except (OSError, ValueError):
            yield f"{path}\0missing"


def _filled(
    entry: Entry, layout: Layout, needed: Bools, encode: Callable[[range], Chunk], step: int, bar: str | None
) -> tuple[Table, dict[int, str]]:
    """Create the entry, unless another process has done so meanwhile, and open it.

    Args:
        entry: The entry.
        layout: Layout of the array.
        needed: Rows that must be encoded.
        encode: Function that encodes some rows.
        step: The number of rows that it encodes at once.
        bar: Unit of the progress bar, or None for no bar.
    """
    try:
        entry.values.parent.mkdir(parents=True, exist_ok=True)
        with entry.lock():
            result = entry.load(layout, needed)
            if result is None:
                _fill(Writer(entry, layout, needed), encode, step, bar)
                result = entry.load(layout, needed)
    except OSError as error:
        reason, file = error.strerror or str(error), error.filename or entry.values
        raise WriteError(
            f"{file}: the feature cache cannot be written ({reason}); free space or name another folder with --cache, "
            "and repeat the command; fit goes on with --resume"
        ) from error
    if result is None:
        raise InputError(f"{entry.values}: reads back other than it was written; name another cache folder")
    return result


def _fill(writer: Writer, encode: Callable[[range], Chunk], step: int, bar: str | None) -> None:
    start, rows = writer.progress.done, writer.progress.layout.rows
    tasks = (range(row, min(row + step, rows)) for row in range(start, rows, step))
    try:
        with progress(rows, "encoding", bar or "", bar is not None, start) as count:
            for chunk in map_in_threads(encode, tasks):
                writer.append(chunk)
                count(len(chunk))
        writer.finish()
    finally:
        writer.close()


def _image_chunk(
    paths: list[Path],
    needed: Bools,
    known: Mapping[str | None, NDArray[np.generic]],
    encoder: ImageEncoder,
    layout: Layout,
    rows: range,
) -> Chunk:
    values = np.zeros((len(rows), *layout.item), np.float32)
    marks = [mark_of(paths[row]) if needed[row] else None for row in rows]
    missing = []
    for place in np.flatnonzero(needed[rows]).tolist():
        if marks[place] in known:
            values[place] = known[marks[place]]
        else:
            missing.append(place)
    decoded = {place: _decode(paths[rows[place]], encoder) for place in missing}
    failures = {place: outcome for place, outcome in decoded.items() if isinstance(outcome, str)}
    good = [place for place, outcome in decoded.items() if not isinstance(outcome, str)]
    if good:
        batch = torch.stack([outcome for outcome in decoded.values() if not isinstance(outcome, str)])
        values[good] = encoder.encode(batch).float().numpy()
    for place in np.flatnonzero(~np.isfinite(values.reshape(len(rows), -1)).all(1)).tolist():
        failures[place] = f"{encoder.name} gives values for it that are not finite"
        values[place] = 0
    marks = [None if place in failures else mark for place, mark in enumerate(marks)]
    reasons = {rows[place]: reason for place, reason in failures.items()}
    return Chunk(_stored(values, layout), marks=marks, failures=reasons)


def _decode(path: Path, encoder: ImageEncoder) -> Tensor | str:
    """Return one prepared image, or the reason why it cannot be prepared."""
    try:
        return encoder.prepare(open_image(path, smallest=2 * encoder.size))
    except BadImage as error:
        return error.reason
    except Exception as error:  # a single image must not end a run
        return " ".join(f"the image cannot be prepared ({error})".split())


def _text_chunk(captions: list[str], needed: Bools, encode: Encoding, layout: Layout, rows: range) -> Chunk:
    needed = needed[rows]
    wanted = np.array(rows, np.int64)[needed]
    texts = [captions[row] for row in wanted.tolist()]
    encoded = encode(wanted, texts) if texts else []
    if not layout.ragged:
        values = np.zeros((len(rows), *layout.item), np.float32)
        if texts:
            values[needed] = np.asarray(encoded)
        return Chunk(_stored(values, layout))
    lengths = np.zeros(len(rows), np.int64)
    lengths[needed] = [len(tokens) for tokens in encoded]
    flat = np.concatenate(list(encoded)) if texts else np.zeros((0, *layout.item), layout.dtype)
    return Chunk(_stored(flat, layout), lengths)


def _stored(values: NDArray[np.generic], layout: Layout) -> NDArray[np.generic]:
    """Convert values to the type on disk; float16 is limited to its largest number."""
    if layout.dtype == "<f2":
        values = np.clip(values.astype(np.float32, copy=False), -65504, 65504)
    return values.astype(layout.dtype, copy=False)
