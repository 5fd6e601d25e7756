"""The verbs. Each imports what it needs when it is called."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairsift.cli.shared import OVERWRITE, QUIET, RUN, SOURCE, in_words
from pairsift.cores import rank_and_count
from pairsift.errors import InputError, ToldElsewhereError, similar
from pairsift.files import write_json

if TYPE_CHECKING:
    from pairsift.registry import Registry
    from pairsift.runs.fit import Resume

VERBS = (  # the most needed first; a verb that is not in this file is in the file of its name
    *("demo", "check", "fit", "evaluate", "audit", "serve", "decide", "spot-check", "export", "score", "encode"),
    *("compare", "bench", "search", "list", "import-checkpoint"),
)
COMPLETION = "_PAIRSIFT_COMPLETE"  # set by the shell that asks for completions
EXAMPLES = """Examples:

\b
  pairsift demo
  pairsift check pairs.csv
  pairsift serve runs/pairs-check
"""


class Verbs(click.Group):
    """The group of the verbs, whose files are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs, the most needed first."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb."""
        if cmd_name in ("fit", "check"):
            from pairsift.cli.fit import CheckCommand, FitCommand

            return FitCommand(_fit) if cmd_name == "fit" else CheckCommand(_fit, _check_share)
        if cmd_name in VERBS and cmd_name not in self.commands:
            name = cmd_name.replace("-", "_")
            self.add_command(getattr(import_module(f"pairsift.cli.{name}"), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that a command line begins with.

        Raises:
            InputError: There is no such verb.
        """
        if args and args[0] not in VERBS and not ctx.resilient_parsing:
            raise InputError(f"there is no command {args[0]!r}; {similar(args[0], VERBS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, epilog=EXAMPLES, no_args_is_help=True, context_settings={"max_content_width": 110})
@click.version_option(package_name="pairsift", prog_name="pairsift", message="%(prog)s %(version)s")
def verbs() -> None:
    """Train image-text retrieval that survives mismatched captions, and find those captions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb.

    Args:
        arguments: The command line without the program's name; by default the arguments of the process.

    Returns:
        0; 2 where the input or an option cannot be used, or a file cannot be read or written; 130 where the user
        stopped the command.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    warnings.filterwarnings("ignore", module=r"PIL\.")  # an image that cannot be read is reported where it is skipped
    try:
        return _run(words)
    except ToldElsewhereError:
        pass
    except (InputError, click.ClickException) as error:
        print(f"pairsift: {_line(error)}", file=sys.stderr)
    except KeyboardInterrupt as stop:
        print("pairsift: stopped" + "".join(f"; {remedy}" for remedy in stop.args), file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        print(f"pairsift: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def _run(words: list[str]) -> int:
    """Run a verb and return the exit code.

    The `main` of `click` is not used for this, because it hides the message of a KeyboardInterrupt.
    """
    if COMPLETION in os.environ:
        verbs.main(words, "pairsift", complete_var=COMPLETION)
    try:
        with verbs.make_context("pairsift", words) as context:
            verbs.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _line(error: InputError | click.ClickException) -> str:
    """Return the message of an error as one line."""
    if isinstance(error, click.NoSuchOption):
        hint = similar(error.option_name, error.possibilities or [], "see --help")
        return f"there is no option {error.option_name}: {hint}"
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return " ".join(message.split())


def _fit(tree: dict[str, Any], resume: Resume, overwrite: bool, quiet: bool) -> None:
    from pairsift.cli.summary import print_summary
    from pairsift.run_folder import holds_run
    from pairsift.runs.config import from_tree
    from pairsift.runs.fit import fit_config

    config = from_tree(tree)
    try:
        run = fit_config(config, resume, overwrite, progress=not quiet)
    except KeyboardInterrupt:
        if not holds_run(config.folder):
            raise
        raise KeyboardInterrupt("repeat the command with --resume to continue the run") from None
    if not quiet and rank_and_count()[0] == 0:
        print_summary(run.folder, run.metrics, run.suspects().slice(0, 3).to_pylist())


def _check_share(tree: dict[str, Any], shard: str | None, ray: str | None, quiet: bool) -> None:
    """Work on a part of a check, of which other processes do the rest."""
    from pairsift.cli.summary import print_summary
    from pairsift.run_folder import read_metrics
    from pairsift.runs.config import from_tree
    from pairsift.runs.prepare import require_possible
    from pairsift.runs.vector_check import check_share
    from pairsift.sharding.engines import engine_of
    from pairsift.sharding.parts import Share
    from pairsift.table import read_pairs

    config = from_tree(tree)
    require_possible(config)
    share = Share() if shard is None else Share.parse(shard)
    if check_share(config, share, engine_of(ray), shown=not quiet) and not quiet:
        print_summary(config.folder, read_metrics(config.folder), read_pairs(config.folder).slice(0, 3).to_pylist())


@verbs.command()
@click.option("--out", type=Path, default=Path("runs/demo"), show_default=True, help="The run's folder.")
@click.option("--images", type=click.IntRange(1), default=1600, show_default=True, help="Number of scenes.")
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    default=0.4,
    show_default=True,
    help="Share of training captions with planted noise.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of scenes and noise.")
@QUIET
def demo(out: Path, images: int, noise: float, seed: int, quiet: bool) -> None:
    """Draw captioned scenes, plant noise in 40% of the training captions, and show how much of it `check` finds."""
    from pairsift.cli.summary import print_summary
    from pairsift.marker import read_marker, require_own, write_marker
    from pairsift.pairs.options import DataOptions
    from pairsift.run_folder import holds_run, source_of
    from pairsift.runs.fit import check
    from pairsift.scenes import write_scenes

    scenes = out.with_name(out.name + "-scenes")
    require_own(out, "run")
    require_own(scenes, "scenes")
    if holds_run(out) and Path(source_of(out)) != scenes.resolve():
        raise InputError(f"{out} holds a run on {source_of(out)}: give another --out")
    if read_marker(scenes) is None:
        scenes.mkdir(parents=True, exist_ok=True)
        write_marker(scenes, "scenes")
    table = scenes / "captions.csv"
    before = table.read_bytes() if table.exists() else b""
    write_scenes(scenes, images, seed)
    if before not in (b"", table.read_bytes()):  # somebody mended captions there, or asked for other scenes
        table.with_name("captions-before.csv").write_bytes(before)
    if not quiet:
        print(f"drew {images} scenes into {scenes}")
    data = DataOptions(noise=noise, noise_seed=seed)
    run = check(scenes, data=data, out=out, overwrite=True, progress=not quiet)
    if not quiet:
        print_summary(run.folder, run.metrics, run.suspects().slice(0, 3).to_pylist())


@verbs.command("import-checkpoint")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--data",
    required=True,
    help="The precomputed features of the checkpoint; for checkpoints of NPC, images and captions.",
)
@click.option("--out", required=True, help="The run's folder.")
@click.option("--vocabulary", help="The published vocabulary; by default the vocabulary beside the data.")
@click.option("--noise-index", help="A published .npy file of image indices, so that an audit knows the truth.")
@click.option(
    "--clip.checkpoint",
    "clip",
    metavar="FOLDER",
    help="For checkpoints of NPC: the CLIP that training started from, in the layout of transformers.",
)
@click.option("--cache", help="Folder of the feature cache; by default in the user's cache folder.")
@OVERWRITE
@QUIET
def import_checkpoint(
    files: tuple[str, ...],
    data: str,
    out: str,
    clip: str | None,
    overwrite: bool,
    quiet: bool,
    **named: str | None,
) -> None:
    """Make a run from published checkpoints of SGRAF, SCAN, VSRN, VSE-infinity, IMRAM or NPC.

    Those of NCR, PC2, GSC, DECL and BiCro are SGRAF's. No code in a file is run. Several files are one ensemble; SGR
    and SAF together make SGRAF. Then `pairsift evaluate RUN` gives the recall.
    """
    from pairsift.checkpoints.importing import import_checkpoint as run_import

    options = {**named, "clip": None if clip is None else {"checkpoint": clip}}
    run = run_import(files, data, out, options, overwrite, progress=not quiet)
    if quiet:
        return
    for file in run.metrics["imported"]:
        facts = {"epoch": file["epoch"], "best rSum": file["best_rsum"]}
        words = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        print(f"{file['file']}: {file['matcher']}" + (f" ({words}, as stated in the file)" if words else ""))
    networks, matcher = run.config.method.networks, run.config.matcher.name
    print(f"{in_words(networks, 'network')} of {matcher} in {run.folder}; next: pairsift evaluate {run.folder}")


@verbs.command()
@RUN
@SOURCE
@click.option("--split", default="test", show_default=True, help="train, dev or test.")
@click.option("--folds", type=int, default=1, show_default=True, help="Rank within this many parts (5 for COCO-1K).")
@click.option(
    "--answers",
    type=Path,
    nargs=2,
    help="Two JSON files with the ids of the right captions of each image, and of the right images of each caption "
    "(eccv_image_to_caption.json eccv_caption_to_image.json).",
)
@click.option("--json", "file", type=Path, help="Also write the numbers to this file.")
@QUIET
def evaluate(
    run: Path,
    source: str | None,
    split: str,
    folds: int,
    answers: tuple[Path, Path] | None,
    file: Path | None,
    quiet: bool,
) -> None:
    """Print a run's recall, median rank, mAP@R and R-precision."""
    from pairsift.cli.summary import MORE, recall_table
    from pairsift.retrieve import Answers
    from pairsift.runs.run import Run

    given = Answers.read(*answers) if answers else None
    opened = Run(run, source=source, progress=not quiet)
    if given is not None:
        found, notes, content = opened.evaluate(split, folds, given), [], {}
    else:
        recall = opened.recall(split, folds)
        found, notes, content = recall.views, recall.notes, {"strict": {split: recall.strict}}
    print(recall_table({split: found}), recall_table({split: found}, MORE), *notes, sep="\n\n")
    if file:
        write_json(file, {split: found, **content})


@verbs.command()
@RUN
@SOURCE
@click.option("--worst", type=int, default=10, show_default=True, help="Number of pairs to print.")
@QUIET
def audit(run: Path, source: str | None, worst: int, quiet: bool) -> None:
    """Judge a run's pairs again, and write its table and its report."""
    from pairsift.cli.summary import print_summary
    from pairsift.runs.run import Run

    opened = Run(run, source=source, progress=not quiet)
    table = opened.audit()
    if quiet:
        return
    if lapsed := opened.metrics.get("lapsed_decisions"):
        print(f"cleared {in_words(lapsed, 'decision')} on captions that have changed since")
    for row in table.slice(0, worst).to_pylist():
        print(f"{row['match_probability']:.3f}  {row['image']}\n       given: {row['given_caption']}")
        if row["suggested_caption"] is not None:
            print(f"       fits:  {row['suggested_caption']} (pair {row['suggested_from_pair']})")
    print_summary(opened.folder, opened.metrics)


@verbs.command("list")
@click.argument("what", required=False)
def list_(what: str | None) -> None:
    """List the available methods, matchers, losses, encoders or readers."""
    registries = _registries()
    chosen = {name: registry for name, registry in registries.items() if name.endswith(what or "")}
    if not chosen:
        raise InputError(f"there is no list of {what!r}; {similar(what or '', list(registries))}")
    for name, registry in chosen.items():
        print(name)
        for entry, summary in registry.summaries().items():
            print(f"  {entry:24}{summary}")


def _registries() -> dict[str, Registry[Any]]:
    from pairsift.encode.hub_names import HUB_MODELS
    from pairsift.encode.registry import IMAGE_ENCODERS, TEXT_ENCODERS
    from pairsift.loss import RANKING_LOSSES
    from pairsift.match import MATCHERS
    from pairsift.methods import METHODS
    from pairsift.pairs import READERS
    from pairsift.registry import Registry

    return {
        "methods": METHODS,
        "matchers": MATCHERS,
        "losses": RANKING_LOSSES,
        "image encoders": IMAGE_ENCODERS,
        "text encoders": TEXT_ENCODERS,
        "hub encoders": Registry("hub encoder", {name: model.summary() for name, model in HUB_MODELS.items()}),
        "readers": READERS,
    }
