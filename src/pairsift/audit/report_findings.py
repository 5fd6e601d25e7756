"""The input of the report sections: the table of a run, its pairs and its metrics."""

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
    """The table of a run, with its pairs, metrics and log.

    Attributes:
        pairs: All pairs.
        table: Table of `issue_table`.
        metrics: Metrics of the run.
        log: Events of the run.
        folder: Absolute path of the folder of the report, the base of relative links.
    """

    pairs: Pairs
    table: pa.Table
    metrics: Tree
    log: list[dict[str, Any]]
    folder: Path

    @cached_property
    def score(self) -> FloatArray:
        """The score of each row, (n,)."""
        found: FloatArray = self.table["mismatch_score"].to_numpy()
        return found

    @cached_property
    def verdicts_given(self) -> bool:
        """A bool: whether there were enough pairs for verdicts; if False, the scores are only a ranking."""
        return lookup(self.metrics, "verdicts_given") is not False

    @cached_property
    def flag(self) -> NDArray[np.bool_]:
        """The flag of each row, (n,); all False where there are no verdicts."""
        found: NDArray[np.bool_] = self.table["is_mismatch"].to_numpy().astype(np.bool_) & self.verdicts_given
        return found

    @cached_property
    def truth(self) -> NDArray[np.bool_] | None:
        """The truth of each row, True where it was re-pointed on purpose, (n,); None where no noise was planted."""
        if "truly_mismatched" not in self.table.column_names:
            return None
        found: NDArray[np.bool_] = self.table["truly_mismatched"].to_numpy().astype(np.bool_)
        return found

    def held(self, *splits: str) -> NDArray[np.bool_]:
        """Return whether each row belongs to one of these splits, (n,)."""
        return np.array([split in splits for split in self.table["split"].to_pylist()], np.bool_)
