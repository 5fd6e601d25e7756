"""Cleaned data as a folder in FiftyOne's own layout."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pairsift
from pairsift.errors import InputError
from pairsift.export.cleaned import export
from pairsift.export.fiftyone import export_fiftyone, field_names
from pairsift.export.selection import choose_pairs
from pairsift.pairs.precomputed import Precomputed
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import read_origin
from pairsift.review.decisions import Decision, Decisions
from pairsift.table import pair_table

SPLITS = [*["train"] * 6, "dev", "test", "unused", "unused"]
OWN = {"id": "ObjectId", "filepath": "String", "tags": "List", "metadata": "EmbeddedDocument"}
OWN |= {"created_at": "DateTime", "last_modified_at": "DateTime", "caption": "String"}
OURS = {"pair": "Int", "image": "String", "given_caption": "String", "split": "String", "match_probability": "Float"}
OURS |= {"is_mismatch": "Boolean", "verdict": "String", "suggested_caption": "String", "suggested_from_pair": "Int"}


@pytest.fixture
def pairs(tmp_path):
    """Ten pairs, of which the last two are in no split, with columns whose names FiftyOne takes for something else."""
    (tmp_path / "pictures").mkdir()
    lines = ["image,caption,split,id,price.eur,weight"]
    for k, split in enumerate(SPLITS):
        Image.new("RGB", (9, 8), (k, 0, 0)).save(tmp_path / "pictures" / f"{k}.png")
        lines.append(f"pictures/{k}.png,caption {k},{split},{100 + k},{k / 4},heavy")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    return pairsift.load(tmp_path / "mine.csv")


def judged(pairs):
    """Pair 7 is the worst, pair 0 the best; 7 and 6 are flagged and have a suggestion."""
    ids = pairs.ids()
    probability = 1 - (ids + 0.5) / len(ids)
    flagged = ids > 5
    return pair_table(
        pairs, ids, probability, flagged, np.where(flagged, "mismatched", "clean"), np.where(flagged, 1, -1)
    )


@pytest.fixture
def written(pairs, tmp_path):
    """The export with pair 3 dropped and a new caption for pair 6, as fields and samples."""
    decisions = Decisions(tmp_path, pairs.ids())
    decisions.decide([Decision(3, "drop"), Decision(6, "replace", "ein Hund, «naß»")])
    table = judged(pairs)
    export_fiftyone(pairs, choose_pairs(pairs, table, decisions.table()), tmp_path / "out.fiftyone", True)
    assert sorted(path.name for path in (tmp_path / "out.fiftyone").iterdir()) == ["metadata.json", "samples.json"]
    files = [json.loads((tmp_path / "out.fiftyone" / f"{name}.json").read_bytes()) for name in ("metadata", "samples")]
    return files[0], files[1]["samples"]


def test_every_value_of_a_sample_has_a_field_of_its_type(written):
    content, samples = written
    fields = {field["name"]: field for field in content["sample_fields"]}
    kinds = {name: field["ftype"].removeprefix("fiftyone.core.fields.") for name, field in fields.items()}
    expected = {**OWN, **OURS, "weight 2": "Float", "id_given": "String", "price_eur": "String", "weight": "String"}
    assert kinds == {name: f"{kind}Field" for name, kind in expected.items()}
    assert content["media_type"] == "image" and content["version"] == "1.0.0"
    assert {name: field["db_field"] for name, field in fields.items()} == {name: name for name in fields} | {
        "id": "_id"
    }
    types = {"String": str, "Float": float, "Int": int, "Boolean": bool, "List": list}
    added_by_fiftyone = {"id", "metadata", "created_at", "last_modified_at"}
    for sample in samples:
        assert sample.keys() == expected.keys() - added_by_fiftyone | {"_media_type", "_rand"}
        assert sample["_media_type"] == "image" and 0 <= sample["_rand"] < 1
        for name in expected.keys() & sample.keys():
            assert sample[name] is None or type(sample[name]) is types[expected[name]], name


def test_the_worst_pairs_come_first_and_the_unjudged_last(written, tmp_path):
    _, samples = written
    assert [sample["pair"] for sample in samples] == [7, 6, 5, 4, 2, 1, 0, 8, 9]
    for sample in samples:
        pair = sample["pair"]
        assert sample["filepath"] == str(tmp_path / "pictures" / f"{pair}.png") and Path(sample["filepath"]).is_file()
        assert sample["tags"] == [sample["split"]] == [SPLITS[pair]]
        assert sample["image"] == f"pictures/{pair}.png" and sample["given_caption"] == f"caption {pair}"
        assert sample["caption"] == ("ein Hund, «naß»" if pair == 6 else f"caption {pair}")
        assert (sample["id_given"], sample["price_eur"], sample["weight"]) == (str(100 + pair), str(pair / 4), "heavy")
        probability = pytest.approx(1 - (pair + 0.5) / 8) if pair < 8 else None
        assert sample["match_probability"] == probability
        assert sample["verdict"] == (None if pair > 7 else "mismatched" if pair > 5 else "clean")
        assert sample["suggested_caption"] == ("caption 1" if pair in (6, 7) else None)
        assert sample["weight 2"] == (1.0 if probability is None or pair == 6 else probability)


def test_field_names_are_those_that_fiftyone_takes_each_once():
    columns = ["price", "a.b", "a_b", "$cost", "_x", "x", "", "to_dict", "id", "id_given", "verdict", "größe in m"]
    assert field_names(columns) == [
        *("price", "a_b", "a_b_given", "cost", "x", "x_given", "column", "to_dict_given", "id_given"),
        *("id_given_given", "verdict_given", "größe in m"),
    ]


def test_file_names_that_are_not_utf8_do_not_end_an_export(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "caf\udce9.png")
    (tmp_path / "caf\udce9.txt").write_text("a café")
    for k in range(3):
        Image.new("RGB", (9, 8), (k, 0, 0)).save(tmp_path / f"{k}.png")
        (tmp_path / f"{k}.txt").write_text(f"caption {k}")
    pairs = pairsift.load(tmp_path)
    table = pair_table(pairs, pairs.ids(), np.full(4, 0.5), np.zeros(4, bool), ["clean"] * 4, np.full(4, -1))
    selection = choose_pairs(pairs, table, Decisions(tmp_path, pairs.ids()).table())
    export_fiftyone(pairs, selection, tmp_path / "out.fiftyone")
    samples = json.loads((tmp_path / "out.fiftyone" / "samples.json").read_bytes())["samples"]
    assert {Path(sample["filepath"]).name for sample in samples} == {"0.png", "1.png", "2.png", "caf\ufffd.png"}


def test_a_folder_that_exists_stays_and_features_have_no_images_to_look_at(pairs, tmp_path):
    selection = choose_pairs(pairs, judged(pairs), Decisions(tmp_path, pairs.ids()).table())
    origin = read_origin(tmp_path / "mine.csv", None, Columns())
    features = Precomputed((tmp_path / "x.npy",), (4,), np.arange(10))
    with pytest.raises(InputError, match="features instead of images"):
        export(origin, replace(pairs, features=features), selection, tmp_path / "out.fiftyone")
    (tmp_path / "out.fiftyone").mkdir()
    with pytest.raises(InputError, match="exists already"):
        export(origin, pairs, selection, tmp_path / "out.fiftyone")
    assert not list((tmp_path / "out.fiftyone").iterdir())


@pytest.mark.parametrize("name", ["out.fiftyone", "out.FiftyOne"])
def test_the_ending_decides_wherever_an_export_is_called(written, pairs, tmp_path, name):
    """A plain folder of images would come out where only the verb knew the ending."""
    selection = choose_pairs(pairs, judged(pairs), Decisions(tmp_path, pairs.ids()).table())
    out = tmp_path / "by export" / name
    out.parent.mkdir()
    export(read_origin(tmp_path / "mine.csv", None, Columns()), pairs, selection, out, weights=True, splits=True)
    assert sorted(path.name for path in out.iterdir()) == ["metadata.json", "samples.json"]
    content, samples = (json.loads((out / f"{file}.json").read_bytes()) for file in ("metadata", "samples"))
    assert (content, samples["samples"]) == written
