"""The options of a run as objects, resolved in the same way for Python, YAML and the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from pairsift.detect.options import DetectOptions
from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError, dashed
from pairsift.loss import RANKING_LOSSES
from pairsift.loss.ranking import AnyRankingLoss
from pairsift.match import MATCHER, MATCHERS
from pairsift.match.base import Matcher
from pairsift.methods import METHODS
from pairsift.methods.base import Epochs, Method
from pairsift.methods.presets import Preset
from pairsift.options import OptionError, Options, groups
from pairsift.pairs.options import DataOptions
from pairsift.pairs.readers import table_within
from pairsift.runs.yaml_loader import UniqueKeyLoader
from pairsift.source_path import require_path, stem_of
from pairsift.train.options import TrainOptions

GROUPS: dict[str, type[Options]] = {"data": DataOptions, "encode": EncodeOptions, "train": TrainOptions}
CHOICES = ("method", "matcher", "loss", "preset")
# Options that are paths, which are made absolute.
PATHS = {"data": ("image_folder", "noise_index", "verified"), "encode": ("cache", "vocabulary")}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """All options of a run, as objects.

    Attributes:
        source: Absolute path of the source, or a pattern of several files.
        method: The method, which decides how doubtful pairs are trained on.
        matcher: The class of the matcher.
        matcher_options: The options of the matcher.
        loss: The ranking loss.
        data: Options of the source and of planted noise.
        encode: Options of the frozen encoders.
        train: Options of the training loop.
        preset: Name of the preset; None for the preset that suits the matcher.
        out: The run's folder; None for runs/<source>-<method>.
        detect: Options of the detector.
    """

    source: str
    method: Method
    matcher: type[Matcher]
    matcher_options: Options
    loss: AnyRankingLoss
    data: DataOptions
    encode: EncodeOptions
    train: TrainOptions
    preset: str | None = None
    out: str | None = None
    detect: DetectOptions = field(default_factory=DetectOptions)

    @property
    def folder(self) -> Path:
        """The run's folder: `out`, or runs/<source>-<method>."""
        return Path(self.out or Path("runs") / f"{stem_of(self.source)}-{self.method.name}")

    @property
    def cache(self) -> Path | None:
        """The folder of the feature cache; None for the default folder."""
        return None if self.encode.cache is None else Path(self.encode.cache)

    @property
    def starts_aligned(self) -> bool:
        """A bool: whether the matcher starts from a space that the encoders share."""
        return self.encode.shared_space and "aligned" in signature(self.matcher).parameters

    @property
    def has_recall(self) -> bool:
        """A bool: whether recall says something: a linear model knows all pairs by the weights of some."""
        return self.starts_aligned or not self.method.starts_linear

    def with_source(self, source: str | Path) -> Config:
        """Return the same options with another path of the source."""
        return replace(self, source=_place_of(source, self.data.reader))

    def with_text_encoder(self, name: str) -> Config:
        """Return the same options with another text encoder."""
        return replace(self, encode=self.encode.replaced(text_encoder=name))

    def tree(self) -> dict[str, Any]:
        """Return all options by their names in YAML and on the command line; options of a part are under its name.

        Options of the detector, which are no flags, are there where they differ from the shipped ones.
        """
        tree: dict[str, Any] = {"source": self.source, "out": self.out, "method": METHODS.spec(type(self.method))}
        tree |= {"matcher": MATCHERS.spec(self.matcher), "loss": self.loss.name, "preset": self.preset}
        for group in (self.data, self.encode, self.train):
            tree |= group.model_dump()
        if changes := self.detect.changes():
            tree["detect"] = changes
        parts = (self.method.name, self.method), (self.matcher.name, self.matcher_options), (self.loss.name, self.loss)
        return tree | {name: options.model_dump() for name, options in parts}

    def require_storable(self) -> None:
        """Check that `text` can name the type of every part.

        Raises:
            InputError: A part has another type than its field, so that the run could not be resumed or opened.
        """
        for name, options in ((self.method.name, self.method), (self.matcher.name, self.matcher_options)):
            for path, given, declared in replaced_types(options, name):
                raise InputError(
                    f"{path} is of the type {given.__name__}, and config.yaml holds options without types, so the run "
                    f"could not be opened again: write a method with a field `{path.rpartition('.')[2]}: "
                    f"{given.__name__}`, or take a {declared.__name__}"
                )

    def text(self) -> str:
        """Return the options as YAML that `--config` reads."""
        return str(yaml.safe_dump(self.tree(), sort_keys=False))


def check_folder(source: str | Path | Sequence[str | Path]) -> Path:
    """Return the folder of a run by `pairsift check` where none is named: runs/<source>-check."""
    return Path("runs") / f"{stem_of(require_path(source))}-check"


@dataclass(frozen=True)
class Choices:
    """The classes of the method, the matcher and the loss of a run, and the preset that sets their defaults."""

    method: type[Method]
    matcher: type[Matcher]
    loss: type[AnyRankingLoss]
    preset: Preset

    @staticmethod
    def make(
        method: str | type[Method] | None,
        matcher: str | type[Matcher],
        loss: str | None,
        preset: str | None,
        tree: Values,
    ) -> Choices:
        """Find the classes and the preset with these names; without a name, the method is the matcher's own.

        Args:
            method: Name or class of the method.
            matcher: Name or class of the matcher.
            loss: Name of the ranking loss; None for the one of the matcher with its options, or of the preset.
            preset: Name of the preset.
            tree: Options of parts under their names; the matcher's are read.

        Raises:
            InputError: A name is unknown.
        """
        matcher_type = MATCHERS.find(matcher) if isinstance(matcher, str) else matcher
        method = matcher_type.method if method is None else method
        method_type = METHODS.find(method) if isinstance(method, str) else method
        defaults = preset_of(method_type, matcher_type, preset)
        own = tree.get(matcher_type.name)
        loss = loss or matcher_type.loss_of(own if isinstance(own, Mapping) else {}) or defaults.loss
        return Choices(method_type, matcher_type, RANKING_LOSSES.find(loss), defaults)


def preset_of(method: type[Method], matcher: type[Matcher], name: str | None) -> Preset:
    """Return the method's preset of this name, or the one that suits the matcher.

    If the method has no preset for the matcher, the preset of `plain` sets the defaults of the loop and of the losses.

    Raises:
        InputError: There is no preset of this name.
    """
    presets = method.presets
    if name is None and matcher.preset not in presets:
        return replace(METHODS["plain"].presets[matcher.preset], method={})
    preset_name = name or matcher.preset
    if preset_name not in presets:
        names = ", ".join(presets) or "none"
        raise InputError(f"{method.name} has no preset {preset_name!r}; it has: {names}")
    return presets[preset_name]


def configure(  # noqa: PLR0913
    source: str | Path | Sequence[str | Path],
    *,
    method: str | Method | type[Method] | None = None,
    matcher: str | type[Matcher] | Options = MATCHER,
    loss: str | AnyRankingLoss | None = None,
    data: DataOptions | None = None,
    encode: EncodeOptions | None = None,
    train: TrainOptions | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    epochs: int | None = None,
    detect: DetectOptions | None = None,
) -> Config:
    """Resolve names and objects into the options of a run.

    Values that are set on an object are kept; the other values follow the preset. `pairsift.fit` has the
    same arguments.

    Raises:
        InputError: A name is unknown, or a value cannot be used.
    """
    matcher_choice = matcher_of(matcher) if isinstance(matcher, Options) else matcher
    method_choice = type(method) if isinstance(method, Method) else method
    loss_name = loss if isinstance(loss, str | None) else loss.name
    own = {matcher_of(matcher).name: matcher.model_dump()} if isinstance(matcher, Options) else {}
    choices = Choices.make(method_choice, matcher_choice, loss_name, preset, own)
    parts: dict[str, Options | Values] = {
        "method": method if isinstance(method, Method) else {},
        "matcher": matcher if isinstance(matcher, Options) else {},
        "loss": {} if isinstance(loss, str | None) else loss,
        "data": data or {},
        "encode": encode or {},
        "train": train or {},
    }
    config = _assembled(require_path(source), choices, parts, None if out is None else str(out), preset, epochs)
    return replace(config, detect=detect or detect_options({}))


def from_tree(tree: Values) -> Config:
    """Resolve options by their names on the command line; options of a part are under its name.

    An option with the value None counts as not set.

    Raises:
        InputError: A name is unknown, or a value cannot be used.
    """
    options = {name: value for name, value in tree.items() if value is not None}
    if "source" not in options:
        raise InputError("give a source: a file or a folder of image-caption pairs")
    method, matcher = options.pop("method", None), str(options.pop("matcher", MATCHER))
    preset, loss = options.pop("preset", None), options.pop("loss", None)
    choices = Choices.make(
        None if method is None else str(method), matcher, None if loss is None else str(loss), preset, options
    )
    source, out, epochs = options.pop("source"), options.pop("out", None), options.pop("epochs", None)
    detect = detect_options(options.pop("detect", {}))
    groups: dict[str, Options | Values] = {
        "method": options.pop(choices.method.name, {}),
        "matcher": options.pop(choices.matcher.name, {}),
        "loss": options.pop(choices.loss.name, {}),
    }
    for group, kind in GROUPS.items():
        groups[group] = {name: options.pop(name) for name in kind.model_fields if name in options}
    if options:
        raise InputError(unknown_option(str(next(iter(options))), choices))
    config = _assembled(str(require_path(source)), choices, groups, None if out is None else str(out), preset, epochs)
    return replace(config, detect=detect)


def read_config(path: Path) -> Config:
    """Read the options that `Config.text` wrote.

    Raises:
        InputError: The file cannot be read, or an option cannot be used.
    """
    return from_tree(read_yaml(path))


def read_yaml(path: Path, example: str = "`method: pc2`") -> dict[str, Any]:
    """Read a YAML file of options, nested or named as on the command line, such as `pc2.epochs.warmup`.

    Args:
        path: The file.
        example: What the file may hold, for the message where it holds nothing.

    Raises:
        InputError: The file does not exist or cannot be read, or it holds no options.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), UniqueKeyLoader)
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no options: expected lines such as {example}")
    grouped: dict[str, Any] = in_groups(content)
    return grouped


def in_groups(value: Any) -> Any:
    """Return options, as a YAML file has them, with those of groups nested, also those named as on the command line."""
    if isinstance(value, list):
        return [in_groups(item) for item in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    for name, item in value.items():
        *groups, last = name.replace("-", "_").split(".") if isinstance(name, str) else [name]
        option = {last: in_groups(item)}
        for group in reversed(groups):
            option = {group: option}
        tree = put_over(tree, option)
    return tree


def kind_of(part: str) -> str | None:
    """Return the kind of part that has this name: `method`, `matcher` or `loss`; None without any."""
    for kind, registry in (("method", METHODS), ("matcher", MATCHERS), ("loss", RANKING_LOSSES)):
        if part in registry:
            return kind
    return None


def unknown_option(name: str, choices: Choices) -> str:
    """Return the error message for an option that a run with these choices does not have."""
    part = name.partition(".")[0]
    if (kind := kind_of(part)) is not None:
        return f"{dashed(name)} is an option of --{kind} {part}, which this run does not have"
    parts = (choices.method, choices.method), (choices.matcher, choices.matcher.options), (choices.loss, choices.loss)
    own = {option: f"{part.name}.{option}" for part, options in parts for option in options.model_fields}
    options = [*(option for group in GROUPS.values() for option in group.model_fields), *CHOICES, "out", "epochs"]
    near = get_close_matches(name, [*options, *own], 1, 0.75)
    hint = "see --help-all"
    if near:
        hint = f"did you mean {dashed(near[0] if near[0] in options else own[near[0]])}?"
    return f"there is no option {dashed(name)}: {hint}"


def flattened(tree: Values, prefix: str = "") -> dict[str, Any]:
    """Return nested options under their names on the command line, such as `pc2.epochs.warmup`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flattened(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def flag_text(name: str, value: object) -> str:
    """Return an option with its value as on the command line, such as `--noise-seed 1` or `--aligned false`."""
    value = str(value).lower() if isinstance(value, bool) else value
    return f"without {dashed(name)}" if value is None else f"{dashed(name)} {value}"


def matcher_of(options: Options) -> type[Matcher]:
    """Return the class of the matcher that has these options.

    Raises:
        InputError: No matcher has such options.
    """
    for matcher in MATCHERS.values():
        if matcher.options is type(options):
            return matcher
    raise InputError(f"{type(options).__name__} are the options of no matcher: give the options of a matcher")


def replaced_types(options: Options, path: str) -> Iterator[tuple[str, type[Options], type[Options]]]:
    """Yield the path, the type and the declared type of every group whose type is a subclass of the declared one."""
    for name, declared in groups(type(options)).items():
        group = getattr(options, name)
        if type(group) is not declared:
            yield f"{path}.{name}", type(group), declared
        yield from replaced_types(group, f"{path}.{name}")


def absolute(path: str | Path) -> str:
    """Return the absolute path, with `~` replaced by the user's home folder."""
    return str(Path(path).expanduser().resolve())


def _assembled(
    source: str | Path,
    choices: Choices,
    parts: Mapping[str, Options | Values],
    out: str | None,
    preset: str | None,
    epochs: Any,
) -> Config:
    preset_loss = choices.preset.losses.get(choices.loss.name, {})
    method = _filled(choices.method, parts["method"], choices.preset.method, choices.method.name)
    matcher = _filled(choices.matcher.options, parts["matcher"], {}, choices.matcher.name)
    loss = _filled(choices.loss, parts["loss"], preset_loss, choices.loss.name)
    train = _filled(TrainOptions, parts["train"], choices.preset.train)
    sections = {group: _filled(kind, parts[group], {}) for group, kind in GROUPS.items() if group != "train"}
    if epochs is not None:
        method = _scaled(method, parts["method"], epochs)
    checkpoint = getattr(matcher, "checkpoint", None)
    if checkpoint is not None and Path(checkpoint).expanduser().is_dir():  # else an id on the hub
        matcher = matcher.replaced(checkpoint=absolute(checkpoint))
    for group, names in PATHS.items():
        paths = {name: absolute(getattr(sections[group], name)) for name in names if getattr(sections[group], name)}
        sections[group] = sections[group].replaced(**paths)
    return Config(
        _place_of(source, sections["data"].reader),
        method,
        choices.matcher,
        matcher,
        loss,
        train=train,
        preset=preset,
        out=out,
        **sections,
    )


def _place_of(source: str | Path, reader: str | None) -> str:
    """Return the absolute path of a source, of a folder with a single table that of the table."""
    path = absolute(source)
    return path if reader is not None else str(table_within(Path(path)))


def detect_options(values: Any) -> DetectOptions:
    """Return the detector's options with the values of a file.

    Raises:
        InputError: A name is unknown, or a value cannot be used.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"detect is {values!r}; it must be a mapping of options")
    try:
        return DetectOptions().changed(values)
    except ValueError as error:
        raise InputError(f"detect: {error}") from None


def _filled(kind: type[Any], values: Options | Values, defaults: Values, *prefix: str) -> Any:
    """Make options from set values and a preset's defaults. Errors name options as on the command line."""
    if not isinstance(values, Options | Mapping):  # a file may hold anything
        raise InputError(f"{dashed(*prefix)} is {values!r}; it must be a mapping of options")
    try:
        return values.filled(defaults) if isinstance(values, Options) else kind(**put_over(defaults, values))
    except OptionError as error:
        raise error.with_parents(prefix) from None


def put_over(defaults: Values, values: Values) -> dict[str, Any]:
    """Return the defaults, replaced by values that are set, group by group."""
    merged = dict(defaults)
    for name, value in values.items():
        default = merged.get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            merged[str(name)] = put_over(default, value)
        else:
            merged[str(name)] = value
    return merged


def _scaled(method: Method, values: Options | Values, epochs: Any) -> Method:
    """Return the method with its phases scaled to a total number of epochs."""
    phases = getattr(method, "epochs", None)
    if isinstance(values, Options) and "epochs" in values.model_fields_set:
        raise InputError(f"epochs scales all phases, and the epochs of {method.name} are set too: give one of the two")
    if not isinstance(phases, Epochs):
        raise InputError(f"--epochs scales a method's phases, and {method.name} has none to scale: leave it out")
    try:
        total = int(str(epochs))
    except ValueError:
        own = f"; for a phase alone, there is --{method.name}.epochs" if isinstance(epochs, Mapping) else ""
        raise InputError(f"--epochs is {epochs!r}; it must be a whole number{own}") from None
    try:
        return method.replaced(epochs=phases.scaled(total))
    except InputError as error:
        raise InputError(f"--epochs is {total}; {method.name} {error}") from None
