"""Every reader on damaged, crafted and drawn files: it returns pairs, or refuses them in one printable line."""

import io
import json
import random
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from every_layout import NAMES, Layout, damaged, layouts, npy, picture, tar
from pair_sources import refused, touch
from pairsift.encode.source_features import open_source_features
from pairsift.errors import InputError
from pairsift.pairs import READERS
from pairsift.pairs.pairs import Pairs
from pairsift.pairs.precomputed import FeatureFiles, load_array, open_rows
from pairsift.pairs.readers import load


def is_line(text: str) -> bool:
    """Whether a text is one line without characters that steer a terminal."""
    return bool(text) and not any(character < " " or "\x7f" <= character <= "\x9f" for character in text)


def read(path: Path, reader: str | None = None) -> Pairs | None:
    """The pairs of a source; None where it is refused in one line."""
    try:
        pairs = load(path, reader=reader, cache=path.parent / "cache of pictures")
    except InputError as error:
        assert is_line(str(error)), repr(str(error))
        return None
    assert len(pairs.captions) == len(pairs.image_of) == len(pairs.split) >= len(pairs.ids())
    assert is_line(pairs.description) and all(is_line(skip.reason) for skip in pairs.skipped)
    for text in (*pairs.captions, *pairs.names):
        text.encode()
    return pairs


def test_every_reader_has_a_layout_here_and_takes_it_whole(tmp_path):
    found = {}
    for number, (name, layout) in enumerate(layouts().items()):
        pairs = read(layout.write(tmp_path / str(number)))
        assert pairs is not None, name
        found[name] = pairs.description.partition(":")[0]
        assert len(pairs.ids()) >= 4
    assert found == {name: layout.reader for name, layout in layouts().items()}
    assert set(found.values()) == set(READERS)


@pytest.mark.parametrize("name", layouts())
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_gives_pairs_or_one_line(name, seed):
    draw, layout = random.Random(seed), layouts()[name]
    files = dict(layout.files)
    victim = draw.choice([file for file in files if not file.endswith(".jpg")] or [*files])
    files[victim] = damaged(files[victim], draw)
    with tempfile.TemporaryDirectory() as place:
        source = Layout(files, layout.place, layout.reader).write(Path(place, "source"))
        read(source)
        read(source, layout.reader)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(NAMES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("image", "caption", "images", "annotations", "sentences", "raw", "id", "image_id", "file_name")
            )
            | st.sampled_from(("filename", "filepath", "split", "data", "columns", "result", "value", "text", *NAMES))
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@example({"images": [{"id": 1, "file_name": None, "sentences": 3}], "annotations": [{"image_id": [], "caption": {}}]})
@example({"image": "a.jpg", "annotations": [{"result": [{"value": {"text": {}}}]}]})
@given(JSON)
def test_any_json_value_gives_pairs_or_one_line(value):
    with tempfile.TemporaryDirectory() as place:
        touch(Path(place), *NAMES)
        for name in ("x.json", "x.jsonl"):
            (Path(place) / name).write_text(json.dumps(value))
            for reader in (None, "coco", "karpathy", "table", "chinese_clip"):
                read(Path(place) / name, reader)


CELLS = (  # kinds of Arrow columns with some values each
    (pa.string(), ["a.jpg", None, "", "\x00", "x" * 300, "日本"]),
    (pa.binary(), [picture(1), b"", None, b"\xff", b"a.jpg"]),
    (pa.large_string(), ["a.jpg", "b", None]),
    (pa.list_(pa.string()), [["a"], [], None, ["b", None]]),
    (pa.list_(pa.binary()), [[picture(2)], [], None, [None]]),
    (pa.struct([("bytes", pa.binary()), ("path", pa.string())]), [{"bytes": picture(3), "path": "a.jpg"}, None, {}]),
    (pa.struct([("bytes", pa.string()), ("path", pa.int8())]), [{"bytes": "a", "path": 3}, None]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, []]),
    (pa.dictionary(pa.int8(), pa.string()), ["a.jpg", None, "b.jpg"]),
    (pa.float64(), [float("nan"), float("inf"), None, 1e308]),
    (pa.decimal128(38, 10), [None]),
    (pa.timestamp("ns", tz="UTC"), [0, 2**63 - 1, -(2**63) + 1, None]),
    (pa.duration("us"), [0, 2**62, None]),
    (pa.date32(), [0, 2**31 - 1, -(2**31), None]),
    (pa.time64("ns"), [0, 86_399_999_999_999]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.null(), [None]),
    (pa.bool_(), [True, None]),
)


@st.composite
def arrow_tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 5))
    names = draw(
        st.lists(st.sampled_from(("image", "caption", "split", "a.b", "\x1b[2J", "", "n")), min_size=1, max_size=4)
    )
    columns = []
    for _ in names:
        kind, values = draw(st.sampled_from(CELLS))
        columns.append(pa.array(draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows)), kind))
    return pa.table(columns, names=names)


@given(arrow_tables())
def test_any_parquet_table_gives_pairs_or_one_line(table):
    with tempfile.TemporaryDirectory() as place:
        touch(Path(place), *NAMES)
        pq.write_table(table, Path(place) / "x.parquet")
        for reader in (None, "table"):
            read(Path(place) / "x.parquet", reader)


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    """A .npy file with this header and 64 bytes of values."""
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack("<H" if version == (1, 0) else "<I", len(text))
        + (text.encode() + bytes(64))
    )


def of_shape(shape: object, kind: str = "'<f4'") -> bytes:
    return header(f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n")


def archive() -> bytes:
    out = io.BytesIO()
    np.savez(out, values=np.ones(3))
    return out.getvalue()


BROKEN_ARRAYS = {
    "begins like an archive": b"PK\x03\x04" + bytes(50),
    "an archive": archive(),
    "an empty archive": b"PK\x05\x06" + bytes(18),
    "a pickle": b"\x80\x04]\x94.",
    "empty": b"",
    "cut off": npy(np.ones((5, 4), np.float32))[:-3],
    "unclosed brackets": header("{'descr': '<f4'L, 'shape': (\n"),
    "odd indentation": header("if 1:\n   x L\n y\n"),
    "deep brackets": header("(" * 9000 + ")" * 9000, (2, 0)),
    "many signs": header("-" * 9000 + "1", (2, 0)),
    "a header beyond the file": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"x",
    "a number of many digits": of_shape(f"({'9' * 5000}, 4)"),
    "more rows than numbers can say": of_shape((2**70, 4)),
    "more rows than memory": of_shape((2**50, 4)),
    "rows below zero": of_shape((-1, 4)),
    "a truth value of rows": of_shape("(True, 4)"),
    "no rows": of_shape((0, 4)),
    "objects": of_shape((2, 4), "'|O'"),
    "records": of_shape((2, 4), "[('a', '<f4')]"),
    "no type": of_shape((2, 4), "5"),
    "integers": npy(np.ones((5, 4), np.int64)),
    "complex numbers": npy(np.ones((5, 4), np.complex64)),
    "columns first": npy(np.asfortranarray(np.ones((5, 4), np.float32))),
}


@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
@pytest.mark.parametrize("name", BROKEN_ARRAYS)
def test_a_crafted_array_is_refused_in_one_line(tmp_path, name):
    file = tmp_path / "x.npy"
    file.write_bytes(BROKEN_ARRAYS[name])
    for read_array in (
        open_rows,
        lambda path: open_source_features(FeatureFiles((path,), (4,), np.arange(5)), "vector"),
    ):
        with pytest.raises(InputError) as caught:
            read_array(file)
        assert str(caught.value).startswith(str(file)) and is_line(str(caught.value))
    try:
        load_array(file, mapped=False)
    except InputError as error:
        assert is_line(str(error))


@pytest.mark.parametrize("reader", ["coco", "karpathy", "table"])
@pytest.mark.parametrize("content", ["9" * 5000, "[" * 100_000, '{"a":' * 100_000, '"\\ud800', "NaN", "\x1b[31m"])
def test_crafted_json_is_refused_in_one_line(tmp_path, reader, content):
    file = tmp_path / "x.json"
    for text in (content, f'{{"images": [{{"id": {content}}}], "annotations": []}}'):
        file.write_text(text)
        assert str(file) in refused(file, reader=reader)
        assert is_line(refused(file, reader=reader))


def test_what_a_source_says_cannot_steer_the_terminal(tmp_path):
    pq.write_table(pa.table({"\x1b]0;owned\x07": ["a"], "\x9b2J": ["b"]}), tmp_path / "x.parquet")
    line = refused(tmp_path / "x.parquet")
    assert is_line(line) and "owned" in line
    touch(tmp_path, *NAMES)
    rows = "".join(f"{name},a thing\n" for name in NAMES)
    (tmp_path / "x.csv").write_text(f"image,caption\n{rows}\x1b[2Jgone\x07.jpg,of no file\n")
    [skip] = load(tmp_path / "x.csv").skipped
    assert is_line(skip.reason) and "gone" in skip.reason
    for place in ("tar", "names"):
        files = {f"\x1b[31m{n}.jpg": picture(n) for n in range(3)} | {f"\x1b[31m{n}.txt": b"words" for n in range(3)}
        (tmp_path / f"{place}.tar").write_bytes(tar(files | {"\x1b[2J.txt": b"alone"}))
        pairs = load(tmp_path / f"{place}.tar", cache=tmp_path / "cache")
        assert all(is_line(skip.where) and is_line(skip.reason) for skip in pairs.skipped)


def test_a_parquet_footer_that_promises_too_much_is_refused_in_one_line(tmp_path):
    whole = layouts()["parquet names"].files["x.parquet"]
    size = struct.unpack("<I", whole[-8:-4])[0]
    for footer in (0, 1, size - 1, size + 1, 2**31 - 1, 2**32 - 1):
        (tmp_path / "x.parquet").write_bytes(whole[:-8] + struct.pack("<I", footer) + b"PAR1")
        read(tmp_path / "x.parquet", "table")
    for cut in (0, 3, 4, 8, 11, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.parquet").write_bytes(whole[:cut])
        assert str(tmp_path / "x.parquet") in refused(tmp_path / "x.parquet", reader="table")


def test_a_compressed_file_is_not_unpacked_into_memory(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npy", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("values.npy", bytes(50_000_000))
    with pytest.raises(InputError, match="holds an archive"):
        open_rows(tmp_path / "x.npy")
