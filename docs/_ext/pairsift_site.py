"""Directives of the site: what a page takes from the code and from the measured rows when it is built."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import links
import published
import references
import tables
from pairsift.cli import main
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHERS
from pairsift.methods import METHODS
from pairsift.options import Options
from pairsift.registry import Registry

SHOWN_PRESETS = ("two_tower", "clip")  # whose values stand beside the defaults, which are the papers'
NO_ROW = "Not measured yet."
DEFAULT_ENCODER = tables.measured("default_encoder")
WORD_VECTORS = (
    "Mostly with word vectors, and with the held-out evidence of pairsift [inside](/results.md#word-vectors) where a "
    "method divides pairs, so that these rows compare with each other alone:"
)
OLDER = (
    "Measured with an earlier version, before pairs were judged by [held-out evidence]"
    "(/design.md#from-features-to-a-verdict), so that these rows compare with each other alone:"
)


class OptionsTable(SphinxDirective):
    """`{options} method ncr`, `{options} matcher sgr`, `{options} loss hinge` or `{options} group module:Class`."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the table of the options."""
        what, name = self.arguments
        text = tables.options_table(*_options(what, name)) or f"`{name}` has no options of its own."
        return list(self.parse_text_to_nodes(text))


class PresetsTable(SphinxDirective):
    """`{presets} ncr`: what each preset sets of the loss and of the loop."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table of the presets."""
        return list(self.parse_text_to_nodes(tables.presets_table(METHODS[self.arguments[0]].presets)))


class Measured(SphinxDirective):
    """`{measured} method ncr`, or `matcher`, `cost`, `speed`, `epochs` with a name; content stands above rows."""

    required_arguments = 2
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the table of the measured rows, or a line that says that there is none."""
        what, name = self.arguments
        if what in ("method", "matcher"):
            return list(self.parse_text_to_nodes(self._scores(what, name)))
        table = {"cost": tables.matcher_costs, "speed": tables.matcher_speed, "epochs": tables.epoch_costs}[what](name)
        return list(self.parse_text_to_nodes("\n".join([*self.content, "", table]) if table else NO_ROW))

    def _scores(self, what: str, name: str) -> str:
        """Return the tables of a method or a matcher: the rows with the default text encoder, then others."""
        scores = tables.method_scores if what == "method" else tables.matcher_scores
        mended = tables.measured("flickr8k_mended")
        older = tables.older_rows(tables.measured("flickr8k"), mended)
        parts: list[str] = []
        for text, rows in ("", DEFAULT_ENCODER), (WORD_VECTORS, mended), (OLDER, older):
            if table := scores(name, rows):
                parts += [text, "", *(() if parts else self.content), "", table, ""]
        return "\n".join(parts) if parts else NO_ROW


class Glance(SphinxDirective):
    """`{glance} ncr`: what a method assumes, costs and reaches here."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        text = published.glance(self.arguments[0], DEFAULT_ENCODER)
        return list(self.parse_text_to_nodes(text))


class PublishedTable(SphinxDirective):
    """`{published} ncr`: the published rows of a method; `{published} sources`: where they come from."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table, or a line that says why there is none."""
        name = self.arguments[0]
        if name == "sources":
            return list(self.parse_text_to_nodes(published.sources()))
        text = published.published_table(name, published.published())
        return list(self.parse_text_to_nodes(text or f"None: {published.described()[name]['unpublished']}."))


class Listing(SphinxDirective):
    """`{listing} readers`: the names that a registry has, each with its line."""

    required_arguments = 1
    registries: ClassVar[dict[str, str]] = {
        "methods": "pairsift.methods:METHODS",
        "matchers": "pairsift.match:MATCHERS",
        "losses": "pairsift.loss:RANKING_LOSSES",
        "readers": "pairsift.pairs:READERS",
        "image-encoders": "pairsift.encode.registry:IMAGE_ENCODERS",
        "text-encoders": "pairsift.encode.registry:TEXT_ENCODERS",
    }

    def run(self) -> list[nodes.Node]:
        """Return the names and lines as a table."""
        registry: Registry[Any] = _thing(self.registries[self.arguments[0]])
        rows = [[f"`{name}`", about.replace("<", "\\<")] for name, about in registry.summaries().items()]
        return list(self.parse_text_to_nodes(tables.markdown(["name", "what it is"], rows)))


class CommandLine(SphinxDirective):
    """`{cli} fit --help`: what a command prints."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the command and its output as a literal block.

        Raises:
            ExtensionError: The command fails.
        """
        printed = StringIO()
        with redirect_stdout(printed):
            code = main(self.arguments[0].split())
        if code:
            raise self.error(f"pairsift {self.arguments[0]}: exit code {code}")
        text = f"$ pairsift {self.arguments[0]}\n{printed.getvalue().rstrip()}"
        return [nodes.literal_block(text, text, language="text")]


def _options(what: str, name: str) -> tuple[type[Options], tuple[str, ...], dict[str, Any]]:
    """Return a class of options, the names before its options, and the presets that are shown beside."""
    if what == "method":
        kind = METHODS[name]
        return kind, (name,), {one: kind.presets[one].method for one in SHOWN_PRESETS if one in kind.presets}
    if what == "matcher":
        return MATCHERS[name].options, (name,), {}
    if what == "loss":
        return RANKING_LOSSES[name], (name,), {}
    return _thing(name), (), {}


def _thing(place: str) -> Any:
    module, _, attribute = place.partition(":")
    __import__(module)
    return getattr(sys.modules[module], attribute)


def field_names(app: Sphinx, what: str, name: str, thing: Any, *_: Any) -> tuple[str, str] | None:
    """Return the names of a class of options for its signature; types, bounds and defaults are in its table."""
    if what == "class" and isinstance(thing, type) and issubclass(thing, Options):
        fields = ", ".join(thing.model_fields)
        return (f"(*, {fields})" if fields else "()"), ""
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directives known, and bring in what lies outside the folder of the pages."""
    for name, directive in {
        "options": OptionsTable,
        "presets": PresetsTable,
        "measured": Measured,
        "glance": Glance,
        "published": PublishedTable,
        "listing": Listing,
        "cli": CommandLine,
    }.items():
        app.add_directive(name, directive)
    app.connect("config-inited", lambda app, _: links.stage(Path(app.srcdir)))
    app.connect("source-read", lambda app, docname, source: links.relink(docname, source))
    app.connect("autodoc-process-signature", field_names)
    app.connect("missing-reference", references.resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
