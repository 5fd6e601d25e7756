"""What an image's name in a source means as a file."""

import json
import os
import unicodedata
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pairsift
from pair_sources import reasons, refused, touch, write_table
from pairsift.pairs import READERS, image_files
from pairsift.pairs.image_files import Place, find_images
from pairsift.pairs.readers import load
from pairsift.pairs.records import Listing, Record


def find_image(base: Path, name: str) -> Place:
    return find_images(base, [name])[0][name]


def place(base: Path, name: str) -> Path:
    path, problem = find_image(base, name)
    assert path is not None and not problem
    return path


def test_home_and_backslashes_where_the_literal_name_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    touch(tmp_path, "home/pics/a.jpg", "images/b.jpg", "odd\\name.jpg", "~/c.jpg")
    assert place(tmp_path, "~/pics/a.jpg") == tmp_path / "home/pics/a.jpg"
    assert place(tmp_path, "~\\pics\\a.jpg") == tmp_path / "home/pics/a.jpg"
    assert place(tmp_path, "images\\b.jpg") == tmp_path / "images/b.jpg"
    assert os.path.samefile(place(tmp_path, ".\\images\\b.jpg"), tmp_path / "images/b.jpg")
    assert place(tmp_path, "odd\\name.jpg") == tmp_path / "odd\\name.jpg"
    assert place(tmp_path, "~/c.jpg") == tmp_path / "~/c.jpg"
    assert place(tmp_path, "images\\gone.jpg") == tmp_path / "images\\gone.jpg"


@pytest.mark.parametrize(("on_disk", "in_table"), [("NFD", "NFC"), ("NFC", "NFD"), ("NFC", "NFC")])
def test_letters_with_accents_are_found_in_both_forms(tmp_path, on_disk, in_table):
    """An archive made on macOS has the accents apart from their letters, a table written elsewhere has not."""
    name = "Bücher/Äpfel é.jpg"
    touch(tmp_path, unicodedata.normalize(on_disk, name))
    wanted = unicodedata.normalize(in_table, name)
    assert place(tmp_path, wanted).exists() and place(tmp_path, wanted.replace("/", "\\")).exists()
    assert place(tmp_path, "Bücher/größer.jpg") == tmp_path / "Bücher/größer.jpg"


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_file_addresses_are_percent_decoded(name):
    for start in ("file:///pics/", "file://localhost/pics/", "FILE:/pics/"):
        assert find_image(Path("/data"), start + quote(name)) == (Path("/pics", name), "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("http://x.org/a.jpg", "a web address (http://…), and images must be local files"),
        ("HTTPS://x.org/a.jpg", "a web address (HTTPS://…)"),
        ("s3://bucket/a.jpg", "an address (s3://…), and images must be local files"),
        ("data:image/png;base64,AAAA", "an address (data:…)"),
        ("file://server/a.jpg", "on another machine (server)"),
    ],
)
def test_what_is_no_local_file_says_so(tmp_path, name, says):
    path, problem = find_image(tmp_path, name)
    assert path is None
    assert says in problem
    assert "\n" not in problem and not problem.endswith(".")


def test_a_table_of_windows_names_and_addresses(tmp_path):
    touch(tmp_path, "images/a b.jpg", "images/b.jpg", "images/c.jpg", "images/100%.jpg")
    names = ["images\\b.jpg", "images/b.jpg", f"file://{quote(str(tmp_path))}/images/a%20b.jpg", "images\\c.jpg"]
    names += [f"file://{tmp_path}/images/100%.jpg", "https://x.org/a.jpg"]
    rows = [(name, f"caption {at}") for at, name in enumerate(names)]
    pairs = load(write_table(tmp_path / "x.csv", ["image", "caption"], rows))
    assert pairs.image_of[0] == pairs.image_of[1]
    assert list(reasons(pairs)) == [5]
    assert "download them" in reasons(pairs)[5][1]
    web = write_table(tmp_path / "web.csv", ["image", "caption"], [(f"https://x.org/{n}.jpg", "x") for n in range(9)])
    assert "9 pairs were skipped, the first: web.csv line 2: its image is a web address" in refused(web)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_relative_paths_start_from_the_folder_that_the_user_names(tmp_path, kind):
    touch(tmp_path / "far/off", "a.jpg", "b.jpg", "c.jpg")
    path = write_table(tmp_path / f"x.{kind}", ["image", "caption"], [(f"{n}.jpg", n) for n in "abc"])
    touch(tmp_path / "far/other", "a.jpg", "b.jpg", "c.jpg")
    assert "its image may be 'far/off/a.jpg' or 'far/other/a.jpg': write the folder" in refused(path)
    pairs = load(path, image_folder=tmp_path / "far/off")
    assert pairs.paths == [tmp_path / "far/off" / f"{n}.jpg" for n in "abc"]
    assert "is not a folder" in refused(path, image_folder=tmp_path / "near")


def test_a_folder_beside_the_table_that_contains_the_images_is_taken_and_said(tmp_path):
    touch(tmp_path / "far", "a.jpg", "B.jpg", "c.jpg")
    touch(tmp_path / "near", "a.jpg", "z.jpg")
    path = write_table(tmp_path / "x.csv", ["image", "caption"], [(f"{n}.jpg", n) for n in "abcd"])
    pairs = load(path)
    assert pairs.paths[:3] == [tmp_path / "far" / f"{n}.jpg" for n in "aBc"] and list(reasons(pairs)) == [3]
    assert f"images found in {tmp_path / 'far'}; image names that differ from their files by case: 1" in (
        pairs.description
    )


@pytest.mark.parametrize("image", ["gone.jpg", "/home/me/gone.jpg", "C:\\me\\gone.jpg", "gone"])
def test_the_option_that_helps_is_named_where_no_image_is_there(tmp_path, image):
    path = write_table(tmp_path / "x.csv", ["image", "caption"], [(image, "a"), (f"{image}x", "b")])
    assert refused(path).endswith("if the images lie elsewhere, name their folder with --image-folder")
    touch(tmp_path, "deep/in/Gone.jpg")
    for folder in (None, tmp_path / "deep/in"):
        assert load(path, image_folder=folder, shares=None).paths[0] == tmp_path / "deep/in/Gone.jpg"


@pytest.mark.parametrize("form", ["{}.jpg", "{}", "/home/me/{}.jpg", "C:\\me\\pics\\{}.JPG", "s3://bucket/{}.jpg"])
def test_images_in_any_folders_below_are_found_by_their_names(tmp_path, form):
    files = [f"images/{number % 3:03}/{number}.jpg" for number in range(12)]
    touch(tmp_path, *files)
    path = write_table(tmp_path / "x.csv", ["image", "caption"], [(form.format(n), f"dog {n}") for n in range(13)])
    pairs = load(path)
    assert pairs.paths[:12] == [tmp_path / file for file in files] and list(reasons(pairs)) == [12]
    assert f"image names found in folders below {tmp_path}: 12" in pairs.description


def test_folders_that_are_called_like_the_images_are_no_images(tmp_path):
    touch(tmp_path, *(f"pics/{number}.jpg" for number in range(4)), *(f"{number}/notes.txt" for number in range(4)))
    path = write_table(tmp_path / "x.csv", ["image", "caption"], [(str(n), f"dog {n}") for n in range(4)])
    assert load(path).paths == [tmp_path / f"pics/{number}.jpg" for number in range(4)]


def test_a_folder_with_very_many_files_is_not_searched(tmp_path, monkeypatch):
    touch(tmp_path, *(f"images/{number % 3:03}/{number}.jpg" for number in range(12)))
    path = write_table(tmp_path / "x.csv", ["image", "caption"], [(f"{n}.jpg", f"dog {n}") for n in range(12)])
    monkeypatch.setattr(image_files, "MANY", 13)
    assert len(load(path).ids()) == 12
    monkeypatch.setattr(image_files, "MANY", 12)
    assert "lies in" in refused(path)


def test_names_that_are_not_found_are_sought_in_folders_below_where_that_is_no_guess(tmp_path):
    """Where other images are found, a path with folders means these folders; of equal names the longest tail counts."""
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg", "one/x/d.jpg", "two/y/d.jpg", "one/e.jpg", "one/f.jpg", "two/f.jpg")
    names = ["a.jpg", "b.jpg", "c.jpg", "e.jpg", "gone/e.jpg", "f.jpg"]
    pairs = load(
        write_table(tmp_path / "x.csv", ["image", "caption"], [(name, f"a dog of {name} runs") for name in names])
    )
    assert pairs.paths[3] == tmp_path / "one/e.jpg" and list(reasons(pairs)) == [4, 5]
    assert "no image file at" in reasons(pairs)[4][1] and "'one/f.jpg' or 'two/f.jpg'" in reasons(pairs)[5][1]
    (tmp_path / "far").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jpg").rename(tmp_path / "far" / f"{name}.png")
    names = ["/me/x/d.jpg", "/me/one/f.jpg", "/me/e.jpg", "/you/e.jpg", "/me/two/f.jpg"]
    pairs = load(
        write_table(tmp_path / "x.csv", ["image", "caption"], [(name, f"a dog of {name} runs") for name in names])
    )
    found = [pairs.paths[pairs.image_of[pair]] for pair in pairs.ids().tolist()]
    assert found == [tmp_path / file for file in ("one/x/d.jpg", "one/f.jpg", "two/f.jpg")]
    assert "no image file at /me/e.jpg" in reasons(pairs)[2][1]
    names = [*(f"/me/{number}/d.jpg" for number in "xy"), "/me/f.png", "/me/e.jpg", "/you/e.jpg", *"abc"]
    (tmp_path / "one/f.jpg").rename(tmp_path / "one/f.png")
    pairs = load(
        write_table(tmp_path / "x.csv", ["image", "caption"], [(name, f"a dog of {name} runs") for name in names])
    )
    assert list(reasons(pairs)) == [3, 4]
    assert "its path and another one both end at" in reasons(pairs)[3][1]


def test_a_reader_that_takes_no_image_folder_does_not_advise_it(tmp_path):
    (tmp_path / "a.jpg").symlink_to(tmp_path / "gone")
    (tmp_path / "a.txt").write_text("a caption")
    assert "no image file at" in refused(tmp_path) and "--image-folder" not in refused(tmp_path)


@pytest.mark.parametrize("layout", ["coco", "karpathy"])
@pytest.mark.parametrize("inside", ["", "val2014"])
def test_annotations_with_a_folder_of_images(tmp_path, layout, inside):
    names = [f"{letter}.jpg" for letter in "abc"]
    touch(tmp_path / "far" / inside, *names)
    (tmp_path / "other").mkdir()
    coco = {
        "images": [{"id": at, "file_name": name} for at, name in enumerate(names)],
        "annotations": [{"id": at, "image_id": at, "caption": f"caption {at}"} for at in range(3)],
    }
    karpathy = {"images": [{"filename": name, "sentences": [{"raw": f"a thing {name[0]}"}]} for name in names]}
    file = tmp_path / "captions_val2014.json"
    file.write_text(json.dumps(coco if layout == "coco" else karpathy))
    if inside:
        assert f"{tmp_path / 'far' / inside}: name that folder with --image-folder" in refused(file)
    else:
        assert load(file).paths == [tmp_path / "far" / name for name in names]
    assert load(file, image_folder=tmp_path / "far").paths == [tmp_path / "far" / inside / name for name in names]
    assert str(tmp_path / "other") in refused(file, image_folder=tmp_path / "other")


def test_readers_without_paths_take_no_folder_of_images(tmp_path):
    touch(tmp_path, "a.jpg")
    (tmp_path / "a.txt").write_text("a")
    assert "the reader 'folder' takes no --image-folder" in refused(tmp_path, image_folder=tmp_path)


def test_a_reader_of_ones_own_gets_the_folder_of_images(tmp_path):
    touch(tmp_path / "far", *(f"{k}.jpg" for k in range(30)))
    (tmp_path / "mine.txt").write_text("".join(f"{k}.jpg a caption {k}\n" for k in range(30)))

    def lines_in_a_folder(path, columns):
        """Read a name and a caption from each line."""
        cells = [line.split(" ", 1) for line in path.read_text().splitlines()]
        folder = columns.folder or path.parent
        return Listing([Record(name, name, folder / name, text) for name, text in cells], "names", "texts")

    pairsift.register(lines_in_a_folder)
    try:
        pairs = load(tmp_path / "mine.txt", reader="lines_in_a_folder", image_folder=tmp_path / "far")
    finally:
        READERS._loaded.pop("lines_in_a_folder")
    assert pairs.paths == [tmp_path / "far" / f"{k}.jpg" for k in range(30)]
