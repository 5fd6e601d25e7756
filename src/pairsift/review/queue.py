"""The pairs of a run in the order and by the filter that a reviewer asks for."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairsift.arrays import Bools, Ints, Reals
from pairsift.errors import InputError, similar
from pairsift.review.decisions import CHOICES, DECISION_COLUMNS, REASONS, Decisions
from pairsift.review.journal import DecidedMeanwhile
from pairsift.table import JUDGEMENT_COLUMNS, PairRows

UNDECIDED = "undecided"
PER_THREAD = 200_000  # captions that a thread searches at once
ORDERS = ("worst", "best", "random", "source")
Order = Literal["worst", "best", "random", "source"]


@dataclass(frozen=True)
class Filter:
    """What a reviewer asks for; every condition must hold.

    Attributes:
        low: Smallest match probability.
        high: Largest match probability.
        verdicts: The verdicts to choose from; empty for any.
        decisions: The decisions to choose from, `undecided` among them; empty for any.
        reasons: The reasons of decisions to choose from; empty for any.
        splits: The splits to choose from; empty for any.
        text: Words that all occur in the given caption, in any order and as parts of words, whatever their case.
        columns: Values of other columns of the table, by name.
        duplicates: `image` for pairs whose image has copies, `caption` for pairs whose caption several images have.
        pairs: Ids of the pairs to choose from; None for all.
        order: `worst` (smallest match probability first), `best`, `random` or `source`.
        seed: Seed of the random order.
    """

    low: float = 0.0
    high: float = 1.0
    verdicts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    text: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    duplicates: Literal["", "image", "caption"] = ""
    pairs: Ints | None = None
    order: Order = "worst"
    seed: int = 0


class Queue:
    """The judged pairs of a run with their decisions, for filters and pages over millions of pairs.

    Decisions are in memory, as numbers; everything else stays in the table. Any number of threads may ask.

    Args:
        table: The table of judged pairs, worst first. It may be memory-mapped.
        decisions: The decisions. What others decide is seen at the next question.
        suggestions: The suggestions for the pairs, see `pairsift.suggest.table.suggestion_table`.
    """

    def __init__(self, table: pa.Table, decisions: Decisions, suggestions: pa.Table) -> None:
        self.table, self.decisions, self.suggestions = table, decisions, suggestions
        self.ids: Ints = table["pair"].to_numpy()
        self.probability: Reals = table["match_probability"].to_numpy()
        self._rows, self._suggested_for = PairRows(self.ids), suggestions["pair"].to_numpy()
        self._choice = np.zeros(len(self.ids), np.int8)  # 0 for undecided, else 1 + the place in CHOICES
        self._reason = np.zeros(len(self.ids), np.int8)  # 0 for none, else 1 + the place in REASONS
        self._random: tuple[int, Ints] | None = None
        self._event = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.ids)

    def source_columns(self) -> list[str]:
        """Return the names of the columns that the source has beside image, caption and split."""
        return [name for name in self.table.column_names if name not in JUDGEMENT_COLUMNS]

    def select(self, wanted: Filter) -> Ints:
        """Return the rows of the table that pass a filter, in its order, (n,).

        Raises:
            InputError: The filter names a column, a value or an order that does not exist.
        """
        self._refresh()
        mask = self._mask(wanted)
        if wanted.order == "source":
            return self._rows.order[mask[self._rows.order]]
        if wanted.order == "random":
            order = self._shuffled(wanted.seed)
            return order[mask[order]]
        rows = np.flatnonzero(mask).astype(np.int64, copy=False)
        if wanted.order == "best":
            return rows[::-1]
        if wanted.order != "worst":
            raise InputError(f"there is no order {wanted.order!r}; {similar(wanted.order, ORDERS)}")
        return rows

    def rows_after(self, rows: Ints, pair: int, wanted: Filter) -> Ints:
        """Return the rows that come after a pair in the order of a filter.

        The pair itself need not pass the filter.

        Raises:
            InputError: The run has no such pair.
        """
        row = self.row(pair)
        if wanted.order == "best":
            return rows[rows < row]
        if wanted.order == "source":
            return rows[self.ids[rows] > pair]
        if wanted.order == "random":
            order = self._shuffled(wanted.seed)
            place: Ints = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            after: Ints = rows[place[rows] > place[row]]
            return after
        return rows[rows > row]

    def _shuffled(self, seed: int) -> Ints:
        """Return all rows in a random order, (n,); the last one is kept.

        Rows are dealt into parts, which are shuffled one by one: of ten million rows a part stays in the cache.
        """
        kept = self._random
        if kept is None or kept[0] != seed:
            random = np.random.default_rng(seed)
            part_of = random.integers(0, 256, len(self), np.uint8)
            order: Ints = np.argsort(part_of, kind="stable")
            for part in np.split(order, np.cumsum(np.bincount(part_of, minlength=256))):
                random.shuffle(part)
            kept = self._random = seed, order
        return kept[1]

    def page(self, rows: Ints) -> list[dict[str, Any]]:
        """Return rows of the table as mappings by column, with what was decided and what would fit.

        Beside our columns of the table and the columns of `Decisions.of_pairs`, there are `columns`, the source's by
        name, `captions`, a list of `from_pair`, `caption` and `probability`, and `images`, a list of `from_pair`,
        `image` and `probability`.
        """
        cells = _taken(self.table, rows).to_pylist()
        ids = [row["pair"] for row in cells]
        decided, suggested = self.decisions.of_pairs(ids), self._suggested(ids)
        nothing, source = dict.fromkeys(DECISION_COLUMNS), self.source_columns()
        return [
            {
                **{name: value for name, value in row.items() if name in JUDGEMENT_COLUMNS},
                "columns": {name: row[name] for name in source},
                **decided.get(row["pair"], nothing),
                **suggested[row["pair"]],
            }
            for row in cells
        ]

    def counts(self, rows: Ints | None = None) -> dict[str, int]:
        """Return the number of pairs by decision, `undecided` among them; of all pairs, or of those in some rows."""
        self._refresh()
        choice = self._choice if rows is None else self._choice[rows]
        names = (UNDECIDED, *CHOICES)
        return {name: int(np.count_nonzero(choice == number)) for number, name in enumerate(names)}

    def require_captions(self, given: Mapping[int, str]) -> None:
        """Raise an error where pairs have other captions than those that were shown.

        Args:
            given: The caption that was shown, by pair.

        Raises:
            DecidedMeanwhile: The captions of these pairs were changed and judged again meanwhile.
        """
        pairs = list(given)
        rows = self.rows(pairs)
        captions = _taken(self.table.select(["given_caption"]), np.maximum(rows, 0))["given_caption"].to_pylist()
        found = zip(pairs, rows.tolist(), captions, strict=True)
        if changed := [pair for pair, row, caption in found if row >= 0 and caption != given[pair]]:
            raise DecidedMeanwhile(changed, "given another caption")

    def histogram(self, bins: int) -> dict[str, list[int]]:
        """Return the number of pairs in each bin of match probability, by decision, `undecided` among them."""
        self._refresh()
        place = np.minimum((self.probability * bins).astype(np.int64), bins - 1)
        choice = self._choice.astype(np.int64)  # 8 bits are too few for the product
        found = np.bincount(choice * bins + place, minlength=bins * (len(CHOICES) + 1)).reshape(-1, bins)
        return dict(zip((UNDECIDED, *CHOICES), found.tolist(), strict=True))

    def rows(self, pairs: Sequence[int]) -> Ints:
        """Return the rows of pairs, -1 for pairs that the run did not judge, (n,)."""
        return self._rows.find(pairs)

    def row(self, pair: int) -> int:
        """Return the row of a pair.

        Raises:
            InputError: The run has no such pair.
        """
        row = int(self.rows([pair])[0])
        if row < 0:
            raise InputError(f"the run has no judged pair {pair}")
        return row

    def _suggested(self, ids: Sequence[int]) -> dict[int, dict[str, list[dict[str, Any]]]]:
        """Return the suggestions for pairs, the best first, with captions and names of images."""
        lists: dict[int, dict[str, list[dict[str, Any]]]] = {pair: {"captions": [], "images": []} for pair in ids}
        bounds = (np.searchsorted(self._suggested_for, ids, side=side) for side in ("left", "right"))
        places = [np.arange(start, end) for start, end in zip(*bounds, strict=True)]
        found = self.suggestions.take(np.concatenate([np.zeros(0, np.int64), *places])).to_pylist()
        rows = self._rows.find([row["from_pair"] for row in found])
        known = _taken(self.table.select(["given_caption", "image"]), np.maximum(rows, 0)).to_pylist()
        for row, place, source in zip(found, rows, known, strict=True):
            if place >= 0:
                thing = {"image": source["image"]} if row["is_image"] else {"caption": source["given_caption"]}
                suggestion = {"from_pair": row["from_pair"], "probability": row["probability"], **thing}
                lists[row["pair"]]["images" if row["is_image"] else "captions"].append(suggestion)
        return lists

    def _mask(self, wanted: Filter) -> Bools:
        mask: Bools = (self.probability >= wanted.low) & (self.probability <= wanted.high)
        for name, values in (("verdict", wanted.verdicts), ("split", wanted.splits)):
            if values:
                mask &= self._has(name, values)
        if wanted.decisions:
            names = (UNDECIDED, *CHOICES)
            for name in wanted.decisions:
                if name not in names:
                    raise InputError(f"there is no decision {name!r}; {similar(name, names)}")
            mask &= np.isin(self._choice, [names.index(name) for name in wanted.decisions])
        if wanted.reasons:
            mask &= np.isin(self._reason, [1 + REASONS.index(name) for name in wanted.reasons if name in REASONS])
        if wanted.duplicates:
            mask &= ~self._has(f"{wanted.duplicates}_duplicates", [""])
        if wanted.pairs is not None:
            chosen = np.zeros(len(self), np.bool_)
            rows = self._rows.find(wanted.pairs)
            chosen[rows[rows >= 0]] = True
            mask &= chosen
        for name, value in wanted.columns.items():
            mask &= self._has(name, [value])
        for word in sorted(wanted.text.split(), key=len, reverse=True):  # long words leave fewer for the others
            mask[mask] = self._in_captions(word, mask)
        return mask

    def _in_captions(self, word: str, mask: Bools) -> Bools:
        """Return whether each of these pairs has a text in its caption, whatever its case, by several threads."""
        captions = self.table["given_caption"]
        captions = captions if mask.all() else captions.filter(pa.array(mask))
        parts = [captions.slice(start, PER_THREAD) for start in range(0, len(captions), PER_THREAD)]
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            found = list(pool.map(lambda part: pc.match_substring(part, word, ignore_case=True).to_numpy(), parts))
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def _has(self, column: str, values: Sequence[str]) -> Bools:
        """Return whether the cell of each pair in a column is one of these texts; an empty cell is an empty text."""
        if column not in self.table.column_names:
            raise InputError(f"the run has no column {column!r}; {similar(column, self.table.column_names)}")
        cells = self.table[column].cast(pa.string())
        wanted = pa.array([*values, None] if "" in values else values, pa.string())
        return np.asarray(pc.is_in(cells, wanted).to_numpy(), np.bool_)

    def _refresh(self) -> None:
        """Read what was decided since the last time."""
        with self._lock:
            event, changed = self.decisions.changes_since(self._event)
            if event == self._event:
                return
            rows = self._rows.find(changed["pair"])
            present = rows >= 0  # a pair may have left the table since it was decided on
            choices = np.array(
                [0 if name is None else 1 + CHOICES.index(name) for name in changed["decision"]], np.int8
            )
            reasons = np.array([(None, *REASONS).index(reason) for reason in changed["reason"]], np.int8)
            self._choice[rows[present]], self._reason[rows[present]] = choices[present], reasons[present]
            self._event = event


def _taken(table: pa.Table, rows: Ints) -> pa.Table:
    """Return a few rows of a table; `take` would copy all of a column of many chunks."""
    return pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in rows.tolist())])
