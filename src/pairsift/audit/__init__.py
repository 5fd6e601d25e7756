"""The table of judged pairs, the decisions on them, and the report."""

from pairsift.audit.decision_file import read_decisions
from pairsift.audit.decisions import Decision, Decisions, Event, threshold_table
from pairsift.audit.report import write_report
from pairsift.audit.table import (
    count_verdicts,
    detection,
    detector_scores,
    pair_table,
    read_pairs,
    suspects,
    verdict_names,
    write_division,
    write_tables,
)

__all__ = [
    "Decision",
    "Decisions",
    "Event",
    "count_verdicts",
    "detection",
    "detector_scores",
    "pair_table",
    "read_decisions",
    "read_pairs",
    "suspects",
    "threshold_table",
    "verdict_names",
    "write_division",
    "write_report",
    "write_tables",
]
