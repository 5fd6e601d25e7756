"""An epoch of NCR with SGR at the papers' sizes, its encoders, similarity and bookkeeping apart, beside a plain loop.

Batches of 128 pairs, 36 regions of 2048 floats, captions with the lengths of Flickr8k's (14 words on average) out of
8,481, codes of 1024, similarity vectors of 256, all random: times do not depend on the data, apart from the share of
pairs that the hinge leaves without a gradient. The networks are untrained. The other side runs the same steps of NCR by
a straightforward matcher in float32: `torch.nn.GRU` on packed captions, `torch.nn.functional.linear`, and the loop over
captions that the tests check SGR against (tests/match/naive_loops_sgraf.py). Published code was not run. Its row in
bf16 therefore compares algebra and precision.

A few steps are measured and scaled to the 145,000 training pairs of Flickr30K with 40% of mismatched captions: a
network's epoch has 1,133 steps on all pairs in the warm-up; after it 1,133 blocks of the evaluation pass that divides
the pairs and 680 steps on 128 clean and 128 noisy pairs. Recall on dev and checkpoints, once an epoch, are not in it.
All sides take each step in turn, `--repeats` times, and a row has the medians. Seconds are the processor's on one
thread, so that other work on the machine matters less. `similarity` includes its gradient, `encoders` theirs, and
`bookkeeping` is the rest: gathering, loss, clipping, the optimizer's step, the notes of the pass.

    python benchmarks/epoch_sgr.py --json benchmarks/results/epoch_sgr.json --write docs/matchers.md
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairsift.encode.features import Features, Items, Table
from pairsift.loss.ranking import Hinge
from pairsift.match.base import Codes
from pairsift.match.sgraf import Sgr
from pairsift.match.token_encoders import Linear, Words, token_mask
from pairsift.methods.ncr import NCR
from pairsift.steps import Network, Observation, Phase, Request, Setting, Step
from pairsift.train.batches import Gatherer
from rows import Row, markdown, parser, versions, write_between, write_rows
from similarity import lengths, sgr_loop

BATCH, REGIONS, WIDTH, VOCABULARY = 128, 36, 2048, 8481
PAIRS, CLEAN = 145_000, 0.6
PARTS = ("encoders", "similarity", "bookkeeping")
SIDES = {"loop": False, "fp32": False, "bf16": True}  # whether in half precision
Seconds = dict[str, float]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--write", type=Path, help="the Markdown file whose table is made anew")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    chosen = options.parse_args()
    torch.set_num_threads(1)
    work = {name: Work(name) for name in chosen.sides}
    measured: dict[str, dict[str, list[Seconds]]] = {name: {} for name in work}
    limits: dict[str, list[float]] = {}
    for side in work.values():
        side.run("division")  # to warm up
    for repeat in range(chosen.repeats):
        for precision, speed in limit().items():
            limits.setdefault(precision, []).append(speed)
        for kind in KINDS:
            for name, side in work.items():
                seconds = side.run(kind)
                measured[name].setdefault(kind, []).append(seconds)
                print(repeat, kind, name, {key: round(value, 2) for key, value in seconds.items()}, flush=True)
    rows = [row(name, measured[name]) for name in work]
    speeds = {precision: round(statistics.median(values)) for precision, values in limits.items()}
    print(table(rows, speeds))
    facts = {"limits": speeds, "protocol": " ".join((__doc__ or "").split()), "versions": versions("torch", "numpy")}
    processor = {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    write_rows(chosen.json, rows, facts | {"machine": processor})
    write_between(chosen.write, "<!-- epoch -->", table(rows, speeds), "<!-- end epoch -->")


class Watch:
    """Seconds of the processor by the part that runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.part, self.began = "bookkeeping", time.thread_time()

    def switch(self, part: str) -> str:
        """Begin another part, and return the one before."""
        now, before = time.thread_time(), self.part
        self.seconds[before] += now - self.began
        self.part, self.began = part, now
        return before

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Count what runs inside to a part."""
        before = self.switch(part)
        yield
        self.switch(before)


class _Mark(torch.autograd.Function):
    """The identity; when the gradient passes it, another part begins."""

    @staticmethod
    def forward(ctx: Any, watch: Watch, part: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.watch, ctx.part = watch, part
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        ctx.watch.switch(ctx.part)
        return None, None, *gradients


class Timed(Sgr):
    """SGR with a watch."""

    watch: Watch

    def encode_images(self, items: Items) -> Codes:
        with self.watch.during("encoders"):
            return super().encode_images(items)

    def encode_texts(self, items: Items) -> Codes:
        with self.watch.during("encoders"):
            return super().encode_texts(items)

    def similarity(self, images: Codes, texts: Codes) -> Tensor:
        with self.watch.during("similarity"):
            assert images.tokens is not None and texts.tokens is not None
            tensors = _Mark.apply(  # type: ignore[no-untyped-call]
                self.watch, "encoders", images.vectors, images.tokens, texts.vectors, texts.tokens
            )
            scores = self.compare(Codes(*tensors[:2], images.mask), Codes(*tensors[2:], texts.mask))
            [marked] = _Mark.apply(self.watch, "similarity", scores)  # type: ignore[no-untyped-call]
            return marked

    def compare(self, images: Codes, texts: Codes) -> Tensor:
        return super().similarity(images, texts)


class PlainLinear(Linear):
    """A linear map by torch."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class PlainWords(Words):
    """The encoder of words by torch's GRU on packed captions."""

    def forward(self, items: Items) -> tuple[Tensor, Tensor]:
        mask = token_mask(items)
        size = mask.sum(1)
        vectors = self.dropout(self.vectors(items.values))
        packed = pack_padded_sequence(vectors, size, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(torch.nn.GRU.forward(self.gru, packed)[0], batch_first=True)
        half = states.shape[-1] // 2
        return (states[..., :half] + states[..., half:]) / 2, mask[:, : states.shape[1]]


class Straightforward(Timed):
    """The same matcher by loops and torch's own modules."""

    def compare(self, images: Codes, texts: Codes) -> Tensor:
        return sgr_loop(self, images, texts)


def network(side: str, watch: Watch) -> Network:
    """A network of one side."""
    kind = Straightforward if side == "loop" else Timed
    matcher = kind(WIDTH, VOCABULARY, REGIONS)
    matcher.watch = watch
    if side == "loop":
        matcher.words.__class__ = PlainWords
        for module in matcher.modules():
            if type(module) is Linear:
                module.__class__ = PlainLinear
    return Network(matcher, None)


class Work:
    """NCR's work on one side: two networks, random pairs, and steps of each kind.

    Args:
        side: Key of `SIDES`.
    """

    def __init__(self, side: str) -> None:
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        self.half, self.watch = SIDES[side], Watch()
        self.networks = [network(side, self.watch) for _ in range(2)]
        self.optimizer = torch.optim.AdamW(self.networks[0].parameters(), 2e-4, weight_decay=0.0, fused=True)
        ids = np.arange(2 * BATCH)
        images = rng.normal(size=(len(ids), REGIONS, WIDTH)).astype(np.float32)
        words = [rng.integers(4, VOCABULARY, length) for length in lengths(len(ids)).numpy()]
        self.gather = Gatherer(Features(Table(images), Table.from_items(words)), ids, torch.device("cpu"))
        self.method = NCR().begin(Setting(ids, ids, len(ids), None, Hinge(reduction="sum"), 0))
        self.subsets = {"clean": ids[:BATCH], "noisy": ids[BATCH:]}
        self.phases = {phase.name: phase for phase in self.method.phases()}

    def run(self, kind: str) -> Seconds:
        """Seconds by part of a step of a kind."""
        for member in self.networks:
            member.train(kind != "division")
        self.watch.__init__()  # type: ignore[misc]
        torch.manual_seed(1)
        KINDS[kind](self)
        self.watch.switch("bookkeeping")
        return self.watch.seconds

    def division(self) -> None:
        """A block of the evaluation pass."""
        with torch.no_grad():
            batch = self.gather(Request(self.subsets["clean"]))
            with self.mixed():
                notes = self.method.observe(Observation.make(self.networks[0], 0, batch))
            for values in notes.values():
                values.float().numpy()

    def train(self, subsets: dict[str, np.ndarray[Any, Any]], phase: Phase) -> None:
        """A step."""
        batches = {name: self.gather(Request(ids)) for name, ids in subsets.items()}
        with self.mixed():
            terms = self.method.step(Step(self.networks, 0, batches, phase))
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack([term.reduced() * term.weight for term in terms]).sum().backward()  # type: ignore[no-untyped-call]
        self.watch.switch("bookkeeping")
        torch.nn.utils.clip_grad_norm_(self.networks[0].parameters(), 2.0)
        self.optimizer.step()

    def mixed(self) -> torch.autocast:
        """The precision of the side."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.half)


def warm(work: Work) -> None:
    work.train({"all": work.subsets["clean"]}, Phase("warm-up", 1, warm=True))


def both(work: Work) -> None:
    work.train(work.subsets, Phase("all", 1, ("clean", "noisy")))


KINDS: dict[str, Callable[[Work], None]] = {"warm-up": warm, "division": Work.division, "clean and noisy": both}
EPOCHS: dict[str, dict[str, float]] = {
    "warm-up": {"warm-up": PAIRS / BATCH},
    "clean and noisy": {"division": PAIRS / BATCH, "clean and noisy": CLEAN * PAIRS / BATCH},
}


def limit(size: int = 2048) -> dict[str, float]:
    """GFLOP a second of a large product on one thread, the faster of MKL's and oneDNN's, by precision."""
    speeds = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.randn(2, size, size).to(dtype)
        ways: list[Callable[[], Tensor]] = [lambda a=left, b=right: a @ b]  # type: ignore[misc]
        if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            ways.append(lambda a=left, b=right: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], ""))  # type: ignore[misc]
        times = []
        for way in ways * 2:
            began = time.thread_time()
            way()
            times.append(time.thread_time() - began)
        speeds[name] = 2 * size**3 / min(times) / 1e9
    return speeds


def row(name: str, measured: dict[str, list[Seconds]]) -> Row:
    """The medians of a side, and the hours of a network's epochs by part."""
    steps = {
        kind: {part: statistics.median(seconds[part] for seconds in times) for part in PARTS}
        for kind, times in measured.items()
    }
    epochs = {
        phase: {part: sum(count * steps[kind][part] for kind, count in counts.items()) / 3600 for part in PARTS}
        for phase, counts in EPOCHS.items()
    }
    return {"side": name, "repeats": len(measured["warm-up"]), "steps": steps, "epochs": epochs}


def table(rows: list[Row], limits: dict[str, float]) -> str:
    """A row for each phase and side, and the limits below."""
    base = {row["side"]: row for row in rows}.get("loop")
    lines = []
    for phase in EPOCHS:
        for row in rows:
            parts = row["epochs"][phase]
            total = sum(parts.values())
            ratio = f"{sum(base['epochs'][phase].values()) / total:.2f}x" if base else ""
            lines.append([phase, row["side"], ratio, *(f"{parts[part]:.2f}" for part in PARTS), f"{total:.2f}"])
    head = ["epoch", "", "against the loop", *(f"{part}, h" for part in PARTS), "all, h"]
    speeds = " and ".join(f"{speed:.0f} GFLOP/s in {precision}" for precision, speed in limits.items())
    return f"{markdown(head, lines)}\n\nIn the same run a product of 2048 x 2048 matrices reached {speeds}."


if __name__ == "__main__":
    main()
