"""The verb `fit`: its options depend on the method, the matcher and the loss that a command names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairsift.cli.flags import Flag, flags_of, tree_of
from pairsift.encode.options import EncodeOptions
from pairsift.errors import InputError, similar
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHER, MATCHERS
from pairsift.methods import METHOD, METHODS
from pairsift.pairs.options import DataOptions
from pairsift.runs.early import check_source
from pairsift.train.options import TrainOptions

if TYPE_CHECKING:
    from pairsift.runs.config import Choices

FIRST = ("image_column", "caption_column", "image_folder", "noise", "text_encoder", "seed")  # shown by --help
ABOUT = """Train on image-caption pairs of which some may be mismatched, and say which.

SOURCE is a CSV, TSV, JSON, JSON-lines or Parquet file, or a folder.
"""


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
            "What to do with pairs of little trust (pairsift list methods).",
            METHOD,
            list(METHODS),
        ),
        flag("matcher", "NAME", "Kind of matcher (pairsift list matchers).", MATCHER, list(MATCHERS)),
        flag("epochs", "N", "Epochs in all: scales the method's phases, each of which keeps at least one."),
        flag("loss", "NAME", "Ranking loss; by default the preset's.", None, list(RANKING_LOSSES)),
        flag("preset", "NAME", "Preset of the method; by default the matcher's own."),
        flag("config", "FILE", "A YAML file of these options, such as a run's config.yaml."),
    ]


def plain_flags() -> list[Flag]:
    """Return the flags of what is read, encoded and trained on, which every run has."""
    return [
        *flags_of(DataOptions, "Data"),
        *flags_of(EncodeOptions, "Encoders"),
        *flags_of(TrainOptions, "Training"),
    ]


def switches() -> list[click.Parameter]:
    """Return the flags without a value."""
    return [
        click.Option(["--resume"], is_flag=True, help="Go on with an unfinished run in the folder."),
        click.Option(["--overwrite"], is_flag=True, help="Replace a run in the folder."),
        click.Option(["--quiet"], is_flag=True, help="Print nothing but errors."),
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
    """`fit`, whose options are completed when its words are known.

    Args:
        run: What is done with the tree of options, resume, overwrite and quiet.
    """

    def __init__(self, run: Callable[[dict[str, Any], bool, bool, bool], None]) -> None:
        source = click.Argument(["source"], required=False)
        params = [source, *choice_flags(), *plain_flags(), *switches()]
        super().__init__("fit", params=params, callback=self._callback, help=ABOUT, no_args_is_help=True)
        self.run = run
        self.all_shown = False

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Refuse what is wrong at first sight, then take the options of the chosen parts."""
        helping = "--help" in args or not args
        if not extra.get("resilient_parsing") and not helping and "--help-all" not in args:
            self._check(args)
        if helping:
            return super().make_context(info_name, args, parent, **extra)
        chosen = choices_of(args)
        common = [param for param in self.params if getattr(param, "section", "") != "Training"]
        training = flags_of(TrainOptions, "Training", (), chosen.preset.train)
        self.params = [*common, *training, *part_flags(chosen)]
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            raise InputError(self._unknown(error, chosen)) from None

    def _unknown(self, error: click.NoSuchOption, chosen: Choices) -> str:
        """Return what to say of an option of no chosen part."""
        from pairsift.runs.config import unknown_option

        last = error.option_name.rpartition(".")[2]
        leaves = {flag.opts[0].rpartition(".")[2]: flag.opts[0] for flag in self.params if "." in flag.opts[0]}
        near = [leaves[leaf] for leaf in get_close_matches(last, leaves, 1)]
        near = near if near and near[0].partition(".")[0] == error.option_name.partition(".")[0] else []
        if near := [*near, *(error.possibilities or ())]:
            return f"there is no option {error.option_name}: did you mean {near[0]}?"
        return unknown_option(error.option_name.removeprefix("--").replace("-", "_"), chosen)

    def _check(self, words: Sequence[str]) -> None:
        """Refuse an option without a dot that is not known, or a source or column that is not there."""
        known = [name for param in self.params for name in param.opts if name.startswith("--")]
        given, sources = words_of(
            words, [name for param in self.params if getattr(param, "is_flag", False) for name in param.opts]
        )
        for name in given:
            if "." not in name and name not in (*known, "--help"):
                raise InputError(
                    f"there is no option {name}: {similar(name, known, 'see `pairsift fit --help-all`', 0.75)}"
                )
        if len(sources) > 1:
            raise InputError(f"one source is taken, and {sources[1]!r} comes after it")
        if sources:
            check_source(Path(sources[0]), given)

    def _callback(self, source: str | None, resume: bool, overwrite: bool, quiet: bool, **values: Any) -> None:
        tree = tree_of([param for param in self.params if isinstance(param, Flag)], values)
        config = tree.pop("config", None)
        lengths = [f"--{name}.epochs" for name, value in tree.items() if isinstance(value, dict) and "epochs" in value]
        if "epochs" in tree and lengths:
            raise InputError(f"--epochs scales all phases, and {lengths[0]} sets one: give one of the two")
        if source is not None:
            tree["source"] = source
        if config is not None:
            from pairsift.runs.config import put_over, read_yaml

            tree = put_over(read_yaml(Path(config)), tree)
        self.run(tree, resume, overwrite, quiet)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that matter first; with `--help-all` all of them, by heading."""
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
            formatter.write_text(f"--help-all shows {hidden} more, and those of the method, the matcher and the loss.")


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
    from pairsift.runs.config import Choices, read_yaml

    given, _ = words_of(words, ())
    file = given.get("--config")
    below: Mapping[str, Any] = read_yaml(Path(file)) if file else {}
    names = {name: given.get(f"--{name}", below.get(name)) for name in ("method", "matcher", "loss", "preset")}
    method, matcher = str(names["method"] or METHOD), str(names["matcher"] or MATCHER)
    return Choices.make(method, matcher, names["loss"], names["preset"])


def part_flags(chosen: Choices) -> list[Flag]:
    """Return the flags of the method, the matcher and the loss."""
    losses = chosen.preset.losses.get(chosen.loss.name)
    name = chosen.method.name
    return [
        *flags_of(chosen.method, f"Method {name}", (name,), chosen.preset.method),
        *flags_of(chosen.matcher.options, f"Matcher {chosen.matcher.name}", (chosen.matcher.name,)),
        *flags_of(chosen.loss, f"Loss {chosen.loss.name}", (chosen.loss.name,), losses),
    ]


def words_of(words: Sequence[str], switches: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return options with their values, and the words that are neither.

    Args:
        words: A command line without the verb.
        switches: Options that take no value.
    """
    given: dict[str, str] = {}
    rest: list[str] = []
    for before, word in pairwise(["", *words]):
        name, _, value = word.partition("=")
        if word.startswith("--"):
            given[name] = value
        elif before.startswith("--") and "=" not in before and before not in switches:
            given[before] = word
        else:
            rest.append(word)
    return given, rest
