"""The table of mismatched pairs, and the report."""

from pairsift.audit.report import write_report
from pairsift.audit.table import (
    compared,
    detection,
    drop_same_text,
    issue_table,
    kinds,
    worded,
    write_division,
    write_issues,
)

__all__ = [
    "compared",
    "detection",
    "drop_same_text",
    "issue_table",
    "kinds",
    "worded",
    "write_division",
    "write_issues",
    "write_report",
]
