"""The pairs of a split that collections share: by image name and caption."""

from pathlib import Path

import numpy as np

from pairsift.pairs.pairs import Pairs
from pairsift.pairs.same_pairs import images_elsewhere, shared_pairs


def collection(*rows):
    """Pairs of rows (image name, caption, split), in this order."""
    names = list(dict.fromkeys(name for name, _, _ in rows))
    return Pairs(
        source="x",
        names=names,
        paths=[Path(name) for name in names],
        captions=[caption for _, caption, _ in rows],
        image_of=np.array([names.index(name) for name, _, _ in rows]),
        split=np.array([split for _, _, split in rows], "<U7"),
    )


A = collection(
    ("a.jpg", "one", "train"),
    ("b.jpg", "one", "test"),
    ("b.jpg", "two", "test"),
    ("c.jpg", "one", "test"),
    ("d.jpg", "one", "test"),
)


def test_a_pair_is_shared_by_image_caption_and_split():
    other = collection(
        ("d.jpg", "one", "dev"),  # in another split
        ("c.jpg", "another", "test"),  # a new caption
        ("b.jpg", "two", "test"),
        ("e.jpg", "one", "test"),
        ("b.jpg", "one", "test"),
    )
    left, right = shared_pairs([A, other], "test")
    assert left.tolist() == [1, 2] and right.tolist() == [4, 2]
    assert images_elsewhere(A, other, "test") == 1 and images_elsewhere(A, A, "test") == 0
    first, second, third = shared_pairs([other, A, A], "test")
    assert first.tolist() == [2, 4] and second.tolist() == third.tolist() == [2, 1]


def test_repeated_pairs_are_shared_as_often_as_all_have_them():
    twice = collection(("b.jpg", "one", "test"), ("b.jpg", "one", "test"), ("b.jpg", "two", "test"))
    assert [ids.tolist() for ids in shared_pairs([twice, A], "test")] == [[0, 2], [1, 2]]
    assert [ids.tolist() for ids in shared_pairs([twice, twice], "test")] == [[0, 1, 2]] * 2


def test_moved_images_are_known_by_their_file_names():
    moved = collection(("/new/b.jpg", "two", "test"), ("/new/d.jpg", "one", "test"), ("/new/a.jpg", "one", "train"))
    assert [ids.tolist() for ids in shared_pairs([A, moved], "test")] == [[2, 4], [0, 1]]
    unclear = collection(("/new/b.jpg", "two", "test"), ("/old/b.jpg", "two", "test"))
    assert [len(ids) for ids in shared_pairs([A, unclear], "test")] == [0, 0]


def test_other_data_share_nothing():
    other = collection(("x.jpg", "one", "test"), ("y.jpg", "two", "train"))
    assert [len(ids) for ids in shared_pairs([A, other], "test")] == [0, 0]
