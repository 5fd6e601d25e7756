"""What the report's sections speak of: the table of a run beside its pairs and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsift.audit.report_parts import Tree, lookup
from pairsift.pairs.pairs import Pairs
from pairsift.retrieve.ranks import FloatArray


@dataclass(frozen=True)
class Findings:
    """A run's table, and what belongs to it.

    Attributes:
        pairs: All pairs.
        table: From `pair_table`.
        metrics: The run's numbers.
        log: The run's events.
        folder: Absolute path of the report's folder, from where links go.
    """

    pairs: Pairs
    table: pa.Table
    metrics: Tree
    log: list[dict[str, Any]]
    folder: Path

    @cached_property
    def probability(self) -> FloatArray:
        """The match probability of each row, (n,)."""
        probability: FloatArray = self.table["match_probability"].to_numpy()
        return probability

    @cached_property
    def verdicts_given(self) -> bool:
        """Whether there were enough pairs for verdicts; the probabilities are a ranking alone elsewhere."""
        return lookup(self.metrics, "verdicts_given") is not False

    @cached_property
    def flag(self) -> NDArray[np.bool_]:
        """Whether each row is flagged, (n,); none is where no verdicts are given."""
        found: NDArray[np.bool_] = self.table["is_mismatch"].to_numpy().astype(np.bool_) & self.verdicts_given
        return found

    @cached_property
    def truth(self) -> NDArray[np.bool_] | None:
        """Whether each row was re-pointed on purpose, (n,); None where no noise was planted."""
        if "truly_mismatched" not in self.table.column_names:
            return None
        found: NDArray[np.bool_] = self.table["truly_mismatched"].to_numpy().astype(np.bool_)
        return found

    def held(self, *splits: str) -> NDArray[np.bool_]:
        """Whether each row is of one of these splits, (n,)."""
        return np.array([split in splits for split in self.table["split"].to_pylist()], np.bool_)
