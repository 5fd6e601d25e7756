"""The table of judged pairs, and the report."""

from pairsift.audit.report import write_report
from pairsift.audit.table import (
    count_verdicts,
    detection,
    detector_scores,
    drop_equal_suggestions,
    pair_table,
    suspects,
    verdict_names,
    write_division,
    write_tables,
)

__all__ = [
    "count_verdicts",
    "detection",
    "detector_scores",
    "drop_equal_suggestions",
    "pair_table",
    "suspects",
    "verdict_names",
    "write_division",
    "write_report",
    "write_tables",
]
