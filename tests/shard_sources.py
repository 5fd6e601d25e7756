"""Tar files of samples, as the tests write and read them."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers import load


def picture(red: int, kind: str = "JPEG") -> bytes:
    """A small image that differs from all others of the same kind."""
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (red * 5 % 256, red // 51, 0)).save(out, kind)
    return out.getvalue()


def write_tar(path: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    """A tar file of these names and contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def sample(key: str, number: int, caption: str | None = None, /, **fields: object) -> list[tuple[str, bytes]]:
    """The files of a sample as img2dataset writes them."""
    caption = f"caption {number}" if caption is None else caption
    files = [(f"{key}.jpg", picture(number)), (f"{key}.txt", caption.encode())]
    return [*files, (f"{key}.json", json.dumps({"caption": caption, **fields}).encode())] if fields else files


def write_shards(folder: Path, shards: int = 2, samples: int = 3, /, **fields: object) -> Path:
    """A folder of numbered tar files, with fields that are the same for all samples."""
    for shard in range(shards):
        numbers = range(shard * samples, (shard + 1) * samples)
        files = [file for number in numbers for file in sample(f"{number:09d}", number, **fields)]
        write_tar(folder / f"{shard:05d}.tar", files)
    return folder


def one_tar(folder: Path, *files: tuple[str, bytes]) -> Path:
    """A folder with a tar file of these files, and another tar file of three whole samples."""
    write_tar(folder / "shards" / "00000.tar", files)
    whole = [file for number in range(3) for file in sample(f"1{number}", 100 + number)]
    write_tar(folder / "shards" / "00001.tar", whole)
    return folder / "shards"


def read(path: Path, **options: Any) -> Pairs:
    """The pairs of a source, with a cache beside it."""
    return load(path, cache=path.parent / "cache", **options)


def files_of(path: Path) -> dict[str, bytes]:
    """The contents of a tar file by name."""
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}
