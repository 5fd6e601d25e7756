"""The points of the overview's plots."""

import numpy as np

from pairsift.web.pages import agreement


def test_the_share_kept_of_the_decided_pairs_in_each_tenth():
    rng = np.random.default_rng(0)
    probability = rng.uniform(size=3000)
    choice = rng.choice(["undecided", "keep", "drop", "replace"], 3000)
    choice[(probability > 0.3) & (probability < 0.4)] = "undecided"
    bins = (probability * 40).astype(int)
    histogram = {
        name: np.bincount(bins[choice == name], minlength=40).tolist()
        for name in ("undecided", "keep", "drop", "replace")
    }
    found = {round(point["middle"], 2): point for point in agreement(histogram)}
    assert 0.35 not in found and len(found) == 9
    for tenth in (0, 1, 2, 4, 5, 6, 7, 8, 9):
        inside = (probability >= tenth / 10) & (probability < (tenth + 1) / 10) & (choice != "undecided")
        point = found[round(tenth / 10 + 0.05, 2)]
        assert point["decided"] == inside.sum()
        assert point["share"] == np.mean(choice[inside] == "keep")
