"""The pages of the application: templates, and what all of them show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pairsift.marker import run_id
from pairsift.report.html import templates
from pairsift.run_folder import REPORT

PAGES = {"/": "Review", "/search": "Search", "/overview": "Overview", "/spot-check": "Spot check", "/api": "API"}


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
