"""The scripts in benchmarks/ are modules here, with the loops that they are compared with."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "match")]
