"""Papers are trained on the jobs of the tests of training."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
