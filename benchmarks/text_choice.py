"""Verdicts by text encoder on collections of several languages, sizes and shapes, as they are and shuffled.

A collection is one of verdicts.py, or a folder of `collections/` in the data folder, read as it was collected. A share
of its captions is permuted among themselves, and all pairs are judged by held-out evidence without networks. Where the
noise is `near` or `edit`, a share of the training captions is replaced, and training pairs alone are measured, of
`edit` those whose caption has a word that can be exchanged. AUROC and the calibration error (15 bins of equal mass) are
of the match probability; `flagged` counts pairs below one half, where verdicts are given. Seconds are of the process,
encoding captions and judging; images are encoded before, and captions that the cache holds take none. `default` is the
encoder of a run that names none. Rows of `before` are kept from when this was wordllama, with n-grams where they
helped; of seed 1, these and the rows of joined encoders are of the detector of that time.

    python benchmarks/text_choice.py --data ../shared --cache runs/cache
"""

from __future__ import annotations

import csv
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

from detection import could_be_wrong
from pairsift.cores import limit_threads
from pairsift.encode.options import EncodeOptions
from pairsift.pairs.options import DataOptions
from pairsift.runs.config import Config, configure
from pairsift.runs.fit import begin
from pairsift.runs.judge import Judge
from pairsift.train.options import TrainOptions
from rows import Row, find_row, markdown, mean, page, parser, read_rows, select, versions, write_rows
from verdicts import Record, quality, records, shuffled, write_source

KEY = ("collection", "kind", "noise", "seed", "encoder")
SHUFFLED = "shuffled"  # the kind of rows that name none
COLLECTIONS = (
    "ikea_products",
    "rblog_alt",
    "fisica_es",
    "flickr-800",
    "flickr-400-five",
    "emoji-400",
    "emoji-languages",
)
SUMMED = 0.3  # the noise of the summary
ENCODERS = ("default", "wordllama", "muse", "muse+ngrams", "minilm", "minilm+ngrams")


def main() -> None:
    options = parser(__doc__, "text_choice.json")
    options.add_argument("--data", type=Path, default=Path("../shared"))
    options.add_argument("--collections", nargs="+", default=list(COLLECTIONS))
    options.add_argument("--kinds", nargs="+", default=[SHUFFLED], choices=[SHUFFLED, "near", "edit"])
    options.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.3])
    options.add_argument("--seeds", nargs="+", type=int, default=[1])
    options.add_argument("--encoders", nargs="+", default=list(ENCODERS))
    options.add_argument("--cache", default=None, help="folder of the feature cache")
    chosen = options.parse_args()
    limit_threads()
    rows = [{"kind": SHUFFLED, **row} for row in read_rows(chosen.json)]
    for key in product(chosen.collections, chosen.kinds, chosen.noise, chosen.seeds, chosen.encoders):
        wanted = dict(zip(KEY, key, strict=True))
        if find_row(rows, wanted) is None:
            rows.append(measure(wanted, chosen.data.resolve(), chosen.cache))
            print({name: rows[-1].get(name) for name in (*KEY, "estimate", "auroc", "calibration")}, flush=True)
            write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


def true_pairs(collection: str, data: Path, seed: int, place: Path) -> list[Record]:
    """The pairs of a collection as they are."""
    folder = data / "collections" / collection
    if not folder.is_dir():
        return records(collection, data, seed, place)
    with (folder / "clean.csv").open(encoding="utf-8", newline="") as stream:
        return [(str(folder / row["image"]), row["caption"], "") for row in csv.DictReader(stream)]


def measure(wanted: Row, data: Path, cache: str | None) -> Row:
    """One row."""
    with tempfile.TemporaryDirectory() as name:
        place, seed, kind = Path(name), wanted["seed"], wanted["kind"]
        true = [(*record[:2], "") for record in true_pairs(wanted["collection"], data, seed, place)]
        given, wrong = shuffled(true, wanted["noise"] if kind == SHUFFLED else 0.0, seed, "all")
        planted = {"noise": wanted["noise"], "noise_kind": kind, "noise_seed": seed} if kind != SHUFFLED else {}
        encoder = None if wanted["encoder"] == "default" else wanted["encoder"]
        config = configure(
            write_source(given, place),
            method="linear",
            out=place / "run",
            data=DataOptions(**planted),
            train=TrainOptions(seed=seed),
            encode=EncodeOptions(cache=cache, text_encoder=encoder),
        )
        return {**wanted, "pairs": len(given), **judged(config, wrong), "versions": versions()}


def judged(config: Config, wrong: np.ndarray) -> Row:
    """How good the verdicts are."""
    began = time.process_time()
    config, prepared = begin(config.folder, config, False)
    encoded = time.process_time()
    judge = Judge(prepared, config.folder, config, False)
    judgement = judge.judge_again(keep=False)
    ended = time.process_time()
    pairs, measured = prepared.pairs, np.ones(len(judge.ids), np.bool_)
    if pairs.noise is not None:
        wrong, measured = pairs.mismatched(), (pairs.split == "train")[judge.ids] & could_be_wrong(pairs)[judge.ids]
    rows = judge.ids[measured]
    return {
        "taken": config.encode.text_encoder or prepared.texts.name,
        **quality(judgement.probability[measured], wrong[rows], judgement.verdicts),
        "verdicts": bool(judgement.verdicts),
        "estimate": round(float(judgement.rate), 4),
        "low": round(float(judgement.low), 4),
        "high": round(float(judgement.high), 4),
        "encode_seconds": round(encoded - began, 1),
        "judge_seconds": round(ended - encoded, 1),
    }


def table(rows: list[Row]) -> str:
    """Return means over the seeds, a line for each collection, noise and encoder."""
    lines = []
    names = ("collection", "kind", "noise", "encoder")
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        (collection, kind, noise, encoder), group = key, select(rows, dict(zip(names, key, strict=True)))
        forms = {"estimate": ".1%", "flagged": ".1%", "auroc": ".3f", "calibration": ".3f", "encode_seconds": ".0f"}
        cells = [mean((row.get(name) for row in group), form) for name, form in forms.items()]
        taken = " or ".join(sorted({row["taken"] for row in group}))
        named = encoder if taken == encoder else f"{encoder} ({taken})"
        given = "" if all(row["verdicts"] for row in group) else "none"
        lines.append(
            [
                collection,
                str(group[0]["pairs"]),
                f"{noise:.0%}{f' {kind}' * (kind != SHUFFLED)}",
                named,
                *cells,
                given,
                str(len(group)),
            ]
        )
    head = ["collection", "pairs", "noise", "text encoder", "estimate", "flagged", "AUROC", "calibration error"]
    return markdown([*head, "seconds to encode", "verdicts", "seeds"], lines)


def summary(rows: list[Row]) -> str:
    """AUROC and estimate at 30%, means over the seeds, by collection and encoder."""
    compared = {"before": "word vectors (before)", "muse": "`muse`", "minilm": "`minilm`"}
    lines = []
    for collection in dict.fromkeys(row["collection"] for row in rows if row["noise"] == SUMMED):
        cells = []
        for encoder in compared:
            wanted = {"collection": collection, "kind": SHUFFLED, "noise": SUMMED, "encoder": encoder}
            group = select(rows, wanted)
            estimate = mean((row["estimate"] for row in group if row["verdicts"]), ".1%") or "no verdicts"
            cells.append(f"{mean((row['auroc'] for row in group), '.3f')}, {estimate}")
        lines.append([f"`{collection}`", f"{group[0]['pairs']:,}", *cells])
    return markdown(["collection", "pairs", *compared.values()], lines)


if __name__ == "__main__":
    main()
