"""What a run keeps of its source, and what becomes of a source that was edited, moved, cut or grown."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairsift.errors import InputError
from pairsift.noise.planted import plant_noise
from pairsift.pairs.changes import merge, read_stored_pairs, write_stored_pairs
from pairsift.pairs.readers import load

ROWS = [(f"{image}.jpg", f"caption {image}{letter}") for image in range(12) for letter in "abc"]


def source(folder: Path, rows) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name in {name for name, _ in rows}:
        (folder / name).write_bytes(b"x")
    lines = ["image,caption,shop", *(f"{name},{caption},s" for name, caption in rows)]
    (folder / "mine.csv").write_text("\n".join(lines) + "\n")
    return folder / "mine.csv"


@pytest.fixture
def made(tmp_path):
    """A run's pairs with noise, and what it kept of them."""
    pairs = plant_noise(load(source(tmp_path / "data", ROWS)), 0.5, 3)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    return pairs, read_stored_pairs(tmp_path / "source.parquet")


def opened(made, path):
    return merge(made[1], load(path))


def test_what_is_read_again_is_what_was_written(made, tmp_path):
    pairs, kept = made
    again = merge(kept, load(tmp_path / "data" / "mine.csv"))[0]
    assert (again.image_of == pairs.image_of).all() and (again.true_image_of == pairs.true_image_of).all()
    assert again.noise == pairs.noise and (again.trained == (pairs.split == "train")).all()
    assert (pairs.image_of != pairs.true_image_of).sum() > 5
    assert read_stored_pairs(tmp_path / "none.parquet") is None
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        read_stored_pairs(tmp_path / "bad.parquet")


def test_edited_captions_keep_ids_splits_and_noise_and_count_as_not_trained_on(made, tmp_path):
    pairs, _ = made
    edits = {4: "mended", 20: "mended too"}
    rows = [(name, edits.get(at, caption)) for at, (name, caption) in enumerate(ROWS)]
    again, changes = opened(made, source(tmp_path / "data", rows))
    assert str(changes) == "2 captions changed, 0 rows new, 0 gone"
    assert [again.captions[at] for at in edits] == list(edits.values())
    assert (again.split == pairs.split).all() and (again.image_of == pairs.image_of).all()
    assert np.flatnonzero(again.trained != pairs.trained).tolist() == [at for at in edits if pairs.split[at] == "train"]


@pytest.mark.parametrize("row", range(0, 36, 5))
def test_a_row_taken_out_anywhere_is_the_only_one_that_is_gone(made, tmp_path, row):
    pairs, _ = made
    again, changes = opened(made, source(tmp_path / "data", ROWS[:row] + ROWS[row + 1 :]))
    assert str(changes) == "0 captions changed, 0 rows new, 1 gone"
    assert again.captions == pairs.captions and again.split[row] == "skipped"
    others = np.arange(36) != row
    assert (again.split == pairs.split)[others].all() and (again.image_of == pairs.image_of)[others].all()
    assert [(skip.pair, skip.reason) for skip in again.skipped] == [(row, "is gone from the source")]


def test_new_rows_come_behind_and_rows_in_another_order_keep_their_ids(made, tmp_path):
    pairs, _ = made
    rows = [("new.jpg", "a new image"), *reversed(ROWS), ("3.jpg", "a new caption")]
    again, changes = opened(made, source(tmp_path / "data", rows))
    assert str(changes) == "0 captions changed, 2 rows new, 0 gone"
    assert again.captions == [*pairs.captions, "a new image", "a new caption"]
    assert again.split.tolist() == [*pairs.split.tolist(), "added", "added"]
    assert (again.image_of[:36] == pairs.image_of).all() and again.names[:12] == pairs.names
    assert again.names[again.image_of[36]] == "new.jpg" and again.names[again.image_of[37]] == "3.jpg"
    assert [path.name for path in again.paths] == again.names
    assert set(again.ids()) >= {36, 37} and not again.trained[36:].any()
    assert again.columns["shop"] == ["s"] * 38


def test_an_image_that_is_gone_takes_the_pairs_along_that_noise_gave_it(made, tmp_path):
    pairs, _ = made
    moved = np.flatnonzero(pairs.image_of != pairs.true_image_of)
    lost = pairs.image_of[moved[0]]
    name = pairs.names[lost]
    again, changes = opened(made, source(tmp_path / "data", [row for row in ROWS if row[0] != name]))
    assert str(changes) == "0 captions changed, 0 rows new, 3 gone"
    rest = (pairs.true_image_of != lost) & (pairs.image_of != lost)
    assert (again.split == "skipped").tolist() == (~rest).tolist()
    assert (again.image_of == pairs.image_of)[rest].all()


def test_a_source_that_moved_and_its_absolute_paths(made, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    moved = source(elsewhere, ROWS)
    again = merge(made[1], load(moved))[0]
    assert {path.parent for path in again.paths} == {elsewhere}
    absolute = [(str(elsewhere / name), caption) for name, caption in ROWS]
    (elsewhere / "mine.csv").write_text("\n".join(["image,caption", *map(",".join, absolute)]))
    again, changes = opened(made, elsewhere / "mine.csv")
    assert str(changes) == "0 captions changed, 0 rows new, 0 gone"
    assert (again.image_of == made[0].image_of).all()


def test_a_row_that_was_skipped_and_is_mended_is_new(tmp_path):
    rows = [*ROWS, ("5.jpg", " ")]
    pairs = load(source(tmp_path / "data", rows))
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    kept = read_stored_pairs(tmp_path / "source.parquet")
    again, changes = merge(kept, load(source(tmp_path / "data", [*ROWS, ("5.jpg", "mended")])))
    assert again.split[36] == "added" and not again.trained[36] and changes.new == 1
    again, _ = merge(kept, load(source(tmp_path / "data", [("0.jpg", " "), *rows[1:]])))
    assert again.split[0] == "skipped" and again.skipped[0].pair == 0


def test_another_source_is_refused(made, tmp_path):
    other = source(tmp_path / "other", [(f"x{name}", caption) for name, caption in ROWS])
    with pytest.raises(InputError, match=r"names none of the images .* '0.jpg'; give the run's own data with --source"):
        opened(made, other)


def test_images_that_failed_were_not_trained_on(tmp_path):
    read = load(source(tmp_path / "data", ROWS))
    write_stored_pairs(read.skip_images({0: "broken"}), read.split, tmp_path / "source.parquet")
    again = merge(read_stored_pairs(tmp_path / "source.parquet"), read)[0]
    assert (again.split == read.split).all() and not again.trained[:3].any()
    assert again.trained[3:].sum() == (read.split[3:] == "train").sum()
    assert replace(again, seen_in_training=None).trained.sum() == (read.split == "train").sum()
