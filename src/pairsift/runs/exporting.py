"""The export of a run's pairs, cleaned by decisions and by their match probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pairsift.errors import InputError
from pairsift.export.cleaned import export, folder_of_names
from pairsift.export.selection import Selection, choose_pairs
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers.rows import unique
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import origin_of_pairs, read_origin
from pairsift.review import Decisions
from pairsift.run_folder import CONFIG, SHARDS, read_metrics, require_finished
from pairsift.runs.config import Config, read_config
from pairsift.runs.prepare import read_finished
from pairsift.runs.vector_check import files_of, has_judge, pairs_of
from pairsift.sharding.exporting import FORMATS, export_rows, schema_of
from pairsift.sharding.judging import Judging
from pairsift.table import read_pairs, storable


def export_run(
    folder: str | Path,
    out: str | Path,
    *,
    source: str | Path | None = None,
    drop_below: float = 0.0,
    replace_above: float | None = None,
    weights: bool = False,
    splits: bool = False,
) -> tuple[Selection, Path | None]:
    """Write a run's pairs with the decisions applied.

    Args:
        folder: The run's folder.
        out: The file or folder to write; see `pairsift.export.cleaned.export` for the formats.
        source: New path of the run's source, if it has moved.
        drop_below: Pairs without a decision and with a smaller match probability are left out, [0, 1].
        replace_above: Flagged pairs without a decision get the suggested caption if its probability is at least this,
            [0, 1]; None for none.
        weights: Whether to add a column `weight`: the match probability, or 1 for pairs that a person decided to keep
            and for those that the run did not judge, whose split the source does not name.
        splits: Whether to write the split that each image has in the run.

    Returns:
        What became of each pair, and the folder that the images' names in the exported file start from, if it is not
        the file's own folder.

    Raises:
        InputError: The folder holds no finished run, its source is gone or has changed since its pairs were judged, or
            the path cannot be written to.
    """
    place = Path(folder)
    require_finished(place)
    config = read_config(place / CONFIG)
    if source is not None:
        config = config.with_source(source)
    if has_judge(place) and Path(out).suffix.lower() in FORMATS and not splits:
        return _export_vectors(place, config, Path(out), drop_below, replace_above, weights), None
    table = read_pairs(place)
    pairs = read_finished(config, place, read_metrics(place)).pairs
    _require_judged(table, pairs, place)
    selection = choose_pairs(
        pairs, table, Decisions(place, table["pair"].to_numpy()).table(), drop_below, replace_above
    )
    if pairs.noise is None:
        data = config.data
        images = None if data.image_folder is None else Path(data.image_folder)
        columns = Columns(
            data.image_column,
            data.caption_column,
            images,
            config.cache,
            data.text_file,
            data.quotes,
            data.split_column,
            data.lists,
        )
        origin = read_origin(Path(config.source), data.reader, columns)
    else:
        origin = origin_of_pairs(pairs)
        pairs = replace(pairs, source_rows=None)  # its rows are the pairs, not the records of the source
    export(origin, pairs, selection, Path(out), weights, splits)
    return selection, folder_of_names(pairs, Path(out))


def _export_vectors(
    folder: Path, config: Config, out: Path, drop_below: float, replace_above: float | None, weights: bool
) -> Selection:
    """Export a run that was made shard by shard, some rows at a time; see `export_run`."""
    files = files_of(config)
    plan = Judging(folder / SHARDS, files).plan
    pairs, table = pairs_of(config, files, plan), read_pairs(folder)
    decisions = Decisions(folder, table["pair"].to_numpy()).table()
    selection = choose_pairs(pairs, table, decisions, drop_below, replace_above)
    column = unique([*schema_of(files).names, "weight"])[-1]
    export_rows(files, selection.keep, selection.captions, selection.weight if weights else None, out, column)
    return selection


def gives_verdicts(folder: str | Path) -> bool:
    """Return whether a run says which pairs are mismatched, and not only how they rank."""
    return bool(read_metrics(Path(folder))["verdicts_given"])


def expected_mismatches(folder: str | Path, selection: Selection) -> float | None:
    """Return how many of the kept pairs are mismatched by the match probabilities; None where there are no verdicts.

    What a person decided to keep counts as matching.
    """
    if not gives_verdicts(folder):
        return None
    return float((1 - selection.weight[selection.keep]).sum())


def _require_judged(table: pa.Table, pairs: Pairs, folder: Path) -> None:
    """Raise an error if the table of judged pairs has other captions than the source has now."""
    for pair, caption in zip(table["pair"].to_pylist(), table["given_caption"].to_pylist(), strict=True):
        if pair >= len(pairs) or storable(pairs.captions[pair]) != caption:
            raise InputError(
                f"{pairs.source} has changed since its pairs were judged (pair {pair} had the caption {caption!r}): "
                f"judge them again with: pairsift audit {folder}"
            )
