"""The findings of a run that the sections of the report show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairsift.arrays import Ints, Reals
from pairsift.pairs.pairs import Pairs
from pairsift.report.html import Tree

Section = dict[str, Any]  # what a section of the report shows, with its `title` and `kind`: its macro in sections.html
THRESHOLD = 0.5  # a pair with a lower match probability is flagged


@dataclass(frozen=True)
class Findings:
    """The table of a run, with its pairs, metrics and log.

    Attributes:
        pairs: All pairs.
        table: The table from `pair_table`.
        metrics: The run's metrics.
        log: The run's events.
        folder: Absolute path of the report's folder; relative links start from it.
    """

    pairs: Pairs
    table: pa.Table
    metrics: Tree
    log: list[dict[str, Any]]
    folder: Path

    @cached_property
    def probability(self) -> Reals:
        """The match probability of each row, (n,)."""
        probability: Reals = self.table["match_probability"].to_numpy()
        return probability

    @cached_property
    def verdicts_given(self) -> bool:
        """A bool: whether the run gives verdicts; without verdicts the probabilities are only a ranking."""
        return bool(self.metrics.get("verdicts_given", True))

    @cached_property
    def flag(self) -> NDArray[np.bool_]:
        """The flag of each row, (n,); False for every row where no verdicts are given."""
        flag: NDArray[np.bool_] = self.table["is_mismatch"].to_numpy().astype(np.bool_) & self.verdicts_given
        return flag

    @cached_property
    def truth(self) -> NDArray[np.bool_] | None:
        """The truth: whether each row is a planted mismatch, (n,); None where no noise was planted."""
        if "truly_mismatched" not in self.table.column_names:
            return None
        truth: NDArray[np.bool_] = self.table["truly_mismatched"].to_numpy().astype(np.bool_)
        return truth

    def rows(self, places: Ints) -> list[dict[str, Any]]:
        """Return these rows of the table, (n,); of a mapped table, nothing else is read."""
        return [row for place in places.tolist() for row in self.table.slice(place, 1).to_pylist()]

    def in_splits(self, *splits: str) -> NDArray[np.bool_]:
        """Return whether each row is in one of these splits, (n,)."""
        return np.asarray(pc.is_in(self.table["split"], pa.array(splits, pa.string())).to_numpy(), np.bool_)
