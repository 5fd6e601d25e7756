"""Methods, matchers, encoders and readers that are not of the package, and options as objects."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from light_evidence import LIGHT_OPTIONS, light_file

import pairsift
from pairsift.cli import main
from pairsift.encode.registry import TEXT_ENCODERS
from pairsift.errors import InputError
from pairsift.loss.ranking import InfoNCE
from pairsift.match import MATCHERS
from pairsift.match.two_tower import TwoTower, TwoTowerOptions
from pairsift.methods import METHODS
from pairsift.methods.parts.pseudo_captions import CaptionSearch
from pairsift.methods.pc2 import PC2, PC2Epochs
from pairsift.pairs import READERS
from pairsift.steps import Setting

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the guide's method, in the folder that a user works in."""
    (tmp_path / "guide_method.py").write_text(re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.S)[1])
    monkeypatch.chdir(tmp_path)
    yield "guide_method"
    sys.modules.pop("guide_method", None)
    METHODS._loaded.pop("small_loss", None)


def test_the_guides_method_runs_as_it_stands(module, scenes, quick, place, capsys):
    words = [f"--method={module}:SmallLoss", "--small-loss.warmup=1", "--small-loss.rest=2", "--small-loss.keep=0.6"]
    words += [
        f"--config={light_file(place)}",
        f"--out={place / 'guide'}",
        f"--cache={quick['cache']}",
        "--noise=0.4",
        "--batch-size=64",
        "--quiet",
    ]
    assert main(["fit", str(scenes), *words]) == 0
    run = pairsift.open_run(place / "guide", progress=False)
    assert run.config.method.keep == 0.6 and run.evaluate("test")["ensemble"]["rsum"] > 0
    assert main(["fit", str(scenes), *words[:3], "--small-loss.keep=1.6"]) == 2
    assert "--small-loss.keep is '1.6'; it must be a number, above 0 and at most 1" in capsys.readouterr().err


def test_the_guides_method_trains_on_pairs_of_small_loss(module):
    kind = METHODS.find(f"{module}:SmallLoss")
    method = kind(keep=0.5)
    method = method.begin(Setting(np.arange(10), np.arange(12) // 2, 6, None, InfoNCE(), 0))
    loss = np.random.default_rng(0).random((2, 10)).astype(np.float32)
    method.update([{"loss": row} for row in loss], 2)
    for k in range(2):
        assert set(method.subset("small", k)) == set(np.argsort(loss[1 - k])[:5])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method", "no_such_module:X"], "no_such_module"),
        (["--method", "guide_method:Nothing"], "module guide_method has no 'Nothing'"),
        (["--reader", "guide_method:Nothing"], "has no 'Nothing'"),
    ],
)
def test_what_is_not_there_is_one_line(module, scenes, words, says, capsys):
    assert main(["fit", str(scenes), *words]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_what_is_registered_goes_by_its_name(monkeypatch, scenes):
    class Wide(TwoTower):
        """A wide one."""

        name = "wide"

    class Lengths:
        """A caption's length."""

        name = "lengths"

        def encode(self, captions):
            return np.array([[len(caption)] for caption in captions], np.float32)

    def backwards(path, columns):
        """Read lines from the last to the first."""

    for thing in (Wide, Lengths, backwards):
        assert pairsift.register(thing) is thing
        pairsift.register(thing)  # twice does no harm
    assert MATCHERS["wide"] is Wide and MATCHERS.summaries()["wide"] == "A wide one."
    assert TEXT_ENCODERS["lengths"] is Lengths and READERS["backwards"] is backwards
    with pytest.raises(InputError, match="there is a matcher 'two_tower' already"):
        pairsift.register(Wide, "two_tower")
    with pytest.raises(InputError, match="is no method, matcher, encoder or reader"):
        pairsift.register(3, "three")
    for registry, name in ((MATCHERS, "wide"), (TEXT_ENCODERS, "lengths"), (READERS, "backwards")):
        registry._loaded.pop(name)


def test_objects_and_names_make_the_same_run(scenes, quick, place, run):
    again = pairsift.fit(
        scenes,
        method=PC2(epochs=PC2Epochs(warmup=1, clean=2, all=1), captions=CaptionSearch()),
        data=pairsift.DataOptions(noise=0.4, noise_seed=1),
        encode=pairsift.EncodeOptions(cache=quick["cache"]),
        train=pairsift.TrainOptions(batch_size=64, device="cpu"),
        detect=LIGHT_OPTIONS,
        out=place / "objects",
        progress=False,
    )
    assert again.config.method == run.config.method and again.config.train == run.config.train
    assert again.metrics["test"] == run.metrics["test"]


def test_a_mistyped_option_in_python_is_told():
    with pytest.raises(InputError, match=r"split_s is no option: did you mean split_seed\?"):
        pairsift.DataOptions(split_s=3)
    assert pairsift.DataOptions(image_column="null").image_column == "null"
    with pytest.raises(InputError, match="are the options of no matcher"):
        pairsift.fit("x.csv", matcher=pairsift.TrainOptions())
    from pairsift.runs.config import configure

    assert configure("x.csv", matcher=TwoTowerOptions(dim=7)).matcher_options.dim == 7
    assert {"fit", "load", "open_run", "register"} <= set(dir(pairsift))
