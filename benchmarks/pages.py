"""Tables in pages, between two marks."""

from pathlib import Path

END = "<!-- end -->"  # of every table; each has a mark of its own that it begins with


def write_between(path: Path, begin: str, end: str, content: str) -> None:
    """Write content anew between two marks in a page; a page without the first mark stays as it is."""
    head, found, rest = path.read_text(encoding="utf-8").partition(begin)
    if found:
        path.write_text(f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
