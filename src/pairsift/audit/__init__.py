"""The table of judged pairs, and the report."""

from pairsift.audit.report import write_report
from pairsift.audit.table import (
    detection,
    detector_scores,
    drop_same_text,
    kinds,
    pair_table,
    suspects,
    worded,
    write_division,
    write_tables,
)

__all__ = [
    "detection",
    "detector_scores",
    "drop_same_text",
    "kinds",
    "pair_table",
    "suspects",
    "worded",
    "write_division",
    "write_report",
    "write_tables",
]
