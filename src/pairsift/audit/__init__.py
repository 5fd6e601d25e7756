"""The table of mismatched pairs and the report."""

from pairsift.audit.report import write_report
from pairsift.audit.table import (
    detection,
    detector_scores,
    drop_same_text,
    issue_table,
    kinds,
    worded,
    write_division,
    write_issues,
)

__all__ = [
    "detection",
    "detector_scores",
    "drop_same_text",
    "issue_table",
    "kinds",
    "worded",
    "write_division",
    "write_issues",
    "write_report",
]
