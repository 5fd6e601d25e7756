"""The results of a search as a page of HTML that needs no other file, no script and no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from pairsift.report.images import thumbnail
from pairsift.search.search import Hit

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title} · pairsift</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; max-width: 1200px; padding: 1rem; font: 15px/1.45 system-ui, sans-serif; }}
ol {{ list-style: none; padding: 0; display: grid; gap: 1rem; }}
ol {{ grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); }}
li {{ border: 1px solid #8884; border-radius: 8px; padding: 0.6rem; overflow-wrap: anywhere; }}
img, .none {{ width: 100%; height: 140px; object-fit: contain; display: block; }}
p {{ margin: 0.4rem 0 0; }}
small {{ opacity: 0.75; }}
</style>
</head>
<body>
<h1>{title}</h1>
<ol>
{results}
</ol>
</body>
</html>
"""


def page_of(title: str, hits: Sequence[Hit]) -> str:
    """Return a page of results, best first, each with a small image if there is a file for it."""
    return PAGE.format(title=escape(title), results="\n".join(map(_card, hits)))


def _card(hit: Hit) -> str:
    """Return the HTML of a result."""
    source = thumbnail(Path(hit.file))
    image = '<div class="none"></div>' if source is None else f'<img src="{source}" alt="">'
    caption = f"<p>{escape(hit.caption)}</p>"
    return f"<li>{image}{caption}<p><small>{hit.score:.3f} · pair {hit.pair} · {escape(hit.file)}</small></p></li>"
