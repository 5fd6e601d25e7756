"""How much longer a fit takes beside equal ones on the same cores, with waiting threads that sleep and that spin.

Scenes are drawn and encoded once. Then k + 1 processes of `pairsift fit` run at once, for every k and either way of
waiting in turn; `spin` is what the libraries do by themselves. The ratio is the mean wall time over the time of the fit
alone with threads that sleep, in the same repeat; sharing the cores costs k + 1. Nothing else may run on the machine.

    python benchmarks/crowded.py --json crowded.json
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairsift.cores import BLAS_CHOICES, OPENMP_CHOICES, usable_cores
from pairsift.scenes import write_scenes
from rows import Row, markdown, parser, write

WAITING = {"sleep": {}, "spin": {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200", "OPENBLAS_THREAD_TIMEOUT": "26"}}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=800, help="scenes to draw (default: %(default)s)")
    options.add_argument("--epochs", type=int, default=4, help="epochs of a fit (default: %(default)s)")
    options.add_argument("--others", type=int, nargs="+", default=[0, 1, 3], help="equal fits beside the one")
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_scenes(folder / "scenes", chosen.images, seed=1)
        together(folder, 1, {}, 1)  # fills the cache
        for repeat in range(chosen.repeats):
            alone = 0.0
            for others in sorted({0, *chosen.others}):
                for waiting, variables in WAITING.items():
                    wall, processor = together(folder, others + 1, variables, chosen.epochs)
                    alone = alone or wall
                    row = {"repeat": repeat, "others": others, "waiting": waiting, "seconds": round(wall, 1)}
                    rows.append(row | {"processor_seconds": round(processor, 1), "ratio": round(wall / alone, 2)})
                    print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    write(chosen.json, rows, {"cores": usable_cores(), "images": chosen.images, "epochs": chosen.epochs})


def together(folder: Path, count: int, variables: dict[str, str], epochs: int) -> tuple[float, float]:
    """Wall and processor seconds of a fit, means of as many at once."""
    clean = {name: value for name, value in os.environ.items() if name not in OPENMP_CHOICES + BLAS_CHOICES}
    fit = [sys.executable, "-m", "pairsift.cli", "fit", str(folder / "scenes"), "--overwrite"]
    command = [*fit, *options_of(folder / "cache", epochs)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    began = time.monotonic()
    fits = [
        subprocess.Popen([*command, f"--out={folder / f'run-{k}'}"], env=clean | variables, **quiet)
        for k in range(count)
    ]
    walls, processor = [], 0.0
    for _ in fits:
        _, status, used = os.wait3(0)
        walls.append(time.monotonic() - began)
        processor += used.ru_utime + used.ru_stime
        if status:
            raise SystemExit(f"a fit ended with {os.waitstatus_to_exitcode(status)}: {' '.join(command)}")
    return statistics.mean(walls), processor / count


def options_of(cache: Path, epochs: int) -> list[str]:
    """One network without protection, for so many epochs."""
    phases = ["--plain.epochs.warmup=0", f"--plain.epochs.train={epochs}"]
    return ["--method=plain", *phases, "--plain.networks=1", f"--cache={cache}"]


def table(rows: list[Row]) -> str:
    """The median ratio and its range for each number of others and way of waiting."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((str(row["others"]), row["waiting"]), []).append(row["ratio"])
    lines = [
        [*place, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]
        for place, ratios in found.items()
    ]
    return markdown(["others", "waiting", "ratio", "lowest to highest"], lines)


if __name__ == "__main__":
    main()
