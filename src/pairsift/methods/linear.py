"""linear: no training. The networks are ridge canonical correlation of the pairs, as far as these are believed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pairsift.errors import InputError
from pairsift.match.base import Matcher
from pairsift.methods.base import Method
from pairsift.steps import Phase, Step, Term


class Linear(Method):
    """The method of `pairsift check`: a linear model in closed form, weighted by held-out match probabilities."""

    name: ClassVar[str] = "linear"
    starts_linear: ClassVar[bool] = True

    networks: int = Field(default=1, ge=1, le=1, description="1: nothing is trained, and nothing is drawn.")
    evidence: bool = Field(default=True, description="True: pairs count by their held-out match probability.")

    def check(self, matcher: type[Matcher], starts_trained: bool) -> None:
        """Refuse matchers that are not linear at any setting, and a model that evidence does not weigh.

        Raises:
            InputError: The matcher is not `two_tower`, or `evidence` is false.
        """
        if not self.evidence:
            raise InputError("linear weighs pairs by held-out evidence: leave --linear.evidence out")
        if matcher.name != "two_tower":
            raise InputError(f"linear is a linear model in the shape of two_tower: leave --matcher {matcher.name} out")

    def phases(self) -> tuple[Phase, ...]:
        """Return none: nothing is trained."""
        return ()

    def step(self, step: Step) -> list[Term]:
        """Return no term: there are no steps."""
        return []
