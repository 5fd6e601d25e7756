"""The command line: verbs over the Python interface. Each verb imports what it needs when it is called."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pairsift.api.folder import demand_finished
from pairsift.errors import InputError

KEYS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb.

    Args:
        arguments: The command line without the program's name; default: that of the process.

    Returns:
        0, or 2 where the input or an option cannot be used.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    warnings.filterwarnings("ignore", module=r"PIL\.")  # what is wrong with an image is told where it is skipped
    try:
        if words[0] == "--version":
            from importlib.metadata import version

            print(f"pairsift {version('pairsift')}")
        elif words[0] not in VERBS:
            raise InputError(f"there is no verb {words[0]!r}; choose from {', '.join(VERBS)}")
        else:
            VERBS[words[0]](words[1:])
    except InputError as error:
        print(f"pairsift: {error}", file=sys.stderr)
        return 2
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
    return 0


def _usage() -> str:
    lines = [f"  {name:19}{(verb.__doc__ or '').splitlines()[0]}" for name, verb in VERBS.items()]
    return "\n".join(["usage: pairsift VERB ...", "", *lines, "", "`pairsift VERB --help` tells a verb's options."])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def _parser(verb: str, about: str) -> _Parser:
    return _Parser(prog=f"pairsift {verb}", description=about)


def _add_quiet(parser: _Parser, does: str = "print nothing but errors") -> None:
    parser.add_argument("--quiet", action="store_true", help=does)


def fit(words: Sequence[str]) -> None:
    """Train on a source of pairs, judge them, leave a run's folder."""
    from pairsift.api.early import check_words

    check_words(words)
    from pairsift.api.config import Config
    from pairsift.api.fit import fit_config, out_folder
    from pairsift.api.folder import CONFIG

    config = Config.parse(words)
    try:
        run = fit_config(config, progress=not config["quiet"])
    except KeyboardInterrupt:
        if not (out_folder(config) / CONFIG).exists():
            raise
        raise KeyboardInterrupt("repeat the command with --resume to go on where it stopped") from None
    if not config["quiet"]:
        _summary(run.folder, run.metrics)


def demo(words: Sequence[str]) -> None:
    """Make captioned scenes, plant 40% noise, train, and show what was found."""
    from pairsift.api.fit import fit as fit_source
    from pairsift.pairs import write_scenes

    parser = _parser("demo", demo.__doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of the run (default: %(default)s)")
    parser.add_argument("--images", type=int, default=1600, help="number of scenes (default: %(default)s)")
    parser.add_argument("--noise", type=float, default=0.4, help="share of mismatched pairs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of scenes and noise (default: %(default)s)")
    _add_quiet(parser)
    chosen = parser.parse_args(words)
    if not 0 <= chosen.noise <= 1:
        raise InputError(f"--noise is {chosen.noise:g}; it must lie in 0 to 1")
    scenes = chosen.out.with_name(chosen.out.name + "-scenes")
    write_scenes(scenes, chosen.images, chosen.seed)
    if not chosen.quiet:
        print(f"drew {chosen.images} scenes into {scenes}")
    options = {"out": str(chosen.out), "noise": chosen.noise, "noise_seed": chosen.seed, "overwrite": True}
    run = fit_source(scenes, options, progress=not chosen.quiet)
    if not chosen.quiet:
        _summary(run.folder, run.metrics)


def import_checkpoint(words: Sequence[str]) -> None:
    """Make a run of published checkpoints of SGRAF, NCR, PC2, GSC, DECL or BiCro."""
    from pairsift.api.importing import import_checkpoint as run_import

    about = (
        f"{import_checkpoint.__doc__} Nothing in a file is run. Several files are one ensemble; SGR and SAF together "
        "make SGRAF. Then `pairsift evaluate RUN` gives the recall."
    )
    parser = _parser("import-checkpoint", about)
    parser.add_argument("file", nargs="+", help="a checkpoint, such as model_best.pth.tar")
    parser.add_argument("--data", required=True, help="the folder of precomputed features that goes with it")
    parser.add_argument("--out", required=True, help="the run's folder")
    parser.add_argument("--vocabulary", help="the published vocabulary; by default the one found beside the data")
    parser.add_argument(
        "--noise-index", help="a published .npy file of image indices, so that an audit knows the truth"
    )
    parser.add_argument("--cache", help="folder of the feature cache; by default in the user's cache folder")
    parser.add_argument("--overwrite", action="store_true", help="replace a run in the folder")
    _add_quiet(parser)
    chosen = vars(parser.parse_args(words))
    quiet = chosen.pop("quiet")
    run = run_import(chosen.pop("file"), chosen.pop("data"), chosen.pop("out"), chosen, progress=not quiet)
    if quiet:
        return
    for one in run.metrics["imported"]:
        said = {"epoch": one["epoch"], "best rSum": one["best_rsum"]}
        told = ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
        print(f"{one['file']}: {one['matcher']}" + (f" ({told}, as it says itself)" if told else ""))
    networks, matcher = run.config.method().networks, run.config["matcher"]
    print(
        f"{networks} network{'s' * (networks > 1)} of {matcher} in {run.folder}; next: pairsift evaluate {run.folder}"
    )


def evaluate(words: Sequence[str]) -> None:
    """Print a run's recall."""
    parser = _parser("evaluate", evaluate.__doc__ or "")
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("--source", help="where the run's data lies now, if it has moved")
    parser.add_argument("--split", default="test", help="train, dev or test (default: %(default)s)")
    parser.add_argument("--folds", type=int, default=1, help="rank within this many parts (5 for COCO-1K)")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    _add_quiet(parser, "show no progress")
    chosen = parser.parse_args(words)
    demand_finished(Path(chosen.run))
    from pairsift.api.run import Run

    recall = Run(chosen.run, source=chosen.source, progress=not chosen.quiet).evaluate(chosen.split, chosen.folds)
    print(_recall({chosen.split: recall}))
    if chosen.json:
        chosen.json.write_text(json.dumps({chosen.split: recall}, indent=2) + "\n")


def audit(words: Sequence[str]) -> None:
    """Judge a run's pairs again; write its table and its report."""
    parser = _parser("audit", audit.__doc__ or "")
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("--source", help="where the run's data lies now, if it has moved")
    parser.add_argument("--worst", type=int, default=10, help="how many pairs to print (default: %(default)s)")
    _add_quiet(parser)
    chosen = parser.parse_args(words)
    demand_finished(Path(chosen.run))
    from pairsift.api.run import Run

    run = Run(chosen.run, source=chosen.source, progress=not chosen.quiet)
    table = run.audit()
    if chosen.quiet:
        return
    for row in table.slice(0, chosen.worst).to_pylist():
        print(f"{row['mismatch_score']:.3f}  {row['image']}\n       given: {row['given_caption']}")
        if row["suggested_caption"] is not None:
            print(f"       fits:  {row['suggested_caption']} (pair {row['suggested_from_pair']})")
    _summary(run.folder, run.metrics)


def search(words: Sequence[str]) -> None:
    """Find a run's images by a text."""
    parser = _parser("search", search.__doc__ or "")
    parser.add_argument("run", help="a run's folder")
    parser.add_argument("--source", help="where the run's data lies now, if it has moved")
    parser.add_argument("query", help="what to look for")
    parser.add_argument("-k", type=int, default=10, help="how many images (default: %(default)s)")
    chosen = parser.parse_args(words)
    folder = Path(chosen.run)
    demand_finished(folder)
    from pairsift.api.search import Search

    kept = Search.open(folder, chosen.source)
    if kept is None:
        from pairsift.api.run import Run

        found = Run(folder, source=chosen.source).search(chosen.query, chosen.k)
    else:
        found = kept.find(chosen.query, chosen.k)
    for path, score in found:
        print(f"{score:.3f}  {path}")


def show(words: Sequence[str]) -> None:
    """Name the methods, matchers, losses, encoders or readers there are."""
    parser = _parser("list", show.__doc__ or "")
    parser.add_argument("what", nargs="?", help="methods, matchers, losses, encoders or readers")
    chosen = parser.parse_args(words)
    found = {name: lines for name, lines in _catalogue().items() if name.endswith(chosen.what or "")}
    if not found:
        raise InputError(f"{chosen.what!r} are not listed; choose from methods, matchers, losses, encoders, readers")
    for name, lines in found.items():
        print(name)
        for entry, about in lines.items():
            print(f"  {entry:24}{about}")


def _catalogue() -> dict[str, dict[str, str]]:
    from pairsift.encode import image_encoders, text_encoders
    from pairsift.loss.ranking import RANKING_LOSSES
    from pairsift.match import MATCHERS
    from pairsift.methods import METHODS
    from pairsift.pairs import READERS

    def first(thing: object) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    return {
        "methods": {name: ". ".join(filter(None, (m.summary, m.citation))) for name, m in METHODS.items()},
        "matchers": {name: first(matcher) for name, matcher in MATCHERS.items()},
        "losses": {name: first(loss) for name, loss in RANKING_LOSSES.items()},
        "image encoders": image_encoders(),
        "text encoders": text_encoders(),
        "readers": {name: first(reader) for name, reader in READERS.items()},
    }


def _recall(splits: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A table of recall."""
    rows = [f"{'':20}" + "".join(f"{key.replace('_r', ' R@'):>9}" for key in KEYS)]
    for split, views in splits.items():
        for view, recall in views.items():
            rows.append(f"{split + ' ' + view:20}" + "".join(f"{recall[key]:9.1f}" for key in KEYS))
    return "\n".join(rows)


def _summary(folder: Path, metrics: Mapping[str, object]) -> None:
    """What a run found, for a person."""
    print(_recall({name: metrics[name] for name in ("test", "dev") if name in metrics}))  # type: ignore[misc]
    rate: Mapping[str, float | None] = metrics["noise_rate"]  # type: ignore[assignment]
    print(f"\nestimated share of mismatched training pairs: {_rate(rate)}")
    found: Mapping[str, float] | None = metrics.get("detection")  # type: ignore[assignment]
    if found and found["auroc"] is not None:
        right = (
            f", {found['precision']:.1%} of them rightly, {found['recall']:.1%} of all found"
            if found["flagged"]
            else ""
        )
        print(f"mismatched training pairs: {found['flagged']} flagged{right}, AUROC {found['auroc']:.4f}")
    if kinds := metrics.get("verdicts"):
        print(f"kinds of mismatch, all splits: {', '.join(f'{n} {name}' for name, n in kinds.items())}")  # type: ignore[attr-defined]
    for warning in metrics.get("warnings", ()):  # type: ignore[attr-defined]
        print(f"warning: {warning}")
    print(f"table of suspects: {folder / 'issues.csv'}\nreport: {folder / 'report.html'}")


def _rate(rate: Mapping[str, float | None]) -> str:
    """An estimate with its interval, and the truth where it is known."""
    if rate["estimated"] is None:
        return "there are too few pairs, or too little evidence, to tell"
    ends = f" ({rate['low']:.0%} to {rate['high']:.0%})" if rate.get("low") is not None else ""
    known = f", true: {rate['true']:.1%}" if rate.get("true") is not None else ""
    return f"{rate['estimated']:.1%}{ends}{known}"


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "fit": fit,
    "import-checkpoint": import_checkpoint,
    "evaluate": evaluate,
    "audit": audit,
    "search": search,
    "list": show,
}

if __name__ == "__main__":
    sys.exit(main())
