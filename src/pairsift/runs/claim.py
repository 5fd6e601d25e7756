"""The folder of a new run: free, begun already, or in the place of an older run, which is never lost."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from itertools import count
from pathlib import Path

from pairsift.encode.registry import TEXT_ENCODER
from pairsift.errors import InputError, WriteError, writing
from pairsift.files import LOCK, make_folder, only_writer, remove_parts
from pairsift.marker import MARKER, is_free, require_own, write_marker
from pairsift.review.decisions import DECISIONS_FILE, decisions_in_words
from pairsift.review.spot_check import SHEET_FILE, SPOT_CHECK_FILE
from pairsift.run_folder import (
    CHECKPOINT,
    CONFIG,
    KNOWN,
    LOG,
    METHOD_STATE,
    METRICS,
    PAIRS_FILE,
    REPORT,
    SHARDS,
    SKIPPED,
    SOURCE,
    TRUST,
    VOCABULARY,
    finished,
    holds_run,
)
from pairsift.runs.config import CHOICES, Config, flag_text, flattened, read_config
from pairsift.runs.source_changes import FIRST
from pairsift.runs.text_encoding import WITH_NGRAMS
from pairsift.spreadsheet import is_filled_in
from pairsift.suggest.table import SUGGESTIONS_FILE
from pairsift.table import DIVISION_FILE, SUSPECTS_FILE

MAY_DIFFER = ("out", "device", "threads", "checkpoint_minutes", "cache")
JOURNAL = tuple(f"{DECISIONS_FILE}{end}" for end in ("", "-wal", "-shm"))
SHEETS = (SUSPECTS_FILE, SHEET_FILE)  # tables that a person may write decisions into
FOLDERS = ("model", "folds", "copies", "tensorboard", SHARDS)
INSIDE = {  # names in these folders
    "model": r"((network|fold)_\d+|best|ngrams|(images|captions)(_approximate)?)\.safetensors|front|part_\w+",
    "tensorboard": r"events\..*",
    SHARDS: r"(plan|judge)\.safetensors|evidence-\d+\.parquet|pairs\.arrow|\.lock",
}
FILES = (
    *(MARKER, CONFIG, METRICS, LOG, REPORT, SKIPPED, VOCABULARY, PAIRS_FILE, TRUST, METHOD_STATE, SOURCE, KNOWN, LOCK),
    *(CHECKPOINT, FIRST, DIVISION_FILE, SUGGESTIONS_FILE, SPOT_CHECK_FILE, *JOURNAL, *SHEETS),
)


class Claim:
    """The right of one process to write a run into a folder.

    Args:
        folder: The folder.
        require_held: A function that raises an InputError once another process has taken over.
        replaced: Where the run lies that the new one takes the place of; None where there is none.
        settled: Whether the folder holds a run that stays.
    """

    def __init__(self, folder: Path, require_held: Callable[[], None], replaced: Path | None, settled: bool) -> None:
        self.require_held, self._folder, self._replaced, self._settled = require_held, folder, replaced, settled

    def settle(self) -> None:
        """Complete the replacement: remove the replaced run unless it contains human work."""
        replaced, self._replaced, self._settled = self._replaced, None, True
        if replaced is not None and human_work(replaced) is not None:
            tell_kept(self._folder, replaced)
        elif replaced is not None:
            remove_run(replaced)

    def give_up(self, put_back: bool) -> None:
        """Remove a new run that cannot be begun and put the replaced one back, or else tell where that is."""
        if put_back and not self._settled:
            remove_run(self._folder)
        if self._replaced is not None and not self._folder.exists():
            self._replaced.rename(self._folder)
        elif self._replaced is not None:
            tell_kept(self._folder, self._replaced)


@contextmanager
def claimed(config: Config, resume: bool = False, overwrite: bool = False) -> Iterator[Claim]:
    """Claim the folder of a configuration for one process, as long as the block lasts.

    A run that `overwrite` replaces is set aside under another name. It comes back where the block raises an InputError
    before it has called `settle`. A new run that cannot be begun leaves nothing.

    Raises:
        InputError: The folder is not free, another process writes it, or the run to resume is finished, missing, or has
            other options. Nothing is changed.
        WriteError: The folder cannot be written.
    """
    folder = config.folder
    _check(config, resume, overwrite)
    replaced = _set_aside(folder) if overwrite and not resume and not is_free(folder) else None
    make_folder(folder)
    with only_writer(folder) as require_held:
        _check(config, resume, False)  # another process may have come first
        remove_dead_parts(folder)
        claim = Claim(folder, require_held, replaced, resume)
        try:
            if not resume:
                write_marker(folder, "run")
            yield claim
        except BaseException as error:
            claim.give_up(isinstance(error, InputError) and not isinstance(error, WriteError))
            raise


def _check(config: Config, resume: bool, overwrite: bool) -> None:
    """Raise an error unless the folder is free, or holds the unfinished run to resume, or one to overwrite."""
    folder = config.folder
    require_own(folder, "run")
    if resume:
        if not holds_run(folder):
            raise InputError(f"{folder} holds no run to resume: leave --resume out")
        require_same(folder, read_config(folder / CONFIG), config)
        if finished(folder):
            raise InputError(f"{folder} holds a finished run: there is nothing to resume")
    elif holds_run(folder) and not overwrite:
        raise InputError(_refusal(folder))
    elif not holds_run(folder) and not overwrite and folder.exists() and (work := human_work(folder)) is not None:
        raise InputError(f"{folder} holds {work}, and no {CONFIG}: put that back, or give another --out")


def _refusal(folder: Path) -> str:
    """Return why a run is not replaced, and what else a person may want to do."""
    work = human_work(folder)
    if not finished(folder):
        held, ways = "an unfinished run", "go on with it by --resume"
    else:
        held = "a finished run" if work is None else f"a finished run with {work}"
        ways = f"review it with `pairsift serve {folder}`, judge it again with `pairsift audit {folder}`"
    fate = "replaces it" if work is None else "sets it aside under another name"
    return f"{folder} holds {held}: {ways}, or write elsewhere with --out; --overwrite {fate}"


def require_same(folder: Path, previous: Config, config: Config) -> None:
    """Raise an error if the run in the folder was started with other options.

    Raises:
        InputError: An option differs.
    """
    before, now = flattened(previous.tree()), flattened(config.tree())
    for name in dict.fromkeys(
        ("source", *CHOICES, *before, *now)
    ):  # options that decide about other options come first
        automatic = name == "text_encoder" and now.get(name) is None and before.get(name) in (TEXT_ENCODER, WITH_NGRAMS)
        if name not in MAY_DIFFER and now.get(name) != before.get(name) and not automatic:
            begun = flag_text(name, before.get(name))
            begun = begun if before.get(name) is None else f"with {begun}"
            raise InputError(
                f"{folder} was started {begun}, not {flag_text(name, now.get(name))}: resume with the same options"
            )


def _set_aside(folder: Path) -> Path:
    """Rename the folder of a run that no other process writes, and return its new place, such as `mine.2026-11-27`.

    Raises:
        InputError: Another process writes it.
        WriteError: It cannot be renamed.
    """
    absolute = Path(os.path.abspath(folder))
    first = f"{absolute.name}.{date.today().isoformat()}"
    names = (first if number == 1 else f"{first}.{number}" for number in count(1))
    place = next(place for name in names if not (place := absolute.with_name(name)).exists())
    with only_writer(folder), writing(folder):
        folder.rename(place)
    (place / LOCK).unlink(missing_ok=True)
    return place


def tell_kept(folder: Path, replaced: Path) -> None:
    """Print the place of the replaced run, and how to take over its decisions."""
    work = human_work(replaced)
    line = f"{folder} held a run{f' with {work}' if work else ''}, which is kept as {replaced}"
    if (replaced / DECISIONS_FILE).exists():
        line += f"; take its decisions over with: pairsift decide {folder} --from {replaced}"
    print(line, file=sys.stderr, flush=True)


def human_work(folder: Path) -> str | None:
    """Describe what people did in the folder of a run, such as `90 decisions`. None if they did nothing."""
    if (decided := decisions_in_words(folder)) is not None:
        return decided
    if sheet := next((name for name in SHEETS if is_filled_in(folder / name)), None):
        return f"decisions in {sheet}"
    files = [*folder.iterdir(), *(file for name in INSIDE for file in (folder / name).glob("*"))]
    strange = sorted(str(file.relative_to(folder)) for file in files if not _is_ours(file, folder))
    return strange[0] if strange else None


def remove_run(folder: Path) -> None:
    """Remove the files of a run, and its folder if nothing else is in it."""
    for file in folder.iterdir():
        if _is_ours(file, folder) and file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        elif _is_ours(file, folder):
            with suppress(OSError):
                file.unlink()
    with suppress(OSError):
        folder.rmdir()


def remove_dead_parts(folder: Path) -> None:
    """Remove what killed processes began to write in the folder of a run; the caller is its only writer.

    A spot check may be written by others at any time.
    """
    for name in FOLDERS:
        remove_parts(folder / name)
    for name in {*FILES} - {SPOT_CHECK_FILE, SHEET_FILE}:
        remove_parts(folder, name)


def _is_ours(file: Path, folder: Path) -> bool:
    """Return whether pairsift wrote a file in a run's folder, or began to write it in a killed process."""
    if file.name.startswith(".") and file.suffix == ".part":
        return True
    if file.parent != folder:
        return re.fullmatch(INSIDE[file.parent.name], file.name) is not None
    return file.name in (FOLDERS if file.is_dir() else FILES)
