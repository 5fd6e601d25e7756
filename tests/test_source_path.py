"""Paths of sources that name several files: braces, `*`, and lists."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsift.errors import InputError
from pairsift.source_path import is_pattern, places_of, require_path, require_source, root_of, stem_of


def names_of(source, folder):
    return [place.relative_to(folder).as_posix() for place in places_of(folder / source)]


@pytest.fixture
def folder(tmp_path):
    for name in ("00000.tar", "00001.tar", "00010.tar", "a/x.csv", "a/y.csv", "b/x.csv", "n[1].csv", "{a,b}.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("{00000..00002}.tar", ["00000.tar", "00001.tar", "00002.tar"]),
        ("{0..1}.tar", ["0.tar", "1.tar"]),
        ("{b,a}/x.csv", ["b/x.csv", "a/x.csv"]),
        ("{a/{x,y},b/x}.csv", ["a/x.csv", "b/x.csv", "a/y.csv"]),
        ("*.tar", ["00000.tar", "00001.tar", "00010.tar"]),
        ("**/x.csv", ["a/x.csv", "b/x.csv"]),
        ("{a,b}/*.csv", ["a/x.csv", "a/y.csv", "b/x.csv"]),
        ("0000[01].tar", ["00000.tar", "00001.tar"]),
        ("*.jpg", []),
        ("n[1].csv", ["n[1].csv"]),
        ("{a,b}.csv", ["{a,b}.csv"]),
        ("{one}.csv", ["{one}.csv"]),
        ("a", ["a"]),
    ],
)
def test_what_a_source_names(folder, source, names):
    assert names_of(source, folder) == names


@pytest.mark.parametrize(
    ("source", "root", "stem"),
    [
        ("data/*.parquet", "data", "data"),
        ("data/train-*.parquet", "data", "train"),
        ("data/{00000..00012}.tar", "data", "00000"),
        ("{x/a,y/b}.parquet", "", "a"),
        ("a/x.csv", "a", "x"),
        ("a", "a", "a"),
        ("n[1].csv", "", "n[1]"),
        ("gone/my.csv", "gone", "my"),
    ],
)
def test_the_folder_and_the_short_name_of_a_source(folder, source, root, stem):
    assert root_of(folder / source) == folder / root and stem_of(folder / source) == stem


def test_what_is_not_there_is_named(folder):
    for source, name in (("{00000..00002}.tar", "00002.tar"), ("*.jpg", "*.jpg"), ("nowhere[1].csv", "nowhere[1].csv")):
        with pytest.raises(InputError, match="there is nothing at") as caught:
            require_source(folder / source)
        assert str(folder / name) in str(caught.value)


parts = st.text("abc-_. ", min_size=1, max_size=8).filter(lambda text: text.strip(". "))


@given(st.lists(st.tuples(parts, parts), min_size=2, max_size=6, unique=True))
def test_a_list_of_files_is_one_pattern_of_them(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("list")
    paths = [folder / place / f"{name}.csv" for place, name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    joined = require_path(paths)
    assert is_pattern(joined) and places_of(joined) == paths


def test_lists_of_other_things_and_of_odd_names_are_refused(folder):
    assert require_path([folder / "a"]) == folder / "a" and require_path("x*") == Path("x*")
    for source in ([{"image": "a.jpg"}], [], 3):
        with pytest.raises(InputError, match="a source is the path of a file or a folder"):
            require_path(source)
    with pytest.raises(InputError, match="rename it, or give it alone"):
        require_path([folder / "a/x.csv", folder / "n[1].csv"])
    with pytest.raises(InputError, match=r"there is nothing at .*none\.csv"):
        require_path([folder / "a/x.csv", folder / "none.csv"])


def test_thousands_of_files_on_a_command_line(tmp_path):
    paths = [tmp_path / f"{number:05}-{'x' * 50}.csv" for number in range(2000)]
    for path in paths:
        path.touch()
    joined = require_path(paths)
    require_source(joined)
    assert places_of(joined) == paths and root_of(joined) == tmp_path
