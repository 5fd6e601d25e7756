"""The samples of a tar file: the files that belong together, and which of them is the image, the text and the JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pairsift.pairs.readers.folders import IMAGE_SUFFIXES
from pairsift.pairs.readers.tars import Member


@dataclass(slots=True)
class Sample:
    """The files of a tar file that belong together, because their names are equal up to the first dot.

    Attributes:
        shard: Path of the tar file within the source.
        where: The sample as the user knows it, such as `00000.tar sample 000000012`.
        name: Name of the sample over all tar files, such as `00000/000000012`.
        key: Name of the sample in its tar file.
        members: All files, in their order.
        image: The image; None if there is none.
        spare: Other images, which have no caption of their own.
        text: The text file; None if there is none.
        data: The JSON file; None if there is none.
        holder: Field of the JSON file that holds the caption or the captions; empty if the text file holds it.
        repeats: Field of the JSON file that repeats the caption of the text file; empty if there is none.
    """

    shard: PurePosixPath
    where: str
    name: str
    key: str
    members: list[Member]
    image: Member | None = None
    spare: list[Member] = field(default_factory=list)
    text: Member | None = None
    data: Member | None = None
    holder: str = ""
    repeats: str = ""

    def ending(self, member: Member) -> str:
        """Return the name of a file of the sample after the key and its dot."""
        return member.name[len(self.key) + 1 :]


def group(members: Sequence[Member]) -> list[tuple[str, list[Member]]]:
    """Return the samples of a tar file: their keys, and their files in order.

    The key of a file is its name up to the first dot after its folders. Where that puts several images with texts of
    their own together, as with `photo.v1.jpg` and `photo.v2.jpg`, the key goes up to the last dot. If a name comes
    again, a new sample begins.
    """
    samples: list[tuple[str, list[Member]]] = []
    open_samples: dict[str, tuple[list[Member], set[str]]] = {}
    for member in members:
        first, dot, _ = member.base.partition(".")
        if not dot or not first:
            continue
        key = member.name[: len(member.name) - len(member.base)] + first
        files, names = open_samples.get(key, ([], set()))
        if not files or member.name.lower() in names:
            files, names = open_samples[key] = ([], set())
            samples.append((key, files))
        files.append(member)
        names.add(member.name.lower())
    return [part for key, files in samples for part in _by_last_dot(key, files)]


def _by_last_dot(key: str, files: list[Member]) -> list[tuple[str, list[Member]]]:
    """Return a sample, or the samples that the names up to the last dot make of it."""
    if len(files) < 4 or sum(map(_is_image, files)) < 2:
        return [(key, files)]
    parts: dict[str, list[Member]] = {}
    for file in files:
        parts.setdefault(file.name.rpartition(".")[0], []).append(file)
    whole = {name: part for name, part in parts.items() if any(map(_is_image, part)) and any(map(_is_text, part))}
    if len(whole) < 2:
        return [(key, files)]
    if key in whole:
        whole[key] += [file for name, part in parts.items() if name not in whole for file in part]
        return list(whole.items())
    return list(parts.items())


def _suffix(member: Member) -> str:
    return "." + member.base.rpartition(".")[2].lower()


def _is_image(member: Member) -> bool:
    return _suffix(member) in IMAGE_SUFFIXES


def _is_text(member: Member) -> bool:
    return _suffix(member) == ".txt"


def sort_out(sample: Sample) -> None:
    """Set the image, the text file and the JSON file of a sample: those with the fewest dots in their names."""

    def dots(member: Member) -> int:
        return sample.ending(member).count(".")

    def pick(files: list[Member]) -> Member | None:
        return min(files, key=lambda member: (bool(member.problem), dots(member)), default=None)

    images = [member for member in sample.members if _is_image(member)]
    sample.image = pick(images)
    sample.text = pick([member for member in sample.members if _is_text(member)])
    sample.data = pick([member for member in sample.members if _suffix(member) == ".json"])
    if sample.image is not None:
        sample.spare = [file for file in images if file is not sample.image and dots(file) == dots(sample.image)]
