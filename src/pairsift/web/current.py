"""The application of a run, made again when another command has changed the run's files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from pairsift.errors import InputError
from pairsift.run_folder import METRICS, PAIRS_FILE


class CurrentRun:
    """An application that is made again when the judged pairs or the metrics of its run have changed.

    `pairsift spot-check --apply` and `pairsift audit` write both while the run may be served.

    Args:
        folder: The run's folder.
        make: Makes the application.

    Raises:
        InputError: The folder holds no finished run.
    """

    def __init__(self, folder: Path, make: Callable[[], ASGIApp]) -> None:
        self._files = (folder / PAIRS_FILE, folder / METRICS)
        self._make = make
        self._version = self._versions()
        self._app = make()
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request."""
        if scope["type"] == "http" and self._versions() != self._version:
            async with self._lock:
                await run_in_threadpool(self._renew)
        await self._app(scope, receive, send)

    def _renew(self) -> None:
        version = self._versions()
        if version == self._version:  # another request was first
            return
        try:
            self._app = self._make()
        except InputError:  # a new training is under way: until its end, the pages stay as they are
            return
        self._version = version

    def _versions(self) -> list[tuple[int, int, int] | None]:
        """Return the time, size and inode of each file, None for a missing file."""
        found = [path.stat() if path.exists() else None for path in self._files]
        return [None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found]
