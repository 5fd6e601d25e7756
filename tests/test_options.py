"""Options as objects: their bounds, names, groups, what a preset fills in, and what is said of a wrong one."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, field_validator

from pairsift.errors import InputError, similar
from pairsift.options import OptionError, Options, accepts, alternatives, groups


class Search(Options):
    threshold: float = Field(default=0.5, ge=0, le=1)
    side: Literal["image", "text"] = "image"
    wide_beam: bool = False


class Beam(Search):
    width: int = Field(default=4, ge=1)


class Outer(Options):
    search: Search = Search()
    weight: float = Field(default=1.0, gt=0)


class Job(Options):
    outer: Outer = Outer()
    search: Search = Search()
    rate: float = Field(default=0.1, gt=0, lt=1)
    steps: int = Field(default=3, ge=0)
    size: int | None = Field(default=None, ge=2)
    norm: Literal["slot", "feature"] | None = None
    start: Annotated[float, Field(ge=0)] | Literal["quantile"] = "quantile"
    name: str = "job"

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 5:
            raise ValueError("give a shorter one")
        return name


class Needed(Options):
    path: str


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rate": 0}, "rate is 0; it must be a number, above 0 and below 1"),
        ({"rate": 1.0}, "rate is 1.0; it must be a number, above 0 and below 1"),
        ({"rate": float("nan")}, "rate is nan; it must be a number, above 0 and below 1"),
        ({"rate": "fast"}, "rate is 'fast'; it must be a number, above 0 and below 1"),
        ({"steps": -1}, "steps is -1; it must be a whole number, at least 0"),
        ({"steps": 1.5}, "steps is 1.5; it must be a whole number, at least 0"),
        ({"steps": None}, "steps is None; it must be a whole number, at least 0"),
        ({"size": 1}, "size is 1; it must be a whole number, at least 2"),
        ({"norm": "region"}, "norm is 'region'; choose from slot, feature"),
        ({"start": -0.5}, "start is -0.5; choose from quantile or a number, at least 0"),
        ({"start": "median"}, "start is 'median'; choose from quantile or a number, at least 0"),
        ({"name": 7}, "name is 7; it must be text"),
        ({"name": "too long"}, "name is 'too long'; give a shorter one"),
        ({"search": {"threshold": 2}}, "search.threshold is 2; it must be a number from 0 to 1"),
        ({"search": {"side": "both"}}, "search.side is 'both'; choose from image, text"),
        ({"search": {"wide_beam": 3}}, "search.wide_beam is 3; it must be true or false"),
        ({"outer": {"weight": 0}}, "outer.weight is 0; it must be a number, above 0"),
        ({"outer": {"search": {"threshold": -1}}}, "outer.search.threshold is -1; it must be a number from 0 to 1"),
        ({"speed": 3}, "speed is no option: choose from outer, search, rate, steps, size, norm, start, name"),
        ({"ratio": 3}, "ratio is no option: did you mean rate?"),
        ({"search": {"treshold": 1}}, "search.treshold is no option: did you mean threshold?"),
        ({"search": {"k": 1}}, "search.k is no option: choose from threshold, side, wide_beam"),
        ({"outer": {"search": {"sides": "text"}}}, "outer.search.sides is no option: did you mean side?"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_the_path_and_what_it_takes(values, said):
    with pytest.raises(OptionError) as caught:
        Job(**values)
    assert str(caught.value) == said and isinstance(caught.value, InputError)
    path, value = [], values
    while isinstance(value, dict):
        ((name, value),) = value.items()
        path.append(name)
    assert caught.value.path == tuple(path)
    assert said == f"{'.'.join(path)} {caught.value.complaint}"
    assert caught.value.__cause__ is None and caught.value.__suppress_context__  # pydantic's own lines stay away


@pytest.mark.parametrize(
    "values",
    [
        {"rate": 0.999, "steps": 0, "size": 2, "norm": "slot", "start": 0.0},
        {"size": None, "norm": None, "start": "quantile"},
        {"search": {"threshold": 0}, "outer": {"search": {"threshold": 1}}},
    ],
)
def test_values_at_their_bounds_choices_and_none_are_taken(values):
    job = Job(**values)
    assert {name: value for name, value in job.model_dump(exclude_unset=True).items()} == values


def test_no_group_is_a_bare_value_and_what_has_no_default_must_be_given():
    with pytest.raises(OptionError, match=r"^search is 3; ") as caught:
        Job(search=3)
    assert caught.value.path == ("search",)
    with pytest.raises(OptionError, match=r"^path is missing$"):
        Needed()


def test_a_group_of_another_type_is_refused_with_the_type_that_is_needed():
    with pytest.raises(OptionError, match=r"^search is .*; it must be a Search, or a mapping of its options$"):
        Job(search=Job(search=Search()))


def test_a_group_is_an_object_or_a_mapping_and_an_object_tells_its_own_path():
    job = Job(search=Search(threshold=0.2))
    assert job == Job(search={"threshold": 0.2})
    with pytest.raises(OptionError, match=r"^threshold is 2; "):
        Job(search=Search(threshold=2))


def test_options_take_keywords_alone_and_stay_as_they_are():
    with pytest.raises(TypeError):
        Search(0.5)
    job = Job()
    with pytest.raises(ValueError, match="frozen"):
        job.rate = 0.5
    with pytest.raises(ValueError, match="frozen"):
        job.search.threshold = 0.5
    assert job == Job()


def test_an_option_below_names_is_told_as_it_is_typed():
    with pytest.raises(OptionError) as caught:
        Search(wide_beam="often")
    typed = caught.value.with_parents(("job", "outer_search"))
    assert str(typed) == "--job.outer-search.wide-beam is 'often'; it must be true or false"
    assert typed.path == ("job", "outer_search", "wide_beam") and typed.complaint == caught.value.complaint
    assert str(caught.value) == "wide_beam is 'often'; it must be true or false"
    assert str(caught.value.with_parents(())).startswith("--wide-beam is 'often'")


# ---------------------------------------------------------------- other defaults


def test_filling_keeps_what_was_given_and_takes_the_rest():
    job = Job(rate=0.1, steps=7)  # the rate is the usual one, and given all the same
    full = job.filled({"rate": 0.9, "size": 64, "steps": 5})
    assert (full.rate, full.steps, full.size, full.start) == (0.1, 7, 64, "quantile")
    assert (job.size, Job().filled({}), Job().filled({"rate": 0.9}).rate) == (None, Job(), 0.9)
    assert Job(size=None).filled({"size": 64}).size is None  # None is a value too


def test_filling_goes_into_groups():
    preset = {"search": {"threshold": 0.9, "side": "text"}, "outer": {"weight": 2.0, "search": {"threshold": 0.8}}}
    for given in ({"threshold": 0.2}, Search(threshold=0.2)):
        full = Job(search=given, outer={"search": given}).filled(preset)
        assert full.search == Search(threshold=0.2, side="text")
        assert full.outer == Outer(weight=2.0, search=Search(threshold=0.2))
    assert Job().filled(preset) == Job(**preset)
    assert Job(search={}).filled(preset).search == Search(**preset["search"])
    assert Job(search=Search(side="image")).filled({"rate": 0.3}).search.side == "image"


def test_filling_keeps_the_type_of_a_group_that_was_given():
    full = Job(search=Beam(width=9)).filled({"search": {"threshold": 0.9, "side": "text"}})
    assert type(full.search) is Beam
    assert (full.search.width, full.search.threshold, full.search.side) == (9, 0.9, "text")
    own = Job(search=Beam(threshold=0.1)).filled({"search": {"threshold": 0.9}})
    assert type(own.search) is Beam and own.search.threshold == 0.1


def test_defaults_that_cannot_be_are_refused_with_their_path():
    with pytest.raises(OptionError, match=r"^rate is 7; "):
        Job().filled({"rate": 7})
    with pytest.raises(OptionError, match=r"^search\.side is 'both'; "):
        Job().filled({"search": {"side": "both"}})
    with pytest.raises(OptionError, match=r"^stpes is no option: did you mean steps\?$"):
        Job().filled({"stpes": 7})
    assert Job(rate=0.2).filled({"rate": 7}).rate == 0.2  # nobody needs it


def test_replacing_checks_the_values_and_leaves_the_rest_given_or_open():
    job = Job(steps=7, search={"threshold": 0.2})
    other = job.replaced(rate=0.4)
    assert (other.rate, other.steps, other.search, job.rate) == (0.4, 7, Search(threshold=0.2), 0.1)
    assert other.filled({"size": 8, "steps": 1}) == other.replaced(size=8)
    assert job.replaced(search=Beam()).search == Beam() and job.replaced(steps=8).steps == 8
    with pytest.raises(OptionError, match=r"^rate is 2; "):
        job.replaced(rate=2)
    with pytest.raises(OptionError, match=r"^rat is no option: did you mean rate\?$"):
        job.replaced(rat=0.2)


# ---------------------------------------------------------------- what is asked of a field


def test_groups_and_what_a_field_takes():
    assert groups(Job) == {"outer": Outer, "search": Search} and groups(Search) == {}
    fields = Job.model_fields
    assert accepts(fields["rate"]) == "a number, above 0 and below 1"
    assert accepts(Search.model_fields["threshold"]) == "a number from 0 to 1"
    assert accepts(fields["size"]) == "a whole number, at least 2"
    assert accepts(fields["norm"]) == "choose from slot, feature"
    assert accepts(fields["start"]) == "choose from quantile or a number, at least 0"
    assert [alternatives(fields[name].annotation) for name in ("rate", "size")] == [(float,), (int,)]
    assert alternatives(fields["start"].annotation) == (float, Literal["quantile"])


def test_hints_name_the_most_similar_or_what_there_is():
    names = ["threshold", "rate"]
    assert similar("treshhold", names) == "did you mean threshold?"
    assert similar("xyz", names) == "choose from threshold, rate"
    assert similar("xyz", names, "see the list") == "see the list"
    assert similar("rates", names, "see the list") == "did you mean rate?"
