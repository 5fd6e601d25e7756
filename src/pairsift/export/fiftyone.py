"""Cleaned data as a dataset that FiftyOne opens: its fields in one JSON file and its samples in another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairsift.errors import writing
from pairsift.export.selection import Selection
from pairsift.files import replacing
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers.rows import unique
from pairsift.table import JUDGEMENT_COLUMNS, storable

ENDING = ".fiftyone"
VERSION = "1.0.0"  # of FiftyOne: later versions migrate what was written by it
BATCH = 4096  # rows of the table that are Python objects at once

Row = dict[str, object]

# names that mean something else on a sample: FiftyOne's fields, and what Python finds there beside fields
TAKEN = (
    "id filepath tags metadata created_at last_modified_at caption "
    "add_field add_implied_field add_labels cascade_save clean clear_field collection_name compare_indexes "
    "compute_metadata copy copy_with_new_id create_index dataset dataset_id delete DoesNotExist drop_collection "
    "ensure_indexes fancy_repr field_names field_to_mongo field_to_python filename from_dict from_doc from_frame "
    "from_json get_field get_field_schema get_media_key get_text_score has_field in_dataset in_db iter_fields "
    "list_indexes media_reference media_type merge merge_field_schema modify MultipleObjectsReturned my_metaclass "
    "objects pk register_delete_rule reload save select_related set_field STRICT switch_collection switch_db to_dbref "
    "to_dict to_json to_mongo to_mongo_dict update update_fields validate"
)


def export_fiftyone(pairs: Pairs, selection: Selection, out: Path, weights: bool = False) -> None:
    """Write the selected pairs as a folder in FiftyOne's own layout, `fiftyone.types.FiftyOneDataset`.

    A pair is a sample. It has the columns of `pairs.parquet`, the caption of the export as `caption`, the columns of
    the source as text, and its split as a tag. The worst pairs come first, and those that were not judged last. Images
    stay where they are: a sample has the absolute path of its image.

    Args:
        pairs: All pairs, of a source of images.
        selection: The pairs to export, their captions, and the table of judged pairs.
        out: The folder, which must not exist.
        weights: Whether samples get a field `weight`.

    Raises:
        WriteError: The folder cannot be written.
    """
    table = selection.table
    judged = table.select([name for name in table.column_names if name in JUDGEMENT_COLUMNS])
    names = field_names(list(pairs.columns))
    weight = unique([*names, "weight"])[-1:] if weights else []
    with writing(out), replacing(out) as part:
        part.mkdir(parents=True)
        fields = [*_fields(judged.schema), *(_field(name, "Float") for name in weight), *map(_field, names)]
        content = {"version": VERSION, "media_type": "image", "sample_fields": fields}
        (part / "metadata.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
        with (part / "samples.json").open("w", encoding="utf-8") as stream:
            stream.write('{"samples": [')
            for k, sample in enumerate(_samples(pairs, judged, selection, names, weight)):
                stream.write((",\n" if k else "\n") + json.dumps(sample))
            stream.write("\n]}\n")


def field_names(columns: list[str]) -> list[str]:
    """Return a name of a field for each column of the source.

    FiftyOne takes a dot for a step into a field, and refuses `$` and names that begin with `_`. `_given` is appended to
    names that a sample has already and to names of our columns.
    """
    names, taken = [], {*TAKEN.split(), *JUDGEMENT_COLUMNS}
    for column in columns:
        name = re.sub(r"[.$\x00]", "_", storable(column)).lstrip("_") or "column"
        while name in taken:
            name += "_given"
        taken.add(name)
        names.append(name)
    return names


def _fields(schema: pa.Schema) -> list[Row]:
    """Return the descriptions of FiftyOne's own fields, of the caption and of our columns."""
    kinds = {pa.int64(): "Int", pa.float64(): "Float", pa.bool_(): "Boolean"}
    return [
        _field("id", "ObjectId", db_field="_id"),
        _field("filepath"),
        _field("tags", "List", subfield="fiftyone.core.fields.StringField"),
        _field("metadata", "EmbeddedDocument", embedded_doc_type="fiftyone.core.metadata.ImageMetadata"),
        _field("created_at", "DateTime"),
        _field("last_modified_at", "DateTime"),
        _field("caption"),
        *(_field(column.name, kinds.get(column.type, "String")) for column in schema),
    ]


def _field(name: str, kind: str = "String", **properties: str) -> Row:
    """Return the description of a field."""
    empty = {"subfield": None, "embedded_doc_type": None, "db_field": name}
    return {"name": name, "ftype": f"fiftyone.core.fields.{kind}Field", **empty, **properties}


def _samples(
    pairs: Pairs, judged: pa.Table, selection: Selection, names: list[str], weight: list[str]
) -> Iterator[Row]:
    """Yield a sample for each selected pair."""
    random = np.random.default_rng(0)  # FiftyOne draws samples by a number that each has
    for pair, row in _rows(pairs, judged, selection):
        path = pairs.paths[int(pairs.image_of[pair])]
        yield {
            "filepath": storable(str(path.absolute())),
            "tags": [str(pairs.split[pair])],
            "_media_type": "image",
            "_rand": random.random(),
            "caption": storable(selection.captions.get(pair, pairs.captions[pair])),
            **row,
            **{name: float(selection.weight[pair]) for name in weight},
            **{name: storable(values[pair]) for name, values in zip(names, pairs.columns.values(), strict=True)},
        }


def _rows(pairs: Pairs, judged: pa.Table, selection: Selection) -> Iterator[tuple[int, Row]]:
    """Yield selected pairs with their rows of the table, in its order, then the others with what is known of them."""
    ids = judged["pair"].to_numpy()
    for batch in judged.filter(pa.array(selection.keep[ids])).to_batches(BATCH):
        yield from ((row["pair"], row) for row in batch.to_pylist())
    rest = selection.keep.copy()
    rest[ids] = False
    unknown = dict.fromkeys(judged.column_names)
    for pair in np.flatnonzero(rest).tolist():
        name, caption = pairs.image_name(pair), pairs.captions[pair]
        roles = {"image": storable(name), "given_caption": storable(caption), "split": str(pairs.split[pair])}
        yield pair, {**unknown, "pair": pair, **roles}
