"""Decisions on pairs that have another caption, or by their row another image, are cleared."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairsift.marker import write_marker
from pairsift.pairs.pairs import Pairs
from pairsift.review import Decision, Decisions
from pairsift.runs.source_changes import clear_lapsed_decisions
from pairsift.table import pair_table, write_tables

N = 6


@pytest.fixture
def judged(tmp_path):
    """Pairs with a table of their judgement in a folder, and a decision on each."""
    names = [f"a/{number}.jpg" for number in range(N)]
    pairs = Pairs(
        source="mine.csv",
        names=names,
        paths=[Path(name) for name in names],
        captions=[f"caption {number}" for number in range(N)],
        image_of=np.arange(N),
        split=np.full(N, "train", "<U7"),
        row_ids=[f"s{number}" for number in range(N)],
    )
    write_marker(tmp_path, "run")
    table = pair_table(pairs, pairs.ids(), np.full(N, 0.9), np.zeros(N, bool), ["clean"] * N, np.full(N, -1))
    write_tables(table, tmp_path)
    Decisions(tmp_path, pairs.ids()).decide([Decision(pair, "keep") for pair in range(N)], "ana")
    return tmp_path, pairs


def left(folder):
    return Decisions(folder, np.arange(N)).decided().tolist()


def test_a_caption_that_was_edited_clears_its_decision(judged):
    folder, pairs = judged
    edited = replace(pairs, captions=["edited", *pairs.captions[1:]], row_ids=None)
    assert clear_lapsed_decisions(folder, edited) == 1 and left(folder) == [1, 2, 3, 4, 5]
    assert clear_lapsed_decisions(folder, edited) == 0


def test_a_row_with_another_image_clears_its_decision_and_moved_folders_do_not(judged):
    folder, pairs = judged
    moved = replace(pairs, names=[f"b/{number}.jpg" for number in range(N)])
    assert clear_lapsed_decisions(folder, moved) == 0
    other = replace(pairs, names=["new.jpg", *pairs.names[1:]])
    assert clear_lapsed_decisions(folder, replace(other, row_ids=None)) == 0  # the name alone is another
    assert clear_lapsed_decisions(folder, other) == 1 and left(folder) == [1, 2, 3, 4, 5]


def test_a_pair_that_cannot_be_used_keeps_its_decision(judged):
    folder, pairs = judged
    split = pairs.split.copy()
    split[0] = "skipped"
    away = replace(pairs, split=split, captions=["edited", *pairs.captions[1:]])
    assert clear_lapsed_decisions(folder, away) == 0 and left(folder) == list(range(N))
