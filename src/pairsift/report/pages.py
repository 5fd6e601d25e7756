"""The report's sections of pairs: suspects or a ranking on pages, the least certain pairs, the lowest probabilities."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from pairsift.arrays import Ints
from pairsift.report.cards import card_list, cards, thumbnails
from pairsift.report.charts import NO_VERDICTS, THRESHOLD
from pairsift.report.findings import Findings
from pairsift.report.images import SMALL_SIDE
from pairsift.report.parts import section
from pairsift.table import PAIRS_FILE, SUSPECTS_FILE

SHORT_LIST = 12  # number of cards of the least certain pairs, and of the lowest probabilities if no pair is flagged
PAIRS = 600  # largest number of pairs on the pages
IMAGE_BYTES = 3_500_000  # largest size of the images on the pages; the pairs after these are shown as text
PAGE_BYTES = 400  # what a page takes beside its cards, at most


def pair_sections(findings: Findings, page: int, room: int) -> str:
    """Write the cards: suspects and the least certain pairs, or the lowest probabilities where no pair is flagged.

    Args:
        findings: The run's table, pairs and metrics.
        page: Number of cards on a page.
        room: Number of bytes that the pages may take.
    """
    n, flagged, legend = len(findings.table), np.flatnonzero(findings.flag), _legend(findings)
    if not findings.verdicts_given:
        return _ranking(findings, page, room)
    if not len(flagged):
        rows = np.arange(min(SHORT_LIST, n))
        note = f"No pair is flagged. These are the {len(rows)} pairs with the lowest match probabilities.{legend}"
        return section("Lowest match probabilities, not flagged", note, card_list(cards(findings, rows)))
    uncertain = np.argsort(np.abs(findings.probability - THRESHOLD), kind="stable")[:SHORT_LIST]
    note = (
        f"The pairs with match probabilities nearest to {THRESHOLD}, flagged or not. "
        "Look at these first to check the verdicts: here a decision tells most."
    )
    least_certain = section("Least certain", note, card_list(cards(findings, uncertain)))
    return _suspects(findings, flagged, page, room - len(least_certain.encode())) + least_certain


def _suspects(findings: Findings, flagged: Ints, page: int, room: int) -> str:
    """Write the flagged pairs, worst first, on pages, and the number of those that do not fit."""
    content, n_shown = _pages(findings, flagged, "Suspect", page, room)
    link = f'<a href="{SUSPECTS_FILE}">{SUSPECTS_FILE}</a>'
    title = "The flagged pair" if len(flagged) == 1 else f"The {len(flagged):,} flagged pairs, worst first"
    sentence = f"{title}. The first {n_shown:,} are here, all are in {link}" if n_shown < len(flagged) else title
    note = f"{sentence}. A caption beside a vertical line would fit better.{_legend(findings)}"
    if n_shown < len(flagged):
        content += f'<p class="rest">The other {len(flagged) - n_shown:,} suspects: see {link}.</p>'
    return section("Suspects", note, content)


def _ranking(findings: Findings, page: int, room: int) -> str:
    """Write the pairs with the lowest match probabilities on pages, where no verdicts are given."""
    n = len(findings.table)
    content, n_shown = _pages(findings, np.arange(n), "Pair", page, room)
    which = "all pairs" if n_shown == n else f"the {n_shown:,} pairs with the lowest match probabilities"
    if n_shown < n:
        content += f'<p class="rest">The other {n - n_shown:,} pairs: see {PAIRS_FILE}.</p>'
    return section("Ranking", f"{NO_VERDICTS} These are {which}, worst first.{_legend(findings)}", content)


def _pages(findings: Findings, rows: Ints, noun: str, page: int, room: int) -> tuple[str, int]:
    """Write rows of the table on pages, the first one open, the others folded; return the number of rows that fit too.

    The folded pages have smaller thumbnails.
    """
    rows = rows[:PAIRS]
    pictures = thumbnails(findings, rows[:page]) + thumbnails(findings, rows[page:], SMALL_SIDE)
    n_pictures = _fitting((len(picture or "") for picture in pictures), IMAGE_BYTES)
    found = cards(findings, rows, pictures[:n_pictures])
    sizes = (len(card.encode()) + (place % page == 0) * PAGE_BYTES for place, card in enumerate(found))
    n_shown = _fitting(sizes, room)
    blocks = [card_list(found[: min(page, n_shown)])]
    for start in range(page, n_shown, page):
        end = min(start + page, n_shown)
        label = f"{noun} {end:,}" if start + 1 == end else f"{noun}s {start + 1:,} to {end:,}"
        bounds = dict.fromkeys(f"{value:.3f}" for value in findings.probability[rows[[start, end - 1]]])
        blocks.append(
            f'<details class="page"><summary>{label}<small>match probability {" to ".join(bounds)}</small></summary>'
            f"{card_list(found[start:end])}</details>"
        )
    return "".join(blocks), n_shown


def _fitting(sizes: Iterable[int], room: int) -> int:
    """Return how many of these, from the first on, fit into the room."""
    return sum(size <= room for size in accumulate(sizes))


def _legend(findings: Findings) -> str:
    """Write what the marks on cards mean; return an empty string where the truth is not known."""
    if findings.truth is None:
        return ""
    return (
        " A planted mismatch is a caption that was moved to another image on purpose. "
        "✓ and ✗ say whether a suggestion truly is one of the image's captions."
    )
