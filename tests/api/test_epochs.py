"""`--epochs`: all phases scaled together, for every method."""

import pytest

from pairsift.api.config import Config
from pairsift.api.epochs import scaled
from pairsift.errors import InputError
from pairsift.methods import METHODS


def parse(*words):
    return Config.parse(["x.csv", *words])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("preset", ["paper", "two_tower", "clip"])
@pytest.mark.parametrize("total", [4, 7, 16, 100])
def test_every_method_has_as_many_epochs_as_asked_for(name, preset, total):
    config = parse("--method", name, "--preset", preset, f"--epochs={total}")
    before = parse("--method", name, "--preset", preset)
    left_open = {key: 7 for key, value in before[name].items() if key == "epochs" and not value}
    options, usual = config[name], {**before[name], **left_open}
    assert sum(phase.epochs for phase in config.method().phases()) == total
    whole = sum(value for key, value in usual.items() if key.endswith("epochs"))
    for key, value in usual.items():
        if key.endswith("epochs"):
            share = total * value / whole
            assert (options[key] > 0) == (value > 0)
            assert abs(options[key] - share) < 2 or options[key] == 1
        else:
            assert options[key] == value


def test_a_schedule_in_proportion_is_kept_exactly():
    assert scaled("pc2", {"warmup_epochs": 5, "clean_epochs": 25, "all_epochs": 25, "classes": 9}, 11) == {
        "warmup_epochs": 1,
        "clean_epochs": 5,
        "all_epochs": 5,
    }
    assert scaled("npc", {"warmup_epochs": 0, "epochs": 5}, 3) == {"warmup_epochs": 0, "epochs": 3}
    assert scaled("pc2", {"warmup_epochs": 1, "clean_epochs": 98, "all_epochs": 1}, 3) == {
        "warmup_epochs": 1,
        "clean_epochs": 1,
        "all_epochs": 1,
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--method=pc2", "--epochs", "2"],
            "--epochs is 2; pc2 needs at least 3, one for each of --pc2.warmup-epochs, --pc2.clean",
        ),
        (["--method=pc2", "--epochs=0"], "--epochs is 0; pc2 needs at least 3"),
        (["--epochs=0"], "--epochs is 0; crossfit needs at least 1, one for each of --crossfit.epochs"),
        (
            ["--method=pc2", "--epochs", "9", "--pc2.warmup-epochs", "1"],
            "and --pc2.warmup-epochs sets one: give one of the two",
        ),
        (["--method=pc2", "--epochs=9", "--pc2.all_epochs=1"], "and --pc2.all-epochs sets one"),
        (["--epochs=few"], "--epochs is 'few'; it takes a whole number"),
        (["--epochs=5", "--method=plain", "--plain.epochs=0", "--plain.warmup_epochs=0"], "sets one"),
    ],
)
def test_what_cannot_be_scaled_is_one_line(words, says):
    with pytest.raises(InputError) as caught:
        parse(*words)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match="plain has no phase to scale"):
        scaled("plain", {"epochs": 0, "warmup_epochs": 0}, 3)


def test_a_saved_configuration_holds_the_phases_and_can_be_scaled_again(tmp_path):
    config = parse("--epochs=5", "--quiet", "--method=pc2")
    (tmp_path / "config.yaml").write_text(config.text())
    assert "quiet" not in config.text() and "\nepochs" not in config.text()
    again = Config.parse([f"--config={tmp_path / 'config.yaml'}"])
    assert again["pc2"] == config["pc2"]
    more = Config.parse([f"--config={tmp_path / 'config.yaml'}", "--epochs=10"])
    assert sum(phase.epochs for phase in more.method().phases()) == 10
    assert Config.resolve({"source": "x.csv", "epochs": 5, "method": "pc2"})["pc2"] == config["pc2"]


def test_a_schedule_left_open_counts_as_a_usual_one():
    assert parse("--epochs=5")["crossfit"] == {"warmup_epochs": 0, "epochs": 5, "networks": 2}
    assert parse("--epochs=16", "--method=plain")["plain"] == {"warmup_epochs": 2, "epochs": 14, "networks": 2}
    assert parse("--method=plain")["plain"] == {"warmup_epochs": 1, "epochs": 0, "networks": 2}
