"""What becomes of each pair in an export: by decisions, and by thresholds for the other pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute

from pairsift.arrays import Bools, Ints, Reals
from pairsift.pairs.pairs import SKIPPED, SPLITS, Pairs


@dataclass(frozen=True)
class Selection:
    """What becomes of each pair.

    Attributes:
        keep: Whether to export each pair, (n_pairs,).
        captions: New captions by pair.
        weight: Weight of each pair in a training on the exported data, [0, 1], (n_pairs,).
        counts: Number of pairs by what became of them: `kept`, `judged` (kept, and judged by the run),
            `dropped`, `rewritten`, `repeated` (their image has their new caption already), `below` (the threshold)
            and `skipped` (the run could not use them).
        table: The table of judged pairs that the selection was made from.
    """

    keep: Bools
    captions: Mapping[int, str]
    weight: Reals
    counts: Mapping[str, int]
    table: pa.Table


def choose_pairs(
    pairs: Pairs, table: pa.Table, decisions: pa.Table, drop_below: float = 0.0, replace_above: float | None = None
) -> Selection:
    """Return what becomes of each pair: first by the decisions, then by thresholds for the undecided pairs.

    Pairs that the run could not use are left out, and so are those whose new caption their image has already. Pairs
    that the source's splits leave out are kept.

    Args:
        pairs: All pairs.
        table: The table of judged pairs.
        decisions: The table of decisions.
        drop_below: Undecided pairs with a smaller match probability are left out.
        replace_above: Undecided flagged pairs get the suggested caption instead if its probability is at least this;
            None for none.

    Returns:
        The selection. The weight is 1 for a decided or unjudged pair, the probability of the suggestion for a pair with
        a suggested caption, and the match probability for other pairs.
    """
    probability = np.ones(len(pairs))
    probability[table["pair"].to_numpy()] = table["match_probability"].to_numpy()
    judged = np.zeros(len(pairs), np.bool_)
    judged[table["pair"].to_numpy()] = True
    # broken images and vectors are known only to the run: their pairs are in a split of the run and were not judged
    usable: Bools = np.not_equal(pairs.split, SKIPPED) & (judged | ~np.isin(pairs.split, SPLITS))
    choice_of = {row["pair"]: row for row in decisions.to_pylist() if row["pair"] < len(pairs) and usable[row["pair"]]}
    decided = np.zeros(len(pairs), np.bool_)
    decided[list(choice_of)] = True
    dropped = np.zeros(len(pairs), np.bool_)
    dropped[[pair for pair, row in choice_of.items() if row["decision"] == "drop"]] = True
    suggested = _suggested(table, replace_above, usable & ~decided)
    rewritten = np.isin(np.arange(len(pairs)), list(suggested))
    low: Bools = usable & ~decided & ~rewritten & (probability < drop_below)
    keep = usable & ~dropped & ~low
    captions = {pair: row["new_caption"] for pair, row in choice_of.items() if row["decision"] == "replace"}
    captions |= {pair: caption for pair, (caption, _) in suggested.items()}
    probability[list(suggested)] = [value for _, value in suggested.values()]
    repeated = _repetitions(pairs, keep, captions)
    keep[repeated] = False
    captions = {pair: caption for pair, caption in captions.items() if keep[pair]}
    masks = {"kept": keep, "judged": keep & judged, "dropped": dropped, "below": low, "skipped": ~usable}
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    counts |= {"rewritten": len(captions), "repeated": len(repeated)}
    return Selection(keep, captions, np.where(decided, 1.0, probability), counts, table)


def _suggested(table: pa.Table, replace_above: float | None, undecided: Bools) -> dict[int, tuple[str, float]]:
    """Return the suggested caption and its probability of undecided flagged pairs, where it is at least a threshold."""
    if replace_above is None:
        return {}
    flagged = table.filter(table["is_mismatch"])
    likely = flagged.filter(pa.compute.greater_equal(flagged["suggestion_probability"], replace_above))
    columns = (likely[name].to_pylist() for name in ("pair", "suggested_caption", "suggestion_probability"))
    return {pair: (text, value) for pair, text, value in zip(*columns, strict=True) if undecided[pair]}


def _repetitions(pairs: Pairs, keep: Bools, captions: Mapping[int, str]) -> list[int]:
    """Return the pairs with a new caption that their image has from another kept pair."""
    same_image = keep & np.isin(pairs.image_of, pairs.image_of[list(captions)])
    kept: list[int] = np.flatnonzero(same_image).tolist()
    present = {(pairs.image_of[pair], pairs.captions[pair]) for pair in kept if pair not in captions}
    repeated = []
    for pair in sorted(captions):
        key = pairs.image_of[pair], captions[pair]
        if key in present:
            repeated.append(pair)
        present.add(key)
    return repeated


def pairs_of_records(pairs: Pairs) -> Ints:
    """Return the pair of each record of a source that may have changed since the run was made, -1 for none, (n,)."""
    rows = np.arange(len(pairs)) if pairs.source_rows is None else pairs.source_rows
    of_records = np.full(rows.max(initial=-1) + 1, -1)
    of_records[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    return of_records


def selection_of_records(selection: Selection, pairs: Pairs) -> Selection:
    """Return a selection by the records of the source. Records that the run does not know are kept."""
    of_records = pairs_of_records(pairs)
    unknown = of_records < 0
    captions = {
        record: selection.captions[pair]
        for record, pair in enumerate(of_records.tolist())
        if pair in selection.captions
    }
    keep, weight = unknown | selection.keep[of_records], np.where(unknown, 1.0, selection.weight[of_records])
    return replace(selection, keep=keep, captions=captions, weight=weight)
