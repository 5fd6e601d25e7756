"""`--epochs`: all phases scaled together, for every method."""

import pytest
from flat_options import configured

from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.methods import METHODS
from pairsift.methods.npc import NPCEpochs
from pairsift.methods.pc2 import PC2, PC2Epochs
from pairsift.methods.plain import TrainEpochs
from pairsift.methods.sift import SiftEpochs
from pairsift.runs.config import configure, read_config
from pairsift.runs.fit import fit

pytestmark = pytest.mark.slow


def lengths(method):
    return [phase.epochs for phase in method.phases()]


def of_fields(method):
    """Lengths by the names of their fields; open ones as they are where the number of pairs is not known."""
    given = method.epochs.lengths()
    return dict(zip(given, lengths(method), strict=True)) if None in given.values() else given


def method_of(name, preset=None, **options):
    return configured({"source": "x.csv", "method": name, "preset": preset, **options}).method


PRESETS = [(name, preset) for name in METHODS if name != "linear" for preset in ("paper", "two_tower", "clip")]


@pytest.mark.parametrize(("name", "preset"), [pair for pair in PRESETS if pair != ("osa", "two_tower")])
@pytest.mark.parametrize("total", [4, 7, 16, 100])
def test_every_method_has_as_many_epochs_as_asked_for(name, preset, total):
    usual, scaled = method_of(name, preset), method_of(name, preset, epochs=total)
    assert sum(lengths(scaled)) == total
    before, after = of_fields(usual), of_fields(scaled)
    for phase, length in before.items():
        share = total * length / sum(before.values())
        assert (after[phase] > 0) == (length > 0)
        assert abs(after[phase] - share) < 2 or after[phase] == 1
    assert {**usual.model_dump(), "epochs": 0} == {**scaled.model_dump(), "epochs": 0}


def test_a_schedule_in_proportion_is_kept_exactly():
    assert PC2Epochs(warmup=5, clean=25, all=25).scaled(11) == PC2Epochs(warmup=1, clean=5, all=5)
    assert NPCEpochs(warmup=0, train=5).scaled(3) == NPCEpochs(warmup=0, train=3)
    assert PC2Epochs(warmup=1, clean=98, all=1).scaled(3) == PC2Epochs(warmup=1, clean=1, all=1)


@pytest.mark.parametrize("method", ["plain", "crossfit", "oracle", "sift", "rcl", "rince"])
@pytest.mark.parametrize("matcher", ["two_tower", "vse", "clip"])
def test_methods_that_need_no_warm_up_train_for_a_single_epoch(method, matcher, tmp_path):
    planned = lengths(configure(tmp_path, method=method, matcher=matcher, epochs=1).method)
    assert planned[:2] == [0, 1] and sum(planned) == 1


def test_phases_that_can_be_spared_go_one_after_the_other():
    whole = SiftEpochs(warmup=1, train=4, taught=4)
    assert [whole.scaled(total).lengths() for total in (1, 2, 3)] == [
        {"warmup": 0, "train": 1, "taught": 0},
        {"warmup": 1, "train": 1, "taught": 0},
        {"warmup": 1, "train": 1, "taught": 1},
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method=pc2", "--epochs", "2"], "--epochs is 2; pc2 needs at least 3, one for each of warmup, clean, all"),
        (["--method=pc2", "--epochs=0"], "--epochs is 0; pc2 needs at least 3"),
        (["--epochs=0"], "--epochs is 0; sift needs at least 1, one for each of train"),
        (
            ["--method=pc2", "--epochs", "9", "--pc2.epochs.warmup", "1"],
            "and --pc2.epochs sets one: give one of the two",
        ),
        (["--epochs=few"], "--epochs is 'few'; it must be a whole number"),
        (["--method=npc", "--epochs=3", "--npc.epochs.warmup=0", "--npc.epochs.train=0"], "--npc.epochs sets one"),
    ],
)
def test_what_cannot_be_scaled_is_one_line(words, says, capsys, tmp_path):
    (tmp_path / "x.csv").write_text("image,caption\na.jpg,a dog\n")
    assert main(["fit", str(tmp_path / "x.csv"), *words]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
    with pytest.raises(InputError, match="has no phase to scale"):
        NPCEpochs(warmup=0, train=0).scaled(3)


def test_a_method_whose_epochs_are_given_is_not_scaled(tmp_path):
    with pytest.raises(InputError, match="give one of the two"):
        fit(tmp_path, method=PC2(epochs=PC2Epochs(warmup=1)), epochs=9)


def test_a_saved_configuration_holds_the_phases_and_can_be_scaled_again(tmp_path):
    config = configured({"source": "x.csv", "method": "pc2", "epochs": 5})
    (tmp_path / "config.yaml").write_text(config.text())
    assert "\nepochs" not in config.text()
    assert read_config(tmp_path / "config.yaml").method == config.method
    assert sum(lengths(configured({**config.tree(), "epochs": 10}).method)) == 10


def test_a_schedule_left_open_counts_as_a_usual_one():
    assert method_of("crossfit", epochs=5).epochs == TrainEpochs(warmup=0, train=5)
    assert method_of("plain", epochs=16).epochs == TrainEpochs(warmup=2, train=14)
    assert method_of("plain").epochs == TrainEpochs(warmup=1, train=None)
