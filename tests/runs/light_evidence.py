"""A lighter detector, for tests of runs."""

import yaml

from pairsift.detect import DetectOptions

# One division into folds, two folds within a fold, and intervals that are looked for less closely.
LIGHT = {
    "folds": {"averaged_pairs": 1, "inner_folds": 2},
    "calibration": {"resamples": 12, "min_resamples": 4, "halvings": 4},
}
LIGHT_OPTIONS = DetectOptions().changed(LIGHT)


def light_file(folder):
    """Return a file of these options, as `--config` takes it."""
    path = folder / "light.yaml"
    path.write_text(yaml.safe_dump({"detect": LIGHT}))
    return path
