"""Formulas as MathML, which browsers draw by themselves: a page loads nothing from elsewhere."""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)
ACCENTED = re.compile(r"(\\(?:hat|bar|tilde) ?(?:\w|\{\w\}))_")  # whose index docutils would put below it


def formula(tex: str, block: bool) -> str:
    """Return a formula as MathML.

    Args:
        tex: The formula in LaTeX's notation.
        block: Whether it stands on a line of its own.

    Raises:
        MathError: The notation is not known.
    """
    mathml: str = tex2mathml(ACCENTED.sub(r"\1^{}_", tex), as_block=block)
    return mathml


def _draw(visitor: nodes.NodeVisitor, node: nodes.Element, block: bool) -> None:
    tex = node.astext()
    try:
        text = formula(tex, block)
    except MathError as error:
        log.warning("formula %r: %s", tex, error, location=node)
        text = f"<code>{escape(tex)}</code>"
    visitor.body.append(f'<div class="formula">{text}</div>' if block else text)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the renderer known under the name `mathml`."""
    app.add_html_math_renderer(
        "mathml",
        (lambda visitor, node: _draw(visitor, node, block=False), None),
        (lambda visitor, node: _draw(visitor, node, block=True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
