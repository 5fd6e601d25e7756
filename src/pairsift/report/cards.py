"""The report's cards: a pair with its image, captions and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pairsift.arrays import Ints
from pairsift.report import parts
from pairsift.report.findings import Findings
from pairsift.report.images import SIDE, address, thumbnail
from pairsift.report.parts import LONGEST, Tree, percent, text

TAIL = 12  # number of last characters of an image's name, which are shown even if the name does not fit
THREADS = 4  # number of threads that make thumbnails


def card_list(cards: Sequence[str]) -> str:
    """Write cards as a list."""
    return f'<ul class="pairs">{"".join(cards)}</ul>' if cards else ""


def cards(findings: Findings, rows: Ints, pictures: Sequence[str | None] | None = None) -> list[str]:
    """Write a card for each of these rows of the table.

    Args:
        findings: The run's table and pairs.
        rows: Rows of the table, (n,).
        pictures: Thumbnails of the first cards, at most n; the cards after these have no place for an image. By
            default all cards have thumbnails.
    """
    pictures = thumbnails(findings, rows) if pictures is None else pictures
    records = findings.table.take(rows).to_pylist()
    return [
        _card(findings, row, _thumb(findings, row, pictures[place]) if place < len(pictures) else "")
        for place, row in enumerate(records)
    ]


def thumbnails(findings: Findings, rows: Ints, side: int = SIDE) -> list[str | None]:
    """Return the image of each of these rows of the table as a data URI; None where it cannot be shown."""
    pairs = findings.pairs
    images = pairs.image_of[findings.table["pair"].take(rows).to_numpy()].tolist()
    if pairs.features is not None:
        return [None] * len(images)
    names = sorted(set(images) - {-1})
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda image: thumbnail(pairs.paths[image], side), names)
        pictures = dict(zip(names, found, strict=True))
    return [pictures.get(image) for image in images]


def _link(findings: Findings, row: Tree) -> tuple[str, str]:
    """Return the attribute `href` of a link to the image file, empty without a file, and the full path."""
    image = int(findings.pairs.image_of[row["pair"]])
    if findings.pairs.features is not None or image < 0:
        return "", text(row["image"] or "")
    path = findings.pairs.paths[image].absolute()
    return f' href="{text(address(path, findings.folder))}"', text(path)


def _thumb(findings: Findings, row: Tree, picture: str | None) -> str:
    """Write the image of a card; `picture` is a data URI, or None where the image cannot be shown."""
    content = f'<img src="{picture}" alt="image of pair {row["pair"]}">' if picture else _no_picture(findings, row)
    return f'<a class="thumb"{_link(findings, row)[0]}>{content}</a>'


def _card(findings: Findings, row: Tree, thumb: str) -> str:
    """Write the card of a pair of the table; `thumb` is the element of its image, or empty."""
    link, full = _link(findings, row)
    flagged = " flagged" if findings.verdicts_given and row["is_mismatch"] else ""
    name = parts.middle_cut(row["image"] or "no image", 160)
    return (
        f'<li class="card pair{"" if thumb else " bare"}">{thumb}<div>'
        f'<p class="top"><span class="probability{flagged}">{row["match_probability"]:.3f}</span>'
        f"{_judged(findings, row)}</p>"
        f'<p class="given" dir="auto">{text(row["given_caption"], LONGEST)}</p>{_better(findings, row)}'
        f'<p class="name"><a class="path" title="{full}"{link}><span>{text(name[:-TAIL])}</span>'
        f"<span>{text(name[-TAIL:])}</span></a><b>pair {row['pair']}</b></p></div></li>"
    )


def _no_picture(findings: Findings, row: Tree) -> str:
    message = "image cannot be read" if findings.pairs.features is None else f"features only: {row['image']}"
    return f"<span>{text(parts.middle_cut(message, 80))}</span>"


def _better(findings: Findings, row: Tree) -> str:
    """Write the suggested caption; where the truth is known, a mark says whether it belongs to the image."""
    if row["suggested_caption"] is None:
        return ""
    true_image_of, mark = findings.pairs.true_image_of, ""
    if true_image_of is not None:
        image = findings.pairs.image_of[row["pair"]]
        correct = bool(true_image_of[row["suggested_from_pair"]] == image)
        mark = f'<span class="{"right" if correct else "wrong"}">{"✓" if correct else "✗"}</span> '
    probability = row.get("suggestion_probability")
    chance = "" if probability is None else f", {percent(probability, 0)} likely"
    return (
        f'<p class="better" dir="auto">{text(row["suggested_caption"], LONGEST)}</p>'
        f'<p class="from">{mark}suggested from pair {row["suggested_from_pair"]}{chance}</p>'
    )


def _judged(findings: Findings, row: Tree) -> str:
    """Write the verdict; where the truth is known, a mark says whether the verdict is correct."""
    planted, flagged, verdict = row.get("truly_mismatched"), row["is_mismatch"], row["verdict"]
    if not findings.verdicts_given:
        return '<span class="mark">planted</span>' if planted else ""
    mark = ""
    if planted or (flagged and planted is not None):
        words = ("planted, found" if flagged else "planted, missed") if planted else "flagged, not planted"
        mark = f'<span class="mark {"right" if planted and flagged else "wrong"}">{words}</span>'
    plain = verdict in ("clean", "mismatched")  # the mark already says so
    return f"{'' if mark and plain else f'<span>{text(verdict)}</span>'}{mark}"
