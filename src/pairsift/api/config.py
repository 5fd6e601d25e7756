"""A run's options: the same names on the command line, in YAML and in Python."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from jsonargparse import ArgumentParser

from pairsift.api.epochs import is_phase, scaled
from pairsift.api.options import DataOptions, EncodeOptions
from pairsift.api.wording import plainly
from pairsift.errors import InputError
from pairsift.loss.ranking import RANKING_LOSSES, RankingLoss
from pairsift.match import MATCHERS
from pairsift.methods import METHODS, Method
from pairsift.train.options import TrainOptions

T = TypeVar("T")
G = TypeVar("G", "DataOptions", "EncodeOptions", TrainOptions)
CHOICES = ("method", "matcher", "loss", "preset")
FROM_DATA = ("image_dim", "text_dim", "vocabulary_size", "regions", "pretrained")  # what a matcher is told by the run
PATHS = ("source", "image_folder", "noise_index", "cache", "vocabulary")  # made absolute, a run opens from anywhere
FLAGS = ("resume", "overwrite", "quiet")
UNKEPT = ("config", "epochs", *FLAGS)  # what a run's configuration does not tell: its phases say the epochs
FIT = "Train on image-caption pairs of which some may be mismatched, and say which."


class Parser(ArgumentParser):
    """A parser whose errors are one line that ends the program with code 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise what `main` prints."""
        raise InputError(plainly(str(message), self._option_string_actions, _belongs)) from ex


@dataclass(frozen=True)
class Choice:
    """The parts of a run that have options of their own: their names, and the preset that sets their defaults."""

    method: str = "crossfit"
    matcher: str = "two_tower"
    loss: str | None = None
    preset: str | None = None

    def preset_options(self) -> dict[str, object]:
        """Defaults that the method's preset for this matcher sets.

        Raises:
            InputError: A name is unknown.
        """
        method, matcher = _known("method", self.method, METHODS), _known("matcher", self.matcher, MATCHERS)
        name = self.preset or matcher.preset
        if name not in method.presets:
            raise InputError(f"{self.method} has no preset {name!r}; choose from {', '.join(method.presets)}")
        return dict(method.presets[name])

    def ranking(self) -> str:
        """Name of the ranking loss: the one given, or the preset's, or InfoNCE."""
        name = self.loss or str(self.preset_options().get("loss", "infonce"))
        _known("loss", name, RANKING_LOSSES)
        return name


def _belongs(part: str) -> str | None:
    """The choice that gives a run the options of this part; None where there is no such part."""
    for kind, table in (("method", METHODS), ("matcher", MATCHERS), ("loss", RANKING_LOSSES)):
        if part in table:
            return f"--{kind} {part}"
    return None


def _known(kind: str, name: str, table: Mapping[str, T]) -> T:
    if name not in table:
        raise InputError(f"there is no {kind} {name!r}; choose from {', '.join(table)}")
    return table[name]


def make_parser(choice: Choice) -> Parser:
    """The parser of `fit` for this choice, with the preset's values as defaults."""
    preset, loss = choice.preset_options(), choice.ranking()
    parser = Parser(prog="pairsift fit", usage="pairsift fit SOURCE [--OPTION VALUE ...]", description=FIT)
    parser.add_argument("source", help="what to read: a CSV, TSV, JSON, JSON-lines or Parquet file, or a folder")
    parser.add_argument("--out", type=str, help="the run's folder; by default runs/<source>-<method>")
    parser.add_argument("--config", action="config", help="a YAML file of these options, such as a run's config.yaml")
    parser.add_argument("--resume", action="store_true", help="go on with an unfinished run in the folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a run in the folder")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument(
        "--epochs", type=int | None, help="epochs in all: scales the method's phases, each of which keeps at least one"
    )
    parser.add_argument("--method", default=choice.method, help=", ".join(METHODS))
    parser.add_argument("--matcher", default=choice.matcher, help=", ".join(MATCHERS))
    parser.add_argument("--loss", default=loss, help=", ".join(RANKING_LOSSES))
    presets = ", ".join(METHODS[choice.method].presets)
    parser.add_argument(
        "--preset", type=str | None, default=choice.preset, help=f"{presets}; the matcher's own unless given"
    )
    for options in (DataOptions, EncodeOptions, TrainOptions):
        parser.add_class_arguments(options)
    parser.add_class_arguments(METHODS[choice.method], choice.method)
    matcher = MATCHERS[choice.matcher]
    from_data = {name for name in inspect.signature(matcher).parameters if name in FROM_DATA}
    parser.add_class_arguments(matcher, choice.matcher, skip=from_data)
    parser.add_class_arguments(RANKING_LOSSES[loss], loss)
    parser.set_defaults({name: value for name, value in preset.items() if name != "loss" and _fits(name, loss)})
    return parser


def _fits(name: str, loss: str) -> bool:
    """Whether a preset's option exists: options of the ranking loss that was not chosen do not."""
    head = name.partition(".")[0]
    return head == loss or head not in RANKING_LOSSES


def choose(given: Mapping[str, object]) -> Choice:
    """The choice that some options make; the rest are defaults."""
    picked = {name: str(given[name]) for name in CHOICES if given.get(name) is not None}
    return Choice(**picked)


@dataclass(frozen=True)
class Config:
    """All options of a run, resolved.

    Attributes:
        options: Every option by name; a part's own options are a mapping under the part's name.
    """

    options: Mapping[str, Any]

    @staticmethod
    def resolve(given: Mapping[str, object]) -> Config:
        """Check options given by name (`noise`, `pc2.classes`, ...) and fill in the others' defaults.

        Raises:
            InputError: A name or a value is not known.
        """
        flat = {name: value for name, value in flattened(given).items() if value is not None}
        arguments = [str(flat.pop("source"))] if "source" in flat else []
        for name, value in flat.items():
            if name in FLAGS:
                arguments += [f"--{name}"] if value else []
            else:
                arguments.append(f"--{name}={value}")
        return Config.parse(arguments)

    @staticmethod
    def parse(arguments: Sequence[str]) -> Config:
        """Resolve a command line (without the verb).

        Raises:
            InputError: A name or a value is not known.
        """
        arguments = [_underscored(argument) for argument in arguments]
        parser = make_parser(choose(_peek(arguments)))
        options = parser.parse_args(list(arguments)).as_dict()
        method = options["method"]
        if options["epochs"] is not None:
            _refuse_phases(arguments, method)
            left_open = {name: n for name, n in METHODS[method].open_epochs.items() if not options[method][name]}
            usual = {**options[method], **left_open}
            options[method] = {**usual, **scaled(method, usual, options["epochs"])}
        own = options.get(options["matcher"]) or {}
        if "checkpoint" in own and Path(own["checkpoint"]).expanduser().is_dir():  # else an id on the hub
            own["checkpoint"] = str(Path(own["checkpoint"]).expanduser().resolve())
        paths = {name: Path(os.path.expanduser(options[name])).resolve() for name in PATHS if options[name]}
        return Config(options | {name: str(path) for name, path in paths.items()})

    def with_source(self, source: str | Path) -> Config:
        """Return the same options for a source in another place."""
        return self.having("source", str(Path(source).resolve()))

    def having(self, name: str, value: object) -> Config:
        """Return the same options with another value of one of them."""
        return Config({**self.options, name: value})

    def text(self) -> str:
        """YAML that `--config` takes."""
        kept = {name: value for name, value in self.options.items() if name not in UNKEPT}
        return str(yaml.safe_dump(kept, sort_keys=False))

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def group(self, kind: type[G]) -> G:
        """The options of one group as its dataclass."""
        return kind(**{part.name: self.options[part.name] for part in dataclasses.fields(kind)})

    def method(self) -> Method:
        """The chosen method."""
        return METHODS[self["method"]](**self[self["method"]])

    def ranking(self) -> RankingLoss:
        """The chosen ranking loss."""
        return RANKING_LOSSES[self["loss"]](**self[self["loss"]])


def flattened(given: Mapping[str, object], under: str = "") -> dict[str, object]:
    """Options of parts under their names on the command line, such as `pc2.classes`."""
    flat: dict[str, object] = {}
    for name, value in given.items():
        flat |= flattened(value, f"{under}{name}.") if isinstance(value, Mapping) else {f"{under}{name}": value}
    return flat


def _underscored(argument: str) -> str:
    """`--noise-seed=1` as `--noise_seed=1`: both ways of writing an option are taken."""
    name, sign, value = argument.partition("=")
    return name[:2] + name[2:].replace("-", "_") + sign + value if name.startswith("--") else argument


def _refuse_phases(arguments: Sequence[str], method: str) -> None:
    """Refuse the length of a phase beside the length of all."""
    for name, _, option in (argument.partition("=")[0].partition(".") for argument in arguments):
        if name == f"--{method}" and is_phase(option):
            typed = f"{name}.{option.replace('_', '-')}"
            raise InputError(f"--epochs scales all phases, and {typed} sets one: give one of the two")


def _peek(arguments: Sequence[str]) -> dict[str, object]:
    """The choices on a command line, those of its configuration file beneath them."""
    found: dict[str, object] = {}
    words = [part for argument in arguments for part in _split(argument)]
    for name, value in pairwise(words):
        if name == "--config":
            found = {**_read_yaml(Path(value)), **found}
        elif name.removeprefix("--") in CHOICES and name.startswith("--"):
            found[name[2:]] = value
    return found


def _split(argument: str) -> list[str]:
    name, sign, value = argument.partition("=")
    return [name, value] if sign and name.startswith("--") else [argument]


def _read_yaml(path: Path) -> dict[str, object]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no options: expected lines such as `method: pc2`")
    return content
