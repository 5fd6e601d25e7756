"""Rows, pictures and decisions that exports are made of."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from pairsift.export.selection import choose_pairs
from pairsift.review.decisions import Decision, Decisions

N = 12
SPLITS = ["train"] * 6 + ["dev"] * 3 + ["test"] * 3
CAPTIONS = [f"caption {k}" for k in range(N)]
ROWS = [
    {
        "id": 100 + k,
        "photo": f"pictures/{k // 2}.png",
        "price": k / 4,
        "caption": CAPTIONS[k],
        "split": SPLITS[k // 2 * 2],
    }
    for k in range(N)
]


def with_pictures(folder):
    """The folder with a picture for every two rows."""
    (folder / "pictures").mkdir()
    for k in range(N // 2):
        Image.new("RGB", (9, 8), (k, 0, 0)).save(folder / "pictures" / f"{k}.png")
    return folder


def written(path, rows=ROWS):
    """The rows as a file of the format that its name says, with types where it has types."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def rows_of(path):
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))


def judged(pairs):
    """A table of judged pairs with a rising match probability."""
    ids = pairs.ids()
    return pa.table({"pair": ids, "match_probability": (ids + 0.5) / len(pairs)})


def cleaned(pairs, folder, **rule):
    """Drop pair 3, give pair 1 a new caption, keep pair 0, and decide the rest by the rule."""
    decisions = Decisions(folder, pairs.ids())
    decisions.decide([Decision(3, "drop"), Decision(1, "replace", "=NEW, and better"), Decision(0, "keep")])
    return choose_pairs(pairs, judged(pairs), decisions.table(), **rule)
