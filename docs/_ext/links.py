"""Files outside the folder of the pages that belong to the site, and links to them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

STAGED = "_staged"  # in the folder of the pages; git ignores it
PLACES = {"examples": "*.ipynb", "benchmarks/results": "*.md", "benchmarks/research": "*.md"}
LINKS = (  # from pages that the repository shows too, to what stands for them on the site
    (r"\]\((?:\.\./)*(?:docs/)?(design|run|matchers|results|noise|verdicts)\.md", r"](/\1.md"),
    (r"\]\((?:\.\./)*benchmarks/(results|research)/(\w+)\.md", rf"](/{STAGED}/\1/\2.md"),
    (r"\]\((?:\.\./)*CONTRIBUTING\.md(#[\w-]+)?", r"](/contributing.md\1"),
)


def stage(pages: Path) -> None:
    """Copy notebooks and tables of results beside the pages, under `_staged`; what was there goes."""
    staged = pages / STAGED
    shutil.rmtree(staged, ignore_errors=True)
    for place, pattern in PLACES.items():
        folder = staged / Path(place).name
        folder.mkdir(parents=True)
        for file in sorted((pages.parent / place).glob(pattern)):
            shutil.copy(file, folder / file.name)


def relink(docname: str, source: list[str]) -> None:
    """Turn links of the repository into links of the site, in the text that is about to be read.

    Args:
        docname: The page; notebooks are left as they are.
        source: The text, in a list of one, which is changed in place.
    """
    if docname.startswith(f"{STAGED}/examples/"):
        return
    for pattern, target in LINKS:
        source[0] = re.sub(pattern, target, source[0])
