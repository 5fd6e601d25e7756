"""Pages of HTML: their templates and styles, and how numbers, names and long texts are written on them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

Tree = Mapping[str, Any]

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")
DASH = "–"


def render(template: str, **facts: Any) -> str:
    """Return a page, or a part of one, with its facts.

    Everything in the facts that is not `Markup` is escaped. Text that UTF-8 cannot hold gets question marks.

    Args:
        template: Name of a file in `pairsift/report/templates`.
        facts: What the template shows.
    """
    content = _report_templates().get_template(template).render(facts)
    return content.encode("utf-8", "replace").decode("utf-8")


def templates(*packages: str) -> Environment:
    """Return the templates of the report, and of more packages.

    Args:
        packages: Packages whose folders `templates` are searched first.
    """
    loaders = [PackageLoader(package) for package in (*packages, "pairsift.report")]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": anchor,
        "middle_cut": middle_cut,
        "number": number,
        "percent": percent,
        "plain": plain,
        "titled": titled,
    }
    environment.globals |= {"RECALLS": RECALLS, "DASH": DASH, "style": style}
    return environment


@cache
def _report_templates() -> Environment:
    return templates()


@cache
def style() -> Markup:
    """Return the styles of all pages."""
    return Markup((files("pairsift.report") / "static" / "style.css").read_text(encoding="utf-8"))


def anchor(title: str) -> str:
    """Return the id of the section with a title."""
    return re.sub(r"\W+", "-", title.lower())


def middle_cut(value: object, longest: int) -> str:
    """Cut a path or a name of more than `longest` characters in the middle, its least important part."""
    content = str(value)
    if len(content) <= longest:
        return content
    tail = longest // 2
    return f"{content[: longest - 1 - tail]}…{content[-tail:]}"


def titled(value: object, longest: int) -> str:
    """Return a path or a name, cut in the middle where it is long; the tooltip shows the whole text."""
    content, short = str(value), middle_cut(value, longest)
    return content if short == content else Markup('<span title="{}">{}</span>').format(content, short)


def plain(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with `digits` decimals and thousands separators, or a dash where there is none."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent, or a dash where there is none."""
    return DASH if value is None or not math.isfinite(value) else f"{value:.{digits}%}"


def interval(rate: Tree) -> str:
    """Return the bounds of a noise rate as "(26 to 33%)"; an empty string where they are not known."""
    if rate.get("low") is None:
        return ""
    digits = 0 if rate["high"] >= 0.1 else 1
    return f"({100 * rate['low']:.{digits}f} to {100 * rate['high']:.{digits}f}%)"
