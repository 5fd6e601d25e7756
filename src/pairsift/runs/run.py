"""A finished run: its recall, its judged pairs and what people do with them, new pairs scored, and search."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from pairsift.arrays import Ints
from pairsift.cores import limit_threads, peak_memory
from pairsift.detect import Judgement
from pairsift.encode.features import Features
from pairsift.errors import InputError
from pairsift.files import make_folder, only_writer, remove_parts, write_json, write_parquet
from pairsift.match.base import Matcher
from pairsift.pairs.pairs import SPLITS, Pairs
from pairsift.pairs.readers import choose, load
from pairsift.pairs.records import Columns
from pairsift.progress import write
from pairsift.report.report import write_report
from pairsift.retrieve.answers import Answers
from pairsift.retrieve.equal import EqualItems, EqualRanks, Recall
from pairsift.retrieve.gallery import equal_ranks_of_views, evaluate
from pairsift.review import Decisions
from pairsift.review.spot_check import SpotCheck, SpotResult
from pairsift.run_folder import CONFIG, LOG, METRICS, REPORT, SKIPPED, read_metrics, require_finished, weights
from pairsift.runs.caveats import rate_of, warnings_of
from pairsift.runs.claim import remove_dead_parts
from pairsift.runs.config import read_config
from pairsift.runs.exporting import export_run
from pairsift.runs.features import EvidenceVectors
from pairsift.runs.judge import Judge, write_trust
from pairsift.runs.judging import image_copies, judged_tables
from pairsift.runs.prepare import (
    Prepared,
    encoder_names,
    index_facts,
    matcher_factory,
    reopen,
)
from pairsift.runs.recall import recall_of
from pairsift.runs.scoring import Scorer, require_new_table, score_to
from pairsift.runs.skipped import list_skipped, write_skipped
from pairsift.runs.source_changes import (
    LAPSED,
    MENDED,
    clear_lapsed_decisions,
    keep_ids,
    keep_suspects,
    mended_suspects,
)
from pairsift.runs.spot_check import recalibrated_tables, spot_check, spot_result
from pairsift.runs.vector_check import has_judge
from pairsift.runs.vector_score import score_vectors
from pairsift.search.index import make_index
from pairsift.search.search import Hit, Search
from pairsift.sharding.engines import engine_of
from pairsift.sharding.parts import Share
from pairsift.source_path import require_path, require_source
from pairsift.suggest.table import SUGGESTIONS_FILE
from pairsift.table import count_verdicts, detection, detector_scores, read_pairs, suspects, write_tables
from pairsift.train.checkpoint import read_tensors, with_prefix
from pairsift.train.loop import pick_device
from pairsift.train.precision import autocast_context

JUDGED = ("spot_check", "verdicts", "changes", MENDED, LAPSED)  # metrics of a judgement that the next one may not have


def _verdict(rate: dict[str, float | None], flagged: int, report: Path) -> str:
    """Return the verdict in one line, before training."""
    share = "no verdict" if rate["estimated"] is None else f"{rate['estimated']:.1%} of the training pairs mismatched"
    return f"{share}, {flagged:,} pairs flagged: {report}; training follows"


def open_run(folder: str | Path, source: str | Path | None = None, progress: bool = True) -> Run:
    """Open a finished run, to evaluate it, to search in it, or to audit it again.

    Args:
        folder: The run's folder.
        source: New path of the run's source, if it has moved.
        progress: Whether to show the progress of slow steps and the changes of the source.

    Raises:
        InputError: The folder holds no finished run.
    """
    return Run(folder, source=source, progress=progress)


class Run:
    """A finished or imported run.

    Args:
        folder: The run's folder.
        prepared: The run's pairs and features, if they are in memory; by default they are read when first needed.
        progress: Whether to show the progress of slow steps and the changes of the source.
        source: New path of the source, if it has moved. The source may also have been edited: pairs that are still
            there keep their ids and splits, and new pairs are judged too.

    Attributes:
        folder: The run's folder.
        config: The run's options, with the present path of the source.

    Raises:
        InputError: The folder holds no finished run.
    """

    def __init__(
        self,
        folder: str | Path,
        prepared: Prepared | None = None,
        progress: bool = True,
        source: str | Path | None = None,
    ) -> None:
        self.folder, self.progress = Path(folder), progress
        if prepared is None:
            require_finished(self.folder)
        self.config = read_config(self.folder / CONFIG)
        if source is not None:
            self.config = self.config.with_source(source)
        if prepared is not None:
            self.prepared = prepared

    def weights(self, network: int) -> Path:
        """Return the file of a network's weights."""
        return weights(self.folder, network)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The content of `metrics.json`."""
        return read_metrics(self.folder)

    @cached_property
    def prepared(self) -> Prepared:
        """The pairs and features, from the source and the cache.

        Raises:
            InputError: The source is gone, or is not the source of the run.
        """
        limit_threads()
        return reopen(self.config, self.folder, self.metrics, self.progress)

    @cached_property
    def matchers(self) -> list[Matcher]:
        """The trained matchers, in evaluation mode."""
        make, matchers, device = matcher_factory(self.config, self.prepared), [], self._device()
        for k in range(self.config.method.networks):
            matcher = make()
            matcher.load_state_dict(with_prefix(read_tensors(weights(self.folder, k))[0], "matcher."))
            matchers.append(matcher.to(device).eval())
        return matchers

    def _device(self) -> torch.device:
        return pick_device(self.config.train.device)

    def _autocast(self) -> torch.autocast:
        return autocast_context(self._device(), self.config.train)

    def evaluate(
        self, split: str = "test", folds: int = 1, answers: Answers | None = None
    ) -> dict[str, dict[str, float]]:
        """Return the measures of retrieval on a split, for `ensemble` and for each network.

        In percent these are R@1, R@5 and R@10 both ways (`i2t_r1`, ...), their sum `rsum`, mAP@R and R-precision
        (`i2t_map_at_r`, `i2t_r_precision`). `i2t_median_rank` is the median rank of the first right answer, from 1.
        Copies of an image count as one image, and captions with equal text as one caption; `recall` also gives the
        papers' protocol.

        Args:
            split: `train`, `dev` or `test`.
            folds: Number of consecutive parts of the images that are ranked separately, for a mean (5 for COCO-1K).
            answers: Right answers in place of an image's own captions, such as those of ECCV Caption or CxC.

        Raises:
            InputError: There is no such split, or it has no usable pairs or no answers, or answers come with folds.
        """
        if answers is not None and folds != 1:
            raise InputError("right answers lie among all images: leave folds out where answers are given")
        if answers is None:
            return self.recall(split, folds).views
        pairs = self.pairs_of(split)
        with self._autocast():
            return evaluate(self.matchers, self.prepared.features, pairs, split, answers=answers)

    def recall(self, split: str = "test", folds: int = 1) -> Recall:
        """Return the measures of `evaluate`, the same by the papers' protocol, and what the difference comes from.

        Args:
            split: `train`, `dev` or `test`.
            folds: As for `evaluate`.

        Raises:
            InputError: There is no such split, or it has no usable pairs.
        """
        self.pairs_of(split)
        with self._autocast():
            return recall_of(self.matchers, self.prepared, self.config.cache, split, folds)

    def pairs_of(self, split: str) -> Pairs:
        """Return the pairs of this split, by their ids; the other pairs are unused.

        Raises:
            InputError: There is no such split, it has no usable pairs, or the run is a check.
        """
        if not self.config.has_recall:
            raise InputError(
                f"{self.folder}: a check has no recall, since it trains nothing: train with `pairsift fit` first"
            )
        if split not in SPLITS:
            raise InputError(f"there is no split {split!r}; choose from {', '.join(SPLITS)}")
        pairs = self.prepared.pairs
        if not len(pairs.ids(split)):
            raise InputError(f"{pairs.source} has no usable pairs in {split} any more: choose another split")
        return pairs.only(split)

    def ranks(self, ids: Ints, owner: Ints, items: EqualItems) -> EqualRanks:
        """Return the ranks of the ensemble for each of some images and captions as a query, among these alone.

        Args:
            ids: Ids of the pairs, (n,).
            owner: Number of the image of each pair among the images to rank, from 0 without gaps, (n,).
            items: What these images and captions are.
        """
        rows = self.prepared.pairs.image_of[ids[np.unique(owner, return_index=True)[1]]]
        with self._autocast():
            return equal_ranks_of_views(self.matchers, self.prepared.features, rows, ids, owner, items)[0]

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
        """Estimate the rate and the calibration from the decisions on the pairs of the spot check.

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
        splits: bool = False,
    ) -> dict[str, int]:
        """Write the pairs of the source with the decisions applied.

        Args:
            out: The file or folder to write. The ending decides on the format: `.csv`, `.tsv`, `.jsonl`, `.parquet`,
                `.json` for the layout of a source that is COCO captions, Karpathy's splits or rows as pandas and others
                write them, and COCO captions of others, `coco.json` for these always, `.txt` for ids, `.fiftyone` for a
                folder that FiftyOne opens, `shards` (such as `clean-shards`) for a folder of tar files, none for a
                folder of images with their captions.
            drop_below: Pairs without a decision and with a smaller match probability are left out, [0, 1].
            replace_above: Flagged pairs without a decision get the suggested caption if its probability is at least
                this, [0, 1]; None for none.
            weights: Whether to add a column `weight`: the match probability, or 1 for pairs with a decision.
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
            splits=splits,
        )
        return dict(selection.counts)

    def score(  # noqa: PLR0913
        self,
        source: str | Path,
        out: str | Path,
        *,
        reader: str | None = None,
        image_column: str | None = None,
        caption_column: str | None = None,
        image_folder: str | Path | None = None,
        quotes: str | None = None,
        lists: str | None = None,
        shard: str | None = None,
        ray: str | None = None,
    ) -> int | None:
        """Judge new pairs, and write their table.

        The columns are those of `pairs` without the groups of duplicates. A probability means the same as for a
        pair that the run was not trained on. All these pairs share one rate of mismatches. 20,000 pairs are
        judged at once, together with the run's own; with other new pairs beside it, a pair gets another probability.
        Finished parts are kept: a call that was killed can be repeated. A run that was made of features scores features
        of the same shape. Pairs that cannot be used are listed beside the table, in a file that ends in `.skipped.csv`.

        Args:
            source: The new pairs, in any format that `fit` reads.
            out: The table to write, `.parquet` or `.csv`.
            reader: Name of the reader; by default the one that fits the source.
            image_column: Image column of a table.
            caption_column: Caption column of a table.
            image_folder: Folder that relative image paths start from.
            quotes: How quotes are marked in a CSV or TSV file, as in `load`.
            lists: Whether a cell of text that lists several captions is several (`split`) or one (`keep`).
            shard: The share of the work as `i/n`, where other processes do the rest; None for all.
            ray: Address of a Ray cluster that does the work, for a run on vectors that was made shard by shard.

        Returns:
            The number of pairs in the table; None where the shards of other processes are missing.

        Raises:
            InputError: The source cannot be read, its pairs are not like the run's (features for a run on images,
                vectors of another length), the table exists already, or another call is writing it.
        """
        path, source = Path(out), require_path(source)
        share = Share() if shard is None else Share.parse(shard)
        require_source(source)
        require_new_table(path, shared=share.of > 1)
        make_folder(path.parent)
        if has_judge(self.folder):
            named = Columns(image_column, caption_column)
            return score_vectors(self.folder, self.config, source, path, named, share, engine_of(ray), self.progress)
        if ray is not None:
            raise InputError(f"{self.folder} was not made shard by shard: leave --ray out, or give --shard")
        with nullcontext() if shard else only_writer(path):
            columns: dict[str, Any] = {"image_column": image_column, "caption_column": caption_column}
            columns |= {"quotes": quotes, "lists": lists}
            text_file = self.config.data.text_file
            if text_file is not None and (reader or choose(source)) == "folder":
                columns["text_file"] = text_file
            cache = self.config.encode.cache
            columns["keep_empty"] = self.config.data.keep_empty
            new = load(source, reader, shares=None, image_folder=image_folder, cache=cache, **columns)
            scorer = Scorer(self.config, self.folder, self.prepared, self.matchers, new, self.progress)
            skipped = path.with_suffix(".skipped.csv")
            for file in (path, skipped) if shard is None else ():  # with other processes, they may be written just now
                remove_parts(path.parent, file.name)
            # Before the table: a call that is killed behind it cannot be repeated.
            list_skipped(scorer.encoded.pairs, skipped, self.progress)
            with self._autocast():
                return score_to(scorer, path, share=share)

    def recalibrate(self) -> SpotResult:
        """Write the tables, the metrics and the report with match probabilities recalibrated by the spot check.

        The next `audit` replaces them.

        Raises:
            InputError: There is no spot check, it has fewer than 20 answers, the run is recalibrated already, or
                another process writes it.
        """
        with only_writer(self.folder):
            result, table, metrics = recalibrated_tables(self.folder)
            write_tables(table, self.folder)
            write_json(self.folder / METRICS, metrics)
            self.metrics = metrics
            self.report(table)
        return result

    def audit(self) -> pa.Table:
        """Judge every usable pair and write `pairs.parquet`, `suspects.csv`, `metrics.json` and `report.html`.

        Held-out evidence on all pairs is computed anew: from 10,000 training pairs on by the saved folds and networks,
        below by new folds. Where suspects were mended or removed, the others stay suspects, and decisions on captions
        that have changed are cleared.

        Returns:
            The table of judged pairs.

        Raises:
            InputError: The source cannot be used, or another process writes the run.
        """
        with only_writer(self.folder) as require_held:
            remove_dead_parts(self.folder)
            return self.write_judgement(require_held)

    def write_judgement(self, require_held: Callable[[], None], judgement: Judgement | None = None) -> pa.Table:
        """Run `audit` for a caller that is already the only writer of the folder.

        Args:
            require_held: A function that raises an InputError where the caller no longer is.
            judgement: Held-out evidence on all pairs, if it is known.
        """
        pairs, cache, seed = self.prepared.pairs, self.config.cache, self.config.train.seed
        keep_ids(self.folder, pairs)
        mended = mended_suspects(self.folder, pairs)
        if judgement is None:
            judgement = Judge(self.prepared, self.folder, self.config, self.progress).judge_again()
        held_out = judgement
        judgement = mended.applied(held_out, pairs.ids(), pairs.split[pairs.ids()] == "train")
        copies = image_copies(self.prepared, judgement, cache, self.progress)
        with self._autocast():
            table, suggestions = judged_tables(self.prepared, self.matchers, judgement, self.folder, seed, copies)
        kept = {name: value for name, value in self.metrics.items() if name not in JUDGED}
        metrics = {**kept, "verdicts_given": judgement.verdicts, "noise_rate": rate_of(judgement)}
        metrics["expected_auroc"] = {"any": judgement.auroc, "near": judgement.near_auroc}
        metrics["counts_near"] = judgement.counts_near
        counts = {MENDED: mended.count, LAPSED: clear_lapsed_decisions(self.folder, pairs)}
        metrics |= {name: count for name, count in counts.items() if count}
        metrics["warnings"] = warnings_of(self.prepared, judgement, metrics)
        if pairs.noise is not None:
            metrics["noise_rate"]["true"] = pairs.noise.rate
            metrics["detection"] = detection(table)
            metrics["detectors"] = detector_scores(table, judgement.detectors, pairs.ids())
        if verdicts := count_verdicts(table):
            metrics["verdicts"] = verdicts
        if self.prepared.changes is not None:
            metrics["changes"] = asdict(self.prepared.changes)
        self._search = self._unsaved_search()
        metrics.setdefault("peak_memory_gb", round(peak_memory(), 2))
        require_held()
        write_trust(self.folder, pairs.ids(), held_out)
        write_tables(table, self.folder)
        if not mended.count:
            keep_suspects(self.folder, table, pairs)
        write_parquet(self.folder / SUGGESTIONS_FILE, suggestions)
        write_skipped(pairs, self.folder / SKIPPED)
        write_json(self.folder / METRICS, metrics)
        self.metrics = metrics
        self._search.index.write(self.folder)
        self.report(table)
        return table

    def write_verdict(self, judgement: Judgement, matcher: Matcher, vectors: EvidenceVectors) -> None:
        """Write the tables and the report before training, with suggestions by a linear model.

        Args:
            judgement: Held-out evidence on all pairs.
            matcher: The linear model.
            vectors: The vectors that it compares.
        """
        prepared, cache = self.prepared, self.config.cache
        seen = replace(prepared, features=Features(vectors.images, vectors.captions))
        copies = image_copies(prepared, judgement, cache, self.progress)
        table, suggestions = judged_tables(seen, [matcher], judgement, self.folder, self.config.train.seed, copies)
        self.metrics = {"verdicts_given": judgement.verdicts, "noise_rate": rate_of(judgement)}
        self.metrics["warnings"] = warnings_of(prepared, judgement, {})
        write_tables(table, self.folder)
        write_parquet(self.folder / SUGGESTIONS_FILE, suggestions)
        report = self.report(table)
        if self.progress:
            write(_verdict(self.metrics["noise_rate"], len(suspects(table)), report))

    def report(self, table: pa.Table) -> Path:
        """Write `report.html` and return its path."""
        path, log_file = self.folder / REPORT, self.folder / LOG
        log = log_file.read_text(encoding="utf-8").splitlines() if log_file.exists() else []
        lines = [json.loads(line) for line in log]
        metrics = self.metrics | {"encoders": encoder_names(self.config, self.prepared)}
        citation = self.config.method.citation
        write_report(path, self.prepared.pairs, table, metrics, lines, self.config.tree(), citation=citation)
        return path

    def search(self, query: str, k: int = 10) -> list[tuple[str, float]]:
        """Find the images that a text describes, best first.

        Args:
            query: The text.
            k: Number of images.

        Returns:
            Path and score of each image (its name where the source has features instead of images). The score is the
            matcher's similarity, averaged over the networks: the cosine of the global vectors, in [-1, 1], for most
            matchers that factorise. Where one does not, the scale of the score depends on the matcher, and the images
            are the best of the 200 (at least `k`) whose global vectors are closest to the text's.
        """
        return [(hit.file, hit.score) for hit in self._search.by_text(query, k)]

    def captions_for(self, image: str | Path, k: int = 10) -> list[Hit]:
        """Find the captions that describe an image, best first.

        Args:
            image: An image file, which need not belong to the run.
            k: Number of captions.

        Returns:
            The captions with their pairs, the images of these pairs, and scores as in `search`.

        Raises:
            InputError: The image cannot be used, or the run was made of features instead of images.
        """
        return self._search.by_image(Path(image), k)

    def images_like(self, pair: int, k: int = 10) -> list[Hit]:
        """Find the other images that the matcher finds most similar to the image of a pair, best first.

        Args:
            pair: Id of the pair.
            k: Number of images.

        Returns:
            The images, each with its first pair. The score is the cosine of the global vectors, averaged over the
            networks, in [-1, 1].

        Raises:
            InputError: The run has no such pair.
        """
        return self._search.by_pair(pair, k)

    @cached_property
    def _search(self) -> Search:
        """The search over the run's images and captions, by the index in its folder or by a new index of the source."""
        return Search.open(self.folder, self.config.source) or self.new_search()

    def new_search(self) -> Search:
        """Encode all images and captions of the source, write the index, and return the search over it."""
        new = self._unsaved_search()
        # A folder that is read-only can be searched too, and one that another process writes.
        with suppress(InputError), only_writer(self.folder, wait=False):
            new.index.write(self.folder)
        return new

    def _unsaved_search(self) -> Search:
        """Encode all images and captions of the source, and return the search over them."""
        prepared = self.prepared
        facts = index_facts(self.config, prepared)
        index = make_index(self.matchers, prepared.pairs, prepared.features, facts)
        features = None if self.matchers[0].factorises else prepared.features.images
        return Search(prepared.texts, self.matchers, index, self.config.source, features, self.folder)
