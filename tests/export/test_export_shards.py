"""Cleaned data as tar files: read again with the same pairs, and what the samples of a source of tar files keep."""

import csv
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairsift
from pairsift.errors import InputError
from pairsift.export import shards
from pairsift.export.cleaned import export, folder_of_names
from pairsift.export.selection import choose_pairs
from pairsift.noise.planted import plant_noise
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import origin_of_pairs, read_origin
from pairsift.review.decisions import Decision, Decisions
from shard_sources import files_of, picture, sample, write_shards, write_tar

N = 12
SPLITS = ["train"] * 8 + ["dev"] * 2 + ["test"] * 2


def selection_of(pairs, folder, *decisions):
    """The selection by decisions; the match probability rises from pair to pair."""
    ids = pairs.ids()
    table = pa.table({"pair": ids, "match_probability": (ids + 0.5) / len(pairs)})
    folder.mkdir(parents=True, exist_ok=True)
    journal = Decisions(folder, ids)
    if decisions:
        journal.decide(list(decisions))
    return choose_pairs(pairs, table, journal.table())


def load(path, **options):
    return pairsift.load(path, cache=path.parent / "cache", **options)


def exported(source, out, *decisions, columns=None, splits=False, weights=False, reader=None):
    """Load a source, apply decisions and export it; return the pairs."""
    given = columns or {}
    pairs = load(source, reader=reader, **given)
    cache = source.parent / "cache"
    origin = read_origin(
        source,
        reader,
        Columns(given.get("image_column"), given.get("caption_column"), given.get("image_folder"), cache),
    )
    export(
        origin, pairs, selection_of(pairs, out.parent / "journals" / out.stem, *decisions), out, weights, splits=splits
    )
    return pairs


def content(pairs):
    """What identifies each usable pair: the bytes of its image, its caption, its split and its other columns."""
    return [
        (
            pairs.paths[pairs.image_of[pair]].read_bytes(),
            pairs.captions[pair],
            pairs.split[pair],
            {name: values[pair] for name, values in pairs.columns.items() if values[pair]},
        )
        for pair in pairs.ids()
    ]


def without(pairs, *names):
    """The content of the pairs without some columns."""
    return [
        (image, caption, split, {name: cell for name, cell in columns.items() if name not in names})
        for image, caption, split, columns in content(pairs)
    ]


def by_split(found):
    """The content in the order of the splits' folders, in which an export is read again."""
    return sorted(found, key=lambda pair: pair[2])


@pytest.fixture
def table(tmp_path):
    """A Parquet file with five types of columns and images of three formats; two captions an image."""
    (tmp_path / "pictures").mkdir()
    kinds = ["JPEG", "PNG", "WEBP"] * 2
    names = [f"pictures/{k}.{kinds[k].lower()}" for k in range(N // 2)]
    for k, name in enumerate(names):
        (tmp_path / name).write_bytes(picture(k, kinds[k]))
    rows = {
        "photo": [names[k // 2] for k in range(N)],
        "words": [f" caption {k}\n" for k in range(N)],
        "price": [k / 4 for k in range(N)],
        "tags": [["a", str(k)] for k in range(N)],
        "split": SPLITS,
    }
    pq.write_table(pa.table(rows), tmp_path / "mine.parquet")
    return tmp_path / "mine.parquet"


NAMED = {"image_column": "photo", "caption_column": "words"}


def test_a_table_comes_back_from_tar_files(table):
    out = table.parent / "clean-shards"
    pairs = exported(table, out, columns=NAMED)
    assert sorted(str(file.relative_to(out)) for file in out.rglob("*.*")) == [
        "dev/00000.tar",
        "test/00000.tar",
        "train/00000.tar",
    ]
    again = load(out)
    assert by_split(without(again, "photo")) == by_split(content(pairs))
    assert sorted(again.columns["photo"]) == sorted(pairs.names[row] for row in pairs.image_of)
    assert [again.paths[row].suffix for row in again.images("dev")] == [".png"]
    files = files_of(out / "train" / "00000.tar")
    assert list(files)[:3] == ["000000000.jpg", "000000000.txt", "000000000.json"]
    expected = {"photo": "pictures/0.jpeg", "price": 0.0, "tags": ["a", "0"], "split": "train"}
    assert json.loads(files["000000000.json"]) == expected


def test_decisions_and_weights_are_applied(table):
    out = table.parent / "clean.shards"
    decisions = Decision(3, "drop"), Decision(1, "replace", "better")
    pairs = exported(table, out, *decisions, columns=NAMED, weights=True)
    again = load(out)
    by_price = {float(price): pair for pair, price in enumerate(again.columns["price"])}
    assert sorted(by_price) == [k / 4 for k in range(N) if k != 3]
    assert again.captions[by_price[0.25]] == "better"
    for k in (0, 1, 2, *range(4, N)):
        assert float(again.columns["weight"][by_price[k / 4]]) == (1 if k == 1 else (k + 0.5) / N)
        assert again.split[by_price[k / 4]] == pairs.split[k]


def test_drawn_splits_are_written_on_request_alone(table):
    pq.write_table(pq.read_table(table).drop_columns(["split"]), table)
    exported(table, table.parent / "bare-shards", columns=NAMED)
    assert [file.name for file in (table.parent / "bare-shards").iterdir()] == ["00000.tar"]
    out = table.parent / "split-shards"
    pairs = exported(table, out, columns=NAMED, splits=True)
    assert by_split(without(load(out, split_seed=5), "photo")) == by_split(content(pairs))


def test_images_within_a_parquet_file_and_lists_of_captions(tmp_path):
    cells = [{"bytes": picture(k, "PNG"), "path": None} for k in range(4)]
    captions = [["one", "two"], ["three"], ["four", "five"], ["six"]]
    masks = [b"\xff\x00\xff"] * 4
    pq.write_table(
        pa.table({"image": cells, "captions": captions, "mask": masks, "n": range(4)}), tmp_path / "x.parquet"
    )
    pairs = exported(tmp_path / "x.parquet", tmp_path / "shards", Decision(0, "drop"), weights=True)
    again = load(tmp_path / "shards")
    assert [again.captions[pair] for pair in again.ids()] == ["two", "three", "four", "five", "six"]
    assert [again.paths[row].read_bytes() for row in again.image_of] == [picture(k, "PNG") for k in (0, 1, 2, 2, 3)]
    assert again.columns["n"] == ["0", "1", "2", "2", "3"] and again.columns["mask"] == [""] * 5
    assert again.columns["json image"] == [pairs.names[k] for k in (0, 1, 2, 2, 3)]
    assert [float(cell) for cell in again.columns["weight"]] == pytest.approx([(k + 0.5) / 6 for k in range(1, 6)])


def test_a_folder_of_files_and_its_unused_images(tmp_path):
    rows = [(f"{k}.jpg", f"caption {k}") for k in range(6)]
    (tmp_path / "mine" / "images").mkdir(parents=True)
    (tmp_path / "mine" / "splits").mkdir()
    with (tmp_path / "mine" / "captions.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("image", "caption"), *rows])
    for k, (name, _) in enumerate(rows):
        (tmp_path / "mine" / "images" / name).write_bytes(picture(k))
    for split, numbers in (("train", "012"), ("dev", "3"), ("test", "4")):  # image 5 is in none
        (tmp_path / "mine" / "splits" / f"{split}.txt").write_text("".join(f"{n}.jpg\n" for n in numbers))
    pairs = exported(tmp_path / "mine", tmp_path / "shards")
    again = load(tmp_path / "shards")
    assert sorted(zip(again.captions, again.split.tolist(), strict=True)) == sorted(
        zip(pairs.captions, pairs.split.tolist(), strict=True)
    )
    assert pairs.split[5] == "unused"


def test_tar_files_come_back_as_they_were(tmp_path):
    source = write_shards(tmp_path / "source", 2, 3, key="k", width=640, exif={"Make": ["x", 1.10]}, nothing=None)
    files = [
        *sample("b", 6, "a caption\n"),
        ("b.mask.png", picture(7, "PNG")),
        ("b.cls", b"3"),
        ("b.metadata.json", b"{ }"),
    ]
    files.append(("b.png", picture(8, "PNG")))
    write_tar(source / "00002.tar", files)
    pairs = exported(source, tmp_path / "shards")
    before = {name: raw for tar in sorted(source.iterdir()) for name, raw in files_of(tar).items()}
    assert [file.name for file in (tmp_path / "shards").iterdir()] == ["00000.tar"]
    assert list(files_of(tmp_path / "shards" / "00000.tar").items()) == list(before.items())
    again = load(tmp_path / "shards")
    assert (again.captions, again.columns) == (pairs.captions, pairs.columns)
    assert [path.read_bytes() for path in again.paths] == [path.read_bytes() for path in pairs.paths]


def test_tar_files_change_only_where_something_was_decided(tmp_path):
    source = write_shards(tmp_path / "source", 2, 3, width=640, title="caption 1")
    exported(source, tmp_path / "shards", Decision(1, "replace", "better"), Decision(4, "drop"))
    before = {name: raw for tar in sorted(source.iterdir()) for name, raw in files_of(tar).items()}
    after = files_of(tmp_path / "shards" / "00000.tar")
    assert {name.partition(".")[0] for name in before} - {name.partition(".")[0] for name in after} == {"000000004"}
    assert {name for name in after if after[name] != before[name]} == {"000000001.txt", "000000001.json"}
    assert after["000000001.txt"] == b"better"
    assert json.loads(after["000000001.json"]) == {"caption": "better", "width": 640, "title": "caption 1"}


def test_captions_stay_where_they_were(tmp_path):
    files = []
    for k, value in enumerate(["one", ["two", "three"], ["four", "five"], "six"]):
        files += [(f"{k}.jpg", picture(k)), (f"{k}.json", json.dumps({"title": value, "n": k}).encode())]
    source = write_tar(tmp_path / "x.tar", files)
    decisions = Decision(0, "replace", "ONE"), Decision(1, "drop"), Decision(4, "replace", "FIVE")
    exported(source, tmp_path / "shards", *decisions, weights=True)
    after = files_of(tmp_path / "shards" / "00000.tar")
    assert not any(name.endswith(".txt") for name in after)
    found = [json.loads(after[f"{k}.json"]) for k in range(4)]
    assert [row["title"] for row in found] == ["ONE", ["three"], ["four", "FIVE"], "six"]
    weights = [1.0, [2.5 / 6], [3.5 / 6, 1.0], 5.5 / 6]
    assert [row["weight"] for row in found] == [pytest.approx(weight) for weight in weights]
    assert load(tmp_path / "shards").captions == ["ONE", "three", "four", "FIVE", "six"]


def test_a_named_field_gets_the_new_caption_and_the_text_stays(tmp_path):
    source = write_shards(tmp_path / "source", alt="words")
    columns = {"caption_column": "alt"}
    exported(source, tmp_path / "shards", Decision(2, "replace", "better"), columns=columns)
    assert load(tmp_path / "shards", **columns).captions == ["words", "words", "better", *["words"] * 3]
    assert load(tmp_path / "shards").captions == [f"caption {k}" for k in range(6)]


def test_samples_without_json_get_one_where_they_need_it(tmp_path):
    source = write_shards(tmp_path / "source")
    exported(source, tmp_path / "shards", weights=True)
    assert json.loads(files_of(tmp_path / "shards" / "00000.tar")["000000002.json"]) == {
        "weight": pytest.approx(2.5 / 6)
    }
    broken = [*sample("a", 1), ("a.json", b"[1]"), *sample("b", 2), *sample("c", 3)]
    exported(write_tar(tmp_path / "x.tar", broken), tmp_path / "more-shards", weights=True)
    assert files_of(tmp_path / "more-shards" / "00000.tar")["a.json"] == b"[1]"


def test_splits_of_tar_files_come_along(tmp_path):
    source = tmp_path / "source"
    for place, name in enumerate(("train-0.tar", "val-0.tar", "test-0.tar", "rest.tar")):
        write_tar(source / name, [file for k in range(3) for file in sample(f"{place}{k}", place * 3 + k, n=k)])
    pairs = exported(source, tmp_path / "shards")
    found = {str(file.relative_to(tmp_path / "shards")) for file in (tmp_path / "shards").rglob("*.tar")}
    assert found == {f"{split}/00000.tar" for split in ("train", "dev", "test", "unused")}
    again = load(tmp_path / "shards")
    assert by_split(content(again)) == by_split(content(pairs)) and (again.split == "unused").sum() == 3
    words = ["train", "train", "val", "TEST", "train", "train"]
    files = [file for k, word in enumerate(words) for file in sample(f"{k}", k, split=word)]
    pairs = exported(write_tar(tmp_path / "fields.tar", files), tmp_path / "more-shards", splits=True)
    assert json.loads(files_of(tmp_path / "more-shards" / "dev" / "00000.tar")["2.json"])["split"] == "val"
    assert by_split(content(load(tmp_path / "more-shards"))) == by_split(content(pairs))


def test_drawn_splits_of_tar_files(tmp_path):
    source = write_shards(tmp_path / "source", 4, 5, width=1)
    pairs = exported(source, tmp_path / "shards", splits=True)
    again = load(tmp_path / "shards", split_seed=7)
    assert by_split(content(again)) == by_split(content(pairs))
    before = {name: raw for tar in sorted(source.iterdir()) for name, raw in files_of(tar).items()}
    after = {name: raw for tar in (tmp_path / "shards").rglob("*.tar") for name, raw in files_of(tar).items()}
    assert after == before


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet", "folder", "out.json"])
def test_tar_files_are_exported_in_the_other_formats_too(tmp_path, name):
    source = write_shards(tmp_path / "source", image="i.jpg", width=640)
    pairs = exported(source, tmp_path / name, Decision(1, "drop"))
    kept = [caption for k, caption in enumerate(pairs.captions) if k != 1]
    if name == "folder":
        assert load(tmp_path / name).captions == kept
        return
    text = pq.read_table(tmp_path / name).to_pylist() if name.endswith("parquet") else (tmp_path / name).read_text()
    if name.endswith(("csv", "jsonl")):
        text = (
            list(csv.DictReader(text.splitlines())) if name == "out.csv" else list(map(json.loads, text.splitlines()))
        )
    rows = json.loads(text)["annotations"] if name == "out.json" else text
    assert [(row["caption"], row["json image"], row["width"]) for row in rows] == [
        (text, "i.jpg", "640") for text in kept
    ]


def test_a_tar_file_holds_so_many_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SAMPLES", 4)
    source = write_shards(tmp_path / "source", 3, 3)
    exported(source, tmp_path / "shards")
    sizes = {tar.name: len(files_of(tar)) // 2 for tar in (tmp_path / "shards").iterdir()}
    assert sizes == {"00000.tar": 4, "00001.tar": 4, "00002.tar": 1}
    assert load(tmp_path / "shards").captions == [f"caption {k}" for k in range(9)]


def test_keys_are_made_harmless_and_unique(tmp_path):
    keys = ["../../up", "/root", "a/./b", "same", "same", "same_1", "new\nline", "v.1/photo"]
    files = [file for k, key in enumerate(keys) for file in sample(key, k)]
    exported(write_tar(tmp_path / "x.tar", files), tmp_path / "shards")
    names = list(files_of(tmp_path / "shards" / "00000.tar"))
    assert names[::2] == [
        *("up.jpg", "root.jpg", "a/b.jpg", "same.jpg", "same_1.jpg", "same_1_1.jpg", "new_line.jpg"),
        "v_1/photo.jpg",
    ]
    assert load(tmp_path / "shards").captions == [f"caption {k}" for k in range(len(keys))]


def test_planted_noise_is_exported_as_the_run_saw_it(tmp_path):
    source = write_shards(tmp_path / "source", 4, 5, n=1)
    pairs = plant_noise(load(source), 0.9, 1, "caption")
    export(origin_of_pairs(pairs), pairs, selection_of(pairs, tmp_path), tmp_path / "shards")
    again = load(tmp_path / "shards")
    assert by_split(without(again, "json image")) == by_split(content(pairs))
    assert content(pairs) != content(load(source))


def test_decisions_follow_their_samples_in_a_source_that_was_edited_since(tmp_path):
    source = write_shards(tmp_path / "source", n=1)
    pairs = load(source)
    write_stored_pairs(pairs, pairs.split, tmp_path / "stored.parquet")
    write_tar(source / "00000.tar", [file for k in (9, 2, 0) for file in sample(f"{k:09d}", k, n=1)])  # 1 is gone
    merged, _ = merge(read_stored_pairs(tmp_path / "stored.parquet"), load(source))
    selection = selection_of(merged, tmp_path, Decision(2, "replace", "better"), Decision(4, "drop"))
    origin = read_origin(source, None, Columns(cache=tmp_path / "cache"))
    export(origin, merged, selection, tmp_path / "shards")
    again = load(tmp_path / "shards")
    assert again.captions == ["caption 9", "better", "caption 0", "caption 3", "caption 5"]
    assert [again.paths[row].read_bytes() for row in again.image_of] == [picture(k) for k in (9, 2, 0, 3, 5)]


def test_images_follow_their_rows_where_the_last_rows_are_gone(table):
    pairs = load(table, **NAMED)
    write_stored_pairs(pairs, pairs.split, table.parent / "stored.parquet")
    pq.write_table(pq.read_table(table).slice(1, N - 3), table)  # the first row is gone too
    merged, _ = merge(read_stored_pairs(table.parent / "stored.parquet"), load(table, **NAMED))
    origin = read_origin(table, None, Columns("photo", "words"))
    export(origin, merged, selection_of(merged, table.parent), table.parent / "shards")
    again = load(table.parent / "shards")
    found = {caption: image for image, caption, *_ in content(again)}
    assert found == {caption: image for image, caption, *_ in content(pairs)[1 : N - 2]}


def test_what_cannot_be_exported_is_told_in_one_line(tmp_path, table):
    pairs = load(table, **NAMED)
    selection, origin = selection_of(pairs, tmp_path), read_origin(table, None, Columns("photo", "words"))
    with pytest.raises(InputError, match=r"out\.tar: tar files are written into a folder whose name ends in shards"):
        export(origin, pairs, selection, tmp_path / "out.tar")
    pairs.paths[2].unlink()
    with pytest.raises(InputError, match=r"2\.webp: the image cannot be read"):
        export(origin, pairs, selection, tmp_path / "shards")
    assert not list(tmp_path.glob("*shards*")) and not list(tmp_path.glob(".*"))
    np.save(tmp_path / "image.npy", np.ones((4, 8), np.float32))
    np.save(tmp_path / "text.npy", np.ones((4, 8), np.float32))
    (tmp_path / "captions.csv").write_text("caption\none\ntwo\nthree\nfour\n")
    with pytest.raises(InputError, match="has features instead of images"):
        exported(tmp_path, tmp_path / "shards", reader="embeddings")


def test_only_tables_name_images_elsewhere(table):
    pairs = load(table, **NAMED)
    assert folder_of_names(pairs, table.parent / "deep" / "out.csv") == table.parent
    assert folder_of_names(pairs, table.parent / "deep" / "shards") is None


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
captions = texts.map(lambda text: f"two words {text}")  # they say something
cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts, st.lists(texts, max_size=2)
)
names = texts.filter(lambda name: name.strip().lower() not in ("image", "caption", "split", "subset", "partition"))


@given(st.lists(st.tuples(captions, st.binary(max_size=30), st.dictionaries(names, cells, max_size=3)), min_size=3))
def test_every_pair_comes_back(rows):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "x.jsonl"
        lines = []
        for k, (caption, image, more) in enumerate(rows):
            (Path(folder) / f"{k}.jpg").write_bytes(bytes([k]) + image)
            lines.append(
                json.dumps({**{name: cell for name, cell in more.items()}, "image": f"{k}.jpg", "caption": caption})
            )
        source.write_text("\n".join(lines))
        pairs = exported(source, Path(folder) / "shards")
        again = load(Path(folder) / "shards")
        assert without(again, "json image") == [
            (image, caption, split, {name: cell for name, cell in columns.items()})
            for (image, caption, _, columns), split in zip(content(pairs), again.split.tolist(), strict=True)
        ]
        exported(Path(folder) / "shards", Path(folder) / "twice-shards")
        for tar in (Path(folder) / "shards").iterdir():
            assert files_of(tar) == files_of(Path(folder) / "twice-shards" / tar.name)
