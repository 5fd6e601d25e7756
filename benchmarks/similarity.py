"""Token-level similarities against a plain loop over captions, side by side; prints a table and writes every row.

The loops are those that the tests check the matchers against (tests/match/naive_loops_*.py). Both sides start from the
same codes: 128 images with 36 regions and 128 captions with the lengths of Flickr8k's, 1024-d codes, 256-d similarity
vectors. A step is the similarity and its gradient with respect to codes and weights, from a dense random one or, in the
rows named `hardest`, from the hinge with hardest negatives, which leaves most pairs without one. Each side is timed
`--repeats` times in turn, and the ratio compares the medians. Where the loop would take too long it is timed on a part
of the captions and scaled, which the row tells; then each side runs once (IMRAM's loop twice, before and after).

    python benchmarks/similarity.py --json benchmarks/results/similarity.json
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "match"))

from naive_loops_scan import imram_similarity, scan_similarity
from naive_loops_sgraf import sgr_loop

from pairsift.encode.features import Features, Items, Table
from pairsift.loss.ranking import hinge
from pairsift.match.base import Codes, Matcher
from pairsift.match.imram import Imram
from pairsift.match.scan import Scan
from pairsift.match.sgraf import Sgr, SgrOptions
from pairsift.retrieve.gallery import Gallery
from pairsift.retrieve.ranks import ranks, recall
from rows import Row, parser, versions, write_rows

# Captions of Flickr8k by their number of tokens, start and end among them.
LENGTHS = {
    3: 2,
    4: 15,
    5: 47,
    6: 238,
    7: 556,
    8: 1316,
    9: 2711,
    10: 3444,
    11: 3859,
    12: 4305,
    13: 4363,
    14: 4082,
    15: 3650,
    16: 3049,
    17: 2457,
    18: 1790,
    19: 1356,
    20: 958,
    21: 727,
    22: 496,
    23: 330,
    24: 188,
    25: 179,
    26: 112,
    27: 66,
    28: 59,
    29: 31,
    30: 23,
    31: 11,
    32: 11,
    33: 9,
    34: 6,
    35: 3,
    36: 4,
    37: 1,
    40: 1,
}
VOCABULARY, WIDTH, REGIONS, BATCH = 8000, 2048, 36, 128
CONCEPTS, PARTS, LOOKS, SHOWN = 60, 12, 64, 6  # of the made-up pairs that recall in half precision is measured on
Loop = Callable[[Any, Codes, Codes], Tensor]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    options.add_argument("--device", default="cpu")
    chosen = options.parse_args()
    rows = []
    for name in chosen.rows:
        rows.append({"name": name} | ROWS[name](torch.device(chosen.device), chosen.repeats))
        print(line(rows[-1]), flush=True)
        write_rows(chosen.json, rows, {"protocol": " ".join((__doc__ or "").split()), **machine(chosen.device)})


def line(row: Row) -> str:
    """A row of the table."""
    rest = {name: value for name, value in row.items() if name not in ("name", "ratio", "loop_seconds", "seconds")}
    times = f"{row['loop_seconds']:9.3f} s {row['seconds']:9.3f} s"
    return f"{row['name']:20} {row['ratio']:6.2f}x  {times}  " + ", ".join(f"{k} {v}" for k, v in rest.items())


def machine(device: str) -> Row:
    """What the numbers were measured with."""
    processor = platform.machine() if device == "cpu" else torch.cuda.get_device_name()
    return {
        "versions": versions("pairsift", "torch", "numpy"),
        "machine": {"processor": processor, "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "lengths": LENGTHS,
    }


def lengths(count: int, seed: int = 0) -> Tensor:
    """Lengths of captions drawn from Flickr8k's."""
    values, weights = np.array(list(LENGTHS)), np.array(list(LENGTHS.values()), np.float64)
    return torch.from_numpy(np.random.default_rng(seed).choice(values, count, p=weights / weights.sum()))


def codes(matcher: Matcher, images: int, texts: int, device: torch.device) -> tuple[Codes, Codes]:
    """Codes of random regions and words, leaves of the graph."""
    torch.manual_seed(0)
    size = lengths(texts)
    mask = torch.arange(int(size.max())) < size[:, None]
    left = Items(torch.randn(images, REGIONS, WIDTH)).to(device)
    right = Items(torch.randint(4, VOCABULARY, mask.shape) * mask, mask).to(device)
    with torch.no_grad():
        both = matcher.encode_images(left), matcher.encode_texts(right)
    return tuple(
        Codes(side.vectors.clone().requires_grad_(), side.tokens.clone().requires_grad_(), side.mask)
        for side in both
        if side.tokens is not None
    )  # type: ignore[return-value]


def clock(function: Callable[[], object], device: torch.device) -> float:
    """Seconds that a call takes."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def in_turn(loop: Callable[[], object], fast: Callable[[], object], repeats: int, device: torch.device) -> Row:
    """Both timed in turn: seconds of each, and how many times faster the second is."""
    fast()
    times = [(clock(loop, device), clock(fast, device)) for _ in range(repeats)]
    slow, quick = (statistics.median(side) for side in zip(*times, strict=True))
    return {"ratio": round(slow / quick, 3), "loop_seconds": round(slow, 4), "seconds": round(quick, 4)}


def step(score: Callable[[], Tensor], leaves: list[Tensor], hardest: bool = False) -> None:
    """Scores and their gradients, from a dense random one or from the hinge with hardest negatives."""
    scores = score()
    if hardest:
        exclude = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        loss = hinge(scores, scores.new_full((len(scores),), 0.2), "hardest", exclude).sum()
        torch.autograd.grad(loss, leaves, allow_unused=True)
        return
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1)).to(scores)
    torch.autograd.grad(scores, leaves, weights, allow_unused=True)


def compare(
    make: Callable[[], Matcher], loop: Loop, backward: bool, half: bool = False, hardest: bool = False
) -> Callable[[torch.device, int], Row]:
    """A row: one matcher's block of 128 images and as many captions."""

    def row(device: torch.device, repeats: int) -> Row:
        torch.manual_seed(0)
        matcher = make().to(device).eval()
        images, texts = codes(matcher, BATCH, BATCH, device)
        leaves = [x for x in (images.tokens, images.vectors, texts.tokens, texts.vectors) if x is not None]
        leaves += list(matcher.parameters())

        def slow() -> Tensor:
            return loop(matcher, images, texts)

        def fast() -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                return matcher.similarity(images, texts)

        with torch.no_grad():
            difference = float((slow() - fast()).abs().max())
        ways = (
            [lambda: step(slow, leaves, hardest), lambda: step(fast, leaves, hardest)]
            if backward
            else [ungraded(slow), ungraded(fast)]
        )
        facts = {"largest_difference": difference, "images": BATCH, "captions": BATCH}
        return in_turn(ways[0], ways[1], repeats, device) | facts | (recall_in_half() if half and not hardest else {})

    return row


def recall_in_half(count: int = 1000, steps: int = 250) -> dict[str, Any]:
    """rSum in percent over `count` held-out pairs in single precision, and by how much half precision changes it."""
    torch.manual_seed(0)
    matcher = Sgr(LOOKS, CONCEPTS, PARTS, SgrOptions(dim=128, similarity_dim=64, dropout=0.0))
    looks = torch.randn(CONCEPTS, LOOKS)
    optimizer = torch.optim.Adam(matcher.parameters(), 5e-3)
    exclude = torch.eye(64, dtype=torch.bool)
    for _ in range(steps):
        images, texts = concept_pairs(64, looks)
        scores = matcher.similarity(matcher.encode_images(images), matcher.encode_texts(texts))
        loss = hinge(scores, torch.full((64,), 0.2), "mean", exclude).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
        optimizer.step()
    matcher.eval()
    left, right = concept_pairs(count, looks)
    recalls = []
    for half in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            scores = matcher.similarity(matcher.encode_images(left), matcher.encode_texts(right)).float().numpy()
        recalls.append(recall(ranks(lambda rows, scores=scores: scores[rows], np.arange(count), count)))
    worst = max(abs(recalls[0][name] - recalls[1][name]) for name in recalls[0] if name != "rsum")
    return {
        "recall_pairs": count,
        "recall_rsum": round(recalls[0]["rsum"], 2),
        "recall_largest_change": round(worst, 3),
    }


def concept_pairs(count: int, looks: torch.Tensor) -> tuple[Items, Items]:
    """Images whose regions show some concepts in noise, and captions that name half of them in any order."""
    shown = torch.rand(count, CONCEPTS).topk(SHOWN).indices
    regions = torch.randn(count, PARTS, LOOKS)
    places = torch.rand(count, PARTS).topk(SHOWN).indices
    regions.scatter_add_(1, places[..., None].expand(-1, -1, LOOKS), looks[shown])
    named = shown.gather(1, torch.rand(count, SHOWN).topk(SHOWN // 2).indices)
    return Items(regions), Items(named)


def ungraded(score: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same without gradients."""

    def scores() -> Tensor:
        with torch.no_grad():
            return score()

    return scores


def evaluation(device: torch.device, repeats: int, part: int = 64) -> Row:
    """Recall of 1,000 images with 5,000 captions by SGR in half precision, from features to ranks.

    The loop is timed on a part of the captions, in shards of 100 images as in the published evaluation, and scaled by
    the number of words.
    """
    matcher = sgr().to(device).eval()
    size = lengths(5000).numpy()
    words = [np.random.default_rng(0).integers(4, VOCABULARY, length) for length in size]
    features = Features(
        Table(np.random.default_rng(0).normal(size=(1000, REGIONS, WIDTH)).astype(np.float16)), Table.from_items(words)
    )

    def fast() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            gallery = Gallery.encode([matcher], features, np.arange(1000), np.arange(5000))
            recall(ranks(gallery.block, np.repeat(np.arange(1000), 5), 1000, chunk=128))

    quick = clock(fast, device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    with torch.no_grad():
        few = matcher.encode_texts(features.texts.batch(np.arange(part)).to(device))
        shards = [
            matcher.encode_images(features.images.batch(rows).to(device)) for rows in np.split(np.arange(1000), 10)
        ]
        loop = clock(lambda: [sgr_loop(matcher, shard, few) for shard in shards], device)
    loop *= size.sum() / size[:part].sum()
    return {
        "ratio": round(loop / quick, 3),
        "loop_seconds": round(float(loop), 2),
        "seconds": round(quick, 2),
        "precision": "bf16",
        "loop_timed_on_captions": part,
        "peak_memory_gb": round(peak, 2),
    }


def imram(device: torch.device, repeats: int, part: int = 8) -> Row:
    """IMRAM's step on the whole block; the loop, whose graph would not fit into memory, on a part of its captions."""
    torch.manual_seed(0)
    matcher = Imram(WIDTH, VOCABULARY).to(device).eval()
    images, texts = codes(matcher, BATCH, BATCH, device)
    assert images.tokens is not None and texts.tokens is not None and texts.mask is not None
    leaves = [images.tokens, texts.tokens, *matcher.parameters()]
    some = torch.arange(part, device=device)
    few = Codes(*(x[some].detach().requires_grad_() for x in (texts.vectors, texts.tokens)), texts.mask[some])
    with torch.no_grad():
        difference = (imram_similarity(matcher, images, few) - matcher.similarity(images, few)).abs().max()
    ways = (
        (lambda: step(lambda: imram_similarity(matcher, images, few), leaves)),
        (lambda: step(lambda: matcher.similarity(images, texts), leaves)),
    )
    slow = [clock(ways[0], device)]
    quick = clock(ways[1], device)
    slow.append(clock(ways[0], device))
    loop = statistics.mean(slow) * float(texts.mask.sum() / texts.mask[some].sum())
    return {
        "ratio": round(loop / quick, 3),
        "loop_seconds": round(loop, 2),
        "seconds": round(quick, 2),
        "largest_difference": float(difference),
        "images": BATCH,
        "captions": BATCH,
        "loop_timed_on_captions": part,
    }


def sgr() -> Sgr:
    return Sgr(WIDTH, VOCABULARY, REGIONS)


ROWS: dict[str, Callable[[torch.device, int], Row]] = {
    "sgr_evaluation": evaluation,  # first, so that the peak memory is its own
    "sgr_forward_fp32": compare(sgr, sgr_loop, backward=False),
    "sgr_step_fp32": compare(sgr, sgr_loop, backward=True),
    "sgr_step_hardest_fp32": compare(sgr, sgr_loop, backward=True, hardest=True),
    "sgr_step_bf16": compare(sgr, sgr_loop, backward=True, half=True),
    "sgr_step_hardest_bf16": compare(sgr, sgr_loop, backward=True, half=True, hardest=True),
    "scan_step_fp32": compare(lambda: Scan(WIDTH, VOCABULARY), scan_similarity, backward=True),
    "imram_step_fp32": imram,
}

if __name__ == "__main__":
    main()
