"""Tables in any dialect of separated text come back as they were written, and so do their exports."""

import csv
import io
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from test_export_again import trip

from pairsift.pairs.readers import load

NAMES = [f"{number}_ab{number}.jpg" for number in range(40)]
WORDS = (
    *("dog", "the", "'s", "Größe", "狗", "10%", "(red)", "x/y", "C:\\x", "\\", "\\n", "“q”"),
    *("a,b", "a;b", "a|b", '"q"', '5"', '"open', 'close"', '""', "\N{NO-BREAK SPACE}"),
)
WAYS = {
    "where needed": {"quoting": csv.QUOTE_MINIMAL},
    "everywhere": {"quoting": csv.QUOTE_ALL},
    "backslash": {"quoting": csv.QUOTE_ALL, "doublequote": False, "escapechar": "\\"},
}


@dataclass(frozen=True)
class Form:
    """How a table is written; `plain` has quotes that are characters like others."""

    separator: str
    way: str
    header: bool
    end: str
    encoding: str
    columns: int

    def lines(self, rows):
        """The text of each row."""
        if self.way == "plain":
            return [self.separator.join(row) + self.end for row in rows]
        streams = [io.StringIO(newline="") for _ in rows]
        for stream, row in zip(streams, rows, strict=True):
            csv.writer(stream, delimiter=self.separator, lineterminator=self.end, **WAYS[self.way]).writerow(row)
        return [stream.getvalue() for stream in streams]

    def head(self):
        """The line of names, in a list, or nothing."""
        return self.lines([["image", "caption", "shelf"][: self.columns]]) if self.header else []


@st.composite
def tables(draw):
    form = Form(
        draw(st.sampled_from(",;\t|")),
        draw(st.sampled_from([*WAYS, "plain"])),
        draw(st.booleans()),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])),
        draw(st.integers(2, 3)),
    )
    texts = draw(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=12, max_size=len(NAMES)))
    captions = [f"one dog {' '.join(words)} {number}" for number, words in enumerate(texts)]
    if form.way == "backslash":  # without an escaped quote beside it, an escaped backslash may as well be two
        captions = [caption if '"' in caption else caption.replace("\\", "/") for caption in captions]
    if form.way == "plain":
        captions = [caption.replace(form.separator, " ") for caption in captions]
    elif draw(st.booleans()):
        captions = [caption + "\nsecond line" * (number % 5 == 1) for number, caption in enumerate(captions)]
    return form, captions


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for number, name in enumerate(NAMES):
        Image.new("RGB", (4, 4), (5 * number, 0, 0)).save(folder / name)
    return folder


@settings(max_examples=60, deadline=None)
@given(tables(), st.sets(st.integers(0, 11), min_size=4, max_size=4))
def test_a_table_and_its_export_come_back_as_they_were(place, table, chosen):
    form, captions = table
    rows = [[name, caption, "shelf 1"][: form.columns] for name, caption in zip(NAMES, captions, strict=False)]
    lines = form.lines(rows)
    (place / "x.csv").write_bytes("".join(form.head() + lines).encode(form.encoding))
    assert load(place / "x.csv").captions == captions
    new, *dropped = sorted(chosen)
    (place / "out.csv").unlink(missing_ok=True)
    trip(place / "x.csv", place / "out.csv", dropped, {new: "a new caption"})
    kept = [(number, line) for number, line in enumerate(lines) if number not in dropped]
    before = "".join(form.head() + [line for number, line in kept if number < new])
    text, after = (place / "out.csv").read_bytes().decode(form.encoding), "".join(line for k, line in kept if k > new)
    assert text.startswith(before) and text.endswith(after)
    captions[new] = "a new caption"
    assert load(place / "out.csv").captions == [captions[number] for number, _ in kept]
