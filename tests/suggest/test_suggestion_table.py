"""Suggestions written to a file and found again by pair."""

import numpy as np
import pyarrow.parquet as pq

from pairsift.suggest.suggest import Suggestions
from pairsift.suggest.table import (
    SUGGESTIONS_FILE,
    SuggestionLists,
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
    found = SuggestionLists.read(tmp_path).of_pairs([9, 5, 4])
    assert found[5] == {
        "captions": [{"from_pair": 12, "probability": 0.75}, {"from_pair": 3, "probability": 0.125}],
        "images": [{"from_pair": 9, "probability": 0.25}, {"from_pair": 3, "probability": 0.0}],
    }
    assert found[9]["captions"] == [{"from_pair": 8, "probability": 0.5}]
    assert found[9]["images"] == [{"from_pair": 5, "probability": 1.0}]
    assert found[4] == {"captions": [], "images": []}
    assert fitting_captions(tmp_path) == {5: (12, 0.75)}  # the first caption of pair 9 does not fit
