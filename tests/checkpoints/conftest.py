"""Scenes, drawn once."""

import pytest

from pairsift.scenes import write_scenes


@pytest.fixture(scope="session")
def scenes(tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoints") / "scenes"
    write_scenes(place, 120, 5)
    return place
