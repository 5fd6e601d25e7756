"""The application: pages and JSON over a run's queue and its decisions."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pairsift.audit import Decision, Decisions, read_pairs, threshold_table
from pairsift.audit.decisions import CHOICES, DECISION_COLUMNS, REASONS, REVIEWER
from pairsift.audit.queue import ORDERS, UNDECIDED, Filter, Order, Queue
from pairsift.audit.spot_check import MAX_PAIRS as MAX_SAMPLE
from pairsift.audit.spot_check import MIN_ANSWERS, MIN_PAIRS, SpotCheck, SpotResult, evaluate
from pairsift.audit.suggestion_table import SuggestionLists
from pairsift.errors import InputError
from pairsift.pairs.stored import folder_of
from pairsift.runs.folder import METRICS, REPORT, require_finished, source_of
from pairsift.runs.spot_check import spot_check
from pairsift.web.guard import Guard
from pairsift.web.images import Images, Size
from pairsift.web.reference import add_reference
from pairsift.web.search import add_search

MAX_PAIRS = 200  # on a page
THRESHOLDS = [round(k / 20, 2) for k in range(1, 20)]
# The report is one file with its styles and images in it, and without scripts.
REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
Name = Annotated[str, Field(min_length=1, max_length=100)]
Key = Annotated[str | None, Field(max_length=100)]
Id = Annotated[int, Field(ge=0, lt=2**63)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _require_unicode(cls, values: Any) -> Any:
        try:
            json.dumps(values, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError:
            raise InputError("the request has a text that is not Unicode: send valid UTF-8") from None
        return values


class Requester(_Body):
    """Who asks, and a text that makes the repetition of a request harmless."""

    reviewer: Name = REVIEWER
    key: Key = None


class PairDecision(_Body):
    """A decision on a pair."""

    pair: Id
    choice: Literal["keep", "drop", "replace", "clear"]
    caption: Annotated[str | None, Field(max_length=20_000)] = None
    from_pair: Id | None = None
    reason: str | None = None


class DecisionList(Requester):
    """Decisions that are one entry of the journal."""

    decisions: Annotated[list[PairDecision], Field(min_length=1, max_length=1000)]


class Selector(_Body):
    """A filter: see `pairsift.audit.queue.Filter`. `column` holds `name=value`; `sample` asks for the spot check."""

    low: Annotated[float, Field(ge=0, le=1)] = 0.0
    high: Annotated[float, Field(ge=0, le=1)] = 1.0
    verdict: list[str] = []
    decision: list[str] = []
    reason: list[str] = []
    split: list[str] = []
    text: Annotated[str, Field(max_length=200)] = ""
    column: list[str] = []
    duplicates: Literal["", "image", "caption"] = ""
    sample: bool = False
    order: Order = "worst"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def filter(self, folder: Path, decisions: Decisions) -> Filter:
        """Return the filter for the queue of a run's folder.

        Pairs of a spot check come in a random order, whatever the run thinks of them. Undecided ones are those without
        an answer, even if a filter or a threshold has decided on them.
        """
        found = Filter(
            low=self.low,
            high=self.high,
            verdicts=tuple(self.verdict),
            decisions=tuple(self.decision),
            reasons=tuple(self.reason),
            splits=tuple(self.split),
            text=self.text,
            columns=dict(item.partition("=")[::2] for item in self.column),
            duplicates=self.duplicates,
            order=self.order,
            seed=self.seed,
        )
        if not self.sample:
            return found
        check = SpotCheck.read(folder)
        if check is None:
            raise InputError("there is no spot check: draw one on the page Spot check")
        pairs = np.array(check.pairs, np.int64)
        if self.decision == [UNDECIDED]:
            pairs = np.setdiff1d(pairs, decisions.of_sample(check.pairs)["pair"].to_numpy())
            found = replace(found, decisions=())
        return replace(found, low=0.0, high=1.0, verdicts=(), order="random", pairs=pairs)


class Page(Selector):
    """A part of what a filter selects."""

    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAIRS)] = 50


class SpotCheckSize(_Body):
    """The number of pairs of a new spot check."""

    pairs: Annotated[int, Field(ge=MIN_PAIRS, le=MAX_SAMPLE)] = 50


class FilterDecision(Requester):
    """One choice for all pairs of a filter."""

    filter: Selector
    choice: Literal["keep", "drop", "clear"]
    reason: str | None = None


def create_app(folder: Path, hosts: set[str] | None, token: str | None = None, source: str | None = None) -> FastAPI:
    """Make the application of a run.

    Args:
        folder: The run's folder.
        hosts: Values of the Host header that are answered; None for any, where there is a token.
        token: A secret that requests must bring; None where only this computer can connect.
        source: New path of the run's source, if it has moved.

    Raises:
        InputError: The folder holds no finished run.
    """
    require_finished(folder)
    table = read_pairs(folder)
    queue = Queue(table, Decisions(folder, table["pair"].to_numpy()), SuggestionLists(folder))
    queue.page(queue.select(Filter())[:MAX_PAIRS])  # so that nobody waits for the first page
    images = Images(folder, folder_of(source or source_of(folder)))
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    app = FastAPI(title="pairsift", docs_url=None, redoc_url=None)
    app.middleware("http")(Guard(hosts, token))
    app.mount("/static", StaticFiles(packages=[("pairsift.web", "static")]), "static")
    _add_pages(app, folder, queue, metrics)
    _add_questions(app, folder, queue, images, metrics)
    _add_decisions(app, folder, queue)
    _add_spot_check(app, folder, queue)
    add_search(app, folder, source, queue, images)
    add_reference(app, folder)

    @app.exception_handler(RequestValidationError)
    async def explain(request: Request, error: RequestValidationError) -> Response:
        """Say what is wrong without repeating the request, which may hold anything."""
        detail = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()]
        return JSONResponse({"detail": detail}, 422)

    @app.exception_handler(InputError)
    async def refuse(request: Request, error: InputError) -> Response:
        return JSONResponse({"detail": str(error)}, 422)

    return app


def _add_pages(app: FastAPI, folder: Path, queue: Queue, metrics: dict[str, Any]) -> None:
    templates = Environment(loader=PackageLoader("pairsift.web", "templates"), autoescape=True)
    report = folder / REPORT
    shared = {"run": folder.name, "report": report.exists(), "given": metrics.get("verdicts_given", True)}
    known = {name: sorted(set(queue.table[name].unique().to_pylist())) for name in ("verdict", "split")}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def review() -> str:
        choices = {"orders": ORDERS, "reasons": REASONS, "choices": (UNDECIDED, *CHOICES)}
        lists = {"verdicts": known["verdict"], "splits": known["split"], "columns": queue.source_columns()}
        return templates.get_template("review.html").render(**shared, **choices, **lists)

    @app.get("/overview", response_class=HTMLResponse, include_in_schema=False)
    def overview() -> str:
        rows = threshold_table(queue.probability, THRESHOLDS).to_pylist()
        rate = metrics.get("noise_rate") if shared["given"] else None
        check = _spot_result(folder, queue)
        found = {"check": check, "counts": queue.counts(), "thresholds": rows, "rate": rate}
        return templates.get_template("overview.html").render(**shared, **found)

    @app.get("/spot-check", response_class=HTMLResponse, include_in_schema=False)
    def spot_check_page() -> str:
        result = _spot_result(folder, queue)
        return templates.get_template("spot_check.html").render(**shared, result=result, least=MIN_ANSWERS)

    @app.get("/report", response_class=FileResponse, include_in_schema=False)
    def whole_report() -> Response:
        if not report.exists():
            return Response("this run has no report", 404, media_type="text/plain")
        return FileResponse(report, media_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


def _add_questions(app: FastAPI, folder: Path, queue: Queue, images: Images, metrics: dict[str, Any]) -> None:
    @app.get("/api/pairs")
    def pairs(page: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return a page of the pairs that pass a filter, and how many they are."""
        rows = queue.select(page.filter(folder, queue.decisions))
        found = queue.page(rows[page.offset : page.offset + page.limit])
        if page.sample and page.decision == [UNDECIDED]:  # what a filter decided is no answer
            found = [{**row, **dict.fromkeys(DECISION_COLUMNS)} for row in found]
        return {"total": len(rows), "pairs": found}

    @app.get("/api/pairs/{pair}")
    def pair(pair: Id) -> dict[str, Any]:
        """Return a pair with its decision."""
        return queue.page(np.array([queue.row(pair)]))[0]

    @app.get("/api/overview")
    def overview() -> dict[str, Any]:
        """Return the number of pairs by decision, the estimated rate, and what a threshold would drop."""
        rows = threshold_table(queue.probability, THRESHOLDS).to_pylist()
        return {"counts": queue.counts(), "noise_rate": metrics.get("noise_rate"), "thresholds": rows}

    mark = f'"{secrets.token_hex(8)}"'  # of this server: another run may be served at the same address later

    @app.get("/image/{pair}", response_class=Response, include_in_schema=False)
    def image(request: Request, pair: Id, size: Size = "large") -> Response:
        headers = {"Cache-Control": "private, no-cache", "ETag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        content = images.jpeg(pair, size)
        if content is None:
            return Response("this pair has no image that can be shown", 404, media_type="text/plain")
        return Response(content, media_type="image/jpeg", headers=headers)


def _add_decisions(app: FastAPI, folder: Path, queue: Queue) -> None:
    @app.post("/api/decisions")
    def decide(body: DecisionList) -> dict[str, Any]:
        """Record decisions as one entry, and return its number."""
        decisions = [Decision(**decision.model_dump()) for decision in body.decisions]
        event = queue.decisions.decide(decisions, body.reviewer, body.key)
        return {"event": event, "pairs": [decision.pair for decision in decisions], "counts": queue.counts()}

    @app.post("/api/decisions/filter")
    def decide_all(body: FilterDecision) -> dict[str, Any]:
        """Decide on all pairs of a filter as one entry."""
        ids = queue.ids[queue.select(body.filter.filter(folder, queue.decisions))].tolist()
        decisions = [Decision(pair, body.choice, reason=body.reason) for pair in ids]
        event = queue.decisions.decide(decisions, body.reviewer, body.key) if ids else None
        return {"event": event, "decided": len(ids), "counts": queue.counts()}

    @app.post("/api/undo")
    def undo(body: Requester) -> dict[str, Any]:
        """Take back the reviewer's last entry that is valid."""
        return {"pairs": queue.decisions.undo(body.reviewer, body.key)[:MAX_PAIRS], "counts": queue.counts()}

    @app.post("/api/redo")
    def redo(body: Requester) -> dict[str, Any]:
        """Apply again what the reviewer undid last."""
        return {"pairs": queue.decisions.redo(body.reviewer, body.key)[:MAX_PAIRS], "counts": queue.counts()}


def _add_spot_check(app: FastAPI, folder: Path, queue: Queue) -> None:
    @app.get("/api/spot-check")
    def result() -> dict[str, Any] | None:
        """Return what the answers to the spot check say so far; null if there is no spot check."""
        found = _spot_result(folder, queue)
        return None if found is None else {**asdict(found), "agrees": found.agrees}

    @app.post("/api/spot-check")
    def draw(body: SpotCheckSize) -> dict[str, Any]:
        """Draw a new spot check."""
        return {"pairs": spot_check(folder, body.pairs).pairs}


def _spot_result(folder: Path, queue: Queue) -> SpotResult | None:
    check = SpotCheck.read(folder)
    if check is None:
        return None
    applied = json.loads((folder / METRICS).read_text(encoding="utf-8")).get("spot_check")
    if applied is not None:  # the probabilities are recalibrated by it
        return SpotResult(**applied)
    return evaluate(check, queue.table, queue.decisions.of_sample(check.pairs))
