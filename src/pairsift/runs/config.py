"""A run's options as objects, made of names and values or of objects, the same way for Python, YAML and the shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError, dashed, similar
from pairsift.loss import RANKING_LOSSES
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match import MATCHER, MATCHERS
from pairsift.match.base import Matcher
from pairsift.methods import METHOD, METHODS
from pairsift.methods.base import Epochs, Method
from pairsift.methods.presets import Preset
from pairsift.options import OptionError, Options
from pairsift.pairs.options import DataOptions
from pairsift.train.options import TrainOptions

GROUPS: dict[str, type[Options]] = {"data": DataOptions, "encode": EncodeOptions, "train": TrainOptions}
CHOICES = ("method", "matcher", "loss", "preset")
PATHS = {"data": ("image_folder", "noise_index"), "encode": ("cache", "vocabulary")}  # made absolute

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """All options of a run, as objects.

    Attributes:
        source: What is read, an absolute path.
        method: What to do with pairs of little trust.
        matcher: The kind of matcher.
        matcher_options: Its options.
        loss: The ranking loss.
        data: What is read, and what noise is planted.
        encode: The frozen encoders.
        train: The loop.
        preset: Name of the preset that was asked for; None for the matcher's own.
        out: The run's folder; None for runs/<source>-<method>.
    """

    source: str
    method: Method
    matcher: type[Matcher]
    matcher_options: Options
    loss: InfoNCE | Hinge
    data: DataOptions
    encode: EncodeOptions
    train: TrainOptions
    preset: str | None = None
    out: str | None = None

    @property
    def folder(self) -> Path:
        """The run's folder: `out`, or runs/<source>-<method>."""
        return Path(self.out or Path("runs") / f"{Path(self.source).stem}-{self.method.name}")

    @property
    def cache(self) -> Path | None:
        """Folder of the feature cache; None for the usual one."""
        return None if self.encode.cache is None else Path(self.encode.cache)

    def with_source(self, source: str | Path) -> Config:
        """Return the same options for a source in another place."""
        return replace(self, source=absolute(source))

    def with_text_encoder(self, name: str) -> Config:
        """Return the same options with another text encoder."""
        return replace(self, encode=self.encode.replaced(text_encoder=name))

    def tree(self) -> dict[str, Any]:
        """Return every option by name, as YAML and the command line have them: those of parts under the part's name."""
        tree: dict[str, Any] = {"source": self.source, "out": self.out, "method": METHODS.spec(type(self.method))}
        tree |= {"matcher": MATCHERS.spec(self.matcher), "loss": self.loss.name, "preset": self.preset}
        for group in (self.data, self.encode, self.train):
            tree |= group.model_dump()
        parts = (self.method.name, self.method), (self.matcher.name, self.matcher_options), (self.loss.name, self.loss)
        return tree | {name: options.model_dump() for name, options in parts}

    def text(self) -> str:
        """Return YAML that `--config` takes."""
        return str(yaml.safe_dump(self.tree(), sort_keys=False))


@dataclass(frozen=True)
class Choices:
    """The kinds of method, matcher and loss of a run, and the preset that sets their defaults."""

    method: type[Method]
    matcher: type[Matcher]
    loss: type[InfoNCE] | type[Hinge]
    preset: Preset

    @staticmethod
    def make(method: str | type[Method], matcher: str | type[Matcher], loss: str | None, preset: str | None) -> Choices:
        """Find what has these names.

        Raises:
            InputError: A name is unknown.
        """
        kind = METHODS.find(method) if isinstance(method, str) else method
        reader = MATCHERS.find(matcher) if isinstance(matcher, str) else matcher
        defaults = preset_of(kind, reader, preset)
        return Choices(kind, reader, RANKING_LOSSES.find(loss or defaults.loss), defaults)


def preset_of(method: type[Method], matcher: type[Matcher], name: str | None) -> Preset:
    """Return the method's preset of this name, or the one that suits the matcher.

    A method without a preset for the matcher has that of `plain` for the loop and the losses.

    Raises:
        InputError: There is no preset of this name.
    """
    presets = method.presets
    if name is None and matcher.preset not in presets:
        return replace(METHODS["plain"].presets[matcher.preset], method={})
    wanted = name or matcher.preset
    if wanted not in presets:
        known = ", ".join(presets) or "none"
        raise InputError(f"{method.name} has no preset {wanted!r}; it has: {known}")
    return presets[wanted]


def configure(  # noqa: PLR0913
    source: str | Path,
    *,
    method: str | Method | type[Method] = METHOD,
    matcher: str | type[Matcher] | Options = MATCHER,
    loss: str | InfoNCE | Hinge | None = None,
    data: DataOptions | None = None,
    encode: EncodeOptions | None = None,
    train: TrainOptions | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    epochs: int | None = None,
) -> Config:
    """Resolve names and objects. What an object was given stands; what it was not given follows the preset.

    The arguments are those of `pairsift.fit`.

    Raises:
        InputError: A name is unknown, or a value cannot be used.
    """
    reader = matcher_of(matcher) if isinstance(matcher, Options) else matcher
    wanted = type(method) if isinstance(method, Method) else method
    chosen = Choices.make(wanted, reader, loss if isinstance(loss, str | None) else loss.name, preset)
    given: dict[str, Options | Values] = {
        "method": method if isinstance(method, Method) else {},
        "matcher": matcher if isinstance(matcher, Options) else {},
        "loss": {} if isinstance(loss, str | None) else loss,
        "data": data or {},
        "encode": encode or {},
        "train": train or {},
    }
    return _assembled(source, chosen, given, None if out is None else str(out), preset, epochs)


def from_tree(tree: Values) -> Config:
    """Resolve options by their names on the command line, those of parts under the part's name; None is not given.

    Raises:
        InputError: A name is unknown, or a value cannot be used.
    """
    given = {name: value for name, value in tree.items() if value is not None}
    if "source" not in given:
        raise InputError("give a source: a file or a folder of image-caption pairs")
    method, matcher = str(given.pop("method", METHOD)), str(given.pop("matcher", MATCHER))
    preset, loss = given.pop("preset", None), given.pop("loss", None)
    chosen = Choices.make(method, matcher, None if loss is None else str(loss), preset)
    source, out, epochs = given.pop("source"), given.pop("out", None), given.pop("epochs", None)
    groups: dict[str, Options | Values] = {
        "method": given.pop(chosen.method.name, {}),
        "matcher": given.pop(chosen.matcher.name, {}),
        "loss": given.pop(chosen.loss.name, {}),
    }
    for group, kind in GROUPS.items():
        groups[group] = {name: given.pop(name) for name in kind.model_fields if name in given}
    if given:
        raise InputError(unknown_option(str(next(iter(given))), chosen))
    return _assembled(str(source), chosen, groups, None if out is None else str(out), preset, epochs)


def read_config(path: Path) -> Config:
    """Read what `Config.text` wrote.

    Raises:
        InputError: It cannot be read or used.
    """
    return from_tree(read_yaml(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file of options.

    Raises:
        InputError: There is none, or it holds no options.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no options: expected lines such as `method: pc2`")
    return content


def unknown_option(name: str, chosen: Choices) -> str:
    """Return what to say of an option that a run with these choices does not have."""
    part = name.partition(".")[0]
    for kind, registry in (("method", METHODS), ("matcher", MATCHERS), ("loss", RANKING_LOSSES)):
        if part in registry:
            return f"{dashed(name)} is an option of --{kind} {part}, which this run does not have"
    groups = [*GROUPS.values(), chosen.method, chosen.matcher.options, chosen.loss]
    known = [option for group in groups for option in group.model_fields]
    hint = similar(name, [*known, *CHOICES, "out", "epochs"], "see --help-all", 0.75)
    return f"there is no option {dashed(name)}: {hint}"


def flattened(tree: Values, under: str = "") -> dict[str, Any]:
    """Return options of parts under their names on the command line, such as `pc2.epochs.warmup`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flattened(value, f"{under}{name}.") if isinstance(value, Mapping) else {f"{under}{name}": value}
    return flat


def typed(name: str, value: object) -> str:
    """Return an option with its value as it is typed: `--noise-seed 1`."""
    return f"without {dashed(name)}" if value is None else f"{dashed(name)} {value}"


def matcher_of(options: Options) -> type[Matcher]:
    """Return the matcher that these options are of.

    Raises:
        InputError: There is none.
    """
    for matcher in MATCHERS.values():
        if matcher.options is type(options):
            return matcher
    raise InputError(f"{type(options).__name__} are the options of no matcher: give a matcher's own")


def absolute(path: str | Path) -> str:
    """Return a path from the root, `~` being the user's home."""
    return str(Path(path).expanduser().resolve())


def _assembled(
    source: str | Path,
    chosen: Choices,
    given: Mapping[str, Options | Values],
    out: str | None,
    preset: str | None,
    epochs: Any,
) -> Config:
    preset_loss = chosen.preset.losses.get(chosen.loss.name, {})
    method = _filled(chosen.method, given["method"], chosen.preset.method, chosen.method.name)
    matcher = _filled(chosen.matcher.options, given["matcher"], {}, chosen.matcher.name)
    loss = _filled(chosen.loss, given["loss"], preset_loss, chosen.loss.name)
    train = _filled(TrainOptions, given["train"], chosen.preset.train)
    parts = {group: _filled(kind, given[group], {}) for group, kind in GROUPS.items() if group != "train"}
    if epochs is not None:
        method = _scaled(method, given["method"], epochs)
    checkpoint = getattr(matcher, "checkpoint", None)
    if checkpoint is not None and Path(checkpoint).expanduser().is_dir():  # else an id on the hub
        matcher = matcher.replaced(checkpoint=absolute(checkpoint))
    for group, names in PATHS.items():
        paths = {name: absolute(getattr(parts[group], name)) for name in names if getattr(parts[group], name)}
        parts[group] = parts[group].replaced(**paths)
    return Config(absolute(source), method, chosen.matcher, matcher, loss, train=train, preset=preset, out=out, **parts)


def _filled(kind: type[Any], given: Options | Values, defaults: Values, *prefix: str) -> Any:
    """Make options of what was given and a preset's defaults; an error names the option as it is typed."""
    if not isinstance(given, Options | Mapping):  # a file may hold anything
        raise InputError(f"{dashed(*prefix)} is {given!r}; it must be options by name")
    try:
        return given.filled(defaults) if isinstance(given, Options) else kind(**put_over(defaults, given))
    except OptionError as error:
        raise error.under(prefix) from None


def put_over(defaults: Values, given: Values) -> dict[str, Any]:
    """Put given values over defaults, group by group."""
    merged = dict(defaults)
    for name, value in given.items():
        default = merged.get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            merged[str(name)] = put_over(default, value)
        else:
            merged[str(name)] = value
    return merged


def _scaled(method: Method, given: Options | Values, epochs: Any) -> Method:
    """Scale the method's phases to a number of epochs in all."""
    length = getattr(method, "epochs", None)
    if isinstance(given, Options) and "epochs" in given.model_fields_set:
        raise InputError(f"epochs scales all phases, and the epochs of {method.name} are given: give one of the two")
    if not isinstance(length, Epochs):
        raise InputError(f"--epochs scales a method's phases, and {method.name} has none to scale: leave it out")
    try:
        total = int(epochs)
    except ValueError:
        raise InputError(f"--epochs is {epochs!r}; it must be a whole number") from None
    try:
        return method.replaced(epochs=length.scaled(total))
    except InputError as error:
        raise InputError(f"--epochs is {total}; {method.name} {error}") from None
