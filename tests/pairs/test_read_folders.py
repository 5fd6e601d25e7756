"""Folders of images with a text file each: which files belong together, and what is a caption of them."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pair_sources import reasons, refused, touch, write_table
from pairsift.errors import InputError
from pairsift.pairs.image_files import walk
from pairsift.pairs.options import DataOptions
from pairsift.pairs.readers import load
from pairsift.pairs.readers.folders import read_folder
from pairsift.pairs.records import Columns
from pairsift.runs.cleaned import cleaned_config
from pairsift.runs.config import configure
from pairsift.runs.prepare import read_pairs
from pairsift.runs.run import Run

NAMES = [f"{letter}.jpg" for letter in "abcdef"]
LONG_LINE = "The image shows a wide valley with a river that winds between meadows. " * 4


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def with_texts(folder: Path, texts: list[str], suffix: str = ".txt") -> Path:
    """Images with these text files."""
    touch(folder, *(f"{number}.jpg" for number in range(len(texts))))
    write(folder, {f"{number}{suffix}": text for number, text in enumerate(texts)})
    return folder


FLICKR = [f"A dog runs {k} .\na cat sits {k} .\nTwo dogs play {k} .\n" for k in range(9)]
PARAGRAPHS = ["\n\n".join(f"Sentence {k} of text {n}." for k in range(1 + n % 4)) + "\n" for n in range(9)]
LONG_PARAGRAPHS = ["\n".join(f"{k} {LONG_LINE}." for k in range(1 + n % 4)) for n in range(9)]
WRAPPED = [f"Two dogs that run along\nthe beach {n}, behind\nthem is the sea.\n" for n in range(9)]
LISTS = [f"The picture {n} shows:\n- a dog\n- a cat\n" for n in range(9)]
FORMS = [f"Title: shoe {n}\nColour: red\nSize: 40\n" for n in range(9)]
RAGGED = ["\n".join(f"a dog number {k} of {n}" for k in range(1 + n % 4)) + "\n" for n in range(9)]
NUMBERED = [f"1. A dog runs {n}\n2. A dog plays\n3. A black dog\n" for n in range(9)]
APART = [f"A dog runs {n}\n\nA dog plays\n\nA black dog\n" for n in range(9)]


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        *((texts, False) for texts in (FLICKR, RAGGED, NUMBERED, APART, [*FLICKR, "One dog.\n"])),
        *((texts, True) for texts in (PARAGRAPHS, LONG_PARAGRAPHS, WRAPPED, LISTS, FORMS)),
    ],
)
def test_text_files_are_captions_a_line_or_one_caption(tmp_path, texts, whole):
    """The evidence decides, the line on the console says how, and the option turns it."""
    with_texts(tmp_path, texts)
    lines = sorted(line for text in texts for line in text.split("\n") if line)
    files = sorted(text.strip() for text in texts)
    several = sum(len(text.split()) > 0 and "\n" in text.strip() for text in texts)
    pairs = load(tmp_path)
    assert sorted(pairs.captions) == (files if whole else lines) and not pairs.skipped
    assert f"text files of several lines: {several}, " in pairs.description
    assert f"(--text-file {'lines' if whole else 'whole'}: " in pairs.description
    assert sorted(load(tmp_path, text_file="lines").captions) == lines
    assert sorted(load(tmp_path, text_file="whole").captions) == files


def test_text_files_of_one_line_say_nothing(tmp_path):
    pairs = load(with_texts(tmp_path, [f"caption {n}\r\n\r\n" for n in range(5)]))
    assert pairs.captions == [f"caption {n}" for n in range(5)] and "--text-file" not in pairs.description


def test_the_option_is_for_folders(tmp_path):
    table = write_table(tmp_path / "t.csv", ["image", "caption"], [])
    assert refused(table, text_file="whole") == "the reader 'table' takes no --text-file: leave it out"


@pytest.mark.parametrize("suffix", [".caption", ".cap", ".txt", ".TXT", ".jpg.txt"])
def test_text_files_of_trainers(tmp_path, suffix):
    """The folders of kohya's sd-scripts, with other files beside the images."""
    with_texts(tmp_path / "10_dogs", [f"dog {n}\n" for n in range(3)], suffix)
    with_texts(tmp_path / "4_people", [f"person {n}\n" for n in range(3)], suffix)
    touch(tmp_path, "10_dogs/0.npz", "4_people/0.npz")
    pairs = load(tmp_path)
    assert pairs.captions == ["dog 0", "dog 1", "dog 2", "person 0", "person 1", "person 2"] and not pairs.skipped
    assert suffix.lower()[-4:] in pairs.description


def test_a_second_text_file_of_an_image_is_counted(tmp_path):
    with_texts(tmp_path, ["dog, grass"] * 4)
    write(tmp_path, {f"{n}.caption": f"a dog {n}" for n in range(3)})
    pairs = load(tmp_path)
    assert pairs.captions == ["a dog 0", "a dog 1", "a dog 2", "dog, grass"] and not pairs.skipped
    assert ".txt files passed over for .caption files of the same name: 3" in pairs.description


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("images/a/{}.jpg", "captions/a/{}.txt"),
        ("a/{}.jpg", "a/txt/{}.txt"),
        ("train/images/{}.jpg", "train/labels/{}.txt"),
        ("images/train/{}.jpg", "captions/train/{}.caption"),
        ("images/{}.jpg", "{}.txt"),
        ("{}.jpg", "captions/{}.txt"),
    ],
)
def test_text_files_in_another_folder_at_the_same_place(tmp_path, image, text):
    touch(tmp_path, *(image.format(n) for n in range(5)), "images/README.md")
    write(tmp_path, {text.format(n): f"caption {n}" for n in range(1, 6)})
    pairs = load(tmp_path)
    assert [(pairs.names[pairs.image_of[pair]], pairs.captions[pair]) for pair in pairs.ids()] == [
        (image.format(n), f"caption {n}") for n in range(1, 5)
    ]
    assert {where for where, _ in reasons(pairs).values()} == {image.format(0), text.format(5)}
    says = f"text files in other folders than their images: 4, such as {text.format(1)} for {image.format(1)}"
    assert says in pairs.description


def test_of_two_folders_of_texts_the_captions_are_taken(tmp_path):
    touch(tmp_path, *(f"images/{n}.jpg" for n in range(3)))
    write(tmp_path, {f"captions/{n}.txt": f"caption {n}" for n in range(3)})
    write(tmp_path, {f"labels/{n}.txt": "0 0.5 0.5 0.1 0.1" for n in range(3)})
    pairs = load(tmp_path)
    assert [pairs.captions[pair] for pair in pairs.ids()] == ["caption 0", "caption 1", "caption 2"]
    assert reasons(pairs)[3] == ("labels/0.txt", "the caption of its image is in captions/0.txt")
    (tmp_path / "captions").rename(tmp_path / "labels 2")
    problem = "its caption may be in 'labels/0.txt' and 'labels 2/0.txt': move one of them away"
    assert refused(tmp_path).endswith(f"images/0.jpg: {problem}")


def test_a_text_file_of_another_class_is_not_taken(tmp_path):
    """A file without its other half in each of two folders of pairs makes no pair."""
    for folder, image, text in (("cats", 8, 9), ("dogs", 9, 8)):
        touch(tmp_path / folder, *(f"{n}.jpg" for n in (0, 1, image)))
        write(tmp_path / folder, {f"{n}.txt": f"{folder} {n}" for n in (0, 1, text)})
    touch(tmp_path, "train/1.jpg", "train/2.jpg")
    write(tmp_path, {"test/1.txt": "of a test image", "test/3.txt": "of another one"})
    pairs = load(tmp_path)
    assert [pairs.captions[pair] for pair in pairs.ids()] == ["cats 0", "cats 1", "dogs 0", "dogs 1"]
    assert {where for where, _ in reasons(pairs).values()} == {
        *("cats/8.jpg", "cats/9.txt", "dogs/9.jpg", "dogs/8.txt", "train/1.jpg", "train/2.jpg"),
        *("test/1.txt", "test/3.txt"),
    }


@pytest.mark.parametrize("place", ["{}/x.jpg", "images/{}/x.jpg", "{}/images/x.jpg", "set/images/{}/x.jpg"])
def test_folders_named_as_splits_at_any_depth_are_the_splits(tmp_path, place):
    for split in ("train", "val", "test"):
        names = [place.format(split).replace("x.jpg", f"{number}.jpg") for number in range(3)]
        touch(tmp_path, *names)
        write(tmp_path, {name.replace("images", "captions")[:-4] + ".txt": "a caption" for name in names})
    pairs = load(tmp_path)
    assert [len(pairs.ids(split)) for split in ("train", "dev", "test")] == [3, 3, 3]
    assert "split from the folders' names" in pairs.description


def img2dataset(folder: Path, n: int = 9, **more: object) -> list[dict[str, object]]:
    fields = [
        {"caption": f"caption {k}", "url": f"https://x.org/{k}.jpg", "similarity": k / 100, "exif": {}, **more}
        for k in range(n)
    ]
    for k, record in enumerate(fields):
        place = f"{k // 5:05d}/{k:09d}"
        touch(folder, f"{place}.jpg")
        write(folder, {f"{place}.txt": f"caption {k}", f"{place}.json": json.dumps(record, indent=4)})
    return fields


def test_the_fields_of_json_files_travel_along(tmp_path):
    img2dataset(tmp_path, image="x", subset="train")
    write(tmp_path, {"00000_stats.json": "{}"})
    rows = [(f"caption {k}", f"https://x.org/{k}.jpg") for k in range(5)]
    table = write_table(tmp_path / "00000.parquet", ["caption", "url"], rows)
    pairs = load(tmp_path)
    assert pairs.captions == [f"caption {k}" for k in range(9)] and not pairs.skipped
    assert pairs.columns["similarity"] == [f"{k / 100}" for k in range(9)] and pairs.columns["exif"][0] == "{}"
    assert pairs.columns["json image"] == ["x"] * 9 and "caption" not in pairs.columns
    assert "split from field 'subset' of the .json files" in pairs.description
    says = refused(table)
    assert "no image column" in says and f"its images may be in 00000 beside it: read {tmp_path} instead" in says
    (tmp_path / "00000").rename(tmp_path / "00001.tar")
    (tmp_path / "00001.tar").rename(tmp_path / "00000.tar")
    assert "its images may be in 00000.tar beside it" in refused(table)


def test_a_field_of_the_json_files_is_the_caption_where_there_is_no_text_file_or_where_it_is_named(tmp_path):
    img2dataset(tmp_path, llava_caption=["first", "second"])
    (tmp_path / "00000/000000000.txt").unlink()
    write(tmp_path, {"00000/000000001.json": "[]"})
    pairs = load(tmp_path)
    assert pairs.captions == [f"caption {k}" for k in range(9)]
    assert "field 'caption' of the .json files or the .txt file of each image" in pairs.description
    named = load(tmp_path, caption_column="llava_caption")
    assert [named.captions[pair] for pair in named.ids()] == ["first", "second"] * 8
    assert reasons(named)[2][1].endswith("no field 'llava_caption' in a .json file")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_tables_called_metadata_name_the_images_of_their_folders(tmp_path, kind):
    """As in an image folder of the library `datasets`."""
    for split, n in (("train", 4), ("validation", 2), ("test", 2)):
        names = [f"{split}/{number}.jpg" for number in range(n)]
        touch(tmp_path, *names, f"{split}/more/9.jpg")
        rows = [*((f"{number}.jpg", f"{split} {number}") for number in range(n)), ("gone.jpg", "gone")]
        write_table(tmp_path / split / f"metadata.{kind}", ["file_name", "text"], rows)
    pairs = load(tmp_path)
    assert [len(pairs.ids(split)) for split in ("train", "dev", "test")] == [4, 2, 2]
    assert [pairs.names[row] for row in pairs.image_of[:3]] == ["test/0.jpg", "test/1.jpg", "test/gone.jpg"]
    assert {reason.split(" at ")[0] for _, reason in reasons(pairs).values()} == {"no image file"}
    assert "images that no table names: 3" in pairs.description and "split from the folders' names" in pairs.description


def test_a_folder_without_captions_names_what_helps(tmp_path):
    touch(tmp_path, "images/a.jpg", "images/b.jpg", "images/a.npz", "images/notes.md", "elsewhere/a.cap")
    says = refused(tmp_path / "images")
    assert "found 2 images, other files: 1 .npz, 1 .md; the captions of x.jpg have to be in" in says
    assert says.endswith(f"{tmp_path / 'elsewhere'} has such files: read {tmp_path}, which contains both folders")


def test_linked_folders_are_followed_once(tmp_path):
    """Also where links lead in circles, to each other's folders or up."""
    source, far = tmp_path / "source", tmp_path / "far"
    for folder in (source / "z", far / "deep"):
        with_texts(folder, [f"{folder.name} {n}" for n in range(3)])
    links = {"a": source / "z", "b": far, "c": far / "deep", "z/up": source, "out": tmp_path, "d": source / "c"}
    for name, target in links.items():
        (source / name).symlink_to(target)
    (far / "deep" / "round").symlink_to(far)
    (source / "nowhere").symlink_to(tmp_path / "gone")
    pairs = load(source)
    assert [pairs.names[row] for row in pairs.image_of] == [
        *(f"b/deep/{n}.jpg" for n in range(3)),
        "z/0.jpg",
        "z/1.jpg",
        "z/2.jpg",
    ]
    assert "linked folders followed: 1; linked folders whose files are read already: 6" in pairs.description


def test_a_folder_that_cannot_be_read_is_listed(tmp_path, monkeypatch):
    with_texts(tmp_path, ["a", "b", "c"])
    with_texts(tmp_path / "shut", ["d"])
    scandir = os.scandir

    def refuse(place):
        if str(place).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    pairs = load(tmp_path)
    assert reasons(pairs) == {3: ("shut", "cannot be read: Permission denied")} and len(pairs.ids()) == 3


PATHS = st.builds(
    lambda folders, stem, suffix: "/".join([*folders, stem]) + suffix,
    st.lists(st.sampled_from(["images", "captions", "train", "val", "x"]), max_size=3),
    st.sampled_from(["1", "2", "3.5"]),
    st.sampled_from([".jpg", ".png", ".txt", ".caption"]),
)


@example({"images/1.jpg", "captions/1.txt", "x/images/1.jpg", "x/captions/1.txt", "1.jpg"})
@example({"1.jpg", "1.png", "1.txt", "captions/1.txt", "captions/1.caption"})
@settings(max_examples=60, deadline=None)
@given(st.sets(PATHS, min_size=1, max_size=12))
def test_every_file_is_in_a_pair_or_listed(files):
    with TemporaryDirectory() as name:
        root = Path(name)
        write(root, {file: f"the text of {file}" for file in files})
        try:
            listing = read_folder(root, Columns())
        except InputError:
            assert not {file.rpartition(".")[0] for file in files if file.endswith((".txt", ".caption"))} & {
                file.rpartition(".")[0] for file in files if file.endswith((".jpg", ".png"))
            }
            return
        used = [record.caption.removeprefix("the text of ") for record in listing.records if not record.problem]
        listed = [record.where for record in listing.records if record.problem]
        images = [record.image for record in listing.records if not record.problem]
        assert len({*used}) == len(used) and len({*images}) == len(images)
        passed = sum(int(part.rpartition(": ")[2]) for part in listing.reading.split("; ") if "passed over" in part)
        assert len(files) == len({*used, *images, *listed}) + passed
        assert {*used, *images, *listed} <= files
        assert [str(file.relative_to(root)) for file in walk(root).files] == sorted(
            files, key=lambda file: file.split("/")
        )


@pytest.mark.parametrize("text_file", ["lines", "whole", None])
def test_a_run_reads_text_files_as_its_option_says(tmp_path, text_file):
    source = with_texts(tmp_path / "source", FLICKR)
    config = configure(source, out=tmp_path / "run", data=DataOptions(text_file=text_file))
    assert len(read_pairs(config).pairs) == (9 if text_file == "whole" else 27)


@pytest.mark.parametrize(("export", "text_file"), [("folder", "lines"), ("mine-shards", None), ("mine.csv", None)])
def test_an_exported_folder_has_a_caption_a_line(tmp_path, export, text_file):
    """Whatever the text files of the source were, the folder that a run writes is read as it was written."""
    config = configure(with_texts(tmp_path / "source", PARAGRAPHS), out=tmp_path, data=DataOptions(text_file="whole"))
    run = SimpleNamespace(config=config, prepared=read_pairs(config), folder=tmp_path / "run")
    if export.endswith(".csv"):
        write_table(tmp_path / export, ["image", "caption"], [])
    else:
        touch(tmp_path / export, "0.tar" if text_file is None else "0.jpg")
    assert cleaned_config(cast("Run", run), tmp_path / export).data.text_file == text_file
