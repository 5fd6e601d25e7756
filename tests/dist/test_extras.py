"""The extras that messages name are extras of the package."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for file in files for name in re.findall(r"pairsift\[(\w+)\]", file.read_text(encoding="utf-8"))}
    assert {"hf", "index", "lite2", "log", "serve", "text"} <= named <= set(extras)
