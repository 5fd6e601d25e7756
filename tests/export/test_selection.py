"""The pairs that an export keeps, and their captions."""

import numpy as np
import pyarrow as pa

from pairsift.export.selection import choose_pairs
from pairsift.pairs.pairs import Pairs
from pairsift.review.decisions import Decision, Decisions

N = 12


def test_likely_suggestions_are_taken_for_undecided_pairs(tmp_path):
    pairs = Pairs(
        source="memory",
        names=[f"{row}.png" for row in range(N)],
        paths=[tmp_path / f"{row}.png" for row in range(N)],
        captions=[f"caption {row}" for row in range(N)],
        image_of=np.arange(N),
        split=np.full(N, "train"),
    )
    decisions = Decisions(tmp_path, pairs.ids())
    decisions.decide([Decision(3, "drop"), Decision(1, "keep")])
    chance = [0.89, 0.95, 0.9, 0.99, 0.99, *[None] * (N - 5)]
    table = pa.table({"pair": pairs.ids(), "match_probability": (np.arange(N) + 0.5) / N})
    table = table.append_column("is_mismatch", pa.array([True] * 4 + [False] * (N - 4)))
    table = table.append_column("suggested_caption", pa.array([None if p is None else f"other {p}" for p in chance]))
    table = table.append_column("suggestion_probability", pa.array(chance))
    selection = choose_pairs(pairs, table, decisions.table(), drop_below=0.4, replace_above=0.9)
    assert selection.captions == {2: "other 0.9"}  # 1 and 3 are decided, 0 is below, 4 is not flagged
    assert np.flatnonzero(selection.keep).tolist() == [1, 2, *range(5, N)]
    assert selection.weight[1:3].tolist() == [1.0, 0.9] and selection.counts["rewritten"] == 1
    assert choose_pairs(pairs, table, decisions.table()).captions == {}


def test_no_new_caption_repeats_another_caption_of_its_image(tmp_path):
    pairs = Pairs(
        source="memory",
        names=["a.png", "b.png"],
        paths=[tmp_path / "a.png", tmp_path / "b.png"],
        captions=["one", "two", "three", "four", "one"],
        image_of=np.array([0, 0, 0, 0, 1]),
        split=np.full(5, "train"),
    )
    decisions = Decisions(tmp_path, pairs.ids())
    decisions.decide([Decision(pair, "replace", new) for pair, new in enumerate(("one", "new", "new", "two"), start=1)])
    table = pa.table({"pair": pairs.ids(), "match_probability": np.full(5, 0.5)})
    selection = choose_pairs(pairs, table, decisions.table())
    assert np.flatnonzero(selection.keep).tolist() == [0, 2, 4]  # pair 4 is of another image
    assert selection.captions == {2: "new", 4: "two"}
    assert (selection.counts["repeated"], selection.counts["rewritten"], selection.counts["kept"]) == (2, 2, 3)
