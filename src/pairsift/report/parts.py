"""The HTML elements of the report. Everything that comes from data passes through `text`."""

from __future__ import annotations

import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from pairsift.pairs.pairs import SKIPPED, Pairs

Tree = Mapping[str, Any]

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
LONGEST = 320  # characters of a caption that a card shows
DASH = "–"
SKIPPED_FILE = "skipped.csv"
SUM = ' class="sum"'


def text(value: object, longest: int | None = None) -> str:
    """Write a value as escaped text; text of more than `longest` characters is cut and ends with an ellipsis."""
    content = str(value)
    if longest is not None and len(content) > longest:
        content = content[: longest - 1].rstrip() + "…"
    return html.escape(content.encode("utf-8", "replace").decode("utf-8"))


def middle_cut(value: object, longest: int) -> str:
    """Cut a path or a name of more than `longest` characters in the middle, its least important part."""
    content = str(value)
    if len(content) <= longest:
        return content
    tail = longest // 2
    return f"{content[: longest - 1 - tail]}…{content[-tail:]}"


def titled(value: object, longest: int) -> str:
    """Write a path or a name, cut in the middle where it is long; the tooltip shows the whole text."""
    content, short = str(value), middle_cut(value, longest)
    return text(short) if short == content else f'<span title="{text(content)}">{text(short)}</span>'


def page(texts: Mapping[str, str], sections: Iterable[str]) -> str:
    """Write a page that needs no other file.

    Args:
        texts: HTML of `page_title`, `eyebrow`, `heading`, `lead` and `footer`.
        sections: HTML of the sections; empty ones are left out.
    """
    template = Template((files("pairsift.report") / "report.html").read_text(encoding="utf-8"))
    return template.substitute(texts, body="\n".join(filter(None, sections)))


def section(title: str, note: str, content: str) -> str:
    """Write a section with a heading and a note, both HTML; without content, return an empty string."""
    paragraph = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{title}</h2>{paragraph}{content}</section>" if content else ""


def linked(sections: str) -> str:
    """Give each section with a plain heading an id, and write links to these sections before them."""
    links = []

    def named(found: re.Match[str]) -> str:
        name = re.sub(r"\W+", "-", found[1].lower())
        links.append(f'<a href="#{name}">{found[1]}</a>')
        return f'<section id="{name}"><h2>{found[1]}</h2>'

    content = re.sub(r"<section><h2>([^<]+)</h2>", named, sections)
    return f'<nav class="contents" aria-label="Sections">{"".join(links)}</nav>\n{content}'


def lookup(tree: Any, *keys: str) -> Any:
    """Return the value at these keys of nested mappings, or None."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def number(value: Any, digits: int = 1, scale: float = 1.0) -> str:
    """Write a number with `digits` decimals and thousands separators, or a dash if the value is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return DASH
    return f"{value * scale:,.{digits}f}"


def percent(value: Any, digits: int = 1) -> str:
    """Write a share in percent, or a dash if the value is not a number."""
    number_text = number(value, digits, 100)
    return number_text if number_text == DASH else f"{number_text}%"


def interval(noise: Any) -> str:
    """Write the bounds of a noise rate as "(26 to 33%)"; return an empty string where they are not known."""
    low, high = (lookup(noise, name) for name in ("low", "high"))
    digits = 0 if number(high) == DASH or high >= 0.1 else 1
    if DASH in (bounds := [number(value, digits, 100) for value in (low, high)]):
        return ""
    return f"({bounds[0]} to {bounds[1]}%)"


def tiles(items: list[tuple[str, str, str, str]]) -> str:
    """Write headline numbers; each item is a name, a value, a small text beside it, and a line below."""
    cells = (
        f'<div class="card tile"><dt>{text(name)}</dt>'
        f'<dd class="value">{text(value)}{f" <small>{text(beside)}</small>" if beside else ""}</dd>'
        f'<dd class="more">{text(more)}</dd></div>'
        for name, value, beside, more in items
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def facts(items: list[tuple[str, str]]) -> str:
    """Write small numbers; each item is a name and a value."""
    cells = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in items)
    return f'<dl class="facts">{cells}</dl>'


def bars(items: list[tuple[str, float, str, str]]) -> str:
    """Write shares in [0, 1] as horizontal bars; each item is a name, a share, a tone, and a text beside the number."""
    rows = (
        f'<span>{text(name)}</span><div class="track"><div class="fill" '
        f'style="--tone: var(--{tone}); width: {100 * min(max(share, 0.0), 1.0):.2f}%"></div></div>'
        f'<span class="num">{percent(share)}{f" <small>{text(beside)}</small>" if beside else ""}</span>'
        for name, share, tone, beside in items
    )
    return f'<div class="bars">{"".join(rows)}</div>' if items else ""


def recall_table(metrics: Tree) -> str:
    """Write the recall of each network on test and dev; return an empty string where neither was measured."""
    body = []
    for split, title in (("test", "test"), ("test_matching", "test, truly matching pairs alone"), ("dev", "dev")):
        recalls = lookup(metrics, split)
        if not isinstance(recalls, Mapping) or not recalls:
            continue
        body.append(f'<tr class="split"><th scope="rowgroup" colspan="8">{title}</th></tr>')
        for name in sorted(recalls, key=lambda view: (view != "ensemble", view)):
            cells = "".join(
                f"<td{SUM if key == 'rsum' else ''}>{number(lookup(recalls, name, key))}</td>" for key in RECALLS
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


def warnings(sentences: Any, title: str = "Warning") -> str:
    """Write a box with the warnings; return an empty string where there are none."""
    texts = [sentence for sentence in sentences if sentence] if isinstance(sentences, (list, tuple)) else []
    if not texts:
        return ""
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in texts)
    return f'<section class="card warnings"><h2>{title}{"s" if len(texts) > 1 else ""}</h2><ul>{items}</ul></section>'


def skipped_line(pairs: Pairs, first: int = 3) -> str:
    """Write the number of skipped records and images, and the most frequent reasons.

    Return an empty string where none was skipped.
    """
    if not pairs.skipped:
        return ""
    images = sum(skip.pair < 0 for skip in pairs.skipped)
    counts = ((len(pairs.skipped) - images, "record"), (images, "image"))
    subject = " and ".join(f"{n:,} {name}{'s' if n > 1 else ''}" for n, name in counts if n)
    n_pairs = int((pairs.split == SKIPPED).sum())
    total = f" ({n_pairs:,} pairs in all)" if images and n_pairs else ""
    kinds = _reasons(pairs)
    items = [f"{n:,} × {text(reason, 100)}" for reason, n in kinds[:first]]
    n_others = sum(n for _, n in kinds[first:])
    items += [f"{n_others:,} × other reasons"] if n_others else []
    return (
        f'<p class="card skips"><b>{subject} {"was" if len(pairs.skipped) == 1 else "were"} skipped</b>{total}: '
        f'see <a href="{SKIPPED_FILE}">{SKIPPED_FILE}</a>.<span>{" · ".join(items)}</span></p>'
    )


def _reasons(pairs: Pairs) -> list[tuple[str, int]]:
    """Count the skipped records and images by reason, the most frequent first.

    Reasons that differ only in paths, quoted words or numbers count as the same.
    """
    wordings: dict[str, list[str]] = {}
    for skip in pairs.skipped:
        kind = re.sub(r" \(.*\)$|(?: at| in| from|:)? \S*[/\\]\S.*$", "", skip.reason)
        kind = re.sub(r"'[^']+'|\"[^\"]+\"|\b\d+\b", "…", kind)
        wordings.setdefault(kind, []).append(skip.reason)
    counts = {kind if len(set(reasons)) > 1 else reasons[0]: len(reasons) for kind, reasons in wordings.items()}
    return Counter(counts).most_common()


def skipped(pairs: Pairs, first: int = 50) -> str:
    """Write the section of skipped records and images: the number for each reason, and the first of them.

    Return an empty string where none was skipped.
    """
    if not pairs.skipped:
        return ""
    reasons = "".join(
        f'<tr><td class="count">{n:,}</td><td>{text(reason, 200)}</td></tr>' for reason, n in _reasons(pairs)[:20]
    )
    rows = "".join(
        f"<tr><td>{titled(skip.where, 80)}</td><td>{titled(skip.reason, 140)}</td></tr>"
        for skip in pairs.skipped[:first]
    )
    file = f'<a href="{SKIPPED_FILE}">{SKIPPED_FILE}</a>'
    more = f" The first {first} of {len(pairs.skipped):,}; all are in {file}." if len(pairs.skipped) > first else ""
    content = (
        f'<div class="grid"><div class="card"><h3>By reason</h3><table class="text"><tbody>{reasons}</tbody></table>'
        f'</div><div class="card"><h3>Each</h3><table class="text"><tbody>{rows}</tbody></table></div></div>'
    )
    return section("Skipped", f"Records and images that could not be used.{more}", content)


def provenance(blocks: dict[str, Any]) -> str:
    """Write what repeats the run in full, folded; `blocks` maps titles to values that JSON can represent."""
    content = "".join(
        f"<h3>{text(title)}</h3><pre>{text(_plain(value))}</pre>" for title, value in blocks.items() if value
    )
    return f'<details class="card provenance"><summary>All options</summary>{content}</details>' if content else ""


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)
