"""The verb `fit`: its options come from the method, the matcher and the loss that a command line names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic_core import PydanticUndefined

from pairsift.cli.shared import OVERWRITE_HELP, QUIET_HELP
from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError, dashed, similar
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHER, MATCHERS
from pairsift.methods import METHODS
from pairsift.options import Options, alternatives, groups
from pairsift.pairs.options import DataOptions
from pairsift.runs.source_check import check_source
from pairsift.source_path import require_path
from pairsift.train.options import TrainOptions

if TYPE_CHECKING:
    from pairsift.runs.config import Choices
    from pairsift.runs.fit import Resume

FIRST = ("image_column", "caption_column", "image_folder", "noise", "text_encoder", "seed")  # shown by --help
BOOLS = ("true", "false", "yes", "no", "on", "off", "1", "0", "null")  # values that a switch takes
METAVARS = {int: "N", float: "X", bool: "true|false", str: "TEXT"}
ABOUT = """Train on image-caption pairs, and find the mismatched ones among them.

SOURCE is a CSV, TSV, JSON, JSON-lines or Parquet file, or a folder, or several tables or tar files of one kind, also as
'data/*.parquet' or '{00000..00012}.tar'.
"""


CHECK = """Judge image-caption pairs without training: how many are mismatched, which, and what would fit.

SOURCE is a CSV, TSV, JSON, JSON-lines or Parquet file, or a folder, or several tables or tar files of one kind, also as
'data/*.parquet' or '{00000..00012}.tar'. The run's folder can be served, exported and
searched like the folder of a trained run.
"""
OF_CHECK = ("seed", "device", "threads")  # the options of training that a check has


class Flag(click.Option):
    """An option on the command line; its value stays text, which the type of the option reads.

    Args:
        path: Names that lead to the option in a tree of options.
        metavar: Placeholder of the value in help.
        about: Description of the option, for help.
        default: Default value, for help.
        section: Heading in help.
        values: Possible values, for completion; empty if there are too many to list.
        switch: Whether the option may stand without a value, which means true.
    """

    def __init__(
        self,
        path: tuple[str, ...],
        metavar: str,
        about: str,
        default: object = None,
        section: str = "",
        values: tuple[str, ...] = (),
        switch: bool = False,
    ) -> None:
        self.path, self.values, self.section, self.switch = path, values, section, switch
        shown = "" if default is None or default == "" else f" [default: {_shown(default)}]"
        super().__init__([dashed(*path), "__".join(path)], metavar=metavar, help=about + shown, type=str, default=None)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the values that begin with the incomplete text."""
        return [CompletionItem(value) for value in self.values if value.startswith(incomplete)]


def flags_of(
    kind: type[Options], section: str, prefix: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None
) -> list[Flag]:
    """Return a flag for every option of a kind of options, groups within it included.

    Args:
        kind: The kind of options.
        section: Heading in help.
        prefix: Names before the name of each option.
        defaults: Values that a preset puts in place of the defaults.
    """
    flags: list[Flag] = []
    inner, preset = groups(kind), defaults or {}
    for name, field in kind.model_fields.items():
        path = (*prefix, name)
        if name in inner:
            flags += flags_of(inner[name], section, path, preset.get(name))
            continue
        default = preset.get(name, None if field.default is PydanticUndefined else field.default)
        parts = alternatives(field.annotation)
        values = tuple(str(value) for part in parts if get_origin(part) is Literal for value in get_args(part))
        others = [METAVARS.get(part, "VALUE") for part in parts if get_origin(part) is not Literal]  # type: ignore[call-overload]
        metavar = "|".join([*values, *others])
        flags.append(Flag(path, metavar, field.description or "", default, section, values, bool in parts))
    return flags


def fill_switches(words: Sequence[str], params: Sequence[click.Parameter]) -> list[str]:
    """Return a command line with the value `true` for each switch that stands without one, as in `--aligned SOURCE`."""
    switches = {name for param in params if isinstance(param, Flag) and param.switch for name in param.opts}
    found: list[str] = []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        found.append(f"{word}=true" if word in switches and following.lower() not in BOOLS else word)
    return found


def tree_of(flags: list[Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are set, as a tree of options."""
    tree: dict[str, Any] = {}
    for flag in flags:
        value = values.get(str(flag.name))
        if value is None:
            continue
        place = tree
        for name in flag.path[:-1]:
            place = place.setdefault(name, {})
        place[flag.path[-1]] = value
    return tree


def _shown(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def choice_flags() -> list[Flag]:
    """Return the flags that choose the run's parts, its folder and its length."""
    section = "Options"

    def flag(name: str, metavar: str, about: str, default: str | None = None, values: Sequence[str] = ()) -> Flag:
        return Flag((name,), metavar, about, default, section, tuple(values))

    return [
        flag("out", "FOLDER", "The run's folder; by default runs/<source>-<method>."),
        flag(
            "method",
            "NAME",
            "How to train on doubtful pairs (pairsift list methods); by default sift with two_tower, else crossfit.",
            None,
            list(METHODS),
        ),
        flag("matcher", "NAME", "Kind of matcher (pairsift list matchers).", MATCHER, list(MATCHERS)),
        flag(
            "epochs",
            "N",
            "Total number of epochs; the method's phases are scaled to it, and each that it needs keeps at least one.",
        ),
        flag("loss", "NAME", "Ranking loss; by default the matcher's or the preset's.", None, list(RANKING_LOSSES)),
        flag("preset", "NAME", "Preset of the method; by default the preset that suits the matcher."),
        flag("config", "FILE", "A YAML file of these options, such as a run's config.yaml."),
    ]


def plain_flags() -> list[Flag]:
    """Return the flags of data, encoders and training, which every run has."""
    return [
        *flags_of(DataOptions, "Data"),
        *flags_of(EncodeOptions, "Encoders"),
        *flags_of(TrainOptions, "Training"),
    ]


def switches() -> list[click.Parameter]:
    """Return the flags without a value."""
    return [
        click.Option(["--resume"], is_flag=True, help="Continue an unfinished run in the folder."),
        click.Option(
            ["--resume-unchanged"],
            is_flag=True,
            help="Continue although the source has changed, with the unchanged pairs.",
        ),
        click.Option(["--overwrite"], is_flag=True, help=OVERWRITE_HELP),
        click.Option(["--quiet"], is_flag=True, help=QUIET_HELP),
        click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_all,
            help="Show all options.",
        ),
    ]


class FitCommand(click.Command):
    """The verb `fit`; the options of its method, matcher and loss are added when the command line names these.

    Args:
        run: Function that is called with the tree of options, resume, overwrite and quiet.
    """

    verb, about = "fit", ABOUT
    further_options = ", and the options of the method, the matcher and the loss"

    def __init__(self, run: Callable[[dict[str, Any], Resume, bool, bool], None]) -> None:
        source = click.Argument(["source"], required=False, nargs=-1)
        params = [source, *self.verb_flags(), *switches()]
        super().__init__(self.verb, params=params, callback=self._callback, help=self.about, no_args_is_help=True)
        self.run = run
        self.all_shown = False

    def verb_flags(self) -> list[Flag]:
        """Return the flags that every command line of the verb may have."""
        return [*choice_flags(), *plain_flags()]

    def take_choices(self, words: Sequence[str]) -> Choices:
        """Return the method, the matcher, the loss and the preset of a command line, and take their options."""
        choices = choices_of(words)
        common = [param for param in self.params if getattr(param, "section", "") != "Training"]
        training = flags_of(TrainOptions, "Training", (), choices.preset.train)
        self.params = [*common, *training, *part_flags(choices)]
        return choices

    def run_options(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the tree of options of a run."""
        return tree

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Raise an error for an obviously wrong command line, then add the options of the chosen parts."""
        completing, helping = bool(extra.get("resilient_parsing")), "--help" in args or not args
        args = args if completing else fill_switches(args, self.params)
        if not completing and not helping and "--help-all" not in args:
            self._check(args)
        if helping:
            return super().make_context(info_name, args, parent, **extra)
        choices = self.take_choices(args)
        args = args if completing else fill_switches(args, self.params)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            raise InputError(self._unknown(error, choices)) from None

    def _unknown(self, error: click.NoSuchOption, choices: Choices) -> str:
        """Return the error message for an option that no chosen part has."""
        from pairsift.runs.config import unknown_option

        name, names = error.option_name, [flag.opts[0] for flag in self.params]
        part, leaf = name.partition(".")[0], name.rpartition(".")[2]
        own = {flag.rpartition(".")[2]: flag for flag in names if "." in flag and flag.partition(".")[0] == part}
        if not own:
            return unknown_option(name.removeprefix("--").replace("-", "_"), choices)
        near = get_close_matches(leaf, own, 1)
        return f"there is no option {name}: {similar(own[near[0]] if near else name, names, 'see --help-all')}"

    def _check(self, words: Sequence[str]) -> None:
        """Raise an error for an unknown option without a dot, or a missing source or column."""
        names = [name for param in self.params for name in param.opts if name.startswith("--")]
        options, sources = split_words(
            words, [name for param in self.params if getattr(param, "is_flag", False) for name in param.opts]
        )
        for name in options:
            if "." not in name and name not in (*names, "--help"):
                advice = f"see `pairsift {self.verb} --help-all`"
                raise InputError(f"there is no option {name}: {similar(name, names, advice, 0.75)}")
        if sources:
            check_source(require_path(sources), options)

    def _callback(
        self, source: Sequence[str], resume: bool, resume_unchanged: bool, overwrite: bool, quiet: bool, **values: Any
    ) -> None:
        tree = tree_of([param for param in self.params if isinstance(param, Flag)], values)
        config = tree.pop("config", None)
        lengths = [f"--{name}.epochs" for name, value in tree.items() if isinstance(value, dict) and "epochs" in value]
        if "epochs" in tree and lengths:
            raise InputError(f"--epochs scales all phases, and {lengths[0]} sets one: give one of the two")
        if source:
            tree["source"] = str(require_path(source))
        if config is not None:
            from pairsift.runs.config import put_over, read_yaml

            tree = put_over(read_yaml(Path(config)), tree)
        further = {name: values[name] for name in ("shard", "ray") if name in values}
        self.start(self.run_options(tree), "unchanged" if resume_unchanged else resume, overwrite, quiet, **further)

    def start(self, tree: dict[str, Any], resume: Resume, overwrite: bool, quiet: bool, **further: Any) -> None:
        """Run with these options."""
        self.run(tree, resume, overwrite, quiet)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the most important options; with `--help-all`, write all options by heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        hidden = 0
        for param in self.params:
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is None:
                continue
            section = getattr(param, "section", "Options")
            first = section == "Options" or (isinstance(param, Flag) and param.path[0] in FIRST)
            if self.all_shown or first:
                sections.setdefault(section if self.all_shown else "Options", []).append(record)
            else:
                hidden += 1
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows {hidden} more{self.further_options}.")


class CheckCommand(FitCommand):
    """The verb `check`, which trains nothing and therefore has no options of methods, matchers and losses."""

    verb, about, further_options = "check", CHECK, ""

    def __init__(
        self,
        run: Callable[[dict[str, Any], Resume, bool, bool], None],
        share: Callable[[dict[str, Any], str | None, str | None, bool], None],
    ) -> None:
        super().__init__(run)
        self.share = share
        self.params += [
            click.Option(["--shard"], metavar="I/N", help="Of a folder of vectors: work on every N-th shard, from I."),
            click.Option(["--ray"], metavar="ADDRESS", help="Of a folder of vectors: work on a Ray cluster, or local."),
        ]

    def start(self, tree: dict[str, Any], resume: Resume, overwrite: bool, quiet: bool, **further: Any) -> None:
        """Check the source, or its share where one is asked for."""
        if any(further.values()):
            if resume or overwrite:
                raise InputError(
                    "--shard and --ray always go on where they stopped: leave --resume and --overwrite out"
                )
            self.share(tree, further["shard"], further["ray"], quiet)
        else:
            self.run(tree, resume, overwrite, quiet)

    def verb_flags(self) -> list[Flag]:
        """Return the flags of data and encoders, and the few of training."""
        out = Flag(("out",), "FOLDER", "The run's folder; by default runs/<source>-check.", None, "Options")
        return [out, *(flag for flag in plain_flags() if flag.section != "Training" or flag.path[0] in OF_CHECK)]

    def take_choices(self, words: Sequence[str]) -> Choices:
        """Return what every check takes."""
        return choices_of(["--method", "linear"])

    def run_options(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Return the tree of options of a run that trains nothing."""
        from pairsift.match.two_tower import LINEAR
        from pairsift.runs.config import check_folder

        if "source" in tree:
            tree.setdefault("out", str(check_folder(tree["source"])))
        return {**tree, "method": "linear", "two_tower": LINEAR.model_dump()}


def _print_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        command = ctx.command
        assert isinstance(command, FitCommand)
        command.all_shown = True
        click.echo(command.get_help(ctx))
        ctx.exit()


def choices_of(words: Sequence[str]) -> Choices:
    """Return the method, the matcher, the loss and the preset that these words choose.

    Raises:
        InputError: A name is unknown.
    """
    from pairsift.runs.config import Choices, in_groups, put_over, read_yaml

    options, _ = split_words(words, ())
    file = options.get("--config")
    file_options: Mapping[str, Any] = read_yaml(Path(file)) if file else {}
    names = {name: options.get(f"--{name}", file_options.get(name)) for name in ("method", "matcher", "loss", "preset")}
    method = str(names["method"]) if names["method"] else None
    tree = put_over(file_options, in_groups({name.removeprefix("--"): value for name, value in options.items()}))
    loss = None if names["loss"] is None else str(names["loss"])
    return Choices.make(method, str(names["matcher"] or MATCHER), loss, names["preset"], tree)


def part_flags(choices: Choices) -> list[Flag]:
    """Return the flags of the method, the matcher and the loss."""
    losses = choices.preset.losses.get(choices.loss.name)
    name = choices.method.name
    return [
        *flags_of(choices.method, f"Method {name}", (name,), choices.preset.method),
        *flags_of(choices.matcher.options, f"Matcher {choices.matcher.name}", (choices.matcher.name,)),
        *flags_of(choices.loss, f"Loss {choices.loss.name}", (choices.loss.name,), losses),
    ]


def split_words(words: Sequence[str], switches: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command line into options with their values, and the other words.

    Args:
        words: A command line without the verb.
        switches: Options that take no value.
    """
    options: dict[str, str] = {}
    rest: list[str] = []
    for before, word in pairwise(["", *words]):
        name, _, value = word.partition("=")
        if word.startswith("--"):
            options[name] = value
        elif before.startswith("--") and "=" not in before and before not in switches:
            options[before] = word
        else:
            rest.append(word)
    return options, rest
