"""The ids of pairs through a source that changes again and again."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsift.noise import plant_noise
from pairsift.pairs import Pairs, load, merge, read_stored_pairs, write_known_pairs, write_stored_pairs
from pairsift.pairs.stored import with_judged_pairs

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
        fitted = read_stored_pairs(self.folder / "source.parquet")
        return read_stored_pairs(self.folder / "known.parquet", fitted.captions) or fitted

    def audit(self, rows, noise=None):
        stored = self.stored()
        pairs, changes = merge(stored, source(rows), noise)
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


def test_captions_that_change_keep_ids_where_rows_move_too(tmp_path):
    run = Audits(tmp_path, FIRST)
    run.audit([("0.jpg", "new one"), ("0.jpg", "new two"), *FIRST])
    mended = [("9.jpg", "x"), ("0.jpg", "mended one"), ("0.jpg", "mended two"), *FIRST]
    pairs, changes = run.audit(mended)
    assert pairs.captions[24:] == ["mended one", "mended two", "x"]
    assert str(changes) == "0 captions changed, 3 rows new, 0 gone"
    pairs, changes = run.audit([mended[0], ("0.jpg", "mended again"), *mended[2:-1]])
    assert pairs.captions[24] == "mended again" and (changes.new, changes.gone) == (3, 1)


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
    run.audit([("20.jpg", "new"), *FIRST], pairs.noise)
    again, _ = run.audit([("21.jpg", "newer"), ("20.jpg", "new"), *FIRST], pairs.noise)
    assert (again.image_of[:24] == pairs.image_of).all() and (again.true_image_of[:24] == pairs.true_image_of).all()
    assert [again.names[row] for row in again.image_of[24:]] == ["20.jpg", "21.jpg"]
    away, _ = run.audit(FIRST[2:], pairs.noise)
    lost = (pairs.true_image_of == 0) | (pairs.image_of == 0)
    assert (away.split[:24] == "skipped").tolist() == lost.tolist()
    back, _ = run.audit([*FIRST, ("20.jpg", "new")], pairs.noise)
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
        stored = read_stored_pairs(tmp_path / "known.parquet", fitted.captions) or fitted
        merged, _ = merge(stored, pairs, None)
        write_known_pairs(merged, stored, tmp_path / "known.parquet")
        return merged

    pairs = written(3)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    fitted = read_stored_pairs(tmp_path / "source.parquet")
    audited(written(3))
    assert audited(written(2)).split[12] == "skipped"
    assert (audited(written(3)).source_rows == np.arange(13)).all()
    kept = read_stored_pairs(tmp_path / "known.parquet", fitted.captions)
    assert (kept.feature_rows == fitted.feature_rows).all() and kept.names == fitted.names


def test_added_pairs_of_a_run_without_a_record_of_them_are_taken_from_its_table(tmp_path):
    run = Audits(tmp_path, FIRST)
    pairs, _ = merge(run.stored(), source([("20.jpg", "new"), ("0.jpg", "other"), ("21.jpg", "third"), *FIRST]), None)
    rows = [row for row in range(len(pairs)) if row != 25]  # one of them was not judged
    table = pa.table(
        {
            "pair": rows,
            "image": [pairs.names[pairs.image_of[row]] for row in rows],
            "given_caption": [pairs.captions[row] for row in rows],
        }
    )
    stored = with_judged_pairs(run.stored(), table)
    assert with_judged_pairs(stored, table) is stored
    again, _ = merge(stored, source([("22.jpg", "newest"), ("21.jpg", "third"), ("20.jpg", "new"), *FIRST]), None)
    expected = {**dict(enumerate(FIRST)), 24: ("20.jpg", "new"), 26: ("21.jpg", "third"), 27: ("22.jpg", "newest")}
    assert contents(again) == expected and again.split[25] == "skipped"


@pytest.mark.parametrize("rows", [FIRST, FIRST[:-1]])
def test_what_is_written_is_read(tmp_path, rows):
    run = Audits(tmp_path, FIRST)
    pairs, _ = run.audit([*rows, ("20.jpg", "new")])
    stored = run.stored()
    assert stored.captions == [*(caption for _, caption in FIRST), "new"] and stored.fitted == stored.captions[:24]
    assert (stored.rows == pairs.source_rows).all() and stored.split.tolist() == ["train"] * 24 + ["added"]
    assert stored.names == pairs.names and (stored.image_of == pairs.image_of).all()
