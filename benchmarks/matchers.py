"""Parameters and operations of every matcher at its default sizes, counted; writes the table in docs/matchers.md.

Features have the papers' sizes, 36 regions of 2048 floats and captions of 14 words out of 8,481 (Flickr30K). Matchers
of vectors get one of 1280 and one of 256; `clip`, a ViT-B/32, gets images of 224 x 224 pixels. Operations are twice the
multiplications of the matrix products that a forward pass really makes, counted by torch on a block of 16 images and 16
captions.

    python benchmarks/matchers.py --write docs/matchers.md
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clip import VOCABULARY as WORDS_OF_CLIP
from clip import save_random
from pairsift.encode.features import Items
from pairsift.match import MATCHERS
from pairsift.match.base import Codes, Matcher
from pairsift.match.clip import Clip, ClipOptions
from rows import Row, markdown, parser, write_between, write_rows

REGIONS, WIDTH, WORDS, VOCABULARY, BLOCK = 36, 2048, 14, 8481, 16
SIZES = {"image_dim": WIDTH, "vocabulary_size": VOCABULARY, "regions": REGIONS}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--write", type=Path, help="the Markdown file whose table is made anew")
    chosen = options.parse_args()
    rows = [row(name) for name in MATCHERS]
    print(table(rows))
    write_rows(chosen.json, rows)
    write_between(chosen.write, "<!-- table -->", table(rows))


def make(name: str) -> Matcher:
    """A matcher at its default sizes."""
    if MATCHERS[name].image_kind == "pixels":
        with tempfile.TemporaryDirectory() as folder:
            save_random(Path(folder), weights=False)
            return Clip(ClipOptions(checkpoint=folder), pretrained=False)
    wanted = inspect.signature(MATCHERS[name]).parameters
    sizes = SIZES if "vocabulary_size" in wanted else {"image_dim": 1280, "text_dim": 256}
    return MATCHERS[name](**{key: value for key, value in sizes.items() if key in wanted})


def row(name: str) -> Row:
    """What a matcher holds and costs."""
    torch.manual_seed(0)
    matcher = make(name).eval()
    images, texts = inputs(matcher)
    codes: list[Codes] = []
    with warnings.catch_warnings(), torch.no_grad(), uncounted():
        encoders = flops(lambda: codes.extend((matcher.encode_images(images), matcher.encode_texts(texts))))
        pairs = flops(lambda: matcher.similarity(*codes))
    return {
        "matcher": name,
        "factorises": matcher.factorises,
        "dim": matcher.dim,
        "parameters": sum(parameter.numel() for parameter in matcher.parameters()),
        "encoder_gflop": encoders / BLOCK * 128 / 1e9,
        "pair_mflop": pairs / BLOCK**2 / 1e6,
    }


def inputs(matcher: Matcher) -> tuple[Items, Items]:
    """A block of images and one of captions that the matcher can read."""
    vectors, ids = torch.randn(BLOCK, 1280), torch.randint(4, VOCABULARY, (BLOCK, WORDS))
    if matcher.image_kind == "pixels":
        marks = torch.tensor([WORDS_OF_CLIP - 2, WORDS_OF_CLIP - 1]).expand(BLOCK, 2)  # start and end
        pixels = torch.randint(0, 256, (BLOCK, 3, 224, 224), dtype=torch.uint8)
        return Items(pixels), Items(torch.cat([marks[:, :1], ids, marks[:, 1:]], 1))
    images = torch.randn(BLOCK, REGIONS, WIDTH) if matcher.image_kind == "regions" else vectors
    return Items(images), Items(ids if matcher.text_kind == "ids" else torch.randn(BLOCK, 256))


@contextmanager
def uncounted() -> Iterator[None]:
    """Without mkldnn, whose GRU is not counted; reading its flags warns of GPUs that are not there."""
    warnings.simplefilter("ignore")
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def flops(function: Any) -> int:
    """Operations of a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    return markdown(["matcher", *HEAD], [[f"`{row['matcher']}`", *cells(row)] for row in rows])


HEAD = ("similarity", "global vector", "parameters, M", "encoders, GFLOP for 128 pairs", "MFLOP a pair")


def cells(row: Row) -> list[str]:
    """What a matcher holds and costs, below `HEAD`."""
    kind = "inner product" if row["factorises"] else "needs tokens"
    numbers = f"{row['parameters'] / 1e6:.1f}", f"{row['encoder_gflop']:.1f}", f"{row['pair_mflop']:.3g}"
    return [kind, str(row["dim"]), *numbers]


if __name__ == "__main__":
    main()
