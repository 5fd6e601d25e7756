"""Fuzzing of every reader by Atheris, which keeps the damage that reaches new lines of the readers.

It is no test of the suite: it runs as long as it is told. The first byte of an input chooses the layout, and the rest
is what `every_layout.damaged` draws from, or the content of a file of the layout itself. Whatever is neither pairs nor
one line ends it, with the input in a file.

    pip install ".[fuzz]"
    python tests/pairs/fuzz_readers.py -max_total_time=600
"""

import random
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1])]
with atheris.instrument_imports(include=["pairsift.pairs"]):
    from pairsift.errors import InputError
    from pairsift.pairs.readers import load

from every_layout import Layout, damaged, layouts  # noqa: E402

NAMES = [*layouts()]


def once(data: bytes) -> None:
    """Read one damaged source."""
    if len(data) < 3:
        return
    layout = layouts()[NAMES[data[0] % len(NAMES)]]
    files = dict(layout.files)
    victims = [file for file in files if not file.endswith(".jpg")] or [*files]
    victim = victims[data[1] % len(victims)]
    if data[1] & 128:
        files[victim] = data[2:]
    else:
        files[victim] = damaged(files[victim], random.Random(data[2:]))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        source = Layout(files, layout.place, layout.reader).write(Path(place, "source"))
        for reader in (None, layout.reader):
            try:
                load(source, reader=reader, cache=Path(place, "cache"))
            except InputError as error:
                line = str(error)
                assert line and not any(character < " " or "\x7f" <= character <= "\x9f" for character in line), line


def main() -> None:
    """Fuzz from the valid files of every layout on."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, layout in enumerate(layouts().values()):
            victims = [file for file in layout.files if not file.endswith(".jpg")] or [*layout.files]
            for place, file in enumerate(victims):
                seed = bytes([number, 128 + place]) + layout.files[file]
                (Path(corpus) / f"{number}-{place}").write_bytes(seed)
                (Path(corpus) / f"{number}-{place}-damaged").write_bytes(bytes([number, place, 0]))
        atheris.Setup([*sys.argv, corpus], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
