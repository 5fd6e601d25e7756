"""References that Sphinx cannot resolve by itself: short names of our own classes, and names of other packages."""

from __future__ import annotations

import builtins
import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

# Packages whose pages this site does not link to: it is built without a network.
OTHERS = ("torch", "numpy", "np", "nn", "pyarrow", "pa", "pathlib", "pydantic", "typing", "collections", "PIL", "abc")
PLAIN = {"Tensor", "NDArray", "Path", "Any", "Array", "Floats", "Ints", "Bools", "Self"}


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element) -> nodes.Node | None:
    """Return a link to the one documented object that ends in the name, or plain text for other packages' names.

    Anything else stays unresolved, so that Sphinx warns of it.
    """
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    last = target.rpartition(".")[2]
    if target.partition(".")[0] in OTHERS or last in PLAIN or is_builtin(target):
        return contnode
    objects: dict[str, Any] = env.domaindata["py"]["objects"]
    found = sorted({name for name, entry in objects.items() if name.rpartition(".")[2] == last and not entry.aliased})
    if len(found) == 1:
        return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, contnode)
    return contnode if target.startswith("pairsift.") and not found and _exists(target) else None


def is_builtin(name: str) -> bool:
    """Return whether this is a name of Python itself."""
    return hasattr(builtins, name.partition(".")[0].partition("[")[0])


def _exists(target: str) -> bool:
    """Return whether there is such an object of ours, which the site does not show."""
    module, _, attribute = target.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False
