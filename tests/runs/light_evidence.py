"""A lighter detector, for tests of runs."""

import yaml

from pairsift.detect import DetectOptions

# One division into three folds, two folds within a fold, narrow vectors, and coarse intervals.
LIGHT = {
    "folds": {"averaged_pairs": 1, "folds": 3, "inner_folds": 2},
    "linear": {"max_width": 96},
    "calibration": {"resamples": 12, "halvings": 4},
}
LIGHT_OPTIONS = DetectOptions().changed(LIGHT)


def light_file(folder):
    """Return a file of these options, as `--config` takes it."""
    path = folder / "light.yaml"
    path.write_text(yaml.safe_dump({"detect": LIGHT}))
    return path
