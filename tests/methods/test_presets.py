"""Every preset of every method becomes the options of a run, and given options stand over it."""

import pytest

from pairsift.errors import InputError
from pairsift.match import MATCHERS
from pairsift.match.two_tower import TwoTowerOptions
from pairsift.methods import METHODS
from pairsift.methods.ncr import NCR
from pairsift.methods.parts.division import Division
from pairsift.methods.parts.pseudo_captions import CaptionSearch
from pairsift.methods.pc2 import PC2
from pairsift.methods.pcsr import PCSR
from pairsift.methods.plain import Plain
from pairsift.runs.config import configure, flattened, from_tree
from pairsift.runs.prepare import require_possible
from pairsift.train.options import TrainOptions

PRESETS = [(name, preset) for name in METHODS for preset in METHODS[name].presets]


def matcher_for(method, preset):
    """A matcher of the kind that a preset was made for."""
    if preset in ("two_tower", "clip"):
        return preset
    return "clip" if (method, preset) in (("npc", "paper"), ("osa", "paper")) else "sgr"


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_preset_is_what_a_run_has(name, preset):
    matcher, given = matcher_for(name, preset), METHODS[name].presets[preset]
    config = configure("pairs", method=name, matcher=matcher, preset=preset)
    assert type(config.method) is METHODS[name] and config.matcher is MATCHERS[matcher]
    assert type(config.matcher_options) is MATCHERS[matcher].options
    assert flattened(given.method).items() <= flattened(config.method.model_dump()).items()
    assert given.train.items() <= config.train.model_dump().items()
    assert config.loss.name == given.loss
    for loss, options in given.losses.items():
        chosen = configure("pairs", method=name, matcher=matcher, preset=preset, loss=loss).loss
        assert chosen.name == loss and options.items() <= chosen.model_dump().items()
    config.method.check(config.matcher, name == "osa" or config.matcher.starts_trained)  # its vectors are aligned
    assert sum(phase.epochs for phase in config.method.phases()) > 0
    again = from_tree(config.tree())
    assert (again.method, again.loss, again.train) == (config.method, config.loss, config.train)
    by_names = from_tree({"source": "pairs", "method": name, "matcher": matcher, "preset": preset})
    assert by_names == config


@pytest.mark.parametrize("matcher", MATCHERS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_defaults_for_every_matcher(name, matcher):
    config = configure("pairs", method=name, matcher=matcher)
    wanted = MATCHERS[matcher].preset
    preset = METHODS[name].presets.get(wanted, METHODS["plain"].presets[wanted])
    assert (config.loss.name, config.preset) == (MATCHERS[matcher].loss or preset.loss, None)
    assert configure("pairs", method=name, matcher=matcher, loss="hinge").loss.name == "hinge"  # which was given
    assert preset.train.items() <= config.train.model_dump().items()


def test_what_was_given_stands_and_the_preset_fills_the_rest():
    usual = configure("pairs", method="pcsr", preset="two_tower").method
    assert (usual.division.threshold, usual.captions.search, usual.epochs.warmup) == (0.7, "epoch", 2)
    given = PCSR(division={"threshold": 0.5}, captions=CaptionSearch(compare="embedding"), epochs={"clean": 9})
    method = configure("pairs", method=given, train=TrainOptions(lr=0.01)).method
    assert (method.division.threshold, method.captions.compare, method.captions.search) == (0.5, "embedding", "epoch")
    assert [phase.epochs for phase in method.phases()] == [2, 9, 2, 1]
    assert (given.captions.search, given.epochs.warmup) == ("batch", 5)  # as it was
    config = configure("pairs", method=NCR, matcher="sgr", train=TrainOptions(lr=0.01))
    assert (config.train.lr, config.train.batch_size, config.loss.reduction) == (0.01, 128, "sum")


def test_a_part_of_ones_own_keeps_its_type_under_a_preset():
    class Own(Division):
        pass

    method = configure("pairs", method=PCSR(division=Own())).method
    assert type(method.division) is Own and method.division.threshold == 0.7


def test_a_part_that_config_yaml_cannot_name_is_refused_before_any_work(tmp_path):
    class Lenient(Division):
        pass

    class Sizes(TwoTowerOptions):
        pass

    ncr = configure(tmp_path, method=NCR(division=Lenient()))
    message = r"^ncr\.division is of the type Lenient, and config\.yaml .* `division: Lenient`, or take a Division$"
    with pytest.raises(InputError, match=message):
        require_possible(ncr)
    require_possible(configure(tmp_path, method=NCR(division=Division(threshold=0.2))))
    with pytest.raises(InputError, match="Sizes are the options of no matcher"):
        configure(tmp_path, matcher=Sizes())


def test_epochs_in_all_scale_the_presets_phases():
    method = configure("pairs", method="ncr", epochs=16).method
    assert [phase.epochs for phase in method.phases()] == [4, 6, 6]
    assert [phase.epochs for phase in configure("pairs", method=Plain(), epochs=4).method.phases()] == [1, 3]
    with pytest.raises(InputError, match="pc2 needs at least 3, one for each of warmup, clean, all"):
        configure("pairs", method="pc2", epochs=2)


def test_a_wrong_option_of_a_run_is_told_as_it_is_typed_and_an_unknown_preset_with_those_there_are():
    tree = {"source": "pairs", "method": "pc2", "pc2": {"captions": {"mismatch_threshold": 2}}}
    with pytest.raises(InputError) as caught:
        from_tree(tree)
    assert str(caught.value) == "--pc2.captions.mismatch-threshold is 2; it must be a number from 0 to 1"
    with pytest.raises(InputError) as caught:
        from_tree({**tree, "pc2": 3})
    assert str(caught.value) == "--pc2 is 3; it must be a mapping of options"
    for odd in ({"pc2": {1: 2}}, {"loss": 3}, {5: 6}):  # as a file may hold them
        with pytest.raises(InputError):
            from_tree({"source": "pairs", "method": "pc2", **odd})
    with pytest.raises(InputError) as caught:
        configure("pairs", method=PC2, preset="coco")
    assert str(caught.value) == "pc2 has no preset 'coco'; it has: paper, paper_coco, paper_now, two_tower, clip"


@pytest.mark.parametrize(
    ("matcher", "method"), [(None, "sift"), ("two_tower", "sift"), ("vse", "crossfit"), ("clip", "crossfit")]
)
def test_a_run_that_names_no_method_has_that_of_its_matcher(matcher, method):
    chosen = {} if matcher is None else {"matcher": matcher}
    assert configure("pairs.csv", **chosen).method.name == from_tree({"source": "pairs.csv", **chosen}).method.name
    assert configure("pairs.csv", **chosen).method.name == method
    assert configure("pairs.csv", method="ncr", **chosen).method.name == "ncr"
