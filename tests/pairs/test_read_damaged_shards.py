"""Tar files that are cut off, damaged, hostile, or no tar files."""

import gzip
import io
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import reasons, refused
from pairsift.errors import InputError
from pairsift.pairs.readers import load
from pairsift.pairs.readers.tars import reading, scan
from shard_sources import one_tar, picture, read, sample, write_shards, write_tar


def cut(tar, size):
    tar.write_bytes(tar.read_bytes()[:size])


def start_of(tar, name):
    """Where the header of a file starts."""
    return next(member.offset for member in scan(tar)[0] if member.name == name) - 512


@pytest.mark.parametrize("place", ["header", "content", "padding", "end"])
def test_a_tar_file_that_is_cut_off(tmp_path, place):
    folder = write_shards(tmp_path / "shards", width=1)
    tar = folder / "00000.tar"
    start = start_of(tar, "000000001.txt")
    cut(tar, start + {"header": 100, "content": 512 + 3, "padding": 512 + 100, "end": 0}[place])
    pairs = read(folder)
    whole = {"header": 4, "content": 4, "padding": 5, "end": 4}[place]
    assert len(pairs.ids()) == whole and pairs.captions[0] == "caption 0"
    found = dict(reasons(pairs).values())
    if place != "end":  # behind a whole file nothing shows that others are missing
        size = f"{tar.stat().st_size:,}"
        assert found.pop("00000.tar") == (
            f"is cut off: it ends after {size} bytes, within a file; what lies before that is read"
        )
    if place == "content":
        assert found.pop("00000.tar sample 000000001") == "000000001.txt is cut off, as the tar file ends within it"
    elif place != "padding":
        assert found.pop("00000.tar sample 000000001").startswith("has no caption")
    assert not found


def test_an_image_that_is_cut_off(tmp_path):
    folder = write_shards(tmp_path / "shards")
    cut(folder / "00001.tar", start_of(folder / "00001.tar", "000000004.jpg") + 600)
    pairs = read(folder)
    assert len(pairs.ids()) == 4
    assert ("00001.tar sample 000000004", "000000004.jpg is cut off, as the tar file ends within it") in reasons(
        pairs
    ).values()


def test_a_damaged_header_costs_its_file_alone(tmp_path):
    folder = write_shards(tmp_path / "shards")
    tar = folder / "00000.tar"
    content, start = bytearray(tar.read_bytes()), start_of(tar, "000000001.jpg")
    content[start : start + 512] = b"\xa5" * 512
    tar.write_bytes(content)
    pairs = read(folder)
    assert len(pairs.ids()) == 5
    assert set(reasons(pairs).values()) == {
        ("00000.tar", f"is damaged at byte {start:,}; the other files in it are read"),
        ("00000.tar sample 000000001", "has no image, only 000000001.txt"),
    }


@pytest.mark.parametrize(("kind", "size"), [(b"0", -1024), (b"x", 10**12), (b"x", -5), (b"L", 10**12), (b"0", 10**12)])
def test_headers_with_impossible_sizes_end_the_reading_and_fill_no_memory(tmp_path, kind, size):
    info = tarfile.TarInfo("b.jpg")
    info.type, info.size = kind, size
    tar = write_tar(tmp_path / "x.tar", [file for number in range(3) for file in sample(f"{number}", number)])
    end = max(member.offset for member in scan(tar)[0]) + 512
    tar.write_bytes(tar.read_bytes()[:end] + info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    tracemalloc.start()
    pairs = read(tar)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20 and len(pairs.ids()) == 3
    assert any(
        where == "x.tar" and reason.startswith(("is damaged", "is cut")) for where, reason in reasons(pairs).values()
    )


def test_files_that_are_no_tar_files(tmp_path):
    folder = write_shards(tmp_path / "shards")
    (folder / "1.tar").write_bytes(b"")
    (folder / "2.tar").write_bytes(b"<html>not found</html>" * 100)
    (folder / "3.tar").write_bytes(gzip.compress((folder / "00000.tar").read_bytes()))
    (folder / "4.tar.gz").write_bytes((folder / "3.tar").read_bytes())
    (folder / "5.tar").mkdir()
    pairs = read(folder)
    assert len(pairs.ids()) == 6
    packed = "is compressed; unpack it to a plain .tar file first"
    assert dict(reasons(pairs).values()) == {
        "1.tar": "is an empty file",
        "2.tar": "is not a tar file",
        "3.tar": packed,
        "4.tar.gz": packed,
    }
    assert packed in refused(folder / "4.tar.gz")
    assert "found no .tar file" in refused(tmp_path / "cache", reader="shards")


def test_tar_files_behind_each_other_in_one_file_are_read(tmp_path):
    folder = write_shards(tmp_path / "shards")
    (tmp_path / "all.tar").write_bytes(b"".join((folder / name).read_bytes() for name in ("00000.tar", "00001.tar")))
    pairs = read(tmp_path / "all.tar")
    assert len(pairs.ids()) == 6 and not pairs.skipped


def test_names_that_lead_out_of_the_folder_write_nothing_there(tmp_path):
    names = ["../../out", "/out/side", "a\\..\\b", "new\nline", "über/ein bild", "x" * 300, "./here", "~/home"]
    files = [file for number, name in enumerate(names) for file in sample(name, number)]
    before = sorted(tmp_path.rglob("*"))
    pairs = load(write_tar(tmp_path / "in" / "x.tar", files), cache=tmp_path / "in" / "cache")
    assert not pairs.skipped and [path.read_bytes() for path in pairs.paths] == [picture(n) for n in range(len(names))]
    inside = (tmp_path / "in").resolve()
    assert all(path.resolve().is_relative_to(inside) for path in pairs.paths)
    assert sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "in")) == before
    assert pairs.names[6] == "here.jpg"


def test_links_and_devices_are_no_files(tmp_path):
    folder = one_tar(tmp_path)
    with tarfile.open(folder / "00000.tar", "w") as tar:
        for name, kind, target in (
            ("a.jpg", tarfile.SYMTYPE, "/etc/passwd"),
            ("b.jpg", tarfile.LNKTYPE, "a.jpg"),
            ("c.jpg", tarfile.CHRTYPE, ""),
            ("d.jpg", tarfile.DIRTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
            text = tarfile.TarInfo(f"{name[0]}.txt")
            text.size = 4
            tar.addfile(text, io.BytesIO(b"text"))
    found = {where[-1]: reason for where, reason in reasons(read(folder)).values()}
    link = "is a link within the tar file, not a file"
    assert found == {
        "a": f"a.jpg {link}",
        "b": f"b.jpg {link}",
        "c": "has no image, only c.txt",
        "d": "has no image, only d.txt",
    }


@given(st.data())
def test_no_damage_ends_in_a_traceback(data):
    with tempfile.TemporaryDirectory() as name:
        tar = write_shards(Path(name), 1, 3, width=1) / "00000.tar"
        content = bytearray(tar.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(content) - 1))
            junk = data.draw(st.binary(min_size=1, max_size=600))
            content[at : at + len(junk)] = junk
        tar.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        members, problem = scan(tar)
        assert "\n" not in problem
        with reading() as read:
            assert all(len(read(member)) == member.size for member in members if not member.problem)
        try:
            pairs = load(tar, cache=Path(name) / "cache")
        except InputError as error:
            assert str(tar) in str(error) and "\n" not in str(error)
        else:
            assert len(pairs) >= 3


def test_a_tar_file_that_shrinks_while_it_is_read_gives_no_half_images(tmp_path):
    tar = write_tar(tmp_path / "x.tar", [file for number in range(3) for file in sample(f"{number}", number)])
    members = scan(tar)[0]
    cut(tar, members[-2].offset + members[-2].size // 2)
    with reading() as read, pytest.raises(InputError, match=r"x\.tar: has changed while it was read; start again"):
        read(members[-2])


@given(st.binary(max_size=2000))
def test_rubbish_is_no_tar_file(content):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.tar"
        path.write_bytes(content)
        assert "x.tar" in refused(path, cache=Path(name))
