"""What `pairsift check` and `pairsift fit` say of the time left, beside the time that they take.

Each row is a line of the output that says how long all stages take, and how long they took from then on: to the end,
or to the stage that the line names.

    python benchmarks/stages.py SOURCE --verb check fit
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rows import Row, markdown, parser, write_rows

STAGE = re.compile(r"stage \d+ of \d+: (.*)")
LEFT = re.compile(r"about (\d+) (s|min) left (?:in all|until (.+))$")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("source", help="A source of pairs.")
    options.add_argument("--verb", nargs="+", default=["check", "fit"], choices=["check", "fit"])
    options.add_argument("--option", action="append", default=[], help="An option of both, such as --option=--epochs=4")
    chosen = options.parse_args()
    rows = [row for verb in chosen.verb for row in measure([verb, chosen.source, *chosen.option])]
    write_rows(chosen.json, rows)
    print(table(rows))


def measure(words: list[str]) -> list[Row]:
    """Run a command with an empty cache, and return a row for each line with the time left."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pairsift.cli", *words, "--out", str(Path(folder) / "run")]
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environment, text=True, **pipes) as run:
            lines = [(time.monotonic(), line.strip()) for line in run.stderr]
        end = time.monotonic()
        assert run.returncode == 0, lines[-1]
    begins = {match[1]: moment for moment, line in lines if (match := STAGE.match(line))}
    rows, stage = [], "reading"
    for moment, line in lines:
        stage = match[1] if (match := STAGE.match(line)) else stage
        if found := LEFT.search(line):
            said = int(found[1]) * (60 if found[2] == "min" else 1)
            until = next((at for line, at in begins.items() if found[3] and line.startswith(found[3])), end)
            rows.append(
                {"verb": words[0], "stage": stage, "until": found[3] or "the end", "said": said, "true": until - moment}
            )
    return rows


def table(rows: list[Row]) -> str:
    cells = [[row["verb"], row["stage"], row["until"], str(row["said"]), f"{row['true']:.0f}"] for row in rows]
    return markdown(["verb", "stage", "until", "said, s", "true, s"], cells)


if __name__ == "__main__":
    main()
