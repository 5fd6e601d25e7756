"""The report's section of images that have copies and of captions that several images have."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute

from pairsift.report import parts
from pairsift.report.findings import Findings
from pairsift.table import VAGUE

GROUPS = 12  # shown of each kind, the largest first
MEMBERS = 4  # names shown of a group


def duplicates(findings: Findings) -> str:
    """Write the section of duplicates; an empty string where the run has none."""
    table = findings.table
    images = _groups(table, "image_duplicates", "image")
    captions = _groups(table, "caption_duplicates", "given_caption")
    vague = _groups(table.filter(pa.compute.equal(table["verdict"], VAGUE)), "caption_duplicates", "given_caption")
    cards = [
        _card("Copies of images", "images", [(size, names) for size, names in images]),
        _card("Captions of several images", "pairs", [(size, names[:1]) for size, names in captions]),
        _card("Vague captions", "pairs", [(size, names[:1]) for size, names in vague]),
    ]
    if not any(cards):
        return ""
    note = (
        "Copies look the same to the encoder and cell by cell. A copy is not a mismatch. A vague caption is given with "
        "at least five images, and far more of its pairs look mismatched than chance explains."
    )
    return parts.section("Duplicates", note, f'<div class="grid">{"".join(cards)}</div>')


def _groups(table: pa.Table, column: str, name: str) -> list[tuple[int, list[str]]]:
    """Return the size of each group and the different names in it, the largest group first.

    The size counts different images for copies, and pairs for captions.
    """
    if column not in table.column_names:
        return []
    members: dict[int, list[str]] = {}
    rows = table.filter(pa.compute.is_valid(table[column])).select([column, name])
    for group, value in zip(rows[column].to_pylist(), rows[name].to_pylist(), strict=True):
        members.setdefault(group, []).append(value)
    groups = [(len(set(names)) if name == "image" else len(names), sorted(set(names))) for names in members.values()]
    return sorted(groups, key=lambda group: (-group[0], group[1]))


def _card(title: str, unit: str, groups: list[tuple[int, list[str]]]) -> str:
    if not groups:
        return ""
    rows = "".join(
        f'<tr><td class="count">{size:,}</td><td>{_names(names)}</td></tr>' for size, names in groups[:GROUPS]
    )
    more = f"The largest {GROUPS} of {len(groups):,} groups." if len(groups) > GROUPS else ""
    head = f'<tr><th scope="col" class="count">{unit}</th><th scope="col">group</th></tr>'
    body = f'<table class="text"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return f'<div class="card"><h3>{title}</h3><p class="note">{more}</p>{body}</div>'


def _names(names: Iterable[str]) -> str:
    shown = list(names)
    rest = f" and {len(shown) - MEMBERS:,} more" if len(shown) > MEMBERS else ""
    return ", ".join(parts.titled(name, 90) for name in shown[:MEMBERS]) + rest
