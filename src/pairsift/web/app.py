"""The application: the endpoints of a run's queue and its decisions, and its pages."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from pairsift.errors import InputError, WriteError
from pairsift.files import read_parquet
from pairsift.pairs.readers import table_within
from pairsift.review import Decision, Decisions, threshold_table
from pairsift.review.decisions import DECISION_COLUMNS, OtherRun
from pairsift.review.journal import DecidedMeanwhile
from pairsift.review.queue import UNDECIDED, Filter, Queue
from pairsift.run_folder import read_metrics, require_finished, source_of
from pairsift.runs.spot_check import current_result, spot_check
from pairsift.source_path import root_of
from pairsift.suggest.table import SUGGESTIONS_FILE
from pairsift.table import read_pairs
from pairsift.web.bodies import MAX_PAIRS, DecisionList, FilterDecision, Id, Page, Requester, SpotCheckSize
from pairsift.web.downloads import add_downloads
from pairsift.web.guard import Guard
from pairsift.web.images import Images, Size
from pairsift.web.pages import Pages, add_pages
from pairsift.web.reference import add_reference
from pairsift.web.search import add_search

THRESHOLDS = [round(k / 20, 2) for k in range(1, 20)]


def create_app(
    folder: Path, hosts: Collection[str] = (), token: str | None = None, source: str | None = None
) -> FastAPI:
    """Make the application of a run.

    Args:
        folder: The run's folder.
        hosts: Names that are answered beside those of this computer, such as the name of a proxy.
        token: A secret that requests must bring; None where only this computer can connect.
        source: New path of the run's source, if it has moved.

    Raises:
        InputError: The folder holds no finished run.
    """
    require_finished(folder)
    table = read_pairs(folder)
    queue = Queue(table, Decisions(folder, table["pair"].to_numpy()), read_parquet(folder / SUGGESTIONS_FILE))
    queue.page(queue.select(Filter())[:MAX_PAIRS])  # so that nobody waits for the first page
    images = Images(folder, root_of(source_of(folder) if source is None else table_within(Path(source))))
    metrics = read_metrics(folder)
    app = FastAPI(title="pairsift", docs_url=None, redoc_url=None, redirect_slashes=False)
    app.middleware("http")(Guard(hosts, token))
    app.mount("/static", StaticFiles(packages=[("pairsift.report", "static"), ("pairsift.web", "static")]), "static")
    pages = Pages(folder)
    thresholds = threshold_table(queue.probability, THRESHOLDS).to_pylist()
    add_pages(app, folder, pages, queue, images, metrics, thresholds)
    _add_queries(app, folder, queue, images, metrics, thresholds)
    _add_decisions(app, folder, queue)
    _add_spot_check(app, folder, queue)
    add_search(app, folder, source, pages, queue, images)
    add_downloads(app, folder, source)
    add_reference(app, pages)

    @app.exception_handler(RequestValidationError)
    async def refuse_invalid(request: Request, error: RequestValidationError) -> Response:
        """Return what is wrong, without the request itself, which may hold anything."""
        detail = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()]
        return JSONResponse({"detail": detail}, 422)

    @app.exception_handler(DecidedMeanwhile)
    async def refuse_changed(request: Request, error: DecidedMeanwhile) -> Response:
        """Return which pairs have another decision by now, and the first of these pairs."""
        return JSONResponse({"detail": str(error), "pairs": queue.page(queue.rows(error.pairs[:MAX_PAIRS]))}, 409)

    @app.exception_handler(OtherRun)
    async def refuse_other_run(request: Request, error: OtherRun) -> Response:
        return JSONResponse({"detail": str(error)}, 410)

    @app.exception_handler(WriteError)
    async def refuse_for_now(request: Request, error: WriteError) -> Response:
        """Return a status for a request that can be repeated once there is space, or the journal is free."""
        return JSONResponse({"detail": str(error)}, 503)

    @app.exception_handler(InputError)
    async def refuse(request: Request, error: InputError) -> Response:
        return JSONResponse({"detail": str(error)}, 422)

    return app


def _add_queries(
    app: FastAPI,
    folder: Path,
    queue: Queue,
    images: Images,
    metrics: dict[str, Any],
    thresholds: list[dict[str, Any]],
) -> None:
    @app.get("/api/pairs")
    def pairs(page: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return a page of the pairs that pass a filter, with their number in all and by decision."""
        wanted = page.filter(folder, queue.decisions)
        rows = queue.select(wanted)
        rest = rows if page.after is None else queue.rows_after(rows, page.after, wanted)
        found = queue.page(rest[page.offset : page.offset + page.limit])
        if page.sample and page.decision == [UNDECIDED]:  # what a filter decided is no answer
            found = [{**row, **dict.fromkeys(DECISION_COLUMNS), "time": row["time"]} for row in found]
        return {"total": len(rows), "decided": queue.counts(rows), "pairs": found}

    @app.get("/api/pairs/{pair}")
    def pair(pair: Id) -> dict[str, Any]:
        """Return a pair with its decision."""
        return queue.page(np.array([queue.row(pair)]))[0]

    @app.get("/api/overview")
    def overview() -> dict[str, Any]:
        """Return the number of pairs by decision, the estimated rate, and what a threshold would drop."""
        return {"counts": queue.counts(), "noise_rate": metrics.get("noise_rate"), "thresholds": thresholds}

    server = secrets.token_hex(8)  # another run may be served at the same address later

    @app.get("/image/{pair}", response_class=Response, include_in_schema=False)
    def image(request: Request, pair: Id, size: Size = "large", run: str | None = None) -> Response:
        if run not in (None, queue.decisions.run):
            return Response("another run is served here by now", 404, media_type="text/plain")
        version = images.version(pair)
        mark = f'"{server}-{version}"'
        headers = {"Cache-Control": "private, no-cache", "ETag": mark}
        if version and request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        content = images.jpeg(pair, size)
        if content is None:
            return Response("this pair has no image that can be shown", 404, media_type="text/plain")
        return Response(content, media_type="image/jpeg", headers=headers)


def _add_decisions(app: FastAPI, folder: Path, queue: Queue) -> None:
    def require_run(body: Requester) -> None:
        """Refuse a request from a page of another run, whose pairs have the same ids."""
        if body.run not in (None, queue.decisions.run):
            raise OtherRun(folder)

    @app.post("/api/decisions")
    def decide(body: DecisionList) -> dict[str, Any]:
        """Record decisions as one entry, and return its number and time."""
        require_run(body)
        decisions = [row.decision() for row in body.decisions]
        if queue.decisions.entry_of(body.key) is None:
            queue.require_captions(body.given())
        event = queue.decisions.decide(decisions, body.reviewer, body.key, body.seen())
        entry = {"event": event, "time": queue.decisions.time_of(event)}
        return {**entry, "pairs": [decision.pair for decision in decisions], "counts": queue.counts()}

    @app.post("/api/decisions/filter")
    def decide_all(body: FilterDecision) -> dict[str, Any]:
        """Record one decision on all pairs of a filter. Decided pairs change only if `decided` is `change`.

        `seen` is what `GET /api/pairs` said under `decided`. Where it is given and the numbers are others by now,
        nothing is recorded.
        """
        require_run(body)
        if (event := queue.decisions.entry_of(body.key)) is not None:  # the filter selects others since
            return {"event": event, "decided": len(queue.decisions.pairs_of(event)), "counts": queue.counts()}
        rows = queue.select(body.filter.filter(folder, queue.decisions))
        body.require_seen(queue.counts(rows))
        ids, changes = queue.ids[rows].tolist(), body.changes_decided()
        times = dict.fromkeys(ids) | {pair: row["time"] for pair, row in queue.decisions.of_pairs(ids).items()}
        decisions = [Decision(pair, body.choice, reason=body.reason) for pair in ids]
        seen = times if changes else None
        event = queue.decisions.decide(decisions, body.reviewer, body.key, seen, not changes) if ids else None
        return {"event": event, "decided": len(queue.decisions.pairs_of(event)), "counts": queue.counts()}

    def affected(pairs: list[int]) -> dict[str, Any]:
        """Return the number of pairs of an entry, and the first pairs as they are now."""
        rows = queue.rows(pairs[:MAX_PAIRS])
        shown = queue.page(rows[rows >= 0])  # a pair may have left the table since it was decided on
        return {"total": len(pairs), "pairs": shown, "counts": queue.counts()}

    @app.post("/api/undo")
    def undo(body: Requester) -> dict[str, Any]:
        """Take back the reviewer's last entry that is valid.

        Return how many pairs it has, 0 if there is none, and the first 200 as they are now.
        """
        require_run(body)
        return affected(queue.decisions.undo(body.reviewer, body.key))

    @app.post("/api/redo")
    def redo(body: Requester) -> dict[str, Any]:
        """Apply again what the reviewer undid last, and return the same as undo."""
        require_run(body)
        return affected(queue.decisions.redo(body.reviewer, body.key))


def _add_spot_check(app: FastAPI, folder: Path, queue: Queue) -> None:
    @app.get("/api/spot-check")
    def result() -> dict[str, Any] | None:
        """Return what the answers to the spot check say so far; null if there is no spot check."""
        found = current_result(folder, queue.table, queue.decisions)
        return None if found is None else {**asdict(found), "agrees": found.agrees}

    @app.post("/api/spot-check")
    def draw(body: SpotCheckSize) -> dict[str, Any]:
        """Draw a new spot check."""
        return {"pairs": spot_check(folder, body.pairs).pairs}
