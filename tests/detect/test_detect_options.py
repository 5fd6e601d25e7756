"""Options of the detector: what is said of each, and what differs from the shipped ones."""

from dataclasses import fields

import pytest

from pairsift.detect import DetectOptions


def test_every_option_says_what_it_means():
    options = DetectOptions()
    for group in (options, *(getattr(options, field.name) for field in fields(options))):
        assert len(fields(group)) > 1
        for field in fields(group):
            assert f"\n        {field.name}: " in type(group).__doc__, f"{type(group).__name__}.{field.name}"


def test_changes_are_what_differs_and_make_the_same_options_again():
    changes = {"linear": {"ridge": 0.3}, "folds": {"inner_folds": 2}}
    options = DetectOptions().changed(changes)
    assert options.linear.ridge == 0.3 and options.linear.directions == DetectOptions().linear.directions
    assert options.changes() == changes and DetectOptions().changed(options.changes()) == options
    assert DetectOptions().changes() == {} and options.changed({"linear": {"ridge": 0.1}}).changes() == {
        "folds": {"inner_folds": 2}
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"linea": {}}, "no group of options 'linea'"),
        ({"linear": 3}, "no group of options 'linear' with such a value"),
        ({"linear": {"rigde": 1.0}}, r"no option linear\.rigde"),
        ({"linear": {"directions": 1.5}}, r"linear\.directions is 1\.5; it must be of the type int"),
        ({"linear": {"ridge": -0.5}}, r"linear\.ridge is -0\.5; it must be at least 0"),
        ({"folds": {"folds_of_many": 1}}, r"folds\.folds_of_many is 1; it must be at least 2"),
        ({"linear": {"ridge": float("nan")}}, r"linear\.ridge is nan; it must be at least 0"),
        ({"folds": {"folds": 1}}, r"folds\.folds is 1; it must be at least 2"),
        ({"neighbours": {"count": 0}}, r"neighbours\.count is 0; it must be at least 1"),
        ({"linear": {"ridge": True}}, r"linear\.ridge is True; it must be of the type float"),
    ],
)
def test_what_is_no_option_is_told(values, words):
    with pytest.raises(ValueError, match=words):
        DetectOptions().changed(values)
