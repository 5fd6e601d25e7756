"""Copies among the images of a run, by thumbnails in the feature cache."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import pairsift
from pairsift.runs.judging import image_copies

pytestmark = pytest.mark.slow


def test_copies_share_a_group_and_lost_images_have_none(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["image,caption"]
    for k in range(6):
        cells = rng.integers(0, 256, (6, 8, 3), np.uint8)
        large = Image.fromarray(cells).resize((400, 300), Image.Resampling.BICUBIC)
        large.save(tmp_path / f"{k}.png")
        large.resize((120, 90)).save(tmp_path / f"{k}-small.jpg", quality=50)
        lines += [f"{k}.png,scene {k}", f"{k}-small.jpg,small scene {k}"]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    pairs = pairsift.load(tmp_path / "mine.csv")
    prepared, judgement = SimpleNamespace(pairs=pairs), SimpleNamespace(group=None)
    names = [pairs.paths[row].name for row in pairs.images()]

    def groups(cache):
        copies = image_copies(prepared, judgement, tmp_path / cache, progress=False)
        return dict(zip(names, copies.tolist(), strict=True))

    found = groups("cache")
    assert all(found[f"{k}.png"] == found[f"{k}-small.jpg"] for k in range(6)) and len(set(found.values())) == 6
    for name in ("0.png", "1.png"):
        (tmp_path / name).write_bytes(b"lost")
    again = groups("another")
    lost = {"0.png", "0-small.jpg", "1.png", "1-small.jpg"}
    assert len({again[name] for name in lost}) == 4
    assert all(again[f"{k}.png"] == again[f"{k}-small.jpg"] for k in range(2, 6))
