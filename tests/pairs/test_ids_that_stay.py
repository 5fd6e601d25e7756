"""The ids of pairs through a source that changes again and again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.errors import InputError
from pairsift.noise.planted import plant_noise
from pairsift.pairs.changes import (
    merge,
    read_stored_pairs,
    since_begun,
    with_row_ids,
    write_known_pairs,
    write_stored_pairs,
)
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.readers import load

FIRST = [(f"{image}.jpg", f"caption {image}{letter}") for image in range(12) for letter in "ab"]
LATER = [(f"{image}.jpg", f"caption {image}{letter}") for image in (0, 1, 5, 20, 21) for letter in "cde"]


def source(rows) -> Pairs:
    """Pairs of rows with an image and a caption; the second of two equal rows is skipped."""
    names = list(dict.fromkeys(name for name, _ in rows))
    split = ["skipped" if row in rows[:at] else "train" for at, row in enumerate(rows)]
    return Pairs(
        source="mine.csv",
        names=names,
        paths=[Path(name) for name in names],
        captions=[text for _, text in rows],
        image_of=np.array([names.index(name) for name, _ in rows], np.int64),
        split=np.array(split, "<U7"),
    )


class Audits:
    """A run that is audited after each change of its source."""

    def __init__(self, folder: Path, rows) -> None:
        self.folder, pairs = folder, source(rows)
        write_stored_pairs(pairs, pairs.split, folder / "source.parquet")
        (folder / "known.parquet").unlink(missing_ok=True)

    def stored(self):
        return read_stored_pairs(self.folder / "source.parquet", self.folder / "known.parquet")

    def audit(self, rows):
        """Merge rows into the run's pairs and keep their ids; as an audit does, unless nothing has changed."""
        stored = self.stored()
        pairs, changes = merge(stored, source(rows))
        if pairs.source_rows is None:
            return replace(pairs, source_rows=np.arange(len(pairs))), changes
        write_known_pairs(pairs, stored, self.folder / "known.parquet")
        return pairs, changes


def contents(pairs: Pairs) -> dict[int, tuple[str, str]]:
    """Image and caption of each id that can be used."""
    truth = pairs.image_of if pairs.true_image_of is None else pairs.true_image_of
    return {pair: (pairs.names[truth[pair]], pairs.captions[pair]) for pair in pairs.ids().tolist()}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_id_belongs_to_the_same_image_and_caption_for_ever(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    rows = list(FIRST)
    run = Audits(tmp_path_factory.mktemp("ids"), rows)
    id_of = {content: pair for pair, content in enumerate(FIRST)}
    for _ in range(8):
        if rng.random() < 0.4:
            keep = rng.random(len(rows)) < 0.7
            rows = [row for row, stays in zip(rows, keep, strict=True) if stays] or rows
        else:  # rows come, or come back, or come twice, anywhere
            for place in rng.integers(0, len(FIRST) + len(LATER), rng.integers(1, 6)):
                rows.insert(int(rng.integers(0, len(rows) + 1)), [*FIRST, *LATER][place])
        if rng.random() < 0.3:
            rows = [rows[at] for at in rng.permutation(len(rows))]
        pairs, _ = run.audit(rows)
        found = contents(pairs)
        assert sorted(found.values()) == sorted(set(rows))
        for pair, content in found.items():
            assert id_of.setdefault(content, pair) == pair
        assert [rows[row] for row in pairs.source_rows[list(found)]] == list(found.values())
    assert len(set(id_of.values())) == len(id_of)


def test_a_caption_that_changes_keeps_its_id_where_rows_move_too(tmp_path):
    run = Audits(tmp_path, FIRST)
    run.audit([("20.jpg", "new"), *FIRST])
    mended = [("9.jpg", "x"), ("20.jpg", "mended"), *FIRST]
    pairs, changes = run.audit(mended)
    assert pairs.captions[24:] == ["mended", "x"]
    assert str(changes) == "0 captions changed, 2 rows new, 0 gone"
    pairs, changes = run.audit([mended[0], ("20.jpg", "mended again"), *mended[2:-1]])
    assert pairs.captions[24] == "mended again" and (changes.new, changes.gone) == (2, 1)


def test_two_captions_of_one_image_that_change_at_once_are_gone_and_new(tmp_path):
    """Which one became which cannot be told, but by a column that identifies rows."""
    run = Audits(tmp_path, FIRST)
    edited = [("0.jpg", "second"), ("0.jpg", "first"), *FIRST[2:]]
    pairs, changes = run.audit(edited)
    assert (changes.captions, changes.new, changes.gone) == (0, 2, 2)
    assert pairs.split[:2].tolist() == ["skipped"] * 2 and pairs.captions[24:] == ["second", "first"]


def with_ids(rows, ids) -> Pairs:
    return with_row_ids(replace(source(rows), columns={"sku": ids}), "sku")


def test_a_column_that_identifies_rows_keeps_ids_whatever_changes(tmp_path):
    ids = [f"s{row}" for row in range(24)]
    pairs = with_ids(FIRST, ids)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    stored = read_stored_pairs(tmp_path / "source.parquet", tmp_path / "known.parquet")
    assert stored.row_ids == ids and merge(stored, pairs)[0].source_rows is None
    rows = [("0.jpg", "second"), ("0.jpg", "first"), ("renamed.jpg", FIRST[2][1]), *FIRST[3:], ("5.jpg", "new")]
    again, changes = merge(stored, with_ids(rows[::-1], [*ids, "s24"][::-1]))
    assert str(changes) == "2 captions changed, 1 row new, 0 gone, 1 image changed"
    assert again.captions[:3] == ["second", "first", FIRST[2][1]] and again.row_ids == [*ids, "s24"]
    assert [again.names[row] for row in again.image_of[:4]] == ["0.jpg", "0.jpg", "renamed.jpg", "1.jpg"]
    assert np.flatnonzero(~again.trained).tolist() == [0, 1, 2, 24]
    assert (again.source_rows == np.arange(24, -1, -1)).all()
    write_known_pairs(again, stored, tmp_path / "known.parquet")
    known = read_stored_pairs(tmp_path / "source.parquet", tmp_path / "known.parquet")
    back, changes = merge(known, with_ids(FIRST, ids))
    assert back.trained[:24].all() and str(changes) == "0 captions changed, 0 rows new, 1 gone"
    assert [back.names[row] for row in back.image_of[:24]] == [name for name, _ in FIRST]


def test_noise_goes_with_the_ids_of_a_column_and_an_image_that_only_a_new_name_has_is_another(tmp_path):
    ids = [f"s{row}" for row in range(24)]
    pairs = plant_noise(with_ids(FIRST, ids), 0.5, 3)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    stored = read_stored_pairs(tmp_path / "source.parquet")
    renamed = [("x.jpg", FIRST[0][1]), *FIRST[1:]]
    again, _ = merge(stored, with_ids(renamed, ids))
    moved = pairs.mismatched()
    assert (again.image_of[moved] == pairs.image_of[moved]).all()
    assert (again.true_image_of == pairs.true_image_of)[1:].all() and again.names[again.true_image_of[0]] == "x.jpg"
    begun, changes = since_begun(stored, with_ids(renamed, ids))
    assert len(begun) == 24 and begun.n_images == 12 and begun.split[0] == "skipped" and changes.images == 1
    assert [skip.reason for skip in begun.skipped] == ["its row has changed since the run was begun"]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["a", "", "c", "d"], "column sku is empty for '0.jpg'"),
        (["a", "b", "a", "d"], "column sku has 'a' for '0.jpg' and for '1.jpg'"),
    ],
)
def test_a_column_identifies_rows_or_is_refused(ids, says):
    with pytest.raises(InputError) as error:
        with_ids(FIRST[:4], ids)
    advice = "give each row a value of its own, or leave --id-column out"
    assert str(error.value) == f"mine.csv: {says}; {advice}"
    with pytest.raises(InputError, match="has no column 'sku' with the values that identify rows; it has no further"):
        with_row_ids(source(FIRST), "sku")


def test_captions_of_one_row_share_its_value_and_a_skipped_pair_needs_none(tmp_path):
    rows = [("0.jpg", "one"), ("0.jpg", "two"), ("1.jpg", "three"), ("0.jpg", "one")]
    pairs = with_ids(rows, ["a", "a", "b", ""])
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    stored = read_stored_pairs(tmp_path / "source.parquet")
    renamed = [("9.jpg", "two"), ("9.jpg", "one edited"), ("1.jpg", "three")]
    again, changes = merge(stored, with_ids(renamed, ["a", "a", "b"]))
    assert again.captions == ["one edited", "two", "three", "one"] and (changes.captions, changes.images) == (1, 2)


def test_a_pair_that_was_gone_takes_no_other_caption(tmp_path):
    run = Audits(tmp_path, FIRST)
    run.audit(FIRST[1:])
    pairs, _ = run.audit([("0.jpg", "another"), *FIRST[1:]])
    assert pairs.captions[0] == FIRST[0][1] and pairs.split[0] == "skipped"
    assert pairs.captions[24] == "another" and pairs.split[24] == "added"


def test_what_was_trained_on_stays_so_when_a_caption_is_put_back(tmp_path):
    run = Audits(tmp_path, FIRST)
    pairs, _ = run.audit([("0.jpg", "mended"), *FIRST[1:]])
    assert not pairs.trained[0]
    pairs, changes = run.audit(FIRST)
    assert pairs.trained.all() and not changes
    pairs, _ = run.audit(FIRST[1:])
    pairs, _ = run.audit(FIRST)
    assert pairs.trained.all() and pairs.split.tolist() == ["train"] * 24


def test_noise_stays_where_it_was_planted(tmp_path):
    pairs = plant_noise(source(FIRST), 0.5, 3)
    run = Audits(tmp_path, FIRST)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    run.audit([("20.jpg", "new"), *FIRST])
    again, _ = run.audit([("21.jpg", "newer"), ("20.jpg", "new"), *FIRST])
    assert (again.image_of[:24] == pairs.image_of).all() and (again.true_image_of[:24] == pairs.true_image_of).all()
    assert [again.names[row] for row in again.image_of[24:]] == ["20.jpg", "21.jpg"]
    away, _ = run.audit(FIRST[2:])
    lost = (pairs.true_image_of == 0) | (pairs.image_of == 0)
    assert (away.split[:24] == "skipped").tolist() == lost.tolist()
    back, _ = run.audit([*FIRST, ("20.jpg", "new")])
    assert (back.image_of[:24] == pairs.image_of).all() and back.split[:24].tolist() == ["train"] * 24
    assert back.split[24:].tolist() == ["added", "skipped"]


def test_rows_of_features_keep_ids_too(tmp_path):
    folder = tmp_path / "tiny_precomp"
    folder.mkdir()
    captions = [f"caption {row}" for row in range(20)]

    def written(last):
        for stem, rows in (("train", 8), ("dev", 2), ("test", last)):
            values = np.arange(rows, dtype=np.float32)[:, None, None] + np.zeros((1, 2, 3), np.float32)
            np.save(folder / f"{stem}_ims.npy", values)
            (folder / f"{stem}_caps.txt").write_text("\n".join(captions[:rows]) + "\n")
        return load(folder)

    def audited(pairs):
        stored = read_stored_pairs(tmp_path / "source.parquet", tmp_path / "known.parquet")
        merged, _ = merge(stored, pairs)
        if merged.source_rows is not None:
            write_known_pairs(merged, stored, tmp_path / "known.parquet")
        return merged

    pairs = written(3)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    fitted = read_stored_pairs(tmp_path / "source.parquet")
    audited(written(3))
    assert audited(written(2)).split[12] == "skipped"
    assert audited(written(3)).ids().tolist() == list(range(13))
    kept = read_stored_pairs(tmp_path / "source.parquet", tmp_path / "known.parquet")
    assert kept.names == fitted.names and (kept.image_of == fitted.image_of).all()


@pytest.mark.parametrize("rows", [FIRST, FIRST[:-1]])
def test_what_is_written_is_read(tmp_path, rows):
    run = Audits(tmp_path, FIRST)
    pairs, _ = run.audit([*rows, ("20.jpg", "new")])
    stored = run.stored()
    assert stored.captions == [*(caption for _, caption in FIRST), "new"] and stored.fitted == stored.captions[:24]
    assert (stored.rows == pairs.source_rows).all() and stored.split.tolist() == ["train"] * 24 + ["added"]
    assert stored.names == pairs.names and (stored.image_of == pairs.image_of).all()
