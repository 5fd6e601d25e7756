"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """Return `$XDG_CACHE_HOME/pairsift`, or `~/.cache/pairsift`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pairsift"
