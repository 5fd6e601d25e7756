"""Features in several files: gathered as if they were one array, and never read whole."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from pairsift.encode.features import Table
from pairsift.encode.source_features import open_source_features
from pairsift.errors import InputError
from pairsift.pairs.precomputed import Precomputed
from pairsift.pairs.readers import load


def parts_of(folder: Path, *shapes: tuple[int, ...], dtype: str = "<f4") -> list[Path]:
    rng = np.random.default_rng(3)
    files = [folder / f"{number}.npy" for number in range(len(shapes))]
    for file, shape in zip(files, shapes, strict=True):
        np.save(file, rng.normal(size=shape).astype(dtype))
    return files


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("dtype", ["<f4", "<f2", ">f8"])
def test_gathering_equals_concatenation(tmp_path, dtype):
    files = parts_of(tmp_path, (5, 3, 4), (1, 3, 4), (7, 3, 4), dtype=dtype)
    whole = np.concatenate([np.load(file) for file in files]).astype(np.float32)
    rows = np.random.default_rng(0).permutation(13)[:11].astype(np.int64)
    features = Precomputed(tuple(files), (3, 4), rows)
    index = np.array([10, 0, 3, 3, 7, 9], np.int64)
    table = Table(open_source_features(features, "regions"))
    assert (len(table), table.dim, table.values.shape, table.values.ndim) == (11, 4, (11, 3, 4), 3)
    items = table.batch(index)
    assert items.mask is None
    np.testing.assert_array_equal(items.values.numpy(), whole[rows[index]])
    pooled = Table(open_source_features(features, "vector"))
    assert (pooled.dim, pooled.values.shape) == (4, (11, 4))
    expected = [sum(whole[rows[one]]) / 3 for one in index]
    np.testing.assert_allclose(pooled.batch(index).values.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert table.batch(np.zeros(0, np.int64)).values.shape == (0, 3, 4)


def test_single_vectors_are_one_region(tmp_path):
    files = parts_of(tmp_path, (5, 4), (3, 4))
    features = Precomputed(tuple(files), (4,), np.arange(8))
    whole = np.concatenate([np.load(file) for file in files])
    index = np.array([6, 1])
    np.testing.assert_array_equal(open_source_features(features, "regions")[index], whole[index][:, None])
    np.testing.assert_array_equal(open_source_features(features, "vector")[index], whole[index])


def test_values_that_are_not_finite_are_named(tmp_path):
    files = parts_of(tmp_path, (5, 3, 4), (5, 3, 4))
    broken = np.load(files[1])
    broken[2, 1, 0] = np.nan
    np.save(files[1], broken)
    stacked = open_source_features(Precomputed(tuple(files), (3, 4), np.arange(10)), "vector")
    assert np.isfinite(stacked[np.array([0, 6, 8])]).all()
    with pytest.raises(InputError, match=r"1\.npy: row 2 holds values that are not finite"):
        stacked[np.array([0, 7])]


def test_items_without_a_direction_as_float32_are_listed(tmp_path):
    files = parts_of(tmp_path, (5, 4), (300, 4), dtype="<f8")
    broken = np.load(files[1])
    broken[[2, 250, 7, 100], [0, 3, 1, 2]] = np.nan, np.inf, 1e300, 3e38
    broken[30], broken[31] = 0.0, 1e-30
    broken[32] = [0.0, 1e-15, 0.0, 0.0]
    np.save(files[1], broken)
    rows = np.random.default_rng(2).permutation(305)
    stacked = open_source_features(Precomputed(tuple(files), (4,), rows), "vector")
    items = np.arange(0, 305, dtype=np.int64)
    reasons = dict.fromkeys((2, 7, 250), "values that are not finite") | {100: "values that are too large for float32"}
    reasons |= dict.fromkeys((30, 31), "nothing but zeros")
    bad = {item: f"holds {reasons[row - 5]}" for item, row in enumerate(rows.tolist()) if row - 5 in reasons}
    assert stacked.unusable(items) == bad
    assert stacked.unusable(np.setdiff1d(items, list(bad))) == {}
    assert {stacked.place(item) for item in bad} == {f"{files[1]}: row {row}" for row in reasons}
    assert stacked.place(int(np.flatnonzero(rows == 4)[0])) == f"{files[0]}: row 4"


@pytest.mark.parametrize("kilobytes", [0, 1])
def test_neighbouring_rows_are_gathered_together(tmp_path, monkeypatch, kilobytes):
    monkeypatch.setattr("pairsift.encode.source_features.READ_BYTES", kilobytes * 1024)
    files = parts_of(tmp_path, (200, 2), (200, 2), dtype="<f2")
    whole = np.concatenate([np.load(file) for file in files])
    stacked = open_source_features(Precomputed(tuple(files), (2,), np.arange(400)), "vector")
    for index in (np.arange(400), np.array([5, 6, 7, 7, 8, 199, 200, 201, 399]), np.arange(399, -1, -1)):
        np.testing.assert_array_equal(stacked[index], whole[index])


def test_a_file_of_another_shape_is_refused(tmp_path):
    files = parts_of(tmp_path, (5, 3, 4), (5, 2, 4))
    with pytest.raises(InputError, match=r"1\.npy"):
        open_source_features(Precomputed(tuple(files), (3, 4), np.arange(10)), "vector")


def test_more_rows_than_are_read_at_once(tmp_path):
    files = parts_of(tmp_path, (150, 2, 3), (90, 2, 3))
    whole = np.concatenate([np.load(file) for file in files])
    index = np.random.default_rng(1).integers(0, 240, 500)
    stacked = open_source_features(Precomputed(tuple(files), (2, 3), np.arange(240)), "regions")
    np.testing.assert_array_equal(stacked[index], whole[index])


def test_files_that_change_are_noticed(tmp_path):
    files = parts_of(tmp_path, (5, 3, 4))
    stacked = open_source_features(Precomputed(tuple(files), (3, 4), np.arange(5)), "vector")
    os.truncate(files[0], files[0].stat().st_size - 8)
    assert stacked[np.array([3])].shape == (1, 4)
    with pytest.raises(InputError, match="ends before row 4 does"):
        stacked[np.array([4])]
    files[0].unlink()
    with pytest.raises(InputError, match="cannot be read"):
        stacked[np.array([3])]
    np.save(files[0], np.asfortranarray(np.ones((5, 3, 4))))
    with pytest.raises(InputError, match="column by column"):
        open_source_features(Precomputed(tuple(files), (3, 4), np.arange(5)), "vector")


def test_gigabytes_are_never_read_whole(tmp_path):
    images, shape = 20_000, (36, 2048)  # 5.9 GB with holes; disk blocks are taken by the rows that are written only
    file = tmp_path / "train_ims.npy"
    values = np.lib.format.open_memmap(file, mode="w+", dtype="<f4", shape=(images, *shape))
    wanted = np.array([19_999, 3, 12_345], np.int64)
    for row in wanted:
        values[row] = row
    del values
    (tmp_path / "train_caps.txt").write_text("".join(f"caption {n}\n" for n in range(5 * images)))
    assert file.stat().st_size > 5.8e9 > 100 * file.stat().st_blocks * 512
    before, peak = resident(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pairs = load(tmp_path)
    assert (pairs.n_images, len(pairs)) == (images, 5 * images)
    for kind in ("regions", "vector"):
        found = Table(open_source_features(pairs.features, kind)).batch(wanted).values.reshape(3, -1)
        assert (found == found.new_tensor(wanted)[:, None]).all()
    assert resident() - before < 200e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 200e3  # kilobytes
