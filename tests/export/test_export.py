"""Cleaned data, written in every format and read again."""

import json
from dataclasses import replace

import numpy as np
import pytest
from export_helpers import CAPTIONS, ROWS, SPLITS, N, cleaned, judged, rows_of, with_pictures, written
from PIL import Image

import pairsift
from pairsift.errors import InputError
from pairsift.export.cleaned import coco, export, folder_of_names
from pairsift.export.selection import choose_pairs
from pairsift.noise.planted import plant_noise
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.records import Columns
from pairsift.pairs.source_rows import origin_of_pairs, read_origin
from pairsift.review.decisions import Decisions


@pytest.fixture
def place(tmp_path):
    return with_pictures(tmp_path)


def test_splits_that_lie_beside_the_table_come_along(place):
    written(place / "captions.csv", [{"image": row["photo"].split("/")[1], "caption": row["caption"]} for row in ROWS])
    (place / "pictures").rename(place / "images")
    (place / "splits").mkdir()
    for split, names in (("train", "012"), ("dev", "3"), ("test", "4")):  # image 5 is in none
        (place / "splits" / f"{split}.txt").write_text("".join(f"{name}.png\n" for name in names))
    pairs = pairsift.load(place)
    export(read_origin(place, None, Columns()), pairs, cleaned(pairs, place), place / "out.csv")
    again = pairsift.load(place / "out.csv", image_folder=place / "images")
    assert again.split.tolist() == [split for pair, split in enumerate(pairs.split.tolist()) if pair != 3]
    assert pairs.split.tolist()[-2:] == ["unused", "unused"]


def test_coco_captions_are_read_again(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    export(read_origin(source, None, Columns("photo")), pairs, cleaned(pairs, place), place / "coco.json")
    for image in json.loads((place / "coco.json").read_text())["images"]:
        with Image.open(place / image["file_name"]) as opened:
            assert (image["width"], image["height"]) == opened.size
    again = pairsift.load(place / "coco.json")
    assert again.captions == ["caption 0", "=NEW, and better", "caption 2", *CAPTIONS[4:]]
    assert [again.names[row] for row in again.image_of] == [row["photo"] for k, row in enumerate(ROWS) if k != 3]
    assert again.columns["price"] == [str(row["price"]) for k, row in enumerate(ROWS) if k != 3]
    assert folder_of_names(pairs, place / "coco.json") is None
    assert folder_of_names(pairs, place / "elsewhere" / "coco.json") == place


def test_names_with_backslashes_or_detours_tell_their_folder_too(place):
    names = [str(place / "pictures" / "0.png"), "pictures\\1.png", "./pictures/2.png", "pictures/../pictures/3.png"]
    source = written(place / "mine.csv", [{"image": name, "caption": f"caption {k}"} for k, name in enumerate(names)])
    pairs = pairsift.load(source)
    out = place / "elsewhere" / "out.csv"
    assert folder_of_names(pairs, place / "out.csv") is None
    for first in range(1, 4):
        some = replace(pairs, names=pairs.names[first:], paths=pairs.paths[first:])
        assert folder_of_names(some, out) == place, names[first]
    assert folder_of_names(replace(pairs, names=pairs.names[:1], paths=pairs.paths[:1]), out) is None
    export(read_origin(source, None, Columns()), pairs, cleaned(pairs, place), out)
    again = pairsift.load(out, image_folder=folder_of_names(pairs, out))
    assert [path.resolve() for path in again.paths] == [place / "pictures" / f"{k}.png" for k in (0, 1, 2)]


@pytest.mark.parametrize("start", ["/home/me/", "s3://bucket/", "/data/upload/1/", "C:\\me\\"])
@pytest.mark.parametrize("name", ["out.csv", "out.json"])
def test_names_of_another_machine_tell_their_folder_too(place, start, name):
    source = written(
        place / "mine.csv", [{"image": f"{start}pictures/{k}.png", "caption": f"caption {k}"} for k in range(6)]
    )
    pairs = pairsift.load(source)
    out = place / "elsewhere" / name
    assert folder_of_names(pairs, out) == place
    export(read_origin(source, None, Columns()), pairs, cleaned(pairs, place), out)
    again = pairsift.load(out, image_folder=place)
    assert again.paths == [path for k, path in enumerate(pairs.paths) if k != 3]
    assert not again.skipped


@pytest.mark.parametrize("layout", ["names", "bytes"])
def test_coco_captions_are_what_lightly_studio_reads(place, layout):
    """It takes images by folder and name, each once, with whole numbers for ids and sizes, and captions by image."""
    names = ["pictures\\0.png", "./pictures/1.png", (place / "pictures" / "2.png").as_uri()]
    names += [str(place / "pictures" / "3.png"), "pictures/../pictures/4.png", "pictures/5.png"]
    rows = [{"image": names[k // 2], "caption": f"caption {k}, «naß»"} for k in range(N)]
    if layout == "bytes":  # as the library datasets keeps them
        files = [(place / "pictures" / f"{k}.png").read_bytes() for k in range(N // 2)]
        rows = [{**row, "image": {"bytes": files[k // 2], "path": f"{k // 2}.png"}} for k, row in enumerate(rows)]
    source = written(place / f"mine.{'csv' if layout == 'names' else 'parquet'}", rows)
    columns = Columns(cache=place / "cache")
    pairs = pairsift.load(source, cache=place / "cache")
    export(read_origin(source, None, columns), pairs, cleaned(pairs, place), place / "coco.json")
    content = json.loads((place / "coco.json").read_text())
    captions = {}
    for annotation in content["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    found = {}
    for image in content["images"]:
        file = place / image["file_name"]
        with Image.open(file) as opened:
            assert [image["width"], image["height"]] == list(opened.size)
            assert {type(image[name]) for name in ("id", "width", "height")} == {int}
            found[opened.getpixel((0, 0))[0]] = captions.pop(image["id"])
    assert not captions and len({(place / image["file_name"]).resolve() for image in content["images"]}) == N // 2
    expected = [rows[k]["caption"] for k in range(N)]
    expected[1] = "=NEW, and better"
    assert found == {k: expected[2 * k : 2 * k + 2] for k in range(N // 2)} | {1: expected[2:3]}
    assert sorted(pairsift.load(place / "coco.json").captions) == sorted(expected[:3] + expected[4:])


def test_a_folder_of_images_is_read_again_with_its_splits(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    export(read_origin(source, None, Columns("photo")), pairs, cleaned(pairs, place, drop_below=0.22), place / "folder")
    again = pairsift.load(place / "folder")
    found = {}
    for pair, row in enumerate(again.image_of.tolist()):
        found.setdefault((again.split[pair], again.paths[row].read_bytes()), []).append(again.captions[pair])
    expected = {}
    for pair in (0, 1, *range(4, N)):
        key = pairs.split[pair], pairs.paths[pairs.image_of[pair]].read_bytes()
        expected.setdefault(key, []).append("=NEW, and better" if pair == 1 else pairs.captions[pair])
    assert found == expected
    nested = pairsift.load(place / "folder")
    selection = choose_pairs(nested, judged(nested), Decisions(place / "none", nested.ids()).table())
    export(read_origin(place / "folder", None, Columns()), nested, selection, place / "twice")
    assert sorted(file.relative_to(place / "twice") for file in (place / "twice").rglob("*.*")) == sorted(
        file.relative_to(place / "folder") for file in (place / "folder").rglob("*.*")
    )


def test_the_ids_are_those_of_the_kept_pairs(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    selection = cleaned(pairs, place, drop_below=0.22)
    export(read_origin(source, None, Columns("photo")), pairs, selection, place / "kept.txt")
    assert (place / "kept.txt").read_text().split() == [str(pair) for pair in range(N) if pair not in (2, 3)]
    counts = {"kept": 10, "judged": 10, "dropped": 1, "below": 1, "skipped": 0, "rewritten": 1, "repeated": 0}
    assert dict(selection.counts) == counts


def test_ids_come_with_weights_on_request_and_folders_have_none(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    origin, selection = read_origin(source, None, Columns("photo")), cleaned(pairs, place)
    export(origin, pairs, selection, place / "new" / "kept.txt", weights=True)
    ids, weights = np.loadtxt(place / "new" / "kept.txt").T
    assert ids.tolist() == np.flatnonzero(selection.keep).tolist()
    assert weights.tolist() == selection.weight[selection.keep].tolist()
    with pytest.raises(InputError, match=r"a folder of images has no weights: choose \.csv, "):
        export(origin, pairs, selection, place / "folder", weights=True)
    assert not (place / "folder").exists()


def test_columns_named_as_fields_of_coco_are_kept(place):
    source = written(place / "mine.csv", [row | {"image_id": f"a{row['id']}"} for row in ROWS])
    pairs = pairsift.load(source, image_column="photo")
    first = coco(pairs, cleaned(pairs, place))["annotations"][0]
    assert (first["id"], first["image_id"], first["id_given"], first["image_id_given"]) == (0, 0, "100", "a100")
    for _ in range(2):  # reading it again and exporting adds no more columns
        (place / "again.json").write_text(json.dumps(coco(pairs, cleaned(pairs, place))))
        pairs = pairsift.load(place / "again.json")
    assert sorted(pairs.columns) == ["id", "id_given", "image_id", "image_id_given", "price"]
    assert pairs.columns["id_given"][0] == "100" and pairs.columns["image_id_given"][0] == "a100"


def test_a_path_of_another_machine_is_named_by_its_end_that_is_here(place):
    rows = [row | {"photo": "C:\\Users\\me\\" + row["photo"].replace("/", "\\")} for row in ROWS]
    source = written(place / "mine.csv", rows)
    pairs = pairsift.load(source, image_column="photo")
    selection = cleaned(pairs, place)
    files = [image["file_name"] for image in coco(pairs, selection)["images"]]
    assert files == [f"pictures/{k}.png" for k in range(N // 2)]
    export(read_origin(source, None, Columns("photo")), pairs, selection, place / "folder")
    names = [path.relative_to(place / "folder").as_posix() for path in (place / "folder").rglob("*.png")]
    assert sorted(names) == sorted(f"{SPLITS[2 * k]}/pictures/{k}.png" for k in range(N // 2))


def test_pairs_without_a_split_are_exported_and_not_counted_as_judged(place):
    source = written(place / "mine.csv", [row | {"split": ""} if row["id"] > 107 else row for row in ROWS])
    selection = cleaned(pairsift.load(source, image_column="photo"), place)
    assert (selection.counts["kept"], selection.counts["judged"]) == (11, 7)


def test_rows_that_cannot_be_used_are_left_out_and_counted(place):
    rows = [dict(row) for row in ROWS]
    rows[4]["caption"], rows[5]["photo"] = " ", "pictures/none.png"
    source = written(place / "mine.csv", rows)
    pairs = pairsift.load(source, image_column="photo")
    selection = cleaned(pairs, place)
    export(read_origin(source, None, Columns("photo")), pairs, selection, place / "out.csv")
    assert [row["id"] for row in rows_of(place / "out.csv")] == [str(100 + k) for k in range(N) if k not in (3, 4, 5)]
    assert selection.counts["skipped"] == 2


def test_decisions_follow_their_rows_in_a_source_that_was_edited_since(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    write_stored_pairs(pairs, pairs.split, place / "stored.parquet")
    selection = cleaned(pairs, place)
    moved = [dict(ROWS[k]) for k in (5, 3, 1, 0, 7, 6, 8, 9, 10, 11)]  # 2 and 4 are gone, one is new
    written(source, [{**ROWS[0], "id": 999, "caption": "new"}, *moved])
    merged, _ = merge(read_stored_pairs(place / "stored.parquet"), pairsift.load(source, image_column="photo"))
    decisions = Decisions(place, merged.ids())
    selection = choose_pairs(merged, judged(merged), decisions.table())
    export(read_origin(source, None, Columns("photo")), merged, selection, place / "out.csv")
    found = rows_of(place / "out.csv")
    assert [row["id"] for row in found] == ["999", "105", "101", "100", "107", "106", "108", "109", "110", "111"]
    assert [row["caption"] for row in found][:3] == ["new", "caption 5", "=NEW, and better"]


def test_planted_noise_is_exported_as_the_run_saw_it(place):
    source = written(place / "mine.csv")
    pairs = plant_noise(pairsift.load(source, image_column="photo"), 0.9, 1, "caption")
    selection = choose_pairs(pairs, judged(pairs), Decisions(place, pairs.ids()).table())
    export(origin_of_pairs(pairs), pairs, selection, place / "out.csv")
    rows = rows_of(place / "out.csv")
    assert [row["image"] for row in rows] == [pairs.names[row] for row in pairs.image_of]
    assert [row["image"] for row in rows] != [row["photo"] for row in ROWS]
    assert [row["price"] for row in rows] == pairs.columns["price"]


def test_nothing_is_overwritten_and_nothing_half_written_stays(place):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    selection, origin = cleaned(pairs, place), read_origin(source, None, Columns("photo"))
    with pytest.raises(InputError, match="exists already"):
        export(origin, pairs, selection, source)
    with pytest.raises(InputError, match=r"no format '\.cvs'; did you mean \.csv\?"):
        export(origin, pairs, selection, place / "out.cvs")
    pairs.paths[pairs.image_of[8]].unlink()
    with pytest.raises(InputError, match="image cannot be read"):
        export(origin, pairs, selection, place / "folder")
    assert not list(place.glob("*folder*")) and not list(place.glob(".*"))


def test_keep_is_a_promise_that_no_threshold_breaks(place):
    pairs = pairsift.load(written(place / "mine.csv"), image_column="photo")
    selection = cleaned(pairs, place, drop_below=1.0)
    assert np.flatnonzero(selection.keep).tolist() == [0, 1]


def split_of_colours(pairs):
    """The split of each image by its content, since a folder has other names."""
    rows = zip(pairs.image_of.tolist(), pairs.split.tolist(), strict=True)
    return {Image.open(pairs.paths[row]).getpixel((0, 0)): split for row, split in rows}


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet", "out"])
def test_drawn_splits_are_written_on_request_alone(place, name):
    rows = [{key: value for key, value in row.items() if key != "split"} for row in ROWS]
    source = written(place / f"mine{'.parquet' if name.endswith('parquet') else '.csv'}", rows)
    pairs = pairsift.load(source, image_column="photo", split_seed=4)
    selection = cleaned(pairs, place)  # pair 3 is dropped
    origin = read_origin(source, None, Columns("photo"))
    export(origin, pairs, selection, place / name, splits=True)
    again = pairsift.load(place / name, image_column=None if name == "out" else "photo", split_seed=5)
    expected = split_of_colours(pairs)
    assert len(set(expected.values())) == 3 and split_of_colours(again) == expected and len(again.ids()) == N - 1
    if name != "out":
        assert list(rows_of(place / name)[0]) == [*rows[0], "split"]
        export(origin, pairs, selection, place / f"bare_{name}")
        assert list(rows_of(place / f"bare_{name}")[0]) == list(rows[0])


def test_a_split_that_was_drawn_from_train_is_written_and_other_words_stay(place):
    words = ["training"] * 8 + ["TEST"] * 4
    source = written(place / "mine.csv", [{**row, "split": word} for row, word in zip(ROWS, words, strict=True)])
    pairs = pairsift.load(source, image_column="photo")
    selection = choose_pairs(pairs, judged(pairs), Decisions(place, pairs.ids()).table())
    export(read_origin(source, None, Columns("photo")), pairs, selection, place / "out.csv", splits=True)
    drawn = [row["split"] for row in rows_of(place / "out.csv")]
    assert drawn.count("dev") == 2 and drawn.count("training") == 6 and drawn[8:] == ["TEST"] * 4
    assert pairsift.load(place / "out.csv", image_column="photo").split.tolist() == pairs.split.tolist()
    export(read_origin(source, None, Columns("photo")), pairs, selection, place / "folder", splits=True)
    nested = pairsift.load(place / "folder")
    assert sorted(nested.split.tolist()) == sorted(pairs.split.tolist())


def test_splits_follow_their_rows_and_new_pairs_follow_their_image(place):
    rows = [{key: value for key, value in row.items() if key != "split"} for row in ROWS]
    source = written(place / "mine.csv", rows)
    pairs = pairsift.load(source, image_column="photo")
    write_stored_pairs(pairs, pairs.split, place / "stored.parquet")
    Image.new("RGB", (8, 8), "white").save(place / "pictures" / "new.png")
    added = [{**rows[k], "caption": "another"} for k in (0, 4, 8)] + [{**rows[0], "photo": "pictures/new.png"}]
    written(source, [*added, *rows[::-1]])
    merged, _ = merge(read_stored_pairs(place / "stored.parquet"), pairsift.load(source, image_column="photo"))
    selection = choose_pairs(merged, judged(merged), Decisions(place, merged.ids()).table())
    export(read_origin(source, None, Columns("photo")), merged, selection, place / "out.csv", splits=True)
    split_of = {pairs.names[row]: split for row, split in zip(pairs.image_of, pairs.split.tolist(), strict=True)}
    found = [(row["photo"], row["split"]) for row in rows_of(place / "out.csv")]
    assert found == [(row["photo"], split_of.get(row["photo"], "train")) for row in rows_of(source)]


def test_planted_noise_follows_its_rows_in_a_source_that_was_edited_since(place):
    source = written(place / "mine.csv")
    noise = plant_noise(pairsift.load(source, image_column="photo"), 0.9, 1, "caption")
    write_stored_pairs(noise, noise.split, place / "stored.parquet")
    written(source, ROWS[::-1])
    read = pairsift.load(source, image_column="photo")
    merged, _ = merge(read_stored_pairs(place / "stored.parquet"), read)
    selection = choose_pairs(merged, judged(merged), Decisions(place, merged.ids()).table())
    assert [merged.names[row] for row in merged.image_of] == [noise.names[row] for row in noise.image_of]
    export(origin_of_pairs(merged), replace(merged, source_rows=None), selection, place / "out.csv")
    expected = [(noise.names[row], caption) for row, caption in zip(noise.image_of, noise.captions, strict=True)]
    assert [(row["image"], row["caption"]) for row in rows_of(place / "out.csv")] == expected


@pytest.mark.parametrize("name", ["out.json", "out.txt"])
def test_a_format_without_splits_is_refused(place, name):
    source = written(place / "mine.csv")
    pairs = pairsift.load(source, image_column="photo")
    with pytest.raises(InputError, match=r"has no splits: choose \.csv"):
        export(read_origin(source, None, Columns("photo")), pairs, cleaned(pairs, place), place / name, splits=True)
    assert not (place / name).exists()
