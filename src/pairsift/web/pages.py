"""The pages of the application, made from templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, HTMLResponse

from pairsift.marker import run_id
from pairsift.report.html import templates
from pairsift.review.decisions import CHOICES, REASONS, note_on_rates
from pairsift.review.queue import ORDERS, UNDECIDED, Queue
from pairsift.review.spot_check import MIN_ANSWERS
from pairsift.run_folder import LOG, REPORT, SKIPPED
from pairsift.runs.skipped import read_skipped
from pairsift.runs.spot_check import current_result, is_recalibrated
from pairsift.table import SUSPECTS_FILE
from pairsift.web.images import Images

BINS = 40  # of the histogram of match probabilities
AGREEMENT_BINS = 10
SKIP_KINDS = 20  # reasons of skipped records that the overview counts
# The report is one file with its styles and images in it, and without scripts.
REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
# All addresses in pages are relative, so that a proxy may serve them below any path: the pages lie beside each other.
PAGES = {"./": "Review", "search": "Search", "overview": "Overview", "spot-check": "Spot check", "api": "API"}


class Pages:
    """The pages of a run.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._templates = templates("pairsift.web")
        self.report = folder / REPORT
        self._shared = {
            "run": folder.name,
            "run_id": run_id(folder) or "",
            "report": self.report.exists(),
            "pages": PAGES,
        }

    def render(self, page: str, **facts: Any) -> str:
        """Return a page as HTML.

        Args:
            page: Name of the page in `PAGES`.
            facts: What its template shows.
        """
        template = self._templates.get_template(f"{page.lower().replace(' ', '_')}.html")
        return template.render(page=page, **self._shared, **facts)


def add_pages(
    app: FastAPI,
    folder: Path,
    pages: Pages,
    queue: Queue,
    images: Images,
    metrics: dict[str, Any],
    thresholds: list[dict[str, Any]],
) -> None:
    """Serve the pages for review, overview and spot check, and the report.

    Args:
        app: The application.
        folder: The run's folder.
        pages: The pages of the run.
        queue: The run's judged pairs.
        images: The run's images.
        metrics: The run's metrics.
        thresholds: Rows of the table of thresholds.
    """
    given = metrics["verdicts_given"]
    known = {name: sorted(set(queue.table[name].unique().to_pylist())) for name in ("verdict", "split")}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def review() -> str:
        choices = {"orders": ORDERS, "reasons": REASONS, "choices": (UNDECIDED, *CHOICES)}
        lists = {"verdicts": known["verdict"], "splits": known["split"], "columns": queue.source_columns()}
        return pages.render("Review", given=given, images=images.exist, **choices, **lists)

    skipped = read_skipped(folder / SKIPPED)[:SKIP_KINDS]
    dev, linear = dev_recall(folder), (metrics.get("best") or {}).get("model") == "linear"

    @app.get("/overview", response_class=HTMLResponse, include_in_schema=False)
    def overview() -> str:
        histogram = queue.histogram(BINS)
        decided = {"counts": queue.counts(), "histogram": histogram, "agreement": agreement(histogram)}
        rate = metrics.get("noise_rate") if given else None
        check = current_result(folder, queue.table, queue.decisions)
        beside = note_on_rates(queue.probability, metrics) if given else ""
        return pages.render(
            "Overview",
            given=given,
            rate=rate,
            check=check,
            beside=beside,
            thresholds=thresholds,
            dev=dev,
            skipped=skipped,
            linear=metrics["best"] if linear else None,
            **decided,
        )

    @app.get("/spot-check", response_class=HTMLResponse, include_in_schema=False)
    def spot_check_page() -> str:
        result = current_result(folder, queue.table, queue.decisions)
        return pages.render("Spot check", result=result, applied=is_recalibrated(folder), least=MIN_ANSWERS)

    @app.get(f"/{SKIPPED}", response_class=FileResponse, include_in_schema=False)
    def skipped_list() -> Response:
        if not skipped:
            return Response("this run skipped nothing", 404, media_type="text/plain")
        return FileResponse(folder / SKIPPED, filename=f"{folder.name}-{SKIPPED}")

    @app.get("/report", response_class=FileResponse, include_in_schema=False)
    def whole_report() -> Response:
        if not pages.report.exists():
            return Response("this run has no report", 404, media_type="text/plain")
        text = served_report(pages.report.read_text(encoding="utf-8"))
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    @app.get(f"/{SUSPECTS_FILE}", response_class=FileResponse, include_in_schema=False)
    def suspects_table() -> Response:
        if not (folder / SUSPECTS_FILE).exists():
            return Response("this run has no table of suspects", 404, media_type="text/plain")
        return FileResponse(folder / SUSPECTS_FILE, filename=f"{folder.name}-{SUSPECTS_FILE}")


def served_report(text: str) -> str:
    """Return a report whose cards lead to the review of their pairs, and which leads back to the overview."""

    def to_review(card: re.Match[str]) -> str:
        pair = re.search(r"<b>pair (\d+)</b>", card[0])
        text = re.sub(r' href="[^"]*"', "", card[0])
        link = f"./?decision=&amp;pair={pair[1]}" if pair else "./"
        return re.sub(r'<a class="(thumb|path)"', rf'<a class="\1" href="{link}"', text)

    text = re.sub(r'<li class="card pair">.*?</li>', to_review, text, flags=re.DOTALL)
    return text.replace("<header>", '<p><a href="overview">Overview</a></p>\n<header>', 1)


def agreement(histogram: Mapping[str, Sequence[int]]) -> list[dict[str, float]]:
    """Return how many of the decided pairs were kept, by match probability.

    Args:
        histogram: Number of pairs with each decision, `undecided` among them, in bins of equal width from 0 to 1; the
            number of bins is a multiple of 10.

    Returns:
        For each tenth with decided pairs its `middle`, the number of `decided` pairs, and the `share` that was kept.
    """
    width = len(histogram["undecided"]) // AGREEMENT_BINS
    found = []
    for place in range(AGREEMENT_BINS):
        counts = {name: sum(bins[place * width : (place + 1) * width]) for name, bins in histogram.items()}
        decided = sum(counts.values()) - counts["undecided"]
        if decided:
            middle = (place + 0.5) / AGREEMENT_BINS
            found.append({"middle": middle, "decided": decided, "share": counts.get("keep", 0) / decided})
    return found


def dev_recall(folder: Path) -> list[float]:
    """Return the rSum on dev after each epoch, [0, 600]; an empty list where the run has no log of it."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    epochs = {line["epoch"]: line for line in map(json.loads, lines) if "epoch" in line and "dev" in line}
    return [float(epochs[epoch]["dev"]["rsum"]) for epoch in sorted(epochs)]
