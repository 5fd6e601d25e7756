"""Twenty images, of which one is broken."""

import pytest
from PIL import Image


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for row in range(20):
        Image.new("RGB", (300, 150), (12 * row, 80, 120)).save(folder / f"{row}.jpg")
    (folder / "3.jpg").write_bytes(b"no image")
    return folder
