"""The report's run card: what made the run, and whom to cite."""

from __future__ import annotations

from typing import Any

from pairsift.report import parts
from pairsift.report.findings import Findings
from pairsift.report.parts import DASH, Tree, lookup, number, text

CITE_PAIRSIFT = (
    "The pairsift authors, “pairsift: image-text retrieval under noisy correspondence, and the pairs that are "
    "mismatched”, software{version}, Apache-2.0."
)
CHOICES = ("method", "matcher", "loss", "preset", "image_encoder", "text_encoder", "device", "precision")


def run_card(findings: Findings, config: Tree, citation: str) -> str:
    """Write the section with options, data, versions, times and citations.

    Args:
        findings: The run's pairs and metrics.
        config: The run's configuration.
        citation: BibTeX entry of the paper of the method; empty where there is none.
    """
    times = _seconds(lookup(findings.metrics, "seconds"))
    cards = (
        [("Options", _options(findings, config))],
        [("Data", _data(findings))],
        [("Versions", _mapping(lookup(findings.metrics, "versions"))), ("Time", times)],
    )
    made = "".join(f'<div class="card">{content}</div>' for card in cards if (content := _blocks(card)))
    cite = f'<div class="card cite"><h3>Cite</h3>{_citations(findings, citation)}</div>'
    note = "What made this run, and what a repetition needs."
    return parts.section("Run card", note, f'<div class="grid run-card">{made}</div>{cite}{_details(findings, config)}')


def _options(findings: Findings, config: Tree) -> list[tuple[str, str]]:
    """Return the choices that matter first; a nested choice is shown by its name."""
    rows = []
    for name in CHOICES:
        value = lookup(config, name)
        value = lookup(findings.metrics, "encoders", name) or value
        if value := lookup(value, "name") or lookup(value, "class_path") or value:
            rows.append((name.replace("_", " "), str(value)))
    seed = lookup(findings.metrics, "seed")
    seed = lookup(config, "seed") if seed is None else seed
    return rows if seed is None else [*rows, ("seed", str(seed))]


def _data(findings: Findings) -> list[tuple[str, str]]:
    """Return the source, its hash, the numbers of pairs, and what is known about planted noise."""
    pairs, noise = findings.pairs, findings.pairs.noise
    digest = lookup(findings.metrics, "data", "hash") or pairs.hash()
    rows = [("source", pairs.source), ("data hash", digest)]
    rows += [(f"{name} pairs", number(n, 0)) for name, n in _mapping(lookup(findings.metrics, "pairs"))]
    if noise is not None:
        rows += [
            ("planted noise", f"{parts.percent(noise.rate)} of the training pairs ({noise.kind}), seed {noise.seed}")
        ]
        rows += [("noise index hash", noise.index_hash)]
    return rows


def _seconds(seconds: Any) -> list[tuple[str, str]]:
    """Return the duration of each step and of all together."""
    rows = [(name, value) for name, value in _mapping(seconds) if number(value) != DASH]
    rows += [("all", sum(value for _, value in rows))] if len(rows) > 1 else []
    return [(name, f"{number(value / 60)} min" if value >= 120 else f"{number(value)} s") for name, value in rows]


def _mapping(values: Any) -> list[tuple[str, Any]]:
    return [(str(name), value) for name, value in values.items()] if hasattr(values, "items") else []


def _blocks(blocks: list[tuple[str, list[tuple[str, Any]]]]) -> str:
    """Write blocks of names and values, each with a title; a block without rows is left out."""
    return "".join(f'<h3>{title}</h3><dl class="rows">{_rows(rows)}</dl>' for title, rows in blocks if rows)


def _rows(rows: list[tuple[str, Any]]) -> str:
    return "".join(f"<dt>{text(name)}</dt><dd>{parts.titled(value, 80)}</dd>" for name, value in rows)


def _citations(findings: Findings, citation: str) -> str:
    """Write how to cite pairsift in words, and the paper of the method as BibTeX."""
    version = lookup(findings.metrics, "versions", "pairsift")
    sentence = CITE_PAIRSIFT.format(version=f" version {version}" if version else "")
    words = f'<p class="aside">{text(sentence)}</p>'
    if not citation.strip():
        return words
    return f'{words}<p class="aside">The paper of the method:</p><pre>{text(citation.strip())}</pre>'


def _details(findings: Findings, config: Tree) -> str:
    """Write all options and the best epoch, folded."""
    best = "Best epoch, here counted from 0 as in metrics.json"
    return parts.provenance({"Configuration": dict(config), best: lookup(findings.metrics, "best")})
