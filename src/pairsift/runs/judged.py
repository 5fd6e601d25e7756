"""What people do with a run's judged pairs, by the files in its folder: no image and no network is loaded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pairsift.review import Decisions
from pairsift.review.spot_check import SpotCheck, SpotResult
from pairsift.runs.config import Config
from pairsift.runs.exporting import export_run
from pairsift.runs.spot_check import spot_check, spot_result
from pairsift.table import read_pairs, suspects


class JudgedRun:
    """The judged pairs of a run.

    Attributes:
        folder: The run's folder.
        config: The run's options, with the present path of the source.
    """

    folder: Path
    config: Config

    def pairs(self) -> pa.Table:
        """Return all judged pairs, worst first, with the columns of `pairs.parquet`.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        return read_pairs(self.folder)

    def decisions(self) -> Decisions:
        """Return what people decided about the run's pairs, to read it and to add to it.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        return Decisions(self.folder, self.pairs()["pair"].to_numpy())

    def suspects(self) -> pa.Table:
        """Return the flagged pairs, worst first, as in `suspects.csv` but with unchanged text.

        Raises:
            InputError: The run was imported, and its pairs have not been judged.
        """
        return suspects(self.pairs())

    def spot_check(self, pairs: int | None = None) -> SpotCheck:
        """Return the run's spot check, or draw a new one.

        Args:
            pairs: Number of pairs of a new spot check, 20 to 100; None for the last one, or one of 50 pairs.

        Raises:
            InputError: The number is outside these bounds, the run has fewer pairs, or its pairs were not judged.
        """
        return spot_check(self.folder, pairs)

    def spot_result(self) -> SpotResult:
        """Return what the decisions on the pairs of the spot check say about the rate and the calibration.

        Raises:
            InputError: There is no spot check.
        """
        return spot_result(self.folder)

    def export(
        self,
        out: str | Path,
        *,
        drop_below: float = 0.0,
        replace_above: float | None = None,
        weights: bool = False,
        formulas: bool = False,
        splits: bool = False,
    ) -> dict[str, int]:
        """Write the pairs of the source with the decisions applied.

        Args:
            out: The file or folder to write. The ending decides on the format: `.csv`, `.tsv`, `.jsonl`, `.parquet`,
                `.json` for COCO captions, `.txt` for ids, `.fiftyone` for a folder that FiftyOne opens, `shards`
                (such as `clean-shards`) for a folder of tar files, none for a folder of images with their captions.
            drop_below: Pairs without a decision and with a smaller match probability are left out, [0, 1].
            replace_above: Flagged pairs without a decision get the suggested caption if its probability is at least
                this, [0, 1]; None for none.
            weights: Whether to add a column `weight`: the match probability, or 1 for pairs with a decision.
            formulas: Whether CSV and TSV files keep text as it is that a spreadsheet would run as a formula.
            splits: Whether tables and folders say the split that each image has in the run, so that a run on the export
                has the same test images.

        Returns:
            The number of pairs that are `kept`, `rewritten` (of these), `dropped`, `below` the threshold, and
            `skipped`, which the run could not use.

        Raises:
            InputError: The path exists, its format is unknown, or the source is gone.
        """
        selection, _ = export_run(
            self.folder,
            out,
            source=self.config.source,
            drop_below=drop_below,
            replace_above=replace_above,
            weights=weights,
            formulas=formulas,
            splits=splits,
        )
        return dict(selection.counts)
