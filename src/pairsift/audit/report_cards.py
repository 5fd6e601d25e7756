"""The report's sections of cards: suspects on pages, the least certain pairs, the lowest match probabilities."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import numpy as np

from pairsift.arrays import Ints
from pairsift.audit import report_parts as parts
from pairsift.audit.report_charts import NO_VERDICTS, THRESHOLD
from pairsift.audit.report_findings import Findings
from pairsift.audit.report_images import address, thumbnail
from pairsift.audit.report_parts import LONGEST, Tree, section, text
from pairsift.audit.table import SUSPECTS_FILE

SHORT_LIST = 12  # number of cards of the least certain pairs, and of the lowest probabilities if no pair is flagged
SUSPECTS = 600  # largest number of cards of flagged pairs
BYTES = 5_500_000  # largest size of these cards
TAIL = 12  # number of last characters of an image's name, which are shown even if the name does not fit
THREADS = 4  # number of threads that make thumbnails


def pair_sections(findings: Findings, page: int) -> str:
    """Write the cards: suspects and the least certain pairs, or the lowest probabilities where no pair is flagged.

    Args:
        findings: The run's table, pairs and metrics.
        page: Number of cards on a page.
    """
    n, flagged, legend = len(findings.table), np.flatnonzero(findings.flag), _legend(findings)
    if not findings.verdicts_given:
        which = "all pairs" if n <= page else f"the {page:,} pairs with the lowest match probabilities"
        note = f"{NO_VERDICTS} These are {which}, worst first.{legend}"
        return section("Ranking", note, _list(_cards(findings, np.arange(min(page, n)))))
    if not len(flagged):
        note = (
            f"No pair is flagged. These are the {min(SHORT_LIST, n)} pairs with the lowest match probabilities.{legend}"
        )
        return section(
            "Lowest match probabilities, not flagged", note, _list(_cards(findings, np.arange(min(SHORT_LIST, n))))
        )
    uncertain = np.argsort(np.abs(findings.probability - THRESHOLD), kind="stable")[:SHORT_LIST]
    note = (
        f"The pairs with match probabilities nearest to {THRESHOLD}, flagged or not. "
        "Look at these first to check the verdicts."
    )
    return _suspects(findings, flagged, page) + section("Least certain", note, _list(_cards(findings, uncertain)))


def _suspects(findings: Findings, flagged: Ints, page: int) -> str:
    """Write the flagged pairs, worst first: the first page open, the others folded, the remaining pairs as a number."""
    cards = _cards(findings, flagged[:SUSPECTS])
    n_shown = sum(size <= BYTES for size in accumulate(len(card.encode()) for card in cards))
    cards = cards[:n_shown]
    link = f'<a href="{SUSPECTS_FILE}">{SUSPECTS_FILE}</a>'
    title = "The flagged pair" if len(flagged) == 1 else f"The {len(flagged):,} flagged pairs, worst first"
    sentence = f"{title}. The first {n_shown:,} are here, all are in {link}" if n_shown < len(flagged) else title
    note = f"{sentence}. A caption beside a vertical line would fit better.{_legend(findings)}"
    blocks = [_list(cards[:page])]
    for start in range(page, n_shown, page):
        end = min(start + page, n_shown)
        label = f"Suspect {end:,}" if start + 1 == end else f"Suspects {start + 1:,} to {end:,}"
        bounds = dict.fromkeys(f"{value:.3f}" for value in findings.probability[flagged[[start, end - 1]]])
        blocks.append(
            f'<details class="page"><summary>{label}<small>match probability {" to ".join(bounds)}</small></summary>'
            f"{_list(cards[start:end])}</details>"
        )
    if n_shown < len(flagged):
        blocks.append(f'<p class="rest">The other {len(flagged) - n_shown:,} suspects: see {link}.</p>')
    return section("Suspects", note, "".join(blocks))


def _legend(findings: Findings) -> str:
    """Write what the marks on cards mean; return an empty string where the truth is not known."""
    if findings.truth is None:
        return ""
    return (
        " A planted mismatch is a caption that was moved to another image on purpose. "
        "✓ and ✗ say whether a suggestion truly is one of the image's captions."
    )


def _list(cards: list[str]) -> str:
    return f'<ul class="pairs">{"".join(cards)}</ul>' if cards else ""


def _cards(findings: Findings, rows: Ints) -> list[str]:
    """Write a card for each of these rows of the table."""
    pairs, records = findings.pairs, findings.table.take(rows).to_pylist()
    images = sorted({int(pairs.image_of[row["pair"]]) for row in records} - {-1})
    pictures: dict[int, str | None] = {}
    if pairs.features is None:
        with ThreadPoolExecutor(THREADS) as pool:
            thumbnails = pool.map(thumbnail, [pairs.paths[image] for image in images])
            pictures = dict(zip(images, thumbnails, strict=True))
    return [_card(findings, row, pictures.get(int(pairs.image_of[row["pair"]]))) for row in records]


def _card(findings: Findings, row: Tree, picture: str | None) -> str:
    """Write the card of a pair of the table; `picture` is a data URI, or None where the image cannot be shown."""
    image = int(findings.pairs.image_of[row["pair"]])
    no_file = findings.pairs.features is not None or image < 0
    path = None if no_file else findings.pairs.paths[image].absolute()
    link = "" if path is None else f' href="{text(address(path, findings.folder))}"'
    content = f'<img src="{picture}" alt="image of pair {row["pair"]}">' if picture else _no_picture(findings, row)
    flagged = " flagged" if findings.verdicts_given and row["is_mismatch"] else ""
    name, full = parts.middle_cut(row["image"] or "no image", 160), text(path or row["image"] or "")
    return (
        f'<li class="card pair"><a class="thumb"{link}>{content}</a><div>'
        f'<p class="top"><span class="probability{flagged}">{row["match_probability"]:.3f}</span>'
        f"{_judged(findings, row)}</p>"
        f'<p class="given" dir="auto">{text(row["given_caption"], LONGEST)}</p>{_better(findings, row, image)}'
        f'<p class="name"><a class="path" title="{full}"{link}><span>{text(name[:-TAIL])}</span>'
        f"<span>{text(name[-TAIL:])}</span></a><b>pair {row['pair']}</b></p></div></li>"
    )


def _no_picture(findings: Findings, row: Tree) -> str:
    message = "image cannot be read" if findings.pairs.features is None else f"features only: {row['image']}"
    return f"<span>{text(parts.middle_cut(message, 80))}</span>"


def _better(findings: Findings, row: Tree, image: int) -> str:
    """Write the suggested caption; where the truth is known, a mark says whether it belongs to the image."""
    if row["suggested_caption"] is None:
        return ""
    true_image_of, mark = findings.pairs.true_image_of, ""
    if true_image_of is not None:
        correct = bool(true_image_of[row["suggested_from_pair"]] == image)
        mark = f'<span class="{"right" if correct else "wrong"}">{"✓" if correct else "✗"}</span> '
    return (
        f'<p class="better" dir="auto">{text(row["suggested_caption"], LONGEST)}</p>'
        f'<p class="from">{mark}suggested from pair {row["suggested_from_pair"]}</p>'
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
