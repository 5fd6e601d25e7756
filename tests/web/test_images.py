"""The image files that a page may show, by the record of a run's pairs."""

import numpy as np
import pytest

from pairsift.pairs.changes import write_stored_pairs
from pairsift.pairs.readers import load
from pairsift.web.images import Images


@pytest.mark.parametrize("kind", ["files", "features"])
def test_a_source_of_features_has_no_images(tmp_path, kind):
    data = tmp_path / "data"
    data.mkdir()
    (data / "captions.csv").write_text("image,caption\n" + "".join(f"{n}.jpg,caption {n}\n" for n in range(6)))
    if kind == "files":
        for number in range(6):
            (data / f"{number}.jpg").touch()
    else:
        for name in ("image.npy", "text.npy"):
            np.save(data / name, np.ones((6, 4), np.float32))
    pairs = load(data / "captions.csv" if kind == "files" else data)
    write_stored_pairs(pairs, pairs.split, tmp_path / "source.parquet")
    images = Images(tmp_path, data)
    assert images.exist == (kind == "files")
    assert images.path(3) == (data / "3.jpg" if kind == "files" else None)
