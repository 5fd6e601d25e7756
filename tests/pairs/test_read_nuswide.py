"""NUS-WIDE: images by concept, a list of them with backslashes, and a file of ids and tags."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pair_sources import reasons, refused, touch
from pairsift.pairs.readers import load

IMAGES = {  # by id: the name in the list, and the tags
    2124494179: (r"actor\0001_2124494179.jpg", "portrait actor stage"),
    174174086: (r"actor\0002_174174086.jpg", "café 日本 naïve"),
    51353555: (r"zebra\0003_51353555.jpg", "animal"),
    48661375: (r"zebra\0004_48661375.jpg", "stripes zoo"),
    342635061: (r"zebra\0005_342635061.jpg", "grass"),
}
NAMES = [name for name, _ in IMAGES.values()]


def nuswide(folder, names=NAMES, tags=None, newline="\n", splits=None):
    """The layout in small; of `tags`, lines of the file."""
    lists, tag_folder = folder / "ImageList", folder / "NUS_WID_Tags"
    for each in (lists, tag_folder):
        each.mkdir(parents=True)
    touch(folder / "Flickr", *(name.replace("\\", "/") for name in NAMES))

    def write(path, lines):
        path.write_bytes("".join(line + newline for line in lines).encode())

    write(lists / "Imagelist.txt", names)
    for word, listed in (splits or {}).items():
        write(lists / f"{word}Imagelist.txt", listed)
    lines = [f"{photo}      {words} " for photo, (_, words) in IMAGES.items()]
    write(tag_folder / "All_Tags.txt", lines if tags is None else tags)
    return folder


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_image_has_its_tags_as_its_caption(tmp_path, newline):
    pairs = load(nuswide(tmp_path, newline=newline))
    assert pairs.description.startswith("nuswide: ") and not pairs.skipped
    assert pairs.captions == [tags for _, tags in IMAGES.values()]
    assert pairs.paths == [tmp_path / "Flickr" / name.replace("\\", "/") for name in NAMES]
    assert pairs.names[0] == "actor/0001_2124494179.jpg"
    assert pairs.columns["flickr_id"] == [str(photo) for photo in IMAGES]
    assert [len(pairs.images(split)) for split in ("train", "dev", "test")] == [3, 1, 1]


def test_the_lists_are_the_splits_and_dev_comes_from_train(tmp_path):
    pairs = load(nuswide(tmp_path, splits={"Train": NAMES[:3], "Test": NAMES[3:4]}))
    assert [pairs.split[row] for row in (3, 4)] == ["test", "unused"]
    assert sorted(pairs.split[:3].tolist()) == ["dev", "train", "train"]
    assert "TrainImagelist.txt" in pairs.description and "dev drawn from train" in pairs.description


def test_what_cannot_be_used_is_skipped_with_its_reason(tmp_path):
    names = [*NAMES, r"zebra\0006_77.jpg", "zebra\\nonsense.jpg", r"zebra\0007_88.jpg", ""]
    tags = [f"{photo} {words}" for photo, (_, words) in IMAGES.items()]
    tags[1] = "174174087 an id that no image has"
    tags += ["77", "88 no image", "words without an id", "  "]
    folder = nuswide(tmp_path, names, tags, splits={"Train": [*NAMES[:4], r"x\1_9.jpg"], "Test": NAMES[4:]})
    touch(folder / "Flickr", "zebra/0006_77.jpg")
    pairs = load(folder)
    found = reasons(pairs)
    assert list(found) == [1, 5, 6, 7, 8] and len(pairs.captions) == 9
    assert found[1] == ("Imagelist.txt line 2", "All_Tags.txt has no line for its id 174174086")
    assert found[5] == ("Imagelist.txt line 6", "All_Tags.txt has no tags for its id 77")
    assert "'zebra/nonsense.jpg' is not a name like" in found[6][1]
    assert found[7][1].startswith("no image file at") and "0007_88.jpg" in found[7][1]
    assert found[8] == ("TrainImagelist.txt line 5", "is not in Imagelist.txt")
    assert pairs.captions[4] == "grass"
    assert "whose id no image has: 2" in pairs.description


def test_broken_bytes_of_tags_cost_one_image(tmp_path):
    folder = nuswide(tmp_path)
    file = folder / "NUS_WID_Tags" / "All_Tags.txt"
    file.write_bytes(file.read_bytes().replace("café".encode(), b"caf\x81"))
    pairs = load(folder)
    assert list(reasons(pairs)) == [1] and "cannot be told" in reasons(pairs)[1][1]


@pytest.mark.parametrize(("lines", "captions"), [(2, ["first", "second"]), (1, ["first", "first"]), (3, None)])
def test_a_photograph_in_two_folders(tmp_path, lines, captions):
    names = [*NAMES, r"actor\0009_5.jpg", r"zebra\0010_5.jpg"]
    tags = [f"{photo} {words}" for photo, (_, words) in IMAGES.items()]
    tags += [f"5 {words}" for words in ("first", "second", "third")[:lines]]
    folder = nuswide(tmp_path, names, random.Random(0).sample(tags[:5], 5) + tags[5:])
    touch(folder / "Flickr", "actor/0009_5.jpg", "zebra/0010_5.jpg")
    pairs = load(folder)
    assert pairs.captions[:5] == [words for _, words in IMAGES.values()]
    if captions is None:
        assert [reasons(pairs)[row][1] for row in (5, 6)] == ["All_Tags.txt has 3 different lines for its id 5"] * 2
    else:
        assert pairs.captions[5:] == captions and not pairs.skipped


def test_longer_paths_and_images_elsewhere(tmp_path):
    folder = nuswide(tmp_path / "lists", [rf"C:\ImageData\Flickr\{name}" for name in NAMES])
    (folder / "Flickr").rename(tmp_path / "far")
    assert "--image-folder" in refused(folder)
    pairs = load(folder, image_folder=tmp_path / "far")
    assert not pairs.skipped and pairs.paths[4] == tmp_path / "far" / "zebra" / "0005_342635061.jpg"


def test_broken_layouts_end_in_one_line(tmp_path):
    no_tags = nuswide(tmp_path / "a")
    (no_tags / "NUS_WID_Tags" / "All_Tags.txt").unlink()
    assert "needs NUS_WID_Tags/All_Tags.txt" in refused(no_tags)
    assert "needs ImageList/Imagelist.txt" in refused(tmp_path, reader="nuswide")
    assert "the file is empty" in refused(nuswide(tmp_path / "b", names=[]))
    assert "no line begins with the id" in refused(nuswide(tmp_path / "c", tags=["<html>", "</html>"]))
    line = refused(nuswide(tmp_path / "d", names=["zebra", "actor"]))
    assert "0 images can be used" in line and "Imagelist.txt line 1" in line
    both = {"Train": NAMES, "Test": NAMES[1:2]}
    assert "'actor/0002_174174086.jpg' is in TrainImagelist.txt too" in refused(nuswide(tmp_path / "e", splits=both))
    assert "name no image" in refused(nuswide(tmp_path / "f", splits={"Test": [r"x\0001_2.jpg"]}))
    assert "too few images to train on" in refused(nuswide(tmp_path / "g", splits={"Test": NAMES}))


TAG = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(
    tags=st.lists(st.lists(TAG, max_size=4), min_size=1, max_size=6),
    blank=st.sampled_from([" ", "   ", "\t"]),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    order=st.randoms(use_true_random=False),
)
def test_any_tags_in_any_order_reach_their_images(tags, blank, newline, order):
    ids = [100 + 7 * row for row in range(len(tags))]
    names = [f"concept {row % 2}\\{row:04d}_{photo}.jpg" for row, photo in enumerate(ids)]
    lines = [blank.join([str(photo), *words]) for photo, words in zip(ids, tags, strict=True)]
    given_lines = [f"{photo} {words}" for photo, (_, words) in IMAGES.items()]
    mixed = order.sample([*given_lines, *lines], len(given_lines) + len(lines))
    with TemporaryDirectory() as place:
        folder = nuswide(Path(place), [*NAMES, *names], mixed, newline)
        touch(folder / "Flickr", *(name.replace("\\", "/") for name in names))
        pairs = load(folder, keep_empty=True)
    expected = [" ".join(words) for words in tags]
    assert pairs.captions == [words for _, words in IMAGES.values()] + expected
    assert list(reasons(pairs)) == [5 + row for row, words in enumerate(tags) if not words]
