"""The reasons of skipped records and images, counted by kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

PLACE = re.compile(r" \(.*\)$|(?: at| in| from|:)? \S*[/\\]\S.*$")
OWN = re.compile(r"'[^']+'|\"[^\"]+\"|\b\d+\b")


def count_reasons(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Count reasons by kind, the most frequent first.

    Reasons that differ only in paths, quoted words or numbers are of one kind.
    """
    wordings: dict[str, list[str]] = {}
    for reason in reasons:
        wordings.setdefault(PLACE.sub("", OWN.sub("…", reason)), []).append(reason)
    counts = {kind if len(set(found)) > 1 else found[0]: len(found) for kind, found in wordings.items()}
    return Counter(counts).most_common()
