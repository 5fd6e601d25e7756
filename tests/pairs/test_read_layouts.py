import json

import numpy as np
import pytest

from pair_sources import reasons, refused, touch, write_table
from pairsift.pairs import READERS
from pairsift.pairs.readers import load

NAMES = [f"{letter}.jpg" for letter in "abcdef"]


def test_folder_of_images_with_texts(tmp_path):
    touch(tmp_path, "a.jpg", "deep/er/b.JPG", "deep/c.Png", "d.jpeg", "lonely.jpg", "empty.webp", "d.png", ".hid.jpg")
    for name, text in {
        "a.txt": "first\r\n  second  \r\n\r\n",
        "deep/er/b.TXT": "\ufeffwith mark",
        "deep/c.txt": "c",
        "d.txt": "d",
        "empty.txt": " \n",
        "README.txt": "words",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    pairs = load(tmp_path)
    usable = [(pairs.names[pairs.image_of[pair]], pairs.captions[pair]) for pair in pairs.ids()]
    assert usable == [
        ("a.jpg", "first"),
        ("a.jpg", "second"),
        ("d.jpeg", "d"),
        ("deep/c.Png", "c"),
        ("deep/er/b.JPG", "with mark"),
    ]
    assert {skip.where for skip in pairs.skipped} == {"lonely.jpg", "empty.webp", "d.png", "README.txt"}
    assert pairs.description.startswith("folder: ")


def test_folder_with_bad_bytes(tmp_path):
    touch(tmp_path, *NAMES)
    for name in NAMES:
        (tmp_path / name).with_suffix(".txt").write_text("fine")
    (tmp_path / "b.txt").write_bytes(b"good\ncaf\x81\n")
    pairs = load(tmp_path)
    assert list(reasons(pairs)) == [2]
    assert reasons(pairs)[2][0] == "b.txt line 2"
    assert "cannot be told" in reasons(pairs)[2][1]


def test_folders_named_as_splits_are_the_splits(tmp_path):
    names = [f"{split}/{number}.jpg" for split in ("train", "val", "test") for number in range(3)]
    touch(tmp_path, *names)
    for name in names:
        (tmp_path / name).with_suffix(".txt").write_text("a caption")
    pairs = load(tmp_path)
    assert [len(pairs.ids(split)) for split in ("train", "dev", "test")] == [3, 3, 3]
    assert "drawn" not in pairs.description


def test_folder_without_pairs_says_what_is_there(tmp_path):
    touch(tmp_path, "a.jpg", "list.csv")
    line = refused(tmp_path)
    assert "found 1 images, other files: 1 .csv; the captions of x.jpg have to be in a file of the same name" in line
    assert line.endswith("or read one of its tables: 'list.csv'")
    assert "found 0 images" in refused(tmp_path / "a.jpg", reader="folder")


def flickr8k(folder, splits):
    touch(folder, *(f"images/{name}" for name in NAMES))
    rows = [(name, f"{name} {number}") for name in NAMES for number in range(2)]
    write_table(folder / "captions.csv", ["image", "caption"], rows)
    for name, listed in splits.items():
        (folder / "splits").mkdir(exist_ok=True)
        (folder / "splits" / name).write_text("\n".join(listed) + "\n")
    return folder


def test_flickr8k_layout(tmp_path):
    lists = {"train.txt": NAMES[:3], "dev.txt": NAMES[3:4], "test.txt": NAMES[4:5], "notes.txt": ["x"]}
    pairs = load(flickr8k(tmp_path, lists))
    assert pairs.split.tolist() == ["train"] * 6 + ["dev"] * 2 + ["test"] * 2 + ["unused"] * 2
    assert pairs.paths[0] == tmp_path / "images" / "a.jpg"
    assert "splits/" in pairs.description


def test_flickr8k_without_dev_takes_it_from_train(tmp_path):
    pairs = load(flickr8k(tmp_path, {"train.txt": NAMES[:4], "test.txt": NAMES[4:]}))
    assert [len(pairs.images(split)) for split in ("train", "dev", "test")] == [3, 1, 2]
    assert "dev drawn from train" in pairs.description


def test_flickr8k_without_lists_draws_splits(tmp_path):
    pairs = load(flickr8k(tmp_path, {}))
    assert [len(pairs.images(split)) for split in ("train", "dev", "test")] == [4, 1, 1]


def test_flickr8k_lists_that_cannot_be_used(tmp_path):
    both = {"train.txt": NAMES, "test.txt": NAMES[:1]}
    assert "both" in refused(flickr8k(tmp_path / "both", both))
    assert "none of the images" in refused(flickr8k(tmp_path / "none", {"train.txt": ["x.jpg"]}))
    assert "too few images to train on" in refused(flickr8k(tmp_path / "test", {"test.txt": NAMES}))
    assert "captions.csv" in refused(tmp_path, reader="flickr8k")


@pytest.mark.parametrize("root", ["", "images", "../images", "train2014", "../train2014", "../images/train2014"])
def test_coco_finds_its_images(tmp_path, root):
    home = tmp_path / "annotations"
    touch(home / root, *NAMES)
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    captions = [{"id": 10 * n, "image_id": n, "caption": f"caption {n}"} for n in range(6)]
    captions.append({"id": 7, "image_id": 99, "caption": "of nothing"})
    captions.append({"id": 8, "image_id": 1, "caption": 5})
    file = home / "captions_train2014.json"
    file.write_text(json.dumps({"images": images, "annotations": captions}))
    pairs = load(file)
    assert pairs.captions[:6] == [f"caption {n}" for n in range(6)]
    assert [pairs.names[row] for row in pairs.image_of[:6]] == NAMES
    assert pairs.columns["id"][:3] == ["0", "10", "20"]
    assert pairs.description.startswith("coco: ")
    assert reasons(pairs)[6] == ("captions_train2014.json annotation 7", "image id 99 is not among the images")
    assert "not text" in reasons(pairs)[7][1]


def test_coco_says_where_it_looked(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"images": [{"id": 1, "file_name": "gone.jpg"}], "annotations": []}))
    line = refused(file)
    assert "'gone.jpg'" in line
    assert str(tmp_path / "images") in line
    file.write_text('{"images": 3, "annotations": []}')
    assert "'images'" in refused(file)
    file.write_text("{")
    assert "not valid JSON" in refused(file, reader="coco")


@pytest.mark.parametrize("filepath", [None, "train2014"])
def test_karpathy(tmp_path, filepath):
    touch(tmp_path / "images" / (filepath or ""), *NAMES)
    splits = ["train", "restval", "val", "test", "train", "train"]
    images = [
        {"filename": name, "split": split, "imgid": n, "sentences": [{"raw": f"{name} 1"}, {"raw": f"{name} 2"}]}
        | ({"filepath": filepath} if filepath else {})
        for n, (name, split) in enumerate(zip(NAMES, splits, strict=True))
    ]
    images[5]["sentences"] = [{"tokens": ["x"]}]
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": images, "dataset": "x"}))
    pairs = load(tmp_path / "dataset_x.json")
    assert pairs.split.tolist() == ["train"] * 4 + ["dev"] * 2 + ["test"] * 2 + ["train"] * 2 + ["skipped"]
    assert pairs.columns["imgid"][2] == "1"
    assert pairs.description.startswith("karpathy: ")
    assert pairs.names[0] == (f"{filepath}/a.jpg" if filepath else "a.jpg")


@pytest.mark.parametrize("layout", ["coco", "karpathy"])
@pytest.mark.parametrize("start", ["", "val2014/"])
@pytest.mark.parametrize("place", ["images", "photos of mine"])
def test_annotations_of_which_a_part_is_on_disk(tmp_path, layout, start, place):
    """The first images are missing, and the others lie in one folder, whatever folder their names have."""
    names = [f"{number:03}.jpg" for number in range(90)]
    touch(tmp_path / place, *names[60:])
    touch(tmp_path / "other", names[0])
    captions = [[f"caption {number} of {name}" for number in range(2)] for name in names]
    coco = {
        "images": [{"id": at, "file_name": start + name} for at, name in enumerate(names)],
        "annotations": [{"image_id": at, "caption": text} for at, texts in enumerate(captions) for text in texts],
    }
    images = [
        {"filename": name, "sentences": [{"raw": text} for text in texts]}
        for name, texts in zip(names, captions, strict=True)
    ]
    karpathy = {"images": [image | ({"filepath": start[:-1]} if start else {}) for image in images]}
    file = tmp_path / "captions.json"
    file.write_text(json.dumps(coco if layout == "coco" else karpathy))
    for folder in (tmp_path / place, None):
        pairs = load(file, image_folder=folder)
        assert [pairs.paths[row] for row in pairs.images()] == [tmp_path / place / name for name in names[60:]]
        assert len(pairs.ids()) == 60 and list(reasons(pairs)) == list(range(120))
        assert str(tmp_path / place) in pairs.description
        assert (f"by their end alone, below {tmp_path / place}: 30" in pairs.description) == bool(start)


def test_images_without_a_caption_are_counted(tmp_path):
    touch(tmp_path, *NAMES)
    images = [{"id": at, "file_name": name} for at, name in enumerate(NAMES)]
    captions = [{"image_id": at, "caption": "a caption"} for at in range(4)]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "annotations": captions}))
    assert "images without a caption: 2" in load(tmp_path / "c.json").description
    texts = [[{"raw": f"a picture of {at}"}] * (name > "b") for at, name in enumerate(NAMES)]
    sentences = [{"filename": name, "sentences": text} for name, text in zip(NAMES, texts, strict=True)]
    (tmp_path / "k.json").write_text(json.dumps({"images": sentences}))
    assert "images without a caption: 1" in load(tmp_path / "k.json").description


def test_registry_names():
    names = ["table", "folder", "shards", "flickr8k", "coco", "karpathy", "chinese_clip", "nuswide", "precomp", "now"]
    assert list(READERS) == [*names, "embeddings"]
    assert all(callable(reader) for reader in READERS.values())


def test_files_without_their_other_half_are_told(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg", "alone.png", "ship.SVG", "sound.ogg")
    for name in ("a", "b", "c", "ship", "sound"):
        (tmp_path / f"{name}.txt").write_text(f"caption of {name}")
    pairs = load(tmp_path)
    assert len(pairs.ids()) == 3
    beside = "has no image of the same name beside it (.avif, .bmp, .gif, .jpeg, .jpg, .png, .tif, .tiff, .webp)"
    assert {skip.where: skip.reason for skip in pairs.skipped} == {
        "alone.png": "has no text file of the same name (.caption, .cap, .txt), and no .json file with a caption",
        "ship.txt": beside,
        "sound.txt": beside,
    }


def test_two_coco_images_of_one_id_have_no_captions(tmp_path):
    touch(tmp_path, *NAMES)
    images = [{"id": number % 5, "file_name": name} for number, name in enumerate(NAMES)]  # 0 is of the last one too
    annotations = [{"image_id": number, "caption": f"caption {number}"} for number in range(5)]
    (tmp_path / "x.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    pairs = load(tmp_path / "x.json")
    assert reasons(pairs) == {0: ("x.json annotation 1", "image id 0 is of several images")}


@pytest.mark.parametrize("rows", [lambda rows: {"data": rows}, lambda rows: {"rows": rows, "more": {"images": 6}}])
def test_json_that_holds_the_word_images_elsewhere_is_a_table(tmp_path, rows):
    touch(tmp_path, *NAMES)
    records = [{"images": [name], "caption": f"a caption of {name}"} for name in NAMES]
    (tmp_path / "x.json").write_text(json.dumps(rows(records)))
    assert load(tmp_path / "x.json").names == NAMES


def test_options_about_columns_are_refused_where_there_are_none(tmp_path):
    touch(tmp_path, *NAMES)
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    annotations = [{"image_id": number, "caption": f"caption {number}"} for number in range(6)]
    (tmp_path / "x.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    line = "the reader 'coco' takes no --caption-column: leave it out"
    assert refused(tmp_path / "x.json", caption_column="title") == line
    assert len(load(tmp_path / "x.json", split_column="none")) == 6


def test_a_pair_repeats_no_pair_that_is_skipped(tmp_path):
    touch(tmp_path, *NAMES)
    rows = [[NAMES[0], "one", "extra"], *([name, "one", "train"] for name in NAMES)]
    write_table(tmp_path / "x.csv", ["image", "caption", "split"], rows)
    assert list(reasons(load(tmp_path / "x.csv"))) == [0]


def test_folders_named_as_hive_does_are_splits(tmp_path):
    touch(tmp_path, *NAMES)
    for number, split in enumerate(("train", "val", "test")):
        names = NAMES[2 * number : 2 * number + 2]
        folder = tmp_path / f"split={split}"
        folder.mkdir()
        write_table(
            folder / "part-0.parquet", ["image", "caption"], [[name, f"caption {k}"] for k, name in enumerate(names)]
        )
    pairs = load(tmp_path, image_folder=tmp_path, reader="table")
    assert {name: pairs.split[row] for row, name in enumerate(pairs.names)} == dict(
        zip(NAMES, np.repeat(["train", "dev", "test"], 2), strict=True)
    )
