"""Tar files of samples: what belongs together, where captions and splits are, and what is skipped with its reason."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import reasons, refused
from pairsift.pairs.embedded import Store
from pairsift.pairs.readers import choose
from pairsift.pairs.readers.shards import group
from pairsift.pairs.readers.tars import Member
from shard_sources import one_tar, picture, read, sample, write_shards, write_tar


def test_samples_of_img2dataset(tmp_path):
    fields = {"key": "k", "width": 640, "exif": {"Make": ["x", 1]}, "nothing": None}
    pairs = read(write_shards(tmp_path / "shards", **fields))
    assert pairs.captions == [f"caption {number}" for number in range(6)]
    assert pairs.names == [f"{number // 3:05d}/{number:09d}.jpg" for number in range(6)]
    assert [path.read_bytes() for path in pairs.paths] == [picture(number) for number in range(6)]
    expected = {"key": "k", "width": "640", "exif": '{"Make": ["x", 1]}', "nothing": ""}
    assert pairs.columns == {name: [cell] * 6 for name, cell in expected.items()}
    assert pairs.description.startswith("shards: image from 2 tar files, caption from the .txt files, split drawn")
    assert not pairs.skipped


def test_a_single_tar_file_is_a_source(tmp_path):
    tar = write_tar(tmp_path / "X.TAR", [file for number in range(3) for file in sample(f"deep/er/{number}", number)])
    assert choose(tar) == "shards"
    assert read(tar).names == [f"deep/er/{number}.jpg" for number in range(3)]


@pytest.mark.parametrize(
    ("files", "reader"),
    [
        (["00000.tar", "00000.parquet", "00000_stats.json"], "shards"),
        (["train/00000.tar", "VAL/00000.tar"], "shards"),
        (["00000.TAR"], "shards"),
        (["a.jpg", "a.txt", "backup.tar"], "folder"),
        (["train/a.jpg", "train/a.txt", "backup.tar"], "folder"),
        (["other/00000.tar"], "folder"),
        ([".hidden.tar"], "folder"),
    ],
)
def test_which_folders_are_read_as_shards(tmp_path, files, reader):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert choose(tmp_path) == reader


def test_endings_in_any_case_and_images_of_any_kind(tmp_path):
    kinds = {"a.JPG": "JPEG", "b.jpeg": "JPEG", "c.Png": "PNG", "d.webp": "WEBP", "e.GIF": "GIF"}
    files = [(name, picture(number, kind)) for number, (name, kind) in enumerate(kinds.items())]
    pairs = read(one_tar(tmp_path, *files, *((f"{name[0]}.TXT", name.encode()) for name in kinds)))
    assert pairs.captions[:5] == list(kinds)  # the texts lie behind all images
    assert [path.suffix for path in pairs.paths[:5]] == [".jpg", ".jpg", ".png", ".webp", ".gif"]
    assert [path.read_bytes() for path in pairs.paths[:5]] == [content for _, content in files]


def test_samples_that_lack_something_are_skipped_with_their_reason(tmp_path):
    files = [
        ("a.jpg", picture(1)),
        ("b.txt", b"no image"),
        *sample("c", 2, ""),
        ("d.jpg", picture(3)),
        ("d.json", b"[1, 2]"),
        ("e.jpg", b""),
        ("e.txt", b"an empty file"),
        ("f.jpg", picture(4)),
        ("f.json", b'{"caption": [{"raw": "nested"}]}'),
        ("g.jpg", picture(5)),
        ("g.json", b'{"caption": null}'),
        ("h.jpg", picture(6)),
        ("h.txt", b"caf\x81"),
        ("i.jpg", picture(7)),
        ("i.json", b'{"width": 7}'),
        ("README", b"of no sample"),
        ("._a.jpg", b"of no sample"),
    ]
    pairs = read(one_tar(tmp_path, *files))
    found = {where.removeprefix("00000.tar sample "): reason for where, reason in reasons(pairs).values()}
    assert found.pop("h").startswith("holds characters whose encoding cannot be told")
    assert found == {
        "a": "has no caption: no .txt file and no field 'caption' in a .json file",
        "b": "has no image, only b.txt",
        "c": "the caption is empty",
        "d": "d.json is no JSON object",
        "e": "e.jpg is empty",
        "f": "field 'caption' holds a list or an object where text is needed",
        "g": "the caption is empty",
        "i": "has no caption: no .txt file and no field 'caption' in a .json file",
    }
    assert len(pairs.ids()) == 3 and len(pairs) == 12


def test_a_broken_json_file_beside_a_caption_is_counted_and_costs_no_pair(tmp_path):
    broken = (b"{", b"[]", b"\xff\xfe\x00", b"1" * 5000)
    files = [file for number in range(4) for file in sample(f"{number}", number)]
    pairs = read(one_tar(tmp_path, *files, *((f"{number}.json", raw) for number, raw in enumerate(broken))))
    assert not pairs.skipped
    assert "JSON files that are no JSON objects and were passed over: 4" in pairs.description


def test_captions_in_the_json_file_alone(tmp_path):
    values = ["text", ["first", "second"], 7, [], ["third", None]]
    files = []
    for number, value in enumerate(values):
        files += [(f"{number}.jpg", picture(number)), (f"{number}.json", json.dumps({"Caption": value}).encode())]
    pairs = read(one_tar(tmp_path, *files), keep_empty=True)
    assert pairs.captions[:8] == ["text", "first", "second", "7", "", "third", "", "caption 100"]
    assert pairs.image_of[:7].tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert reasons(pairs)[6] == ("00000.tar sample 4 caption 2", "the caption is empty")
    assert set(reasons(pairs)) == {4, 6} and not pairs.columns
    assert "caption from field 'Caption' of the .json files or the .txt files" in pairs.description


def test_the_field_of_the_captions_can_be_named(tmp_path):
    folder = write_shards(tmp_path / "shards", alt="better words", image="x", split="fold 3")
    pairs = read(folder, caption_column="ALT")
    assert pairs.captions == ["better words"] * 6
    assert pairs.columns == {
        "json caption": [f"caption {number}" for number in range(6)],
        "json image": ["x"] * 6,
        "json split": ["fold 3"] * 6,
        "txt": [f"caption {number}" for number in range(6)],
    }
    line = refused(folder, caption_column="nope", cache=tmp_path / "cache")
    assert "no field 'nope'" in line and "'alt'" in line


def test_a_field_that_says_something_else_than_the_text_is_a_column(tmp_path):
    files = [*sample("a", 1, " a cat \n", caption_id=1), *sample("b", 2), ("b.json", b'{"caption": "other"}')]
    pairs = read(one_tar(tmp_path, *files))
    assert pairs.captions[:2] == [" a cat ", "caption 2"]
    assert pairs.columns == {"caption_id": ["1", "", "", "", ""], "json caption": ["", "other", "", "", ""]}


def test_several_images_of_a_sample(tmp_path):
    files = [
        ("a.mask.png", picture(1, "PNG")),
        *sample("a", 2),  # the image with the shortest ending; the other one is a part of the sample
        *sample("b", 3),
        ("b.png", picture(4, "PNG")),
        ("photo.v1.jpg", picture(5)),
        ("photo.v1.txt", b"first"),
        ("photo.v2.jpg", picture(6)),
        ("photo.v2.txt", b"second"),
    ]
    pairs = read(one_tar(tmp_path, *files))
    usable = {
        pairs.names[pairs.image_of[pair]]: (pairs.captions[pair], pairs.paths[pairs.image_of[pair]].read_bytes())
        for pair in pairs.ids()
        if pairs.names[pairs.image_of[pair]].startswith("00000")
    }
    assert usable == {
        "00000/a.jpg": ("caption 2", picture(2)),
        "00000/b.jpg": ("caption 3", picture(3)),
        "00000/photo.v1.jpg": ("first", picture(5)),
        "00000/photo.v2.jpg": ("second", picture(6)),
    }
    assert list(reasons(pairs).values()) == [
        ("00000.tar sample b", "b.png has no caption: that is b.jpg's already"),
    ]


def test_keys_that_come_again(tmp_path):
    for shard in range(3):  # the same keys in every tar file, and one twice within it
        files = [file for number in (0, 1, 0) for file in sample(f"{number}", shard * 10 + number)]
        files[-2:] = [("0.jpg", picture(shard * 10 + 5)), ("0.txt", b"again")]
        write_tar(tmp_path / "shards" / f"{shard:05d}.tar", files)
    pairs = read(tmp_path / "shards")
    assert pairs.names[:4] == ["00000/0.jpg", "00000/1.jpg", "00000/0 (2).jpg", "00001/0.jpg"]
    assert len(set(pairs.names)) == 9 and not pairs.skipped
    assert pairs.captions[:3] == ["caption 0", "caption 1", "again"]


def test_equal_images_are_one_image_with_several_captions(tmp_path):
    files = [*sample("a", 1, "one"), *sample("b", 1, "two"), *sample("c", 1, "one")]
    pairs = read(one_tar(tmp_path, *files))
    assert pairs.image_of[:3].tolist() == [0, 0, 0]
    assert reasons(pairs) == {2: ("00000.tar sample c", "repeats 00000.tar sample a")}


@pytest.mark.parametrize(
    "names",
    [
        ("train/00000.tar", "val/00000.tar", "test/00000.tar", "unused/00000.tar"),
        ("cc3m-train-0000.tar", "cc3m-validation-0000.tar", "cc3m-test-0000.tar", "cc3m-0000.tar"),
    ],
)
def test_splits_of_folders_and_names(tmp_path, names):
    for place, name in enumerate(names):
        files = [file for number in range(3) for file in sample(f"{number}", place * 3 + number, split="dev")]
        write_tar(tmp_path / "shards" / name, files)
    pairs = read(tmp_path / "shards")
    split_of = dict(zip(pairs.names, pairs.split.tolist(), strict=True))
    for name, split in zip(names, ("train", "dev", "test", "unused"), strict=True):
        assert [split_of[f"{name.removesuffix('.tar')}/{number}.jpg"] for number in range(3)] == [split] * 3
    assert ("captions without a split, which are unused: 3" in pairs.description) == ("unused" not in names[3])
    assert not pairs.columns


def test_splits_of_a_field(tmp_path):
    words = ["train", "restval", "Validation", "TEST", "", "bogus", "train"]
    files = [file for number, word in enumerate(words) for file in sample(f"{number}", number, subset=word)]
    pairs = read(write_tar(tmp_path / "test.tar", files))  # its name alone makes no splits: nothing is for training
    assert pairs.split.tolist() == ["train", "train", "dev", "test", "unused", "skipped", "train"]
    assert "split from field 'subset' of the .json files" in pairs.description


def test_reading_again_reads_no_image_until_a_tar_file_changes(tmp_path, monkeypatch):
    folder = write_shards(tmp_path / "shards")
    first = read(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", lambda *_: pytest.fail("an image was read again"))
        again = read(folder)
    assert (again.paths, again.hash()) == (first.paths, first.hash())
    write_tar(folder / "00001.tar", sample("000000009", 9))
    os.utime(folder / "00001.tar", (1, 1))
    changed = read(folder)
    assert changed.paths[:3] == first.paths[:3] and changed.paths[3].read_bytes() == picture(9)


def test_one_image_is_in_memory_at_a_time(tmp_path, monkeypatch):
    files = [file for n in range(40) for file in ((f"{n}.jpg", os.urandom(1 << 18)), (f"{n}.txt", b"text"))]
    tar = write_tar(tmp_path / "x.tar", files)
    del files
    tracemalloc.start()
    read(tar)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 << 20  # the tar file has 10 MB


def test_an_image_folder_is_refused(tmp_path):
    folder = write_shards(tmp_path / "shards")
    assert "takes no --image-folder" in refused(folder, image_folder=tmp_path)


def naive_keys(names):
    """The key and the ending of each name, cut at the first dot behind the folders, as WebDataset's users know it."""
    found = []
    for name in names:
        folders, slash, base = name.rpartition("/")
        if "." in base[1:]:
            found.append((folders + slash + base[: base.index(".")], base[base.index(".") + 1 :]))
    return found


@given(st.lists(st.text("ab./", min_size=1, max_size=6), max_size=6, unique=True))
def test_files_are_grouped_by_their_names_up_to_the_first_dot(names):
    names = [f"{name}.bin" for name in names if not name.endswith("/") and name.rpartition("/")[2][:1] != "."]
    samples = group([Member(Path("x.tar"), name, 0, 1) for name in names])
    expected = {}
    for (key, ending), name in zip(naive_keys(names), names, strict=True):
        assert name == f"{key}.{ending}"
        expected.setdefault(key, []).append(name)
    assert {key: [member.name for member in files] for key, files in samples} == expected
