"""Parts of Flickr8k as sources of grids, and the pairs that are declared to match.

- `flickr8k-N.csv`: the first N training images, and a fifth as many dev and test images, with their captions.
- `partners-all-SEED.csv` and `partners-half-SEED.csv`: a half of the training images, with captions moved among these
  alone, so that the image that a moved caption belongs to is there, or among all training images, so that about half of
  these images are not. Both have the same images; dev and test are clean.
- `verified.txt` and `verified-N.txt`: the ids of every 60th training pair, of all and of a part.

    python benchmarks/flickr8k_parts.py --data ../shared/flickr8k --out runs/parts
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from pairsift.pairs.readers import load
from rows import Row

VERIFIED = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/flickr8k"))
    parser.add_argument("--out", type=Path, default=Path("runs/parts"))
    parser.add_argument("--images", nargs="+", type=int, default=[1000, 2000, 6000])
    parser.add_argument("--noise", type=float, default=0.4, help="share of the captions that are moved")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the moved captions")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    declare(chosen.data, chosen.out / "verified.txt")
    for images in chosen.images:
        declare(fewer(chosen.data, images, chosen.out), chosen.out / f"verified-{images}.txt")
    for seed in chosen.seeds:
        for partners in ("all", "half"):
            path = chosen.out / f"partners-{partners}-{seed}.csv"
            print(path.name, with_partners(chosen.data, path, partners, chosen.noise, seed))


def splits_of(data: Path, count: int | None = None) -> dict[str, str]:
    """Return the split of each image, of all images or of a part with so many training images."""
    split_of: dict[str, str] = {}
    for split in ("train", "dev", "test"):
        names = (data / "splits" / f"{split}.txt").read_text(encoding="utf-8").split()
        kept = count if count is None or split == "train" else count // 5
        split_of |= dict.fromkeys(names[:kept], split)
    return split_of


def captions_of(data: Path) -> list[tuple[str, str]]:
    """Return the pairs of an image's name and a caption."""
    with (data / "captions.csv").open(encoding="utf-8", newline="") as stream:
        return [(row["image"], row["caption"]) for row in csv.DictReader(stream)]


def fewer(data: Path, images: int, place: Path) -> Path:
    """Write the table of a part of the images, and return its path."""
    split_of, path = splits_of(data, images), place / f"flickr8k-{images}.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("image", "caption", "split"))
        for image, caption in captions_of(data):
            if image in split_of:
                table.writerow(((data / "images" / image).resolve(), caption, split_of[image]))
    return path


def declare(source: Path, path: Path) -> None:
    """Write the ids of every 60th training pair."""
    path.write_text("".join(f"{pair}\n" for pair in load(source).ids("train")[::VERIFIED]))


def with_partners(data: Path, path: Path, partners: str, noise: float, seed: int) -> Row:
    """Write a half of the training images with moved captions.

    Returns:
        The number of training pairs, the share of wrong captions, and the share of these whose image is gone.
    """
    split_of = splits_of(data)
    pairs = [(image, caption) for image, caption in captions_of(data) if image in split_of]
    rng = np.random.default_rng((seed, 31))
    images = rng.permutation([image for image, split in split_of.items() if split == "train"]).tolist()
    kept = set(images[: len(images) // 2])
    among = kept if partners == "all" else set(images)
    pool = [row for row, (image, _) in enumerate(pairs) if image in among]
    moved = rng.permutation(pool)[: round(noise * len(pool))]
    caption_of = np.arange(len(pairs))
    caption_of[moved] = rng.permutation(moved)
    wrong, gone, total = 0, 0, 0
    with path.open("w", encoding="utf-8", newline="") as written:
        table = csv.writer(written)
        table.writerow(("image", "caption", "split"))
        for (image, _), given in zip(pairs, caption_of.tolist(), strict=True):
            if split_of[image] == "train" and image not in kept:
                continue
            owner, caption = pairs[given]
            table.writerow(((data / "images" / image).resolve(), caption, split_of[image]))
            total += split_of[image] == "train"
            wrong += owner != image
            gone += owner != image and owner not in kept
    return {"pairs": total, "wrong": round(wrong / total, 4), "gone": round(gone / max(1, wrong), 4)}


if __name__ == "__main__":
    main()
