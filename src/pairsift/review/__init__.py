"""What people decide about pairs: the journal, the queue, the spot check."""

from pairsift.review.decision_file import read_decisions
from pairsift.review.decisions import Decision, Decisions, Event, threshold_table

__all__ = ["Decision", "Decisions", "Event", "read_decisions", "threshold_table"]
