"""The encoding of a source into a folder of vectors, by one process or by several that share the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pairsift.encode.options import EncodeOptions
from pairsift.encode.registry import ID_ENCODERS, IMAGE_ENCODER, TEXT_ENCODER, check_names, text_parts
from pairsift.errors import InputError, SourceError
from pairsift.files import in_turn, make_folder, remove_parts, write_json
from pairsift.marker import require_own, write_marker
from pairsift.pairs.readers.embeddings import FACTS
from pairsift.pairs.records import Columns
from pairsift.pairs.text import one_line
from pairsift.sharding.encoding import Encoding, EncodingOptions, Problems
from pairsift.sharding.engines import engine_of, write_parts
from pairsift.sharding.parts import Share


class EncodingResult(NamedTuple):
    """What a call has encoded.

    Attributes:
        shards: Number of shards.
        left: How many of them are not encoded yet.
        note: What was read of the columns of Parquet files.
        problems: What could not be encoded; None as long as shards are left.
    """

    shards: int
    left: int
    note: str = ""
    problems: Problems | None = None


def encode_source(
    source: Path | str,
    out: Path,
    shard: str | None,
    ray: str | None,
    named: Mapping[str, str | None],
    shown: bool = True,
) -> EncodingResult:
    """Encode a source, or a share of its shards, and go on where an earlier call stopped.

    Args:
        source: The source, as a text where it is at another place.
        out: The folder of the vectors.
        shard: The share as `i/n`; None for all shards.
        ray: Address of a Ray cluster; None for this process.
        named: Encoders, reader, columns and folder of images by the names of their options.
        shown: Whether to show progress.

    Raises:
        InputError: The source, an option or all records cannot be used, or the folder holds something else.
    """
    share = Share() if shard is None else Share.parse(shard)
    engine = engine_of(ray)
    encoders = {name: named.get(name) for name in ("encoders", "image_encoder", "text_encoder")}
    encode = EncodeOptions(**encoders)  # type: ignore[arg-type]
    images, texts = encode.image_encoder or IMAGE_ENCODER, encode.text_encoder or TEXT_ENCODER
    check_names(images, texts)
    if {"ngrams", "embeddings", *ID_ENCODERS} & set(text_parts(texts)):
        raise InputError(f"--text-encoder {texts}: shards need an encoder that is fitted to nothing, such as muse")
    folder = named.get("image_folder")
    columns = Columns(named.get("image_column"), named.get("caption_column"), None if folder is None else Path(folder))
    encoding = Encoding(out, EncodingOptions(source, columns, named.get("reader"), images, texts))
    facts = _begin(encoding, encode.shared_space)
    try:
        write_parts(encoding, encoding.missing(share) + encoding.unreadable(share), engine, "encoding", shown)
    except SourceError:
        _free(encoding, facts)
        raise
    shards, left = len(encoding.source.shards), len(encoding.missing())
    if left:
        return EncodingResult(shards, left)
    remove_parts(out)  # of killed workers
    problems = encoding.problems()
    if problems.rows == problems.records + problems.shards:
        first = one_line(problems.first, 300) or "there is none"
        raise InputError(f"{out}: no record could be used; the first: {first}")
    return EncodingResult(shards, 0, encoding.source.note, problems)


def _place(source: Path | str) -> str:
    """Return a source as it is found again from another folder."""
    return source if isinstance(source, str) else os.path.abspath(source)


def _facts(folder: Path) -> dict[str, Any]:
    """Return what a folder was begun with; nothing where it was not."""
    try:
        return dict(json.loads((folder / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def _free(encoding: Encoding, facts: Mapping[str, Any]) -> None:
    """Let the folder be begun with other options, unless a part is written with these."""
    folder = encoding.folder
    with in_turn(folder / ".lock"):
        if len(encoding.missing()) == len(encoding.source.shards) and _facts(folder) == facts:
            (folder / FACTS).unlink()


def _begin(encoding: Encoding, aligned: bool) -> dict[str, Any]:
    """Mark the folder, or check that it was begun with the same source, options and encoders.

    Returns:
        What it was begun with.

    Raises:
        InputError: The folder is not free, or was begun otherwise.
    """
    folder, options = encoding.folder, encoding.options
    require_own(folder, "vectors")
    facts = {"mark": encoding.mark, "shards": len(encoding.source.shards), "source": _place(options.source)}
    facts |= {"image_encoder": options.images, "text_encoder": options.texts, "aligned": aligned}
    make_folder(folder)
    with in_turn(folder / ".lock"):
        if not (folder / FACTS).exists():
            write_marker(folder, "vectors")
            write_json(folder / FACTS, facts)
        begun = _facts(folder)
    if begun != facts:
        different = next(name for name in reversed([*facts]) if begun.get(name) != facts[name])
        if different in ("mark", "shards"):
            raise InputError(
                f"{options.source} or its options have changed since {folder} was begun: give another --out"
            )
        raise InputError(
            f"{folder} was begun with another {different.replace('_', ' ')} ({begun.get(different)}): repeat that, or "
            "give another --out"
        )
    return facts
