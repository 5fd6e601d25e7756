"""Commands that are killed at random moments: what a repeated command ends with, and what the killed one left behind.

A process is killed (SIGKILL) a random time after its start, up to what it takes undisturbed, or right before a random
one of the files that it opens, renames or removes; the second kind of moment is rare in time. The command is then
repeated, with `--resume` where the folder holds a run, until it ends; it may be killed twice on its way. `same` counts
the kills after which it ended with the tables, weights and files of a command that was not killed, and `in time` the
kills at a random time. `left` counts the temporary files that were there afterwards, and locks that no other process
can take. `in cache` counts those in the cache, where the lock of a killed process and a part of a file that it wrote
are in nobody's way.

    python benchmarks/hard_knocks.py --json benchmarks/results/hard_knocks.json
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

from pairsift.cli import main as pairsift
from pairsift.encode import ngrams
from pairsift.errors import InputError
from pairsift.files import in_turn, only_writer
from pairsift.run_folder import holds_run
from pairsift.runs import scoring
from pairsift.scenes import write_scenes
from rows import Row, markdown, page, parser, write_rows

KILLS = {"encoding": 17, "judging": 17, "training": 17, "scoring": 17, "export": 16, "decisions": 16}
LIGHT = {  # as in the tests of runs: what is computed does not matter here
    "folds": {"averaged_pairs": 1, "folds": 3, "inner_folds": 2},
    "linear": {"max_width": 96},
    "calibration": {"resamples": 12, "halvings": 4},
}
LINEAR = {"method": "linear", "two_tower": {"dim": 128, "depth": 0}}  # what `check` fits
TRAINING = (
    "--checkpoint-minutes=0.001",
    "--method=pc2",
    "--pc2.epochs.warmup=1",
    "--pc2.epochs.clean=2",
    "--pc2.epochs.all=1",
    "--batch-size=64",
)
EXPORTS = ("clean.csv", "clean.parquet", "clean.json", "clean-shards", "clean.txt", "clean")
OF_PROCESS = ("seconds", "peak_memory_gb", "pairs_per_second")  # facts of a process and not of its work
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "sqlite3.connect")
WAIT = 300.0  # seconds after which a command counts as hanging


@dataclass
class Verb:
    """A command that is killed.

    Attributes:
        name: What it does.
        words: The command line, given the place.
        found: What is compared afterwards, given the place.
        before: What a place needs before the command.
        resumes: Whether the command is repeated with `--resume`.
        seconds: What it takes undisturbed.
        events: How many files it opens for writing, renames and removes.
    """

    name: str
    words: Callable[[Path], list[str]]
    found: Callable[[Path], dict[str, object]]
    before: Callable[[Path], object]
    resumes: bool = False
    seconds: float = 0.0
    events: int = 0
    wanted: dict[str, object] = field(default_factory=dict)


def main() -> None:
    options = parser(__doc__, "hard_knocks.json")
    options.add_argument("--share", type=float, default=1.0, help="Share of the 100 kills.")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--verbs", nargs="*", default=[*KILLS])
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        verbs = make_verbs(Path(place))
        rows = []
        for name in chosen.verbs:
            rows.append(knocked(verbs[name], Path(place), round(KILLS[name] * chosen.share), chosen.seed))
            print(json.dumps(rows[-1]), flush=True)
    write_rows(chosen.json, rows, {"seed": chosen.seed, "kills": sum(row["kills"] for row in rows)})
    told = "\n".join(f"- {line}" for row in rows for line in row["trouble"])
    chosen.json.with_suffix(".md").write_text(page(__doc__, "\n\n".join(filter(None, (table(rows), told)))))
    print(table(rows))
    sys.exit(any(row["same"] < row["kills"] or row["left"] for row in rows))


def make_verbs(base: Path, scenes: int = 60, names: Collection[str] = tuple(KILLS)) -> dict[str, Any]:
    """Make a source, new pairs and a finished run, and return the commands over them, measured where they are named."""
    source, new = one_caption_each(base / "source", scenes, 5), one_caption_each(base / "new", 60, 77)
    (base / "check.yaml").write_text(json.dumps({"detect": LIGHT, **LINEAR}))
    (base / "fit.yaml").write_text(json.dumps({"detect": LIGHT}))

    def words(place: Path, config: str) -> list[str]:
        paths = [f"--config={base / config}", f"--out={place / 'run'}", f"--cache={place / 'cache'}"]
        return ["fit", str(source), *paths, "--threads=1", "--device=cpu", "--noise=0.4", "--quiet"]

    def check(place: Path) -> list[str]:
        return words(place, "check.yaml")

    def fit(place: Path) -> list[str]:
        return [*words(place, "fit.yaml"), *TRAINING]

    run = base / "made"
    ngrams.MAX_DIM = 48  # short vectors, as in the tests of runs
    assert pairsift(check(run)) == 0  # in this process, whose children share what it has imported and loaded
    shutil.copytree(run / "cache", base / "encoded", ignore=shutil.ignore_patterns("judgement-*"))

    def encoded(place: Path) -> None:
        shutil.copytree(base / "encoded", place / "cache")

    def copied(place: Path) -> None:
        shutil.copytree(run / "run", place / "run")

    def scored(place: Path) -> list[str]:
        return ["score", str(run / "run"), str(new), "--out", str(place / "scored.parquet")]

    def dropped(place: Path) -> list[str]:
        return ["decide", str(place / "run"), "--drop-below=0.6", "--reviewer=me", "--quiet"]

    verbs = [
        Verb("encoding", check, _of_run, lambda _: None, resumes=True),
        Verb("judging", check, _of_run, encoded, resumes=True),
        Verb("training", fit, _of_run, encoded, resumes=True),
        Verb("scoring", scored, tables, lambda _: None),
        Verb("decisions", dropped, lambda place: decided(place / "run"), copied),
    ]
    exports = [
        Verb(
            f"export {name}",
            lambda place, name=name: ["export", str(run / "run"), "--out", str(place / name), "--drop-below=0.5"],
            lambda place: {str(file.relative_to(place)): file.read_bytes() for file in files_of(place)},
            lambda _: None,
        )
        for name in EXPORTS
    ]
    for verb in [*verbs, *exports]:
        if verb.name.partition(" ")[0] in names:
            _measure(verb, base / "undisturbed" / verb.name)
    return {verb.name: verb for verb in verbs} | {"export": exports}  # type: ignore[dict-item]


def one_caption_each(folder: Path, scenes: int, seed: int) -> Path:
    """A table of drawn scenes, each with its first caption."""
    write_scenes(folder / "scenes", scenes, seed)
    with (folder / "scenes" / "captions.csv").open(newline="", encoding="utf-8") as stream:
        rows = {row["image"]: row["caption"] for row in reversed([*csv.DictReader(stream)])}
    with (folder / "mine.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "caption"])
        writer.writerows((f"scenes/images/{name}", caption) for name, caption in rows.items())
        writer.writerow(["missing.jpg", "a record that is skipped"])
    return folder / "mine.csv"


def _measure(verb: Verb, place: Path) -> None:
    """Run a command undisturbed, and note what it takes, the files that it touches, and what it ends with."""
    place.mkdir(parents=True)
    verb.before(place)
    began = time.monotonic()
    reading, writing = os.pipe()
    ended(forked(verb.words(place), counting=writing))
    verb.seconds = time.monotonic() - began
    os.close(writing)
    with os.fdopen(reading) as counts:
        verb.events = int(counts.read())
    verb.wanted = verb.found(place)
    assert not left_behind(place), left_behind(place)


def knocked(verb: Verb | list[Verb], base: Path, kills: int, seed: int) -> Row:
    """Kill a command so many times, each followed by the same command until it ends, and count how these end."""
    draw = random.Random(f"{seed} {verb.name if isinstance(verb, Verb) else 'export'}")
    row: Row = {"verb": "export" if isinstance(verb, list) else verb.name, "kills": 0, "in time": 0, "same": 0}
    row |= {"left": 0, "in cache": 0, "seconds": 0.0}
    began = time.monotonic()
    trouble: list[str] = []
    for number in range(kills):
        one = verb[number % len(verb)] if isinstance(verb, list) else verb
        place = base / "killed" / f"{one.name} {number}"
        place.mkdir(parents=True)
        one.before(place)
        twice = draw.random() < 0.2
        for _ in range(1 + twice):
            if draw.random() < 0.5:
                row["in time"] += killed(one, place, after=draw.uniform(0, one.seconds))
            else:
                killed(one, place, at=draw.randrange(one.events))
        row["kills"] += 1
        code, said = again(one, place)
        found = one.found(place) if code == 0 else {}
        same = code == 0 and found == one.wanted
        row["same"] += same
        # The next command takes the lease of a process that was killed behind its last file.
        if (place / "run").is_dir():
            with suppress(InputError), only_writer(place / "run", wait=False):
                pass
        for lock in place.glob(".*.lock"):
            with in_turn(lock):
                pass
        behind = left_behind(place)
        rest = [name for name in behind if not name.startswith("cache/")]
        row["left"] += len(rest)
        row["in cache"] += len(behind) - len(rest)
        if not same or rest:
            odd = [name for name in {*found, *one.wanted} if found.get(name) != one.wanted.get(name)]
            trouble.append(f"{one.name} {number}: code {code}, {said!r}, other: {odd}, left: {rest}")
            print(trouble[-1], file=sys.stderr, flush=True)
        else:
            shutil.rmtree(place)
    return row | {"seconds": round(time.monotonic() - began), "trouble": trouble}


def again(verb: Verb, place: Path) -> tuple[int, str]:
    """Repeat a command as its user is told to, and return its exit code and its last line."""
    words = verb.words(place)
    if verb.resumes and holds_run(place / "run"):
        words.append("--resume")
    with tempfile.TemporaryFile("w+") as errors:
        code = ended(forked(words, errors=errors.fileno()), fine=range(256))
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if code == 2 and said and ("finished run" in said[-1] or "exists already" in said[-1]):
        return 0, said[-1]  # the killed command had written everything
    return code, said[-1] if said else ""


def killed(verb: Verb, place: Path, after: float | None = None, at: int | None = None) -> bool:
    """Start a command and kill it after so many seconds, or at one of the files that it touches; False if it ended."""
    words = verb.words(place)
    if verb.resumes and holds_run(place / "run"):
        words.append("--resume")
    child = forked(words, at=at)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def forked(
    words: Sequence[str],
    at: int | None = None,
    counting: int | None = None,
    errors: int | None = None,
    refusal: int | None = None,
) -> int:
    """Run a command in a process of its own, which shares what is imported, and return its id.

    Args:
        words: The command line.
        at: Number of the file event right before which the process kills itself.
        counting: Pipe that gets the number of file events at the end.
        errors: File that gets what the command says.
        refusal: Error of the system that files are refused with from that event on, in the place of the kill.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if errors is not None:
            os.dup2(errors, 2)
        sys.stdout, sys.stderr = map(os.fdopen, (1, 2), "ww")  # whatever a parent put there
        scoring.CHUNK = 20  # several parts
        seen = [0]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in EVENTS and (event != "open" or _writes(arguments)):
                seen[0] += 1
                if refusal is None and seen[0] - 1 == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if refusal is not None and at is not None and seen[0] > at and event != "sqlite3.connect":
                    raise OSError(refusal, os.strerror(refusal), str(arguments[0]))

        sys.addaudithook(hook)
        code = pairsift(words)
        if counting is not None:
            os.write(counting, str(seen[0]).encode())
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _writes(arguments: tuple[Any, ...]) -> bool:
    """Whether an audited `open` is for writing, and not of a device."""
    name, mode, flags = arguments
    writes = any(letter in mode for letter in "wxa+") if isinstance(mode, str) else flags & (os.O_WRONLY | os.O_RDWR)
    return bool(writes) and not str(name).startswith("/dev")


def ended(child: int, fine: Iterable[int] = (0,)) -> int:
    """Wait for a process and return its exit code, which must be a fine one."""
    limit = time.monotonic() + WAIT
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > limit:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -1
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(status)
    assert code in fine, code
    return code


def files_of(place: Path) -> list[Path]:
    """The files below a folder that are no temporary ones."""
    return [file for file in sorted(place.rglob("*")) if file.is_file() and not _is_temporary(file, place)]


def _is_temporary(file: Path, place: Path) -> bool:
    return any(part.startswith(".") or part.endswith(".lock") for part in file.relative_to(place).parts)


def left_behind(place: Path) -> list[str]:
    """The temporary files and locks below a folder."""
    return [str(file.relative_to(place)) for file in sorted(place.rglob("*")) if _is_temporary(file, place)]


def tables(place: Path) -> dict[str, object]:
    """The Parquet and CSV tables in a folder."""
    found: dict[str, object] = {file.name: pq.read_table(file) for file in sorted(place.glob("*.parquet"))}
    return found | {file.name: file.read_bytes() for file in sorted(place.glob("*.csv"))}


def _of_run(place: Path) -> dict[str, object]:
    """What a run's folder holds that does not name its place or a time: tables, weights, numbers, log and files."""
    run = place / "run"
    found = tables(run)
    for file in sorted((run / "model").glob("*.safetensors")):
        found[file.name] = {name: value.tobytes() for name, value in load_file(file).items()}
    metrics = json.loads((run / "metrics.json").read_text())
    found["metrics"] = {name: value for name, value in metrics.items() if name not in OF_PROCESS}
    if (run / "log.jsonl").exists():
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        found["log"] = [{name: value for name, value in line.items() if name not in OF_PROCESS} for line in lines]
    found["files"] = sorted(str(file.relative_to(run)) for file in files_of(run))
    found["cache"] = sorted(file.name for file in files_of(place / "cache"))
    return found


def decided(run: Path) -> dict[str, object]:
    """The decisions in a run's folder without their times."""
    from pairsift.review import Decisions
    from pairsift.table import read_pairs

    decisions = Decisions(run, read_pairs(run)["pair"].to_numpy())
    history = [(event.kind, event.reviewer, event.pairs) for event in decisions.history(100)]
    return {"decisions": decisions.table().drop_columns(["time"]), "history": history, "tables": tables(run)}


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    names = ("verb", "kills", "in time", "same", "left", "in cache", "seconds")
    return markdown(
        list(names), [[f"{row[name]:,}" if name != "verb" else row[name] for name in names] for row in rows]
    )


if __name__ == "__main__":
    main()
