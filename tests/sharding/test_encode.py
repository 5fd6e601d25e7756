"""The encoding of a source shard by shard."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image
from vector_folder import vectors

from pairsift.cli.main import main
from pairsift.encode.cache import encode_pairs
from pairsift.encode.registry import image_encoder, text_encoder
from pairsift.errors import InputError, writing
from pairsift.pairs.readers import load
from pairsift.pairs.records import Columns
from pairsift.sharding import source_shards
from pairsift.sharding.exporting import export_rows, schema_of
from pairsift.sharding.vectors import VectorFiles
from pairsift.web.images import Images
from shard_sources import one_tar, picture, sample, write_shards, write_tar

COMMAND = "import sys; from pairsift.cli.main import main; sys.exit(main(sys.argv[1:]))"


def encode(source, out, *options):
    """The exit code of the command."""
    return main(["encode", str(source), "--out", str(out), "--quiet", *options])


def read(out):
    """The vectors and the records of all parts, one after the other."""
    images, texts = (
        np.concatenate([np.load(file) for file in sorted((out / kind).glob("*.npy"))])
        for kind in ("img_emb", "text_emb")
    )
    return images, texts, pa.concat_tables([pq.read_table(file) for file in sorted((out / "metadata").iterdir())])


def files(out):
    """The bytes of all parts, by name."""
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.glob("*/*"))}


def expected(source, tmp_path):
    """The vectors of a source that is encoded as a whole, by pair."""
    pairs = load(source, shares=None, cache=tmp_path / "whole")
    features, _ = encode_pairs(pairs, image_encoder(), text_encoder(), tmp_path / "features", progress=False)
    return features.images.values[pairs.image_of], features.texts.values[:], pairs


def test_tar_files_are_encoded_as_the_whole_is(tmp_path):
    source, out = write_shards(tmp_path / "shards", 3, 4, shop="a"), tmp_path / "out"
    assert encode(source, out) == 0
    images, texts, table = read(out)
    own, captions, pairs = expected(source, tmp_path)
    assert images.dtype == np.float16 and np.abs(images - own).max() < 2e-3 * np.abs(own).max()
    assert np.abs(texts - captions).max() < 2e-3 * np.abs(captions).max()
    assert table["caption"].to_pylist() == list(pairs.captions) and table["shop"].to_pylist() == ["a"] * 12
    assert table["problem"].to_pylist() == [""] * 12
    assert len(files(out)) == 9 and not list(tmp_path.rglob("*.part"))


def test_every_part_of_a_parquet_file_and_of_a_list_is_a_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(source_shards, "PAIRS", 4)
    rows = [{"image": {"bytes": picture(n), "path": f"{n}.jpg"}, "caption": f"a caption {n}"} for n in range(10)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pairs.parquet", row_group_size=3)
    (tmp_path / "images").mkdir()
    for n in range(10):
        (tmp_path / "images" / f"{n}.jpg").write_bytes(picture(n))
    lines = "".join(f"images/{n}.jpg,a caption {n}\n" for n in range(10))
    (tmp_path / "pairs.csv").write_text(f"image,caption\n{lines}", encoding="utf-8")
    for kind in ("parquet", "csv"):
        assert encode(tmp_path / f"pairs.{kind}", tmp_path / kind) == 0
    images, texts, table = read(tmp_path / "parquet")
    own, captions, _ = expected(tmp_path / "pairs.parquet", tmp_path)
    assert len(list((tmp_path / "parquet" / "metadata").iterdir())) == 3
    assert np.abs(images - own).max() < 2e-3 * np.abs(own).max() and len(texts) == len(captions) == 10
    assert table["caption"].to_pylist() == [f"a caption {n}" for n in range(10)]
    again, words, listed = read(tmp_path / "csv")
    assert (again == images).all() and (words == texts).all()
    assert listed["file"].to_pylist() == [f"images/{n}.jpg" for n in range(10)]


def test_broken_shards_and_records_are_kept_as_rows_with_a_reason(tmp_path):
    source = one_tar(tmp_path, *sample("a", 1), ("b.jpg", b"no image"), ("b.txt", b"a broken one"), *sample("c", 3))
    whole = (source / "00001.tar").read_bytes()
    (source / "00002.tar").write_bytes(whole[:2300])
    (source / "00003.tar").write_bytes(b"")
    (source / "00004.tar").write_bytes(b"\x07" * 5000)
    assert encode(source, tmp_path / "out") == 0
    images, texts, table = read(tmp_path / "out")
    problems = table["problem"].to_pylist()
    bad = np.array([bool(problem) for problem in problems])
    assert not images[bad].any() and not texts[bad].any()
    assert images[~bad].any(1).all() and texts[~bad].any(1).all()
    assert "cut off" in " ".join(problems) and "empty file" in " ".join(problems)
    captions = dict(zip(table["caption"].to_pylist(), problems, strict=True))
    assert captions["a broken one"] and not captions["caption 3"] and not captions["caption 102"]


def test_shares_write_the_same_parts(tmp_path):
    source = write_shards(tmp_path / "shards", 5, 2)
    assert encode(source, tmp_path / "whole") == 0
    for share in ("1/2", "0/2"):
        assert encode(source, tmp_path / "shares", "--shard", share) == 0
    assert files(tmp_path / "shares") == files(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_process_costs_its_shard(tmp_path):
    source, out = write_shards(tmp_path / "shards", 12, 3), tmp_path / "out"
    assert encode(source, tmp_path / "whole") == 0
    command = [sys.executable, "-c", COMMAND, "encode", source, "--out", out, "--quiet"]
    process = subprocess.Popen(command)
    while process.poll() is None and len(list(out.glob("metadata/*.parquet"))) < 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = {file: os.stat(file).st_mtime_ns for file in out.glob("metadata/*.parquet")}
    assert 3 <= len(kept) < 12
    subprocess.run(command, check=True, timeout=200)
    assert files(out) == files(tmp_path / "whole")
    assert all(os.stat(file).st_mtime_ns == time for file, time in kept.items())


def test_a_folder_is_not_mixed_with_other_encoders_or_sources(tmp_path, capsys):
    source, out = write_shards(tmp_path / "shards"), tmp_path / "out"
    assert encode(source, out) == 0
    before = files(out)
    assert encode(source, out, "--text-encoder", "wordllama") == 2
    assert "begun with another text encoder (muse)" in capsys.readouterr().err
    write_tar(source / "00009.tar", sample("x", 9))
    assert encode(source, out) == 2
    assert "or its options have changed since" in capsys.readouterr().err and files(out) == before
    (source / "00009.tar").unlink()
    assert encode(os.path.relpath(source), out) == 0 and files(out) == before
    assert encode(source, tmp_path / "other", "--text-encoder", "muse+ngrams") == 2
    assert "fitted to nothing" in capsys.readouterr().err


def test_vectors_are_not_encoded_again(tmp_path, capsys):
    vectors(tmp_path / "vectors", n=30)
    assert encode(tmp_path / "vectors", tmp_path / "out") == 2
    assert "holds vectors already" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tar", "csv"])
def test_the_images_of_checked_vectors_are_shown(tmp_path, kind):
    source, out, n = tmp_path / "source", tmp_path / "vectors", 120
    if kind == "tar":
        write_shards(source, 3, n // 3)
    else:
        (source / "images").mkdir(parents=True)
        for number in range(n):
            (source / "images" / f"{number}.jpg").write_bytes(picture(number))
        rows = "".join(f"images/{number}.jpg,caption {number} of all\n" for number in range(n))
        (source / "pairs.csv").write_text(f"image,caption\n{rows}", encoding="utf-8")
    assert encode(source, out) == 0
    for run, options in (("shards", ("--shard", "0/1")), ("memory", ())):
        assert main(["check", str(out), "--out", str(tmp_path / run), "--quiet", *options]) == 0
        images = Images(tmp_path / run, out)
        assert images.exist
        for pair in (0, 50, n - 1):
            shown = np.asarray(Image.open(io.BytesIO(images.jpeg(pair, "small"))).convert("RGB")).mean((0, 1))
            assert shown == pytest.approx(np.asarray(Image.open(io.BytesIO(picture(pair)))).mean((0, 1)), abs=3)
        assert images.version(0) and images.jpeg(n, "small") is None


@pytest.mark.slow
def test_the_vectors_are_checked(tmp_path):
    from pairsift.scenes import write_scenes

    write_scenes(tmp_path / "scenes", 60, 1)
    assert encode(tmp_path / "scenes", tmp_path / "vectors") == 0
    assert main(["check", str(tmp_path / "vectors"), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["noise_rate"]["estimated"] < 0.05 and sum(metrics["pairs"].values()) == 300


def test_a_full_disk_is_no_broken_shard(tmp_path, capsys, monkeypatch):
    source, out = write_shards(tmp_path / "shards"), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("pairsift.pairs.embedded.Store._write", full)
        assert encode(source, out) == 2
    assert "No space left" in capsys.readouterr().err and not list(out.glob("metadata/*.parquet"))
    assert encode(source, out) == 0 and read(out)[2]["problem"].to_pylist() == [""] * 6


def full(*_):
    with writing(Path("x.png")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", ["tar", "csv"])
def test_an_edited_source_is_refused(tmp_path, capsys, kind):
    shards = write_shards(tmp_path / "shards")
    source, edited = shards, shards / "00001.tar"
    if kind == "csv":
        for number in range(3):
            (tmp_path / f"{number}.jpg").write_bytes(picture(number))
        source = edited = tmp_path / "x.csv"
        source.write_text("image,caption\n" + "".join(f"{number}.jpg,a cat {number}\n" for number in range(3)))
    assert encode(source, tmp_path / "out") == 0
    size = edited.stat().st_size
    if kind == "csv":
        source.write_text(source.read_text().replace("cat", "dog"))
    else:
        write_tar(edited, [file for number in range(3, 6) for file in sample(f"{number:09d}", number, "a cat")])
    assert edited.stat().st_size == size  # tar files have a whole number of blocks
    assert encode(source, tmp_path / "out") == 2
    assert f"{source} or its options have changed since" in capsys.readouterr().err


def test_parts_of_different_columns_are_exported_together(tmp_path):
    source, out = tmp_path / "shards", tmp_path / "out"
    for shard, fields in enumerate(({"shop": "a"}, {"price": "=1"}, {})):
        numbers = range(shard * 3, shard * 3 + 3)
        write_tar(source / f"{shard}.tar", [file for n in numbers for file in sample(f"{n}", n, None, **fields)])
    assert encode(source, out) == 0
    files_ = VectorFiles.open(out, Columns())
    assert files_.place_of(4) == "metadata_00001.parquet row 2"
    for name in ("x.parquet", "x.csv"):
        export_rows(files_, np.arange(9) != 4, {2: "another"}, np.full(9, 0.5), tmp_path / name, "weight")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table["caption"].to_pylist() == [
        "caption 0",
        "caption 1",
        "another",
        *(f"caption {n}" for n in (3, *range(5, 9))),
    ]
    assert table.schema.field("caption").type == pa.string()
    assert table["shop"].to_pylist() == ["a"] * 3 + [None] * 5 and table["weight"].to_pylist() == [0.5] * 8
    sheet = pyarrow.csv.read_csv(tmp_path / "x.csv")
    assert sheet["price"].to_pylist()[3:5] == ["=1"] * 2 and len(sheet) == 8


def test_parts_without_a_column_and_facts_of_others_are_one_line(tmp_path):
    source, out = write_shards(tmp_path / "shards"), tmp_path / "out"
    assert encode(source, out) == 0
    (out / "encoding.json").write_text("[]")
    assert VectorFiles.open(out, Columns()).images_root == ""
    part = sorted((out / "metadata").iterdir())[1]
    pq.write_table(pq.read_table(part).drop_columns("caption"), part)
    with pytest.raises(InputError, match=r"metadata_00001\.parquet: has no column 'caption', which metadata_00000"):
        VectorFiles.open(out, Columns())


def test_the_columns_of_parts_that_do_not_fit_are_one_line_and_weights_have_a_name_of_their_own(tmp_path):
    source, out = write_shards(tmp_path / "shards"), tmp_path / "out"
    assert encode(source, out) == 0
    part = sorted((out / "metadata").iterdir())[1]
    table = pq.read_table(part)
    pq.write_table(table.append_column("weight", pa.array([1.0] * 3)), part)
    assert schema_of(VectorFiles.open(out, Columns())).names[-1] == "weight"
    pq.write_table(table.set_column(table.column_names.index("file"), "file", pa.array([[1]] * 3)), part)
    with pytest.raises(InputError, match="the columns of its tables do not fit"):
        schema_of(VectorFiles.open(out, Columns()))


def table_of(path, columns):
    """A Parquet file of images, with these further columns."""
    rows = [{"image": {"bytes": picture(n), "path": f"{n}.jpg"}} for n in range(len(next(iter(columns.values()))))]
    table = pa.Table.from_pylist(rows)
    for name, cells in columns.items():
        table = table.append_column(name, pa.array(cells))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def test_all_shards_of_a_table_read_the_same_columns_and_lists(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(source_shards, "PAIRS", 20)
    titles = [f"red vase {n}" if n < 20 else "Vase" for n in range(40)]
    texts = [f"a long text about vase {n}" for n in range(40)]
    lists = [f'["vase {n}", "the vase {n}"]' if n % 20 < (8 if n < 20 else 14) else f"vase {n}" for n in range(40)]
    for name, columns in (("titles", {"title": titles, "description": texts}), ("lists", {"caption": lists})):
        table_of(tmp_path / f"{name}.parquet", columns)
        assert main(["encode", str(tmp_path / f"{name}.parquet"), "--out", str(tmp_path / name)]) == 0
        whole = load(tmp_path / f"{name}.parquet", shares=None, cache=tmp_path / "cache")
        assert read(tmp_path / name)[2]["caption"].to_pylist() == whole.captions
    assert "image column 'image', caption column 'title'; not read as captions: 'desc" in capsys.readouterr().out


def test_a_wrong_column_ends_in_one_line_and_hidden_files_are_left_out(tmp_path, capsys):
    for name in ("a.parquet", ".cache/old.parquet"):
        table_of(tmp_path / "source" / name, {"caption": [f"a cat {n}" for n in range(4)]})
    (tmp_path / "source" / "._a.parquet").write_bytes(b"of another system")
    assert encode(tmp_path / "source", tmp_path / "out", "--caption-column", "captoin") == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'source' / 'a.parquet'}: no column 'captoin'" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert encode(tmp_path / "source", tmp_path / "out") == 0 and len(read(tmp_path / "out")[2]) == 4


def test_what_cannot_be_used_is_counted_and_nothing_usable_is_an_error(tmp_path, capsys):
    source = one_tar(tmp_path, *sample("a", 1), ("b.jpg", b"no image"), ("b.txt", b"a broken one"))
    (source / "00002.tar").write_bytes(b"\x07" * 5000)
    assert main(["encode", str(source), "--out", str(tmp_path / "out")]) == 0
    line = f"not usable: 1 shard and 1 record, the first: {source / '00000.tar'}: the file is not an image"
    assert line in capsys.readouterr().out
    assert encode(source / "00002.tar", tmp_path / "none") == 2
    error = capsys.readouterr().err
    assert "no record could be used; the first: " in error and "00002.tar" in error and error.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--shard", "0/1")])
def test_shards_without_samples_have_no_rows_and_missing_ones_are_told(tmp_path, capsys, options):
    source, out = write_shards(tmp_path / "shards", 3, 30), tmp_path / "out"
    write_tar(source / "00001.tar", [])
    assert encode(source, out, "--shard", "0/2") == 0 and not (out / "metadata" / "metadata_00001.parquet").exists()
    check = ["check", str(out), "--out", str(tmp_path / "run"), "--quiet", *options]
    assert main(check) == 2
    assert f"{out}: 1 of 3 shards are not encoded yet: repeat `pairsift encode`" in capsys.readouterr().err
    assert encode(source, out) == 0 and main(check) == 0
    assert pq.read_metadata(tmp_path / "run" / "pairs.parquet").num_rows == 60


def test_columns_of_the_source_called_like_ours_stay_and_are_no_problems(tmp_path, capsys):
    source, out = tmp_path / "pairs.parquet", tmp_path / "out"
    texts = [f"a cat {n}" for n in range(5)]
    table_of(source, {"text": texts, "caption": ["old"] * 5, "problem": [True] * 5, "file": ["scan"] * 5})
    assert encode(source, out, "--caption-column", "text") == 0
    table = read(out)[2]
    assert table["caption"].to_pylist() == texts and table["problem"].to_pylist() == [""] * 5
    given = {name: table[f"{name}_given"].to_pylist()[0] for name in ("caption", "problem", "file")}
    assert given == {"caption": "old", "problem": "true", "file": "scan"}
    folder = tmp_path / "vectors"
    vectors(folder, n=60)
    own = pq.read_table(folder / "captions.parquet")
    pq.write_table(own.append_column("problem", pa.array([False] * 60)), folder / "captions.parquet")
    assert not load(folder).skipped and not VectorFiles.open(folder, Columns()).scan()[1]


def test_an_export_keeps_texts_and_says_which_format_cannot_hold_a_column(tmp_path):
    vectors(tmp_path / "v", n=60)
    table = pq.read_table(tmp_path / "v" / "captions.parquet")
    table = table.set_column(1, "caption", pa.array([*range(59), -5])).append_column("@sku", pa.array(["-a"] * 60))
    pq.write_table(table, tmp_path / "v" / "captions.parquet")
    files_ = VectorFiles.open(tmp_path / "v", Columns())
    for name in ("x.csv", "x.parquet"):
        export_rows(files_, np.full(60, True), {2: "= another"}, None, tmp_path / name, "weight")
    for sheet in (pyarrow.csv.read_csv(tmp_path / "x.csv"), pq.read_table(tmp_path / "x.parquet")):
        assert sheet["caption"].to_pylist()[:4] == ["0", "1", "= another", "3"]
        assert sheet["@sku"].to_pylist() == ["-a"] * 60
    pq.write_table(table.append_column("raw", pa.array([b"\xff"] * 60)), tmp_path / "v" / "captions.parquet")
    with pytest.raises(InputError, match=r"x2\.csv: a column cannot be written as \.csv: "):
        export_rows(files_, np.full(60, True), {}, None, tmp_path / "x2.csv", "weight")
    assert not (tmp_path / "x2.csv").exists()
