"""The report's pairs: each with its image, captions and verdict, on pages of suspects or of a ranking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import numpy as np
from markupsafe import Markup

from pairsift.arrays import Ints
from pairsift.report.findings import THRESHOLD, Findings, Section
from pairsift.report.html import Tree, middle_cut, render
from pairsift.report.images import SIDE, SMALL_SIDE, address, thumbnail

LONGEST = 320  # characters of a caption that a card shows
THREADS = 4  # number of threads that make thumbnails
SHORT_LIST = 12  # number of cards of the least certain pairs, and of the lowest probabilities if no pair is flagged
PAIRS = 600  # largest number of pairs on the pages
# What a card says, and its style, by whether a mismatch was planted and whether the pair is flagged
MARKS: dict[tuple[Any, Any], tuple[str, str]] = {
    (True, True): ("planted, found", " right"),
    (True, False): ("planted, missed", " wrong"),
    (False, True): ("flagged, not planted", " wrong"),
}
PAGE_BYTES = 400  # what a page takes beside its cards, at most


def pair_sections(findings: Findings, page: int, room: int) -> list[Section]:
    """Return the suspects and the least certain pairs, or the lowest probabilities where no pair is flagged.

    Where no verdicts are given, return all pairs as a ranking.

    Args:
        findings: The run's table, pairs and metrics.
        page: Number of cards on a page.
        room: Number of bytes that the cards may take.
    """
    flagged, truth_known = np.flatnonzero(findings.flag), findings.truth is not None
    if not findings.verdicts_given:
        paged = _pages(findings, np.arange(len(findings.table)), page, room)
        return [{"kind": "ranking", "title": "Ranking", "truth_known": truth_known, **paged}]
    if not len(flagged):
        lowest = cards(findings, np.arange(min(SHORT_LIST, len(findings.table))))
        title = "Lowest match probabilities, not flagged"
        return [{"kind": "lowest", "title": title, "truth_known": truth_known, "cards": lowest}] if lowest else []
    uncertain = np.argsort(np.abs(findings.probability - THRESHOLD), kind="stable")[:SHORT_LIST]
    least = cards(findings, uncertain)
    paged = _pages(findings, flagged, page, room - sum(len(card.encode()) for card in least))
    return [
        {"kind": "suspects", "title": "Suspects", "truth_known": truth_known, **paged},
        {"kind": "least_certain", "title": "Least certain", "threshold": THRESHOLD, "cards": least},
    ]


def _pages(findings: Findings, rows: Ints, page: int, room: int) -> dict[str, Any]:
    """Return rows of the table on pages, the number of rows, and the number of rows that fit.

    The pages after the first are folded, and have smaller thumbnails.
    """
    n_pairs, rows = len(rows), rows[:PAIRS]
    found = cards(findings, rows[:page]) + cards(findings, rows[page:], SMALL_SIDE)
    sizes = (len(card.encode()) + (place % page == 0) * PAGE_BYTES for place, card in enumerate(found))
    n_shown = sum(size <= room for size in accumulate(sizes))
    pages = []
    for start in range(0, n_shown, page):
        end = min(start + page, n_shown)
        bounds = dict.fromkeys(f"{value:.3f}" for value in findings.probability[rows[[start, end - 1]]])
        pages.append({"first": start + 1, "last": end, "bounds": list(bounds), "cards": found[start:end]})
    return {"pages": pages, "n_pairs": n_pairs, "n_shown": n_shown}


def cards(findings: Findings, rows: Ints, side: int = SIDE) -> list[Markup]:
    """Return a card for each of these rows of the table, (n,), with thumbnails of so many pixels."""
    shown = findings.rows(rows)
    pictures = thumbnails(findings, [row["pair"] for row in shown], side)
    return [
        Markup(render("card.html", **_card(findings, row), picture=picture, longest=LONGEST))
        for row, picture in zip(shown, pictures, strict=True)
    ]


def thumbnails(findings: Findings, ids: list[int], side: int) -> list[str | None]:
    """Return the image of each of these pairs as a data URI; None where it cannot be shown."""
    pairs = findings.pairs
    images = [int(pairs.image_of[pair]) for pair in ids]
    if pairs.features is not None:
        return [None] * len(images)
    names = sorted(set(images) - {-1})
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda image: thumbnail(pairs.paths[image], side), names)
        pictures = dict(zip(names, found, strict=True))
    return [pictures.get(image) for image in images]


def _card(findings: Findings, row: Tree) -> dict[str, Any]:
    """Return what the card of a pair of the table says."""
    pairs, image = findings.pairs, int(findings.pairs.image_of[row["pair"]])
    has_file = pairs.features is None and image >= 0
    path = pairs.paths[image].absolute() if has_file else None
    is_right = None
    if row["suggested_caption"] is not None and pairs.true_image_of is not None:
        is_right = bool(pairs.true_image_of[row["suggested_from_pair"]] == image)
    return {
        **{name: row[name] for name in ("pair", "match_probability", "given_caption")},
        **{name: row[name] for name in ("suggested_caption", "suggested_from_pair")},
        "suggestion_probability": row.get("suggestion_probability"),
        "suggestion_is_right": is_right,
        "link": None if path is None else address(path, findings.folder),
        "path": (row["image"] or "") if path is None else str(path),
        "name": middle_cut(row["image"] or "no image", 160),
        "no_picture": "image cannot be read" if pairs.features is None else f"features only: {row['image']}",
        "flagged": findings.verdicts_given and row["is_mismatch"],
        **_judged(findings, row),
    }


def _judged(findings: Findings, row: Tree) -> dict[str, str]:
    """Return the verdict; where the truth is known, a mark says whether the verdict is correct."""
    planted, verdict = row.get("truly_mismatched"), row["verdict"]
    if not findings.verdicts_given:
        return {"verdict": "", "mark": "planted" if planted else "", "mark_class": ""}
    mark, mark_class = MARKS.get((planted, row["is_mismatch"]), ("", ""))
    said = mark and verdict in ("clean", "mismatched")
    return {"verdict": "" if said else verdict, "mark": mark, "mark_class": mark_class}
