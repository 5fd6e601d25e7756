"""A small valid source of every layout that a reader takes, as the bytes of its files, and damage to bytes."""

from __future__ import annotations

import base64
import io
import json
import random
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

NAMES = [f"{letter}.jpg" for letter in "abcde"]
CAPTIONS = ["a red ball", "two blue cubes", "naïve café 日本", "a dog runs, fast", "the «last» one"]
PAIRS = [*zip(NAMES, CAPTIONS, strict=True)]
Files = dict[str, bytes]


@dataclass(frozen=True)
class Layout:
    """Files of a source by their places, the place that is read, and the reader that `choose` takes for it."""

    files: Files
    place: str
    reader: str

    def write(self, folder: Path) -> Path:
        """Write the files below a folder, and return what is to be read."""
        for name, content in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder / self.place


@cache
def picture(number: int, kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (number * 40 % 256, 90, 200)).save(out, kind)
    return out.getvalue()


def npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def parquet(columns: dict[str, object], **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _rows(separator: str = ",") -> str:
    cells = [["image", "caption", "split"], *([name, f'"{text}"', "train"] for name, text in PAIRS)]
    return "".join(separator.join(row) + "\r\n" for row in cells)


def _base64(number: int) -> str:
    return base64.b64encode(picture(number)).decode()


@cache
def layouts() -> dict[str, Layout]:
    """One small valid source of each layout, by a name for it."""
    images = {f"{name}": picture(number) for number, name in enumerate(NAMES)}
    rows = [{"image": name, "caption": text} for name, text in PAIRS]
    coco = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(NAMES)],
        "annotations": [{"id": n, "image_id": n, "caption": text} for n, text in enumerate(CAPTIONS)],
    }
    karpathy = {"images": [{"filename": name, "split": "train", "sentences": [{"raw": text}]} for name, text in PAIRS]}
    cells = [{"bytes": picture(number), "path": name} for number, name in enumerate(NAMES)]
    studio = [
        {"data": {"image": name}, "annotations": [{"result": [{"value": {"text": [text]}}]}]} for name, text in PAIRS
    ]
    talks = [
        {"image": name, "conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": text}]}
        for name, text in PAIRS
    ]
    captions = "".join(f"{text}\n" for text in CAPTIONS).encode()
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    regions = np.random.default_rng(1).normal(size=(5, 3, 4)).astype(np.float32)
    nuswide = [f"actor\\000{n}_{1000 + n}.jpg" for n in range(5)]
    sample = {
        f"{n:03d}{end}": content
        for n, text in enumerate(CAPTIONS)
        for end, content in ((".jpg", picture(n)), (".txt", text.encode()), (".json", _json({"split": "train"})))
    }
    table = {"image": NAMES, "caption": CAPTIONS}
    texts = {f"{name[0]}.txt": text.encode() for name, text in PAIRS}
    return {
        "csv": Layout({"x.csv": _rows().encode(), **images}, "x.csv", "table"),
        "tsv": Layout({"x.tsv": _rows("\t").encode("cp1252", "replace"), **images}, "x.tsv", "table"),
        "unicode text": Layout({"x.txt": _rows("\t").encode("utf-16"), **images}, "x.txt", "table"),
        "no header": Layout({"x.csv": "".join(f'{n},"{t}"\n' for n, t in PAIRS).encode(), **images}, "x.csv", "table"),
        "json lines": Layout({"x.jsonl": b"\n".join(map(_json, rows)), **images}, "x.jsonl", "table"),
        "json list": Layout({"x.json": _json(rows), **images}, "x.json", "table"),
        "json columns": Layout({"x.json": _json(table), **images}, "x.json", "table"),
        "json split": Layout({"x.json": _json({"columns": list(table), "data": PAIRS}), **images}, "x.json", "table"),
        "json by name": Layout({"x.json": _json(dict(PAIRS)), **images}, "x.json", "table"),
        "label studio": Layout({"x.json": _json(studio), **images}, "x.json", "table"),
        "conversations": Layout({"x.json": _json(talks), **images}, "x.json", "table"),
        "base64": Layout(
            {"x.csv": "".join(["image,caption\n", *(f"{_base64(n)},{n} things\n" for n in range(5))]).encode()},
            "x.csv",
            "table",
        ),
        "parquet names": Layout(
            {"x.parquet": parquet({**table, "n": list(range(5))}, compression="none"), **images}, "x.parquet", "table"
        ),
        "parquet images": Layout(
            {"x.parquet": parquet({"image": cells, "caption": [[text, "two"] for text in CAPTIONS]})},
            "x.parquet",
            "table",
        ),
        "parquet folder": Layout(
            {"train-0.parquet": parquet({"image": cells, "caption": CAPTIONS}), "dev-0.parquet": parquet(table)},
            "",
            "table",
        ),
        "folder": Layout({**images, **texts}, "", "folder"),
        "folder of json": Layout(
            {**images, **{f"{name[0]}.json": _json({"caption": text, "id": 3}) for name, text in PAIRS}},
            "",
            "folder",
        ),
        "metadata": Layout({**images, "metadata.csv": _rows().replace("image", "file_name").encode()}, "", "folder"),
        "flickr8k": Layout(
            {
                **{f"images/{name}": content for name, content in images.items()},
                "captions.csv": _rows().replace(",split", "").replace(",train", "").encode(),
                "splits/train.txt": b"a.jpg\nb.jpg\nc.jpg\n",
                "splits/test.txt": b"d.jpg\n",
            },
            "",
            "flickr8k",
        ),
        "coco": Layout({"x.json": _json(coco), **images}, "x.json", "coco"),
        "karpathy": Layout({"x.json": _json(karpathy), **images}, "x.json", "karpathy"),
        "chinese_clip": Layout(
            {
                "train_imgs.tsv": "".join(f"{n}\t{_base64(n)}\n" for n in range(5)).encode(),
                "train_texts.jsonl": b"\n".join(
                    _json({"text_id": n, "text": text, "image_ids": [n]}) for n, text in enumerate(CAPTIONS)
                ),
            },
            "",
            "chinese_clip",
        ),
        "nuswide": Layout(
            {
                "ImageList/Imagelist.txt": "\n".join(nuswide).encode(),
                "ImageList/TrainImagelist.txt": "\n".join(nuswide[:4]).encode(),
                "ImageList/TestImagelist.txt": nuswide[4].encode(),
                "NUS_WID_Tags/All_Tags.txt": "".join(f"{1000 + n} tag{n} more \n" for n in range(5)).encode(),
                **{f"Flickr/{name}".replace("\\", "/"): picture(n) for n, name in enumerate(nuswide)},
            },
            "",
            "nuswide",
        ),
        "precomp": Layout(
            {"train_ims.npy": npy(regions), "train_caps.txt": captions, "train_ids.txt": b"1\n2\n3\n4\n5\n"},
            "",
            "precomp",
        ),
        "precomp tsv": Layout(
            {
                "train_ims.npy": npy(regions),
                "train_caps.tsv": "".join(f"{n}\t{text}\n" for n, text in enumerate(CAPTIONS)).encode(),
            },
            "",
            "precomp",
        ),
        "now": Layout({"train_ims.npy": npy(vectors), "train_caps_bpe.txt": b"1,2,3\n4,5\n6\n7,8\n9,10\n"}, "", "now"),
        "embeddings": Layout(
            {"image.npy": npy(vectors), "text.npy": npy(vectors[:, :3].copy()), "captions.csv": _rows().encode()},
            "",
            "embeddings",
        ),
        "clip-retrieval": Layout(
            {
                "img_emb/img_emb_0.npy": npy(vectors),
                "text_emb/text_emb_0.npy": npy(vectors),
                "metadata/metadata_0.parquet": parquet({"image_path": NAMES, "caption": CAPTIONS}),
            },
            "",
            "embeddings",
        ),
        "shards": Layout({"00000.tar": tar(sample), "00001.tar": tar({**sample, "x.txt": b"alone"})}, "", "shards"),
        "one tar": Layout({"x.tar": tar(sample)}, "x.tar", "shards"),
    }


# What has broken readers of other programs: marks of encodings, numbers beyond their types, depth, and file beginnings.
TOKENS = (
    *(b"", b"\0", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\xef\xbb\xbf", b"\x80", b"\xed\xa0\x80", b"\x1b[31m"),
    *(b'"', b"'", b"\\", b"\r", b"\n", b"\t", b",", b";", b"|", b"#0", b"../", b"/", b"~", b"file://", b"http://x/"),
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 5000, b"null", b"true", b"[]", b"{}", b'"\\ud800"', b'"\\u0000"'),
    *(b"[" * 3000, b'{"a":' * 3000, b"(" * 300, b"%" * 300, b"sep=;\n", b"data:image/png;base64,", b"PK\x03\x04"),
    *(b"PK\x05\x06" + bytes(18), b"\x93NUMPY\x01\x00", b"PAR1", b"\x1f\x8b", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"),
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Bytes with some damage: other bytes, bytes put in or taken out, parts exchanged, or an early end."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((0, 1, 2, 8, 64, 512)))
        _CHANGES[draw.randrange(len(_CHANGES))](data, at, end, draw)
    return bytes(data)


def _flip(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    for place in range(at, min(end, at + 8)):
        data[place] ^= 1 << draw.randrange(8)


def _junk(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    data[at:end] = draw.randbytes(end - at)


def _token(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    data[at:end] = draw.choice(TOKENS)


def _put_in(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    data[at:at] = draw.choice(TOKENS)


def _again(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    data[draw.randrange(len(data) + 1) : 0] = data[at:end]


def _number(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    width = draw.choice((1, 2, 4, 8))
    value = draw.choice((0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1), 2 ** (8 * width - 1) - 1))
    data[at : at + width] = value.to_bytes(width, "little")


def _cut(data: bytearray, at: int, end: int, draw: random.Random) -> None:
    del data[at:]


_CHANGES: tuple[Callable[[bytearray, int, int, random.Random], None], ...] = (
    *(_flip, _junk, _token, _put_in, _again, _number),
    *(_flip, _junk, _token, _put_in, _number, _cut),
)
