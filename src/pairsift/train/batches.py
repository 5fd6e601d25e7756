"""The batches of pairs of each training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from pairsift.arrays import Ints
from pairsift.encode.features import Features, Items, Table
from pairsift.errors import InputError
from pairsift.methods.base import Method
from pairsift.processes import ALONE, Processes
from pairsift.steps import Batch, Phase, Request


def shuffled(ids: Ints, *seeds: int) -> Ints:
    """Return the ids in an order that depends only on the seeds."""
    return np.random.default_rng(seeds).permutation(ids)


def cut(ids: Ints, batch_size: int) -> list[Ints]:
    """Cut ids into batches of `batch_size`, in order.

    A remainder of at least half a batch is a smaller last batch; a smaller remainder joins the batch before it. No
    batch has fewer than 2 pairs unless there is only one pair.
    """
    full, rest = divmod(len(ids), batch_size)
    count = max(1, full + (rest > 1 and rest * 2 >= batch_size))
    edges = [batch_size * i for i in range(count)] + [len(ids)]
    return [ids[a:b] for a, b in pairwise(edges)]


def steps(method: Method, phase: Phase, network: int, batch_size: int, seeds: tuple[int, ...]) -> list[dict[str, Ints]]:
    """Return the pair ids of every step of a network's epoch, by subset.

    The first subset of the phase decides the number of steps. The others are shuffled and repeated to fill all steps,
    unless their pairs come along once: then they are cut into batches too, and a single pair is left out. Other subsets
    without pairs are left out.

    Raises:
        InputError: The first subset has no pairs.
    """
    first = method.subset(phase.subsets[0], network)
    if not len(first):
        raise InputError(
            f"network {network} of {method.name} has no pair in the set {phase.subsets[0]!r} that it trains on in the "
            f"phase {phase.name!r}: take another method, or give it more pairs"
        )
    driver = cut(shuffled(first, *seeds, network, 0), batch_size)
    plan = [{phase.subsets[0]: ids} for ids in driver]
    for number, name in enumerate(phase.subsets[1:], 1):
        ids = method.subset(name, network)
        if name in phase.once:
            batches = cut(shuffled(ids, *seeds, network, number), batch_size) if len(ids) > 1 else []
            for step, batch in zip(plan, batches, strict=False):
                step[name] = batch
            continue
        stream = _endless(ids, (*seeds, network, number))
        for step in plan if len(ids) else ():
            take = min(len(step[phase.subsets[0]]), len(ids))
            step[name] = np.fromiter((next(stream) for _ in range(take)), np.int64, take)
    return plan


def _endless(ids: Ints, seeds: tuple[int, ...]) -> Iterator[int]:
    lap = 0
    while len(ids):
        yield from shuffled(ids, *seeds, lap).tolist()
        lap += 1


@dataclass(frozen=True)
class Likeness:
    """The groups of images and of captions that are too similar to be each other's negatives.

    Attributes:
        images: For each image row, the first row of its near-duplicates, (n_images,).
        texts: Number of each pair's caption, the same for equal texts, (n_pairs,).
    """

    images: Ints
    texts: Ints


class Gatherer:
    """A callable that gathers the features of pairs into batches on a device.

    Of several processes, each gathers the features of its share of a batch, beside the ids and rows of the whole.
    """

    def __init__(
        self,
        features: Features,
        image_of: Ints,
        device: torch.device,
        likeness: Likeness | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.features, self.image_of, self.device, self.likeness = features, image_of, device, likeness
        self.processes = processes

    def __call__(self, request: Request) -> Batch:
        """Return the batch of the requested pairs: their images with the requested captions."""
        ids, captions = request.ids, request.ids if request.captions is None else request.captions
        alone = not request.given_texts or np.array_equal(captions, ids)
        rows, owners = self.image_of[ids], self.image_of[captions]
        first, texts = (np.arange(0), None) if self.likeness is None else (self.likeness.images, self.likeness.texts)
        like_rows, like_owners = (rows, owners) if texts is None else (first[rows], first[owners])
        return Batch(
            ids,
            torch.from_numpy(like_rows).to(self.device),
            torch.from_numpy(like_owners).to(self.device),
            self._items(self.features.images, rows, request),
            self._items(self.features.texts, captions, request),
            None if alone else self._items(self.features.texts, ids, request),
            None if texts is None else torch.from_numpy(texts[captions]).to(self.device),
            request.captions,
        )

    def _items(self, table: Table, rows: Ints, request: Request) -> Items:
        """Return these items of a table, or the share of this process."""
        if request.undivided or not self.processes.divides(len(rows)):
            return table.batch(rows).to(self.device)
        return replace(table.batch(rows[self.processes.share(len(rows))]), whole=len(rows)).to(self.device)
