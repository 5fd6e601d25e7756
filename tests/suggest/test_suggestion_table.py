"""Suggestions written to a file and found again by pair."""

import numpy as np
import pyarrow.parquet as pq

from pairsift.suggest.suggest import Suggestions
from pairsift.suggest.table import (
    SUGGESTIONS_FILE,
    fitting_captions,
    suggestion_table,
)

IDS = np.array([3, 5, 8, 9, 12])
OWNER = np.array([1, 0, 1, 2, 0])  # image 0 has pairs 5 and 12


def test_what_is_written_is_found_by_pair(tmp_path):
    suggestions = Suggestions(
        np.array([1, 3]),
        np.array([[4, 0], [2, -1]]),
        np.array([[0.75, 0.125], [0.5, 0.0]]),
        np.array([[2, 1], [0, -1]]),
        np.array([[0.25, 0.0], [1.0, 0.0]]),
        np.array([True, False]),
    )
    pq.write_table(suggestion_table(suggestions, IDS, OWNER), tmp_path / SUGGESTIONS_FILE)
    found = pq.read_table(tmp_path / SUGGESTIONS_FILE).to_pylist()
    assert [(row["pair"], row["is_image"], row["from_pair"], row["probability"]) for row in found] == [
        *((5, False, 12, 0.75), (5, False, 3, 0.125), (5, True, 9, 0.25), (5, True, 3, 0.0)),
        *((9, False, 8, 0.5), (9, True, 5, 1.0)),
    ]
    assert fitting_captions(tmp_path) == {5: (12, 0.75)}  # the first caption of pair 9 does not fit
