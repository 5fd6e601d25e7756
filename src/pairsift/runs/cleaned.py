"""A training on the export of a run, with the run's options, so that the two can be compared."""

from __future__ import annotations

from pathlib import Path

from pairsift.errors import InputError
from pairsift.export.cleaned import TABLES, folder_of_names
from pairsift.pairs.readers import choose
from pairsift.pairs.readers.rows import NO_COLUMN, free_split_column
from pairsift.pairs.readers.shards import is_shards
from pairsift.pairs.readers.tables import read_rows
from pairsift.pairs.records import Columns
from pairsift.pairs.same_pairs import images_elsewhere
from pairsift.runs.config import Config, from_tree
from pairsift.runs.fit import Resume, fit_config
from pairsift.runs.prepare import read_pairs
from pairsift.runs.run import Run
from pairsift.source_path import require_source

SPLIT = "test"


def fit_cleaned(
    run: Run, export: str | Path, out: str | Path | None = None, resume: Resume = False, overwrite: bool = False
) -> Run:
    """Train on an export of a run with the options of the run, and return the new run.

    No noise is planted: the export of a run with planted noise has it already.

    Args:
        run: The run that the export was made of.
        export: The exported pairs: a table, COCO captions, tar files or a folder of images.
        out: The new run's folder; by default the run's with `-cleaned` behind its name.
        resume: Whether to continue an unfinished run in the folder; see `fit`.
        overwrite: Whether to replace a run in the folder.

    Raises:
        InputError: The run is a check, the export cannot be read, or its splits differ from the run's.
    """
    if not run.config.has_recall:
        raise InputError(f"{run.folder}: a check trains no network, so that there is nothing to compare: give a fit")
    config = cleaned_config(run, Path(export).expanduser(), out)
    pairs = read_pairs(config).pairs
    moved = images_elsewhere(run.prepared.pairs, pairs, SPLIT)
    if moved:
        raise InputError(
            f"{export}: {moved:,} {SPLIT} image{'s' * (moved != 1)} of {run.folder} would be trained on or be in dev: "
            "export again with --splits, to a table, to shards or to a folder"
        )
    return fit_config(config, resume, overwrite, run.progress)


def cleaned_config(run: Run, export: Path, out: str | Path | None = None) -> Config:
    """Return the options of a training on an export of a run.

    Args:
        run: The run that the export was made of.
        export: The exported pairs.
        out: The new run's folder; see `fit_cleaned`.

    Raises:
        InputError: There is nothing at the path of the export.
    """
    require_source(export)
    data, pairs = run.config.data, run.prepared.pairs
    is_file = export.is_file()
    images = (folder_of_names(pairs, export) or data.image_folder) if is_file else None
    columns = data.columns
    is_table = export.suffix.lower() in TABLES or (export.suffix.lower() == ".json" and choose(export) == "table")
    if data.split_column == NO_COLUMN and is_table:
        name = free_split_column(list(pairs.columns))
        columns["split_column"] = name if name in read_rows(export, Columns()).names else NO_COLUMN
    if not is_table or pairs.noise is not None:  # planted noise is exported with our names
        columns = dict.fromkeys(columns)
    # An export in the format of the source has its quotes and lists, and JSON lines have its lists too.
    kind = export.suffix.lower()
    same = is_table and pairs.noise is None and Path(run.config.source).suffix.lower() not in {*TABLES} - {kind}
    changed = {
        "source": str(export),
        "out": str(out or run.folder.with_name(f"{run.folder.name}-cleaned")),
        "reader": None,
        "image_folder": None if images is None else str(images),
        "id_column": data.id_column if is_table else None,
        "text_file": None if is_file or is_shards(export) else "lines",
        "quotes": data.quotes if same else None,
        "noise": 0.0,
        "noise_index": None,
        **columns,
        "lists": None if not is_table else data.lists if same or kind == ".jsonl" else "keep",
    }
    return from_tree({**run.config.tree(), **changed})
