"""Training steps on a GPU beside those on the CPU; every row is a matcher at its default sizes.

Features are as in similarity.py: 36 regions of 2048 floats and captions with the lengths of Flickr8k's, batches of 128
pairs; for matchers of vectors one of 1280 and one of 256, and 512 pairs. All are random. A step is one of plain
training as `fit` makes it: the loss, its gradient, clipping, and the optimizer's step, while the next batch is
gathered. The CPU uses all its cores, in float32; `fp32` and `bf16` are the precisions on the GPU. Seconds are the
median of `--steps` after three others, on the CPU of three after another, memory is the largest allocation on the GPU.

`similarity` and `gradient` compare the GPU in float32 with the CPU: the norm of the difference over the norm, of the
similarities of one batch, and of the gradient of the loss on them without dropout. Without a value, the matcher draws
random numbers in training, which are others on a GPU.

    python benchmarks/gpu.py --json benchmarks/results/gpu.json --write docs/howto/machines.md
"""

from __future__ import annotations

import copy
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matchers import REGIONS, VOCABULARY, WIDTH, make
from pairsift.encode.features import Features, Table
from pairsift.encode.parallel import map_ahead
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.steps import Batch, Network, Phase, Request, Setting, Step
from pairsift.train.batches import Gatherer
from rows import Row, markdown, parser, versions, write_between, write_rows
from similarity import lengths

SIDES = {"cpu": ("cpu", False), "fp32": ("cuda", False), "bf16": ("cuda", True)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--matchers", nargs="+", default=[name for name in MATCHERS if name != "clip"])
    options.add_argument("--steps", type=int, default=20, help="steps on the GPU")
    options.add_argument("--write", type=Path, help="the Markdown file whose table is made anew")
    chosen = options.parse_args()
    rows = []
    for name in chosen.matchers:
        rows.append(row(name, chosen.steps))
        print(json.dumps(rows[-1]), flush=True)
        write_rows(chosen.json, rows, {"protocol": " ".join((__doc__ or "").split()), **machine()})
    print(table(rows))
    write_between(chosen.write, "<!-- gpu -->", table(rows), "<!-- end gpu -->")


def row(name: str, steps: int) -> Row:
    """What a step of a matcher takes on every side, and how far the GPU is from the CPU."""
    torch.manual_seed(0)
    network = Network(make(name), None)
    batch = 512 if network.matcher.text_kind == "vector" else 128
    features, ids = pairs_of(network, 4 * batch)
    values: Row = {"matcher": name, "batch": batch}
    for side, (device, half) in SIDES.items():
        work = Work(copy.deepcopy(network).to(device), features, ids, batch, half)
        values[side] = round(work.seconds(*((3, steps) if device == "cuda" else (1, 3))), 5)
        if device == "cuda":
            values[f"gb_{side}"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return values | differences(network, features, ids[:batch])


def pairs_of(network: Network, count: int) -> tuple[Features, np.ndarray[Any, np.dtype[np.int64]]]:
    """Random features that a matcher reads, and the pairs' ids."""
    rng = np.random.default_rng(0)
    if network.matcher.text_kind == "vector":
        images, texts = (rng.normal(size=(count, width)).astype(np.float32) for width in (1280, 256))
        return Features(Table(images), Table(texts)), np.arange(count)
    regions = rng.normal(size=(count, REGIONS, WIDTH)).astype(np.float32)
    words = [rng.integers(4, VOCABULARY, size) for size in lengths(count).numpy()]
    return Features(Table(regions), Table.from_items(words)), np.arange(count)


class Work:
    """Plain training of a network on random pairs.

    Args:
        network: The network, on its device.
        features: Features of the pairs.
        ids: The pairs.
        batch: Number of pairs in a step.
        half: Whether to train in bfloat16.
    """

    def __init__(self, network: Network, features: Features, ids: Any, batch: int, half: bool) -> None:
        self.network, self.ids, self.batch, self.half = network.train(), ids, batch, half
        self.device = next(network.parameters()).device
        self.optimizer = torch.optim.AdamW(network.parameters(), 2e-4, fused=True)
        self.gather = Gatherer(features, ids, self.device)
        loss = RANKING_LOSSES[network.matcher.loss or "infonce"]()
        self.method = METHODS["plain"]().begin(Setting(ids, ids, len(ids), None, loss, 0))

    def seconds(self, first: int, steps: int) -> float:
        """The median of some steps after the first ones."""
        times = []
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        places = [at * self.batch % len(self.ids) for at in range(first + steps)]
        plan = [self.ids[place : place + self.batch] for place in places]
        began = time.perf_counter()
        for batch in map_ahead(lambda ids: self.gather(Request(ids)), plan):
            self.descend(batch)
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
        return statistics.median(times[first:])

    def descend(self, batch: Batch) -> None:
        """A step; reading the loss waits for the GPU, as `fit` does."""
        loss = self.loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 2.0)
        self.optimizer.step()
        float(loss.detach())
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            terms = self.method.step(Step([self.network], 0, {"all": batch}, Phase("train", 1)))
        return torch.stack([term.reduced() * term.weight for term in terms]).sum()


def differences(network: Network, features: Features, ids: Any) -> Row:
    """The relative errors of similarity and gradient on the GPU in float32."""
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    results = [scores_and_gradient(copy.deepcopy(network).to(device), features, ids, seed) for device, seed in RUNS]
    (scores, gradient), (scores_gpu, gradient_gpu), (_, other) = results
    random = not torch.equal(gradient, other)  # another seed gives another gradient
    return {
        "similarity": float((scores - scores_gpu).norm() / scores.norm()),
        "gradient": None if random else float((gradient - gradient_gpu).norm() / gradient.norm()),
    }


RUNS = (("cpu", 1), ("cuda", 1), ("cpu", 2))


def scores_and_gradient(network: Network, features: Features, ids: Any, seed: int) -> tuple[Tensor, Tensor]:
    """The similarities of a batch, and the gradient of its loss."""
    torch.manual_seed(seed)
    work = Work(network, features, ids, len(ids), half=False)
    batch = work.gather(Request(ids))
    work.loss(batch).backward()  # type: ignore[no-untyped-call]
    gradient = torch.cat([one.grad.flatten().cpu() for one in network.parameters() if one.grad is not None])
    matcher = network.eval().matcher
    with torch.no_grad():
        scores = matcher.similarity(matcher.encode_images(batch.images), matcher.encode_texts(batch.texts))
    return scores.cpu(), gradient


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        times = [f"{row['cpu']:.3f}", f"{row['fp32']:.4f}", f"{row['bf16']:.4f}", f"{row['cpu'] / row['bf16']:.0f}"]
        lines.append([f"`{row['matcher']}`", *times, f"{row['gb_bf16']:.1f}"])
    head = ["matcher", "CPU, s a step", "GPU, fp32", "GPU, bf16", "times faster, bf16", "memory, GB"]
    return markdown(head, lines)


def machine() -> Row:
    """What the numbers were measured with."""
    return {
        "versions": versions("torch", "numpy"),
        "machine": {
            "gpu": torch.cuda.get_device_name(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
    }


if __name__ == "__main__":
    main()
