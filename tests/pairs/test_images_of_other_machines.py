"""Image names of other machines: in other case, and with folders that are not here."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pair_sources import reasons, touch, write_table
from pairsift.pairs.image_files import LONGEST, find_images
from pairsift.pairs.readers import load

FILES = ("pics/a.jpg", "pics/b.jpg", "pics/c.jpg", "d.jpg")


def found(base: Path, *names: str) -> list[str]:
    """The file of each name, from the folder on; a problem, or nothing where no file is there."""
    places = find_images(base, names)[0]
    lines = []
    for name in names:
        path, problem = places[name]
        there = path is not None and path.is_file()
        lines.append(problem or (path.relative_to(base).as_posix() if path and there else ""))
    return lines


def rows(*names: str) -> list[tuple[str, str]]:
    return [(name, f"caption {number}") for number, name in enumerate(names)]


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt", "jsonl", "parquet"])
def test_names_in_other_case_are_taken_and_counted(tmp_path, kind):
    touch(tmp_path, "IMG_1.JPG", "img_2.jpg", "Büro/ÄPFEL.png", "e.jpg", "E.JPG", "x.jpg", "X.jpg")
    names = ["img_1.jpg", "IMG_2.jpg", "img_2.jpg", "BÜRO/äpfel.PNG", "x.jpg", "x.JPG", "gone.jpg"]
    pairs = load(write_table(tmp_path / f"t.{kind}", ["image", "caption"], rows(*names)))
    assert [pairs.paths[row].name for row in pairs.image_of[:5]] == [
        *("IMG_1.JPG", "img_2.jpg", "img_2.jpg", "ÄPFEL.png", "x.jpg")
    ]
    assert "image names that differ from their files by case: 3" in pairs.description
    assert list(reasons(pairs)) == [5, 6]
    assert "'X.jpg' and 'x.jpg', which differ by case alone" in reasons(pairs)[5][1]
    assert "no image file at" in reasons(pairs)[6][1]


def test_an_exact_name_says_nothing(tmp_path):
    touch(tmp_path, *FILES, "D.jpg")
    pairs = load(write_table(tmp_path / "t.csv", ["image", "caption"], rows(*FILES)))
    assert "case" not in pairs.description and "Windows" not in pairs.description and not pairs.skipped


@pytest.mark.parametrize("folder", ["", "far", "far/pics"])
def test_the_longest_end_of_a_windows_path_that_is_there(tmp_path, folder):
    base = "far/" if folder else ""
    touch(tmp_path / base, "pics/a.jpg", "pics/b.jpg", "pics/C.JPG", "pics/d d.jpg")
    names = ["C:\\Users\\me\\pics\\a.jpg", "pics\\b.jpg", "D:/data/pics/c.jpg", "file:///C:/my/pics/d%20d.jpg"]
    names += ["\\\\server\\share\\pics\\a.jpg", "C:\\Users\\me\\pics\\gone.jpg"]
    table = write_table(tmp_path / "t.csv", ["image", "caption"], rows(*names))
    pairs = load(table, image_folder=tmp_path / folder if folder else None)
    used = tmp_path / base / "pics"
    assert [pairs.paths[row] for row in pairs.image_of[:5]] == [
        used / name for name in ("a.jpg", "b.jpg", "C.JPG", "d d.jpg", "a.jpg")
    ]
    inside = folder == "far/pics"  # `pics\b.jpg` is cut too
    assert f"below {tmp_path / folder}: {5 if inside else 4}" in pairs.description
    assert "differ from their files by case: 1" in pairs.description
    assert {pair: reason for pair, (_, reason) in reasons(pairs).items()} == {
        5: f"no image file at {tmp_path / folder}/C:\\Users\\me\\pics\\gone.jpg"
    }


def test_a_longer_end_goes_before_a_shorter_one(tmp_path):
    touch(tmp_path, "a.jpg", "pics/a.jpg", "me/pics/b.jpg", "PICS/c.jpg", "c.jpg")
    names = ["C:\\me\\pics\\a.jpg", "C:\\me\\pics\\b.jpg", "C:\\me\\pics\\c.jpg", "C:\\other\\a.jpg"]
    assert found(tmp_path, *names) == ["pics/a.jpg", "me/pics/b.jpg", "PICS/c.jpg", "a.jpg"]


def test_two_windows_paths_are_not_the_same_image(tmp_path):
    """In a folder without their folders, the wrong picture would be taken for one of them."""
    touch(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    names = ["C:\\cats\\1.jpg", "C:\\dogs\\1.jpg", "C:\\cats\\2.jpg", "c:\\CATS\\2.JPG", "cats\\2.jpg", "cats\\3.jpg"]
    places = found(tmp_path, *names)
    assert all("its path and another one both end at '1.jpg'" in place for place in places[:2])
    assert places[2:] == ["2.jpg"] * 3 + ["3.jpg"]
    assert find_images(tmp_path, names)[1].endswith(f"below {tmp_path}: 4")


@pytest.mark.parametrize(
    "start",
    [
        *("/home/me/data/", "/data/upload/1/", "/data/local-files/?d=", "/data/local-files/?d=me/", "file:///home/me/"),
        *(
            "s3://bucket/",
            "gs://bucket/me/",
            "https://site.example/",
            "file://server/share/",
            "http://localhost:8080/d/",
        ),
    ],
)
@pytest.mark.parametrize("folder", ["", "far", "far/pics"])
def test_the_longest_end_of_a_path_or_an_address_that_is_there(tmp_path, start, folder):
    base = tmp_path / "far" if folder else tmp_path
    touch(base, "pics/a.jpg", "a.jpg", "pics/b.jpg", "pics/C d.JPG", "C d.jpg")
    is_address = "://" in start or "?" in start
    names = [f"{start}pics/{name}" for name in ("a.jpg", "b.jpg", "C%20D.jpg" if is_address else "C D.jpg", "gone.jpg")]
    table = write_table(tmp_path / "t.csv", ["image", "caption"], rows(*names))
    pairs = load(table, image_folder=tmp_path / folder if folder else None)
    files = [base / "pics" / name for name in ("a.jpg", "b.jpg", "C d.JPG")]
    assert [pairs.paths[row] for row in pairs.image_of[:3]] == files and list(reasons(pairs)) == [3]
    assert f"by case: 1; paths found by their end alone, below {tmp_path / folder}: 3" in pairs.description


def test_an_absolute_path_of_this_machine_is_no_path_of_another(tmp_path):
    touch(tmp_path, "far/pics/a.jpg", "far/pics/b.jpg", "far/pics/c.jpg", "near/pics/a.jpg", "near/c.jpg")
    names = [f"{tmp_path}/far/pics/{name}" for name in ("a.jpg", "b.jpg", "C.jpg")]
    pairs = load(write_table(tmp_path / "near/t.csv", ["image", "caption"], rows(*names)))
    assert pairs.paths == [tmp_path / "far/pics" / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    assert "by their end" not in pairs.description


@pytest.mark.parametrize(
    "starts", [("/home/cats/", "/home/dogs/"), ("cats/", "dogs/"), ("s3://b/cats/", "s3://b/dogs/")]
)
def test_two_paths_are_not_the_same_image(tmp_path, starts):
    touch(tmp_path, "1.jpg", "2.jpg")
    names = [starts[0] + "1.jpg", starts[1] + "1.jpg", starts[0] + "2.jpg"]
    places = found(tmp_path, *names)
    assert all("its path and another one both end at '1.jpg'" in place for place in places[:2])
    assert places[2] == "2.jpg"


def test_a_file_that_another_name_has_is_not_taken_for_a_longer_one(tmp_path):
    """Of images in folders of which only another one is here, the wrong picture would be taken."""
    touch(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    places = found(tmp_path, "1.jpg", "cats/1.jpg", "2.jpg", "/home/me/2.jpg", "cats/3.jpg")
    assert places[0] == "1.jpg" and "both end at '1.jpg'" in places[1]
    assert places[2:] == ["2.jpg", "2.jpg", "3.jpg"]


def test_names_without_an_extension(tmp_path):
    touch(tmp_path, "1.jpg", "1.txt", "Two.PNG", "3.jpg", "3.png", "pics/4.webp", "v1.5.jpg", "6.jpg/x")
    names = ["1", "two", "3", "C:\\me\\4", "v1.5", "6", "/home/me/pics/4"]
    problem = (
        "its image may be '3.jpg' and '3.png', which differ by their extension alone: write the name of one of them"
    )
    assert found(tmp_path, *names) == ["1.jpg", "Two.PNG", problem, "", "v1.5.jpg", "", "pics/4.webp"]
    pairs = load(write_table(tmp_path / "t.csv", ["image", "caption"], rows(*names)))
    assert "image names without their extension: 4; paths found by their end alone" in pairs.description


def test_two_files_at_the_end_of_a_windows_path(tmp_path):
    touch(tmp_path, "pics/A.jpg", "Pics/a.JPG", "a.jpg")
    assert "'Pics/a.JPG' and 'pics/A.jpg'" in found(tmp_path, "C:\\me\\pics\\a.jpg")[0]


def test_files_with_these_very_names_go_first(tmp_path):
    touch(tmp_path, "pics\\a.jpg", "pics/a.jpg", "C:\\b.jpg", "b.jpg")
    assert found(tmp_path, "pics\\a.jpg", "C:\\b.jpg") == ["pics\\a.jpg", "C:\\b.jpg"]


def test_ends_that_leave_the_folder_are_not_taken(tmp_path):
    touch(tmp_path, "secret.jpg", "inner/a.jpg")
    assert found(tmp_path / "inner", "C:\\x\\..\\secret.jpg", "C:\\..\\..\\secret.jpg") == ["", ""]


@example(["~\x00", "~\x00\\a.jpg"])
@given(st.lists(st.text(max_size=30), max_size=5))
def test_no_name_ends_the_search(names):
    for path, problem in find_images(Path("/nowhere/at/all"), names)[0].values():
        assert path is None or not problem


@pytest.mark.parametrize("layout", ["coco", "karpathy"])
@pytest.mark.parametrize("start", ["C:\\me\\photos\\", "/home/me/photos/", "train2014/", "s3://bucket/photos/"])
def test_annotations_of_another_machine(tmp_path, layout, start):
    touch(tmp_path / "far", "a.jpg", "b.jpg", "c.jpg")
    names = [f"{start}{letter}.JPG" for letter in "abc"]
    coco = {
        "images": [{"id": at, "file_name": name} for at, name in enumerate(names)],
        "annotations": [{"id": at, "image_id": at, "caption": f"caption {at}"} for at in range(3)],
    }
    karpathy = {
        "images": [{"filename": name, "sentences": [{"raw": f"a thing {at}"}]} for at, name in enumerate(names)]
    }
    file = tmp_path / "captions.json"
    file.write_text(json.dumps(coco if layout == "coco" else karpathy))
    pairs = load(file)
    assert pairs.paths == [tmp_path / "far" / f"{letter}.jpg" for letter in "abc"] and not pairs.skipped
    assert "by case: 3" in pairs.description and f"below {tmp_path / 'far'}: 3" in pairs.description


def test_each_caption_of_a_list_has_the_image(tmp_path):
    """A name in other case is found for each caption of a list."""
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    lines = [json.dumps({"image": f"{letter}.JPG", "captions": [letter, letter * 2]}) for letter in "abc"]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    pairs = load(tmp_path / "t.jsonl")
    assert len(pairs) == 6 and not pairs.skipped and "by case: 3" in pairs.description


def test_a_name_longer_than_any_path_is_searched_for_nowhere(tmp_path, monkeypatch):
    """Such as the bytes of an image in a cell of text, with a backslash before most of them."""
    tried: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: tried.append(path) or listdir(path))
    for size, searched in ((LONGEST // 8 - 1, True), (100_000, False)):
        tried.clear()
        name = "b'" + "\\xff\\xd8" * size
        path, problem = find_images(tmp_path, [name])[0][name]
        assert (path is None or not os.path.lexists(path)) and not problem
        assert bool(tried) == searched
