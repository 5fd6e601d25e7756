"""The judging of vectors in files: what is learned once, the evidence of each shard, and the verdict about all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pairsift.arrays import Array, Ints, first_numbers
from pairsift.detect import DetectOptions, shards
from pairsift.detect.pair_judge import PairEvidence
from pairsift.errors import InputError
from pairsift.mismatches import JudgedVectors, Mismatches
from pairsift.object_file import read_object, write_object
from pairsift.run_folder import finished
from pairsift.sharding.parts import Parts
from pairsift.sharding.vectors import VectorFiles
from pairsift.vector_judge import VectorJudge
from pairsift.vector_pairs import VectorPairs

PLAN, JUDGE, EVIDENCE = "plan.safetensors", "judge.safetensors", "evidence"
COMBINED, PLACEHOLDER, DETECTOR = "combined_", "placeholder_", "detector_"  # beginnings of the names of columns


@dataclass(frozen=True)
class Plan:
    """What is judged, and by whom it is learned.

    Attributes:
        mark: What the files are recognised by (`VectorFiles.mark`).
        seed: Seed of the choice, and of folds, decoys and resampling.
        ids: Row of each pair in the files, ascending, (n,); the others cannot be used.
        image_of: Number of each pair's image, (n,).
        learned: The pairs that the judge learns from, (k,).
        rest: The others, by whole images, (n - k,).
        edges: Where the shards of `rest` begin, and the end of the last one.
        broken: Why other rows cannot be used, by row.
    """

    mark: str
    seed: int
    ids: Ints
    image_of: Ints
    learned: Ints
    rest: Ints
    edges: Ints
    broken: dict[str, str]

    @staticmethod
    def of(files: VectorFiles, seed: int, learns: bool = True) -> Plan:
        """Look at all vectors, and choose the pairs that are learned from.

        Args:
            files: The source.
            seed: Seed of the choice.
            learns: Whether a judge learns from some of the pairs.

        Raises:
            InputError: Fewer than two pairs can be used.
        """
        prints, broken = files.scan()
        rows = np.array([*broken], np.int64)
        ids, prints = np.delete(np.arange(len(prints)), rows), np.delete(prints, rows)
        least = 1 + learns
        if len(ids) < least:
            first = next((f"; row {row} {why}" for row, why in broken.items()), "")
            used = f"{len(ids)} of {len(files):,} pairs can be used"
            raise InputError(f"{files.path}: {used}, and at least {least} must be{first}")
        image_of = first_numbers(prints)
        if learns:
            learned, rest = shards.learned_rows(image_of, seed)
        else:
            learned, rest = np.zeros(0, np.int64), np.argsort(image_of, kind="stable")
        edges = np.cumsum([0, *map(len, shards.cut(image_of, rest))])
        words = {str(row): why for row, why in broken.items()}
        return Plan(files.mark, seed, ids, image_of, learned, rest, edges, words)

    def pairs(self, files: VectorFiles) -> VectorPairs:
        """Return all pairs, which are read when they are needed; without learned ones, none is a training pair."""
        train = np.full(len(self.ids), len(self.learned) > 0)
        return replace(files.pairs(self.ids, self.image_of), train=train)


class Judging:
    """The judging of a source in a folder that several processes may share.

    It writes the parts of evidence when it is called with the numbers of shards.

    Args:
        folder: The folder of the plan and the parts.
        files: The source.
        known: The judging of the pairs that the judge learned from; None where it learns from these.
    """

    def __init__(self, folder: Path, files: VectorFiles, known: Judging | None = None) -> None:
        self.folder, self.files, self.known = folder, files, known

    def __reduce__(self) -> tuple[Any, ...]:
        return Judging, (self.folder, self.files, self.known)  # a worker reads the plan and the judge itself

    @property
    def begun(self) -> bool:
        """Whether the plan is made, and the judge has learned."""
        return (self.folder / (JUDGE if self.known is None else PLAN)).exists()

    def begin(self, seed: int, options: DetectOptions) -> None:
        """Write the plan and the judge, which one process does."""
        plan = Plan.of(self.files, seed, self.known is None)
        if self.known is not None:
            write_object(self.folder / PLAN, plan)
            return
        judge = VectorJudge.fit(plan.pairs(self.files).subset(plan.learned), seed, options)
        write_object(self.folder / PLAN, plan)
        write_object(self.folder / JUDGE, judge)  # last: with it, the plan is there

    @cached_property
    def plan(self) -> Plan:
        """The plan.

        Raises:
            InputError: It cannot be read, or the files are others by now.
        """
        self.require_same()
        return self._plan

    @cached_property
    def _plan(self) -> Plan:
        return read_object(self.folder / PLAN, Plan)

    def require_same(self) -> None:
        """Raise an error if the files are others than those of the plan; those of a finished run may have moved.

        Raises:
            InputError: They are others, or the plan cannot be read.
        """
        marks = [mark.split("-") for mark in (self._plan.mark, self.files.mark)]
        if finished(self.folder.parent):
            marks = [mark[:1] for mark in marks]
        if marks[0] != marks[1]:
            raise InputError(f"{self.files.path} has changed since {self.folder.parent} was begun: give another --out")

    @cached_property
    def judge(self) -> VectorJudge:
        """What was learned."""
        return read_object(self.folder / JUDGE, VectorJudge) if self.known is None else self.known.judge

    @property
    def parts(self) -> Parts:
        """The parts of evidence."""
        return Parts(self.folder, EVIDENCE, len(self.plan.edges) - 1)

    @cached_property
    def _pairs(self) -> VectorPairs:
        return self.plan.pairs(self.files)

    def __call__(self, number: int) -> None:
        """Write the evidence of a shard."""
        plan = self.plan
        rows = plan.rest[plan.edges[number] : plan.edges[number + 1]]
        found = self.judge.evidence_of(self._pairs.subset(rows))
        self.parts.write(number, evidence_table(plan.ids[rows], found))

    def result(self) -> Mismatches:
        """Return the verdict about all pairs, by all parts; beside the known pairs where there are any."""
        plan, parts = self.plan, self.parts
        evidence = _Evidence(parts)
        if self.known is None:
            judged = JudgedVectors(self._pairs, plan.seed, plan.learned, plan.rest, self.judge, evidence)
            return Mismatches(self._pairs, judged.judgement(), plan.seed, judged)
        before = self.known.result()
        judgement = before.judge.judgement_beside(evidence, plan.rest)
        return Mismatches(self._pairs, judgement, plan.seed, before.judge, before)


class _Evidence(Iterable[PairEvidence]):
    """The evidence in parts, of which one at a time is in memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[PairEvidence]:
        for number in range(self._parts.count):
            yield evidence_of(self._parts.read(number))


def evidence_table(ids: Ints, evidence: PairEvidence) -> pa.Table:
    """Return the evidence of pairs with these ids as a table with a row for each."""

    def numbered(name: str, rows: Array) -> dict[str, Array]:
        return {f"{name}{number}": row for number, row in enumerate(rows) if row.size == len(ids)}

    columns = {"pair": ids, **numbered(COMBINED, evidence.combined), **numbered(PLACEHOLDER, evidence.placeholder)}
    columns |= {f"{DETECTOR}{name}": values for name, values in evidence.detectors.items()}
    columns |= {"fold": evidence.fold, "group": evidence.group}
    return pa.table(columns | {"in_train": evidence.in_train, "verified": evidence.verified})


def evidence_of(table: pa.Table) -> PairEvidence:
    """Return the evidence in a table of `evidence_table`."""

    def column(name: str) -> Array:
        return np.asarray(table[name])

    def stacked(beginning: str) -> Array:
        names = [name for name in table.column_names if name.startswith(beginning)]
        return np.stack([column(name) for name in names]) if names else np.zeros((0, 0), np.int64)

    combined, placeholder = stacked(COMBINED), stacked(PLACEHOLDER)
    placeholder = placeholder if len(placeholder) else np.zeros((len(combined), 0), np.int64)
    names = [name for name in table.column_names if name.startswith(DETECTOR)]
    detectors = {name.removeprefix(DETECTOR): column(name) for name in names}
    masks = (np.asarray(column(name), np.bool_) for name in ("in_train", "verified"))
    return PairEvidence(combined, placeholder, detectors, column("fold"), column("group"), *masks)
