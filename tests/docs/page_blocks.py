"""The code of a page: its fenced blocks, with what it includes from elsewhere."""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.M | re.S)
OPTION = re.compile(r'^:(start-after|end-before): "(.*)"$', re.M)


@dataclass(frozen=True)
class Block:
    """Some code of a page, with the line that it begins at, for messages."""

    language: str
    code: str
    line: int


def blocks_of(page):
    """Return the blocks of a page in order; those that it includes come where it includes them."""
    text, found = page.read_text(encoding="utf-8"), []
    for fence in FENCE.finditer(text):
        language, code = fence.groups()
        if language == "{include}":
            file = re.match(r"```\{include\} (\S+)", fence.group())[1]
            found += [
                Block(*pair, text[: fence.start()].count("\n") + 1) for pair in included(page.parent / file, code)
            ]
        elif not language.startswith("{"):
            found.append(Block(language, code, text[: fence.start()].count("\n") + 1))
    return found


def included(file, options):
    text, marks = Path(file).read_text(encoding="utf-8"), dict(OPTION.findall(options))
    text = text.partition(marks["start-after"])[2] if "start-after" in marks else text
    text = text.partition(marks["end-before"])[0] if "end-before" in marks else text
    return FENCE.findall(text)
