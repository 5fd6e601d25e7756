"""The bodies and parameters of requests, with their bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pairsift.errors import InputError
from pairsift.review import Decision, Decisions
from pairsift.review.decisions import REVIEWER
from pairsift.review.queue import UNDECIDED, Filter, Order
from pairsift.review.spot_check import MAX_PAIRS as MAX_SAMPLE
from pairsift.review.spot_check import MIN_PAIRS, SpotCheck

MAX_PAIRS = 200  # on a page
Name = Annotated[str, Field(min_length=1, max_length=100)]
Key = Annotated[str | None, Field(max_length=100)]
Id = Annotated[int, Field(ge=0, lt=2**63)]


class Body(BaseModel):
    """A body whose fields are known and whose texts are Unicode."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _require_unicode(cls, values: Any) -> Any:
        try:
            json.dumps(values, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise InputError("the request has a text that is not Unicode: send valid UTF-8") from None
        return values


class Requester(Body):
    """The reviewer, a key that makes the repetition of a request harmless, and the run.

    `run` is the id in `pairsift.json`. Where it is given and another run is served by now, nothing is recorded, and the
    status is 410.
    """

    reviewer: Name = REVIEWER
    key: Key = None
    run: Annotated[str | None, Field(max_length=100)] = None


class PairDecision(Body):
    """A decision on a pair.

    `seen` is the `time` of the decision that was shown with the pair, null for none. Where it is given, a pair that has
    another decision by now is refused with the status 409. So is one that has another caption than `given`, the caption
    that was shown.
    """

    pair: Id
    choice: Literal["keep", "drop", "replace", "clear"]
    caption: Annotated[str | None, Field(max_length=20_000)] = None
    from_pair: Id | None = None
    reason: str | None = None
    seen: Annotated[str | None, Field(max_length=40)] = None
    given: Annotated[str | None, Field(max_length=1_000_000)] = None

    def decision(self) -> Decision:
        """Return the decision as the journal takes it."""
        return Decision(**self.model_dump(exclude={"seen", "given"}))


class DecisionList(Requester):
    """Decisions that are one entry of the journal."""

    decisions: Annotated[list[PairDecision], Field(min_length=1, max_length=1000)]

    def seen(self) -> dict[int, str | None]:
        """Return the time of the decision that was shown with each pair, where it is given."""
        return {row.pair: row.seen for row in self.decisions if "seen" in row.model_fields_set}

    def given(self) -> dict[int, str]:
        """Return the caption that was shown with each pair, where it is given."""
        return {row.pair: row.given for row in self.decisions if row.given is not None}


class Selector(Body):
    """A filter: see `pairsift.review.queue.Filter`. `sample` asks for the spot check.

    `column` holds `name=value`; in the name, `=` is written as `%3D` and `%` as `%25`.
    """

    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=0, le=1)] = 1.0
    verdict: list[str] = []
    decision: list[str] = []
    reason: list[str] = []
    split: list[str] = []
    text: Annotated[str, Field(max_length=200)] = ""
    column: list[str] = []
    duplicates: Literal["", "image", "caption"] = ""
    sample: bool = False
    order: Order = "worst"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def filter(self, folder: Path, decisions: Decisions) -> Filter:
        """Return the filter for the queue of a run's folder.

        Pairs of a spot check come in a random order, whatever the run thinks of them. Undecided ones are those without
        an answer, even if a filter or a threshold has decided on them.
        """
        found = Filter(
            low=self.low,
            high=self.high,
            verdicts=tuple(self.verdict),
            decisions=tuple(self.decision),
            reasons=tuple(self.reason),
            splits=tuple(self.split),
            text=self.text,
            columns=dict(map(column_condition, self.column)),
            duplicates=self.duplicates,
            order=self.order,
            seed=self.seed,
        )
        if not self.sample:
            return found
        check = SpotCheck.read(folder)
        if check is None:
            raise InputError("there is no spot check: draw one on the page Spot check")
        pairs = np.array(check.pairs, np.int64)
        if self.decision == [UNDECIDED]:
            pairs = np.setdiff1d(pairs, decisions.of_sample(check.pairs)["pair"].to_numpy())
            found = replace(found, decisions=())
        return replace(found, low=0.0, high=1.0, verdicts=(), order="random", pairs=pairs)


def column_condition(text: str) -> tuple[str, str]:
    """Return the name and the value of `name=value`, where `=` and `%` in the name are written `%3D` and `%25`."""
    name, _, value = text.partition("=")
    return unquote(name), value


class Page(Selector):
    """A part of what a filter selects; with `after`, of the pairs behind this one in its order."""

    after: Id | None = None
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAIRS)] = 50


class SpotCheckSize(Body):
    """The number of pairs of a new spot check."""

    pairs: Annotated[int, Field(ge=MIN_PAIRS, le=MAX_SAMPLE)] = 50


class FilterDecision(Requester):
    """One choice for all pairs of a filter, but not of a spot check: nobody has looked at each of them."""

    filter: Selector
    choice: Literal["keep", "drop", "clear"]
    reason: str | None = None
    decided: Literal["leave", "change"] = "leave"
    seen: dict[str, int] | None = None

    def changes_decided(self) -> bool:
        """Return whether decided pairs are decided anew, or their decisions taken away."""
        return self.decided == "change" or self.choice == "clear"

    def require_seen(self, counts: dict[str, int]) -> None:
        """Raise an error if the numbers of pairs by decision are others than those that were shown.

        Raises:
            InputError: They are.
        """
        if self.seen is not None and self.seen != counts:
            raise InputError("pairs of this filter were decided meanwhile: nothing was recorded; look again")

    @model_validator(mode="after")
    def _refuse_sample(self) -> FilterDecision:
        if self.filter.sample and self.choice != "clear":
            raise InputError("look at the pairs of a spot check before you decide: none was decided by the filter")
        return self
