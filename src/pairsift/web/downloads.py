"""The export as a download, written by a process of its own since it reads the whole source."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, Query, Response
from fastapi.responses import FileResponse
from pydantic import BeforeValidator, Field
from starlette.background import BackgroundTask

Format = Literal["csv", "tsv", "jsonl", "parquet", "json", "txt"]
Share = Annotated[float, Query(ge=0, le=1)]
MaybeShare = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None, BeforeValidator(lambda value: None if value == "" else value)
]


def add_downloads(app: FastAPI, folder: Path, source: str | None) -> None:
    """Serve the download of the cleaned pairs.

    Args:
        app: The application.
        folder: The run's folder.
        source: New path of the run's source, if it has moved.
    """
    lock = threading.Lock()

    @app.get("/export", response_class=FileResponse, include_in_schema=False)
    def download(
        kind: Format = "csv",
        drop_below: Share = 0.0,
        replace_above: MaybeShare = None,
        weights: bool = False,
        splits: bool = False,
    ) -> Response:
        place = Path(tempfile.mkdtemp(prefix="pairsift-export-"))
        out = place / f"cleaned.{kind}"
        rules = [f"--drop-below={drop_below}", *["--weights"] * weights, *["--splits"] * splits]
        rules += [] if replace_above is None else [f"--replace-above={replace_above}"]
        rules += [] if source is None else [f"--source={source}"]
        command = [sys.executable, "-m", "pairsift.cli", "export", str(folder.absolute()), f"--out={out}", "--quiet"]
        with lock:
            done = subprocess.run([*command, *rules], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            lines = done.stderr.strip().splitlines() or ["the export failed"]
            line = lines[-1].removeprefix("pairsift: ").replace(f"{place}/", "")
            return Response(line, 422, media_type="text/plain")
        remove = BackgroundTask(shutil.rmtree, place, ignore_errors=True)
        return FileResponse(out, filename=f"{folder.name}-{out.name}", background=remove)
