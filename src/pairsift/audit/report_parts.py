"""The report's pieces of HTML. Everything that comes from data passes through `text`."""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pairsift.pairs.pairs import Pairs

Tree = Mapping[str, Any]

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
LONGEST = 320  # characters of a caption that a card shows
DASH = "–"
_SUM = ' class="sum"'


def text(value: object, longest: int | None = None) -> str:
    """Anything as escaped text, cut with an ellipsis after `longest` characters."""
    whole = str(value)
    if longest is not None and len(whole) > longest:
        whole = whole[: longest - 1].rstrip() + "…"
    return html.escape(whole.encode("utf-8", "replace").decode("utf-8"))


def lookup(tree: Any, *keys: str) -> Any:
    """What lies at these keys of nested mappings, or None."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def number(value: Any, digits: int = 1, scale: float = 1.0) -> str:
    """A number with so many decimals and thousands set apart, or a dash where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return DASH
    return f"{value * scale:,.{digits}f}"


def percent(value: Any, digits: int = 1) -> str:
    """A share in percent, or a dash."""
    shown = number(value, digits, 100)
    return shown if shown == DASH else f"{shown}%"


def tiles(items: list[tuple[str, str, str]]) -> str:
    """Headline numbers: name, value, a line below."""
    cells = (
        f'<div class="card tile"><dt>{text(name)}</dt><dd class="value">{text(value)}</dd>'
        f'<dd class="more">{text(more)}</dd></div>'
        for name, value, more in items
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def facts(items: list[tuple[str, str]]) -> str:
    """Small numbers with their names."""
    cells = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in items)
    return f'<dl class="facts">{cells}</dl>'


def bars(items: list[tuple[str, float, str]]) -> str:
    """Shares in [0, 1] as horizontal bars: name, share, tone."""
    rows = (
        f'<span>{text(name)}</span><div class="track"><div class="fill" '
        f'style="--tone: var(--{tone}); width: {100 * min(max(share, 0.0), 1.0):.2f}%"></div></div>'
        f'<span class="num">{percent(share)}</span>'
        for name, share, tone in items
    )
    return f'<div class="bars">{"".join(rows)}</div>'


def recall_table(metrics: Tree) -> str:
    """Recall of each network on test and dev; nothing where neither was measured."""
    body = []
    for split in ("test", "dev"):
        found = lookup(metrics, split)
        if not isinstance(found, Mapping) or not found:
            continue
        body.append(f'<tr class="split"><th scope="rowgroup" colspan="8">{split}</th></tr>')
        for name in sorted(found, key=lambda one: (one != "ensemble", one)):
            cells = "".join(
                f"<td{_SUM if key == 'rsum' else ''}>{number(lookup(found, name, key))}</td>" for key in RECALLS
            )
            strong = ' class="strong"' if name == "ensemble" else ""
            label = text(str(name).replace("_", " "))
            body.append(f'<tr{strong}><th scope="row">{label}</th>{cells}</tr>')
    if not body:
        return ""
    ks = "".join(f'<th scope="col">R@{k}</th>' for k in (1, 5, 10))
    return (
        '<div class="card scroll"><table><thead><tr><th></th><th colspan="3">image to text</th>'
        '<th colspan="3">text to image</th><th></th></tr>'
        f'<tr><th></th>{ks}{ks}<th scope="col">rSum</th></tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def card(row: Tree, picture: str | None, fits: bool | None, missing: str = "image cannot be read") -> str:
    """One pair of the table.

    Args:
        row: The table's row.
        picture: Data URI, or None where the image cannot be read.
        fits: Whether the suggested caption is really one of the image's; None where that is not known.
        missing: What stands in the picture's place where there is none.
    """
    shown = f'<img src="{picture}" alt="">' if picture else f"<span>{text(missing, 80)}</span>"
    flagged = " flagged" if row["is_mismatch"] else ""
    better = ""
    if row["suggested_caption"] is not None:
        mark = "" if fits is None else _mark(fits, "")
        better = (
            f'<p class="better" dir="auto">{text(row["suggested_caption"], LONGEST)}</p>'
            f'<p class="from">{mark} suggested from pair {row["suggested_from_pair"]}</p>'
        )
    return (
        f'<li class="card pair"><div class="thumb">{shown}</div><div>'
        f'<p class="top"><span class="score{flagged}">{row["mismatch_score"]:.3f}</span>'
        f"<span>{text(row['verdict'])}</span>{_judged(row)}</p>"
        f'<p class="given" dir="auto">{text(row["given_caption"], LONGEST)}</p>{better}'
        f'<p class="name"><span>{text(row["image"] or "no image", 120)}</span><b>pair {row["pair"]}</b></p></div></li>'
    )


def skipped(pairs: Pairs, first: int = 50) -> str:
    """What was left out: how many for each reason, and the first of them; nothing where nothing was."""
    if not pairs.skipped:
        return ""
    counts = Counter(skip.reason for skip in pairs.skipped).most_common(20)
    reasons = "".join(f'<tr><td class="count">{n:,}</td><td>{text(reason, 200)}</td></tr>' for reason, n in counts)
    rows = "".join(
        f"<tr><td>{text(skip.where, 200)}</td><td>{text(skip.reason, 200)}</td></tr>" for skip in pairs.skipped[:first]
    )
    more = f"The first {first} of {len(pairs.skipped):,}." if len(pairs.skipped) > first else ""
    return (
        f"<h2>Skipped</h2><p class='note'>Pairs and images that could not be used. {more}</p>"
        f'<div class="grid"><div class="card"><h3>By reason</h3><table class="text"><tbody>{reasons}</tbody></table>'
        f'</div><div class="card"><h3>Each</h3><table class="text"><tbody>{rows}</tbody></table></div></div>'
    )


def provenance(parts: dict[str, Any]) -> str:
    """What the run can be repeated from, folded away: title to anything that JSON can show."""
    blocks = "".join(
        f"<h3>{text(title)}</h3><pre>{text(_plain(value))}</pre>" for title, value in parts.items() if value
    )
    return f'<details class="card"><summary>Provenance</summary>{blocks}</details>'


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)


def _judged(row: Tree) -> str:
    """Whether the verdict is right, where the truth is known."""
    truth = row.get("truly_mismatched")
    if truth is None:
        return ""
    right = truth == row["is_mismatch"]
    word = "right" if right else "missed" if truth else "wrong"
    return f'<span class="mark">{_mark(right, word)}</span>'


def _mark(right: bool, word: str) -> str:
    return f'<span class="{"right" if right else "wrong"}">{"✓" if right else "✗"}{word and f" {word}"}</span>'
