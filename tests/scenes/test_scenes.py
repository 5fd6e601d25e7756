import numpy as np
import pytest
from PIL import Image

from pairsift.errors import InputError
from pairsift.pairs.readers import load
from pairsift.scenes import THINGS, imagine, write_scenes
from pairsift.scenes.backdrops import BACKDROPS, WEATHERS
from pairsift.scenes.canvas import SIZE
from pairsift.scenes.captions import (
    COLOUR_WORDS,
    SETTINGS,
    SIZE_WORDS,
    TEMPLATES,
    THING_WORDS,
    WEATHER_WORDS,
    caption,
    captions,
)
from pairsift.scenes.things import COLOURS, TONES


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, 40, 5)
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_ordinary_reader_reads_them(written):
    pairs = load(written)
    assert pairs.description.startswith("flickr8k: ")
    assert not pairs.skipped
    assert np.bincount(pairs.image_of).tolist() == [5] * 40
    assert [len(pairs.images(split)) for split in ("train", "dev", "test")] == [32, 4, 4]
    for row, path in enumerate(pairs.paths):
        with Image.open(path) as image:
            assert image.size == (224, 224)
            assert image.mode == "RGB"
        assert len({pairs.captions[pair].rstrip(".") for pair in np.flatnonzero(pairs.image_of == row)}) == 5


def test_same_seed_same_bytes(written, tmp_path):
    write_scenes(tmp_path / "again", 40, 5)
    assert files(tmp_path / "again") == files(written)
    write_scenes(tmp_path / "other", 10, 6)
    assert files(tmp_path / "other")["images/scene_00000.jpg"] != files(written)["images/scene_00000.jpg"]


def test_fewer_scenes_are_the_first_ones(written, tmp_path):
    write_scenes(tmp_path, 10, 5)
    more = files(written)
    images = {name: content for name, content in files(tmp_path).items() if name.endswith(".jpg")}
    assert len(images) == 10
    assert all(more[name] == content for name, content in images.items())
    assert more["captions.csv"].startswith(files(tmp_path)["captions.csv"])


def test_everything_drawn_has_words_and_shapes_have_tones():
    assert set(THING_WORDS) == set(THINGS)
    assert set(COLOUR_WORDS) == set(COLOURS)
    assert set(SETTINGS) == set(BACKDROPS) == set(WEATHERS)
    assert {kind for kinds in WEATHERS.values() for kind in kinds} == set(WEATHER_WORDS)
    for shapes in THINGS.values():
        for kind, tone, numbers in shapes:
            assert kind in ("oval", "box", "poly", "line")
            assert tone in {*TONES, "main", "dark", "light"}
            assert len(numbers) % 2 == 0
            assert max(map(abs, numbers)) <= 1


def test_scenes_keep_their_things_inside_and_apart():
    for seed in range(200):
        scene = imagine(np.random.default_rng(seed))
        assert 2 <= len(scene.things) <= 4
        assert len({thing.name for thing in scene.things}) == len(scene.things)
        assert len({thing.colour for thing in scene.things}) == len(scene.things)
        assert scene.weather in WEATHERS[scene.setting]
        for thing in scene.things:
            assert thing.half <= thing.x <= SIZE - thing.half
            assert thing.y + thing.half <= SIZE
            assert thing.size in SIZE_WORDS


def test_captions_tell_the_truth():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        scene = imagine(rng)
        first = scene.things[0]
        for template in TEMPLATES:
            text = caption(rng, scene, template).lower()
            assert any(word in text for word in SETTINGS[scene.setting])
            assert any(word in text for word in THING_WORDS[first.name])
            assert any(word in text for word in COLOUR_WORDS[first.colour])
            assert "{" not in text
            assert "  " not in text
        assert len(set(captions(rng, scene))) == 5


@pytest.mark.parametrize(("count", "seed"), [(9, 0), (10, -1)])
def test_arguments_out_of_range(tmp_path, count, seed):
    with pytest.raises(InputError):
        write_scenes(tmp_path, count, seed)
