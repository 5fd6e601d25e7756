"""The search page: images by a text or by a pair, and captions by an uploaded image."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from pairsift.review.queue import Queue
from pairsift.table import storable
from pairsift.web.bodies import Id
from pairsift.web.images import Images
from pairsift.web.pages import Pages

if TYPE_CHECKING:  # torch takes seconds to import, and the review needs none of it
    from pairsift.search.search import Hit, Search

MAX_UPLOAD = 20_000_000  # bytes of an image
MAX_TEXT = 1000  # characters
UPLOAD = {"requestBody": {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}}
Number = Annotated[int, Query(ge=1, le=200, description="Number of results.")]


def add_search(app: FastAPI, folder: Path, source: str | None, pages: Pages, queue: Queue, images: Images) -> None:
    """Serve the search page and its endpoints.

    Args:
        app: The application.
        folder: The run's folder.
        source: New path of the run's source, if it has moved.
        pages: The pages of the run.
        queue: The run's judged pairs.
        images: The run's images.
    """
    lock = threading.Lock()  # one query runs at a time

    @cache
    def opened() -> Search:
        from pairsift.runs.search import open_search

        return open_search(folder, source)

    def results(query: Callable[[Search], list[Hit]], captions: bool = False) -> dict[str, Any]:
        with lock:
            search = opened()
            hits = query(search)
            index = search.approximate_captions if captions else search.approximate_images
            return {"results": _rows(hits, queue), "recall": "" if index is None else index.line}

    @app.get("/search", response_class=HTMLResponse, include_in_schema=False)
    def page() -> str:
        return pages.render("Search", images=images.exist, max_text=MAX_TEXT, max_upload=MAX_UPLOAD)

    @app.get("/api/search")
    def by_text(text: Annotated[str, Query(max_length=MAX_TEXT)], k: Number = 24) -> dict[str, Any]:
        """Find the images that a text describes, best first."""
        return results(lambda search: search.by_text(text, k))

    @app.get("/api/like/{pair}")
    def by_pair(pair: Id, k: Number = 24) -> dict[str, Any]:
        """Find images like the image of a pair, most similar first."""
        return results(lambda search: search.by_pair(pair, k))

    @app.post("/api/search/image", openapi_extra=UPLOAD)
    async def by_image(request: Request, k: Number = 24) -> dict[str, Any]:
        """Find the captions that describe an image, best first; the body is the content of the image file."""
        content = await _content(request)
        return await run_in_threadpool(results, lambda search: search.by_image(content, k), True)


async def _content(request: Request) -> bytes:
    """Read the body of a request, up to the limit.

    Raises:
        HTTPException: The body is longer; the rest of it is not read.
    """
    length = request.headers.get("content-length", "")
    content = bytearray()
    too_large = length.isdecimal() and int(length) > MAX_UPLOAD
    if not too_large:
        async for part in request.stream():
            content += part
            if len(content) > MAX_UPLOAD:
                too_large = True
                break
    if too_large:
        raise HTTPException(413, f"the image has more than {MAX_UPLOAD:,} bytes: send a smaller one")
    return bytes(content)


def _rows(hits: list[Hit], queue: Queue) -> list[dict[str, Any]]:
    """Return results with the match probabilities and decisions of their pairs."""
    places = queue.rows([hit.pair for hit in hits])
    judged = iter(queue.page(places[places >= 0]))
    rows = []
    for hit, place in zip(hits, places, strict=True):
        row = next(judged) if place >= 0 else {}
        rows.append(
            {
                "pair": hit.pair,
                "image": row.get("image") or storable(Path(hit.file).name),
                "caption": hit.caption,
                "score": hit.score,
                "judged": bool(place >= 0),
                "match_probability": row.get("match_probability"),
                "decision": row.get("decision"),
            }
        )
    return rows
