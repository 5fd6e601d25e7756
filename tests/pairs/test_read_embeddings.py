"""Folders of aligned vectors: whose row goes where, what travels along, and files that do not fit."""

import csv
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedding_sources import aligned, captions_of, write_parts, write_single
from pair_sources import reasons, refused
from pairsift.encode.source_features import open_source_features
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.readers import load

N = 12


def vectors_of(pairs, ids):
    """What the readers of features give for pairs: the vector of the image and of the caption."""
    images = open_source_features(pairs.features, "vector")[pairs.image_of[ids]]
    return images, open_source_features(pairs.features.captions, "vector")[np.asarray(ids)]


def single(folder, **columns):
    images, texts = aligned(N)
    return write_single(folder, images, texts, {"caption": captions_of(N), **columns}), images, texts


def in_parts(folder, pairs=23, cuts=(1, 3, 4, 6, 8, 9, 11, 13, 16, 18, 21), digits=1):
    images, texts = aligned(pairs)
    columns = {"image_path": [f"{n}.jpg" for n in range(pairs)], "caption": captions_of(pairs)}
    return write_parts(folder, images, texts, columns, list(cuts), digits), images, texts


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_each_row_is_a_pair_with_its_two_vectors(tmp_path, dtype):
    images, texts = (values.astype(dtype) for values in aligned(N))
    captions = captions_of(N)
    pairs = load(write_single(tmp_path, images, texts, {"caption": captions}))
    assert pairs.captions == captions and pairs.image_of.tolist() == list(range(N)) and pairs.n_skipped == 0
    order = np.random.default_rng(0).permutation(N)
    found = vectors_of(pairs, order)
    np.testing.assert_array_equal(found[0], images[order].astype(np.float32))
    np.testing.assert_array_equal(found[1], texts[order].astype(np.float32))
    assert pairs.names[3] == "row 3"
    assert pairs.description.startswith("embeddings: image from image.npy (rows of 12, a row for each image), caption")
    assert "column 'caption' of captions.csv with text.npy (rows of 8)" in pairs.description


@pytest.mark.parametrize("digits", [1, 2, 4])
def test_parts_are_ordered_by_their_numbers(tmp_path, digits):
    folder, images, texts = in_parts(tmp_path, digits=digits)
    assert (folder / "img_emb" / f"img_emb_{'10'.zfill(digits)}.npy").is_file()
    pairs = load(folder)
    assert pairs.captions == captions_of(23) and pairs.names == [f"{n}.jpg" for n in range(23)]
    ids = np.random.default_rng(1).integers(0, 23, 40)
    found = vectors_of(pairs, ids)
    np.testing.assert_array_equal(found[0], images[ids])
    np.testing.assert_array_equal(found[1], texts[ids])
    assert "img_emb/ (12 files)" in pairs.description and "text_emb/ (12 files)" in pairs.description


def test_parts_may_leave_numbers_out(tmp_path):
    folder, images, _ = in_parts(tmp_path, cuts=(5, 9))
    for name in ("img_emb", "text_emb", "metadata"):
        file = next((folder / name).glob("*_1.*"))
        file.rename(file.with_name(file.name.replace("_1.", "_11.")))
    pairs = load(folder)
    order = [*range(5), *range(9, 23), *range(5, 9)]
    assert [pairs.names[row] for row in pairs.image_of] == [f"{n}.jpg" for n in order]
    np.testing.assert_array_equal(vectors_of(pairs, np.arange(23))[0], images[order])


def test_rows_with_the_same_image_name_and_vector_share_the_first_row(tmp_path):
    names = [f"{n // 3}.jpg" for n in range(N)]
    folder, images, texts = single(tmp_path, file=names)
    again = np.repeat(images[::3], 3, axis=0) * np.tile([1, 1.002, 0.999], N // 3)[:, None]  # computed three times
    np.save(folder / "image.npy", again.astype(np.float32))
    pairs = load(folder)
    assert pairs.names == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"] and pairs.image_of.tolist() == [n // 3 for n in range(N)]
    found = vectors_of(pairs, np.arange(N))
    np.testing.assert_array_equal(found[0], np.repeat(images[::3], 3, axis=0))
    np.testing.assert_array_equal(found[1], texts)
    assert all(len({*pairs.split[pairs.image_of == row]}) == 1 for row in range(4))


def test_images_are_shared_across_parts_and_rows_without_a_name_have_their_own(tmp_path):
    images, texts = aligned(6)
    images[3] = images[0]
    columns = {"image_path": ["a", "", "b", "a", "", "c"], "caption": list("uvwxyz")}
    pairs = load(write_parts(tmp_path, images, texts, columns, [2, 4]))
    assert pairs.image_of.tolist() == [0, 1, 2, 0, 3, 4]
    np.testing.assert_array_equal(vectors_of(pairs, np.arange(6))[0], images[[0, 1, 2, 0, 4, 5]])
    assert pairs.names == ["a", "row 1", "b", "row 4", "c"]


def test_a_caption_that_repeats_for_an_image_is_skipped(tmp_path):
    folder, images, texts = single(tmp_path, image=["x", "x", *map(str, range(N - 2))])
    captions = captions_of(N)
    images[1] = images[0]
    write_single(folder, images, texts, {"caption": [captions[0], *captions[:1], *captions[2:]],
                                                "image": ["x", "x", *map(str, range(N - 2))]})  # fmt: skip
    assert reasons(load(folder)) == {1: ("captions.csv line 3", "repeats captions.csv line 2")}


@pytest.mark.parametrize("cuts", [[], [4], [3, 6, 9]])
def test_a_name_that_comes_again_with_another_vector_is_another_image(tmp_path, cuts):
    images, texts = aligned(N)
    images[8], images[9], images[10] = images[0], images[6], images[6]  # 0.jpg of both shops, and their captions
    names = [f"{n % 6}.jpg" for n in range(8)] + ["0.jpg", "0.jpg", "0.jpg", "5.jpg"]
    columns = {"image_path" if cuts else "image": names, "caption": captions_of(N)}
    write = write_parts if cuts else write_single
    pairs = load(write(tmp_path, images, texts, columns, *([cuts] if cuts else [])))
    assert pairs.image_of.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 6, 6, 8] and pairs.n_skipped == 0
    assert pairs.names[5:] == ["5.jpg", "0.jpg (row 6)", "1.jpg (row 7)", "5.jpg (row 11)"]
    np.testing.assert_array_equal(vectors_of(pairs, np.arange(N))[0], images)
    assert "5 rows have the image name of an earlier row and another vector, and so another image" in pairs.description


def test_own_columns_travel_along(tmp_path):
    links = [f"https://example.org/{n}.jpg" for n in range(N)]
    folder, *_ = single(tmp_path, image=links, shelf=[f"=A{n}" for n in range(N)], url=links)
    pairs = load(folder)
    assert pairs.names == links and pairs.columns == {"shelf": [f"=A{n}" for n in range(N)], "url": links}
    images, texts = aligned(4)
    columns = {"image_path": list("abcd"), "caption": list("efgh"), "key": ["1", "2", "3", "4"]}
    parts = write_parts(tmp_path / "parts", images, texts, columns, [2])
    file = parts / "metadata" / "metadata_1.parquet"
    pq.write_table(pq.read_table(file).append_column("similarity", pa.array([0.25, None])), file)
    assert load(parts).columns == {"key": ["1", "2", "3", "4"], "similarity": ["", "", "0.25", ""]}


def test_splits_of_the_source_are_used(tmp_path):
    split = ["train"] * 8 + ["val"] * 2 + ["test", ""]
    pairs = load(single(tmp_path, split=split)[0])
    assert pairs.split.tolist() == ["train"] * 8 + ["dev"] * 2 + ["test", "unused"]
    assert "split from column 'split'" in pairs.description


def test_other_column_names_are_named(tmp_path):
    images, texts = aligned(N)
    columns = {"foto": list("aabbccddeeff"), "beschreibung": captions_of(N)}
    folder = write_single(tmp_path, np.repeat(images[::2], 2, axis=0), texts, columns)
    pairs = load(folder, image_column="foto", caption_column="beschreibung")
    assert pairs.names == list("abcdef") and pairs.captions == captions_of(N)
    assert "no column 'photo'" in refused(folder, image_column="photo", caption_column="beschreibung")
    assert "no caption column among the columns 'foto', 'beschreibung'" in refused(folder)


@pytest.mark.parametrize("ending", [".tsv", ".jsonl", ".parquet"])
def test_tables_of_every_kind(tmp_path, ending):
    folder, images, _ = single(tmp_path, image=[f"\u00e9{n}" for n in range(N)])
    with (folder / "captions.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    (folder / "captions.csv").unlink()
    file = folder / f"my own{ending}"  # the only table needs no certain name
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif ending == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        file.write_text("\n".join("\t".join(line) for line in [rows[0], *(row.values() for row in rows)]))
    pairs = load(folder)
    assert (
        pairs.captions == captions_of(N) and pairs.names[4] == "\u00e94" and f"of my own{ending}" in pairs.description
    )
    np.testing.assert_array_equal(vectors_of(pairs, [7, 2])[0], images[[7, 2]])


def test_the_table_called_captions_is_taken(tmp_path):
    folder, *_ = single(tmp_path)
    (folder / "prices.csv").write_text("a,b\n1,2\n")
    assert load(folder).captions == captions_of(N)
    (folder / "captions.csv").rename(folder / "words.csv")
    assert "and holds 'prices.csv', 'words.csv'; call it captions.csv" in refused(folder)


def test_image_bytes_in_metadata_are_left_out(tmp_path):
    folder, images, _ = in_parts(tmp_path, pairs=6, cuts=(3,))
    for file in (folder / "metadata").iterdir():
        table = pq.read_table(file).rename_columns(["key", "caption"])
        pq.write_table(table.append_column("image", pa.array([b"\xff\xd8\xff rest"] * 3)), file)
    pairs = load(folder, cache=tmp_path / "cache")
    assert pairs.names[0] == "row 0" and list(pairs.columns) == ["key"] and not (tmp_path / "cache").exists()
    np.testing.assert_array_equal(vectors_of(pairs, np.arange(6))[0], images)


def test_bad_captions_keep_their_rows(tmp_path):
    folder, _, texts = single(tmp_path)
    lines = (folder / "captions.csv").read_text().splitlines()
    lines[3], lines[5] = '" "', "two,fields"
    (folder / "captions.csv").write_text("\n".join(lines))
    pairs = load(folder)
    assert {pair: reason for pair, (_, reason) in reasons(pairs).items()} == {
        2: "the caption is empty",
        4: "has 2 fields where the header has 1",
    }
    np.testing.assert_array_equal(vectors_of(pairs, [6])[1], texts[[6]])


def rewrite(name, values):
    return lambda folder: np.save(folder / name, values)


IMAGES, TEXTS = aligned(N)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "text.npy").unlink(), "has no text.npy; put the missing file"),
        (lambda folder: (folder / "image.npy").unlink(), "has no image.npy; put the missing file"),
        (lambda folder: (folder / "captions.csv").unlink(),
         "needs a table of captions beside image.npy, and holds none; call it captions.csv"),
        (rewrite("text.npy", TEXTS[:-1]), "text.npy: has 11 rows and image.npy has 12"),
        (lambda folder: [rewrite(f"{side}.npy", TEXTS[:9])(folder) for side in ("image", "text")],
         "captions.csv: has 12 rows and image.npy has 9"),
        (rewrite("image.npy", IMAGES[:, 0]), "holds float32 of shape (12,); features are floats of shape (rows, dim)"),
        (rewrite("image.npy", IMAGES[:, None]), "holds float32 of shape (12, 1, 12)"),
        (rewrite("text.npy", np.array(["a"] * N)), "text.npy: holds <U1 of shape (12,)"),
        (rewrite("text.npy", TEXTS.astype(np.int64)), "text.npy: holds int64 of shape (12, 8)"),
        (rewrite("text.npy", np.array([[{}]] * N)), "is no whole .npy file of numbers"),
        (rewrite("text.npy", np.asfortranarray(TEXTS)), "is stored column by column"),
        (lambda folder: (folder / "text.npy").write_bytes((folder / "text.npy").read_bytes()[:-9]), "is no whole .npy"),
        (lambda folder: (folder / "captions.csv").write_text("text,shelf\n" + "stray\n" * 11),
         "captions.csv: has 11 rows and image.npy has 12; row i of both must belong to pair i; "
         "captions.csv line 2 "),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_one_line(tmp_path, damage, says):
    folder, *_ = single(tmp_path)
    damage(folder)
    line = refused(folder)
    assert says in line and str(folder) in line, line


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: [file.unlink() for file in (path / "text_emb").iterdir()] and (path / "text_emb").rmdir(),
         "has no text_emb/text_emb_0.npy beside the other files of part 0"),
        (lambda path: [file.unlink() for file in (path / "metadata").iterdir()],
         "has no metadata/metadata_0.parquet beside the other files of part 0"),
        (lambda path: (path / "text_emb" / "text_emb_2.npy").unlink(), "has no text_emb/text_emb_2.npy"),
        (lambda path: (path / "metadata" / "metadata_0.parquet").unlink(), "has no metadata/metadata_0.parquet"),
        (rewrite("text_emb/text_emb_01.npy", TEXTS), "has no img_emb/img_emb_01.npy beside the other files of part 01"),
        (rewrite("text_emb/text_emb_1.npy", TEXTS[:5]), "text_emb_1.npy: has 5 rows and img_emb_1.npy has 4"),
        (rewrite("text_emb/text_emb_1.npy", TEXTS[:4, :3]), "_1.npy: a row has 3 values where the first part has 8"),
        (lambda path: [rewrite("text_emb/text_emb_1.npy", TEXTS[:5])(path),
                       rewrite("img_emb/img_emb_1.npy", IMAGES[:5])(path)],
         "metadata_1.parquet: has 4 rows and img_emb_1.npy has 5"),
        (lambda path: (path / "metadata" / "metadata_1.parquet").write_bytes(b"no"), "is not a readable Parquet file"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_one_line(tmp_path, damage, says):
    folder, *_ = in_parts(tmp_path, pairs=N, cuts=(4, 8))
    damage(folder)
    line = refused(folder)
    assert says in line and str(folder) in line, line


def test_a_folder_without_vectors_is_refused(tmp_path):
    line = f"{tmp_path}: has neither image.npy and text.npy nor img_emb/ and text_emb/; name the folder with them"
    assert refused(tmp_path, reader="embeddings") == line
    (tmp_path / "a.csv").touch()
    assert "has neither image.npy" in refused(tmp_path / "a.csv", reader="embeddings")
    assert "takes no --image-folder" in refused(tmp_path, reader="embeddings", image_folder=tmp_path)


def test_arrays_are_never_read_whole(tmp_path):
    rows, dim = 4_000, 2**18  # 8.4 GB for each side, with holes; the disk holds only the rows that are written
    chosen = np.array([3_999, 0, 1_234])
    for side in ("image", "text"):
        values = np.lib.format.open_memmap(tmp_path / f"{side}.npy", "w+", "<f8", (rows, dim))
        for row in chosen:
            values[row] = row + len(side)
        del values
        size = (tmp_path / f"{side}.npy").stat()
        assert size.st_size > 8e9 > 100 * size.st_blocks * 512
    (tmp_path / "captions.csv").write_text("caption\n" + "".join(f"caption {n}\n" for n in range(rows)))
    tracemalloc.start()
    pairs = load(tmp_path)
    found = vectors_of(pairs, chosen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6 and len(pairs.ids()) == rows
    for values, side in zip(found, ("image", "text"), strict=True):
        assert values.shape == (3, dim) and (values == (chosen + len(side))[:, None]).all()


def test_ids_and_vectors_stay_together_where_the_source_changes(tmp_path):
    folder, images, texts = single(tmp_path / "data", image=[f"{n}.jpg" for n in range(N)])
    read = load(folder)
    write_stored_pairs(read, read.split, tmp_path / "source.parquet")
    stored = read_stored_pairs(tmp_path / "source.parquet")
    order = [11, *range(1, 6), *range(7, 11)]  # the last is the first, 0 and 6 are gone
    columns = {"caption": [captions_of(N)[row] for row in order], "image": [f"{row}.jpg" for row in order]}
    write_single(folder, images[order], texts[order], columns)
    pairs, changes = merge(stored, load(folder))
    assert (changes.captions, changes.new, changes.gone) == (0, 0, 2)
    kept = np.setdiff1d(np.arange(N), [0, 6])
    found = vectors_of(pairs, kept)
    np.testing.assert_array_equal(found[0], images[kept])
    np.testing.assert_array_equal(found[1], texts[kept])
    assert [pairs.captions[pair] for pair in kept] == [captions_of(N)[pair] for pair in kept]
    write_single(folder, images[order], images[order], columns)
    with pytest.raises(ValueError, match="12 with 12 for captions and were 12 with 8 for captions"):
        merge(stored, load(folder))
    assert load(folder).hash() != read.hash()
