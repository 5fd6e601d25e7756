"""Drawings with short captions from Debian packages, in two collections; no constant of verdicts was chosen on them.

`stamps` has the drawings of Tux Paint, each with the first line of its description. `clipart` has the Open Clip Art
Library, each picture with the words of its file's name, which often names its author too, and of its folders.

    apt-get download tuxpaint-stamps-default openclipart-png
    python benchmarks/debian_pictures.py *.deb --out pictures
    python benchmarks/verdicts.py verdicts --data pictures --collections stamps clipart-800 clipart
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

STAMPS, CLIPART = Path("usr/share/tuxpaint/stamps"), Path("usr/share/openclipart/png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", type=Path, help="files of tuxpaint-stamps-default and openclipart-png")
    parser.add_argument("--out", type=Path, required=True, help="folder of the collections")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for package in chosen.packages:
        subprocess.run(["dpkg-deb", "-x", package, chosen.out / "packages"], check=True)
    unpacked = chosen.out / "packages"
    for name, rows in (("stamps", stamps(unpacked / STAMPS)), ("clipart", clipart(unpacked / CLIPART))):
        place = chosen.out / name
        place.mkdir(exist_ok=True)
        with (place / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("image", "caption"))
            pairs = [(Path("..") / image.relative_to(chosen.out), caption) for image, caption in rows]
            writer.writerows(pairs)
        print(f"{name}: {len(pairs):,} pairs in {place}")


def stamps(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each stamp with its English description; mirrored ones, which have another's, are left out."""
    for image in sorted(folder.rglob("*.png")):
        about = image.with_suffix(".txt")
        if about.exists() and "_mirror" not in image.name:
            caption = about.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
            if caption:
                yield image, caption


def clipart(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each drawing with the words of its file's and its folders' names, without numbers that stand alone."""
    for image in sorted(folder.rglob("*.png")):
        place = image.relative_to(folder)
        words = re.split(r"[_\s-]+", " ".join((place.stem, *place.parent.parts)))
        yield image, " ".join(word for word in words if not word.isdigit() and word)


if __name__ == "__main__":
    main()
