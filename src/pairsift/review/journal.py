"""The journal of a run's decisions: an append-only SQLite file with unlimited undo."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairsift.errors import InputError, WriteError

VERSION = 1  # of the tables below
WAIT = 60.0  # seconds to wait for another writer
CLOSING, PAUSE = 1.0, 0.01  # seconds that another connection may take to close, and between attempts
READ = ("PRAGMA user_version",)
WRITE = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "BEGIN IMMEDIATE")
DECIDE, UNDO, REDO = "decide", "undo", "redo"

# `events` and `changes` are only ever added to. `applied` and `current` follow from them: `applied` holds, for each
# decision event, the id of the event that made it valid last (itself or a redo), or null while it is undone; `current`
# holds the valid decision on each pair, which is the one that was applied last.
TABLES = """
CREATE TABLE events (
    event INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('decide', 'undo', 'redo')),
    target INTEGER REFERENCES events(event),
    key TEXT UNIQUE
) STRICT;
CREATE INDEX events_of_reviewer ON events(reviewer, kind, event);
CREATE TABLE changes (
    event INTEGER NOT NULL REFERENCES events(event),
    pair INTEGER NOT NULL,
    decision TEXT CHECK (decision IN ('keep', 'drop', 'replace')),
    caption TEXT CHECK ((caption IS NOT NULL) = (decision IS 'replace')),
    from_pair INTEGER,
    reason TEXT,
    PRIMARY KEY (event, pair)
) STRICT, WITHOUT ROWID;
CREATE INDEX changes_of_pair ON changes(pair, event);
CREATE TABLE applied (
    event INTEGER PRIMARY KEY REFERENCES events(event), reviewer TEXT NOT NULL, place INTEGER
) STRICT;
CREATE INDEX applied_of_reviewer ON applied(reviewer, place);
CREATE TABLE current (
    pair INTEGER PRIMARY KEY, event INTEGER NOT NULL, decision TEXT NOT NULL, caption TEXT, from_pair INTEGER,
    reason TEXT
) STRICT;
"""
# After a decision or a redo, the changes of the event are valid.
APPLY = (
    "DELETE FROM current WHERE pair IN (SELECT pair FROM changes WHERE event = :event AND decision IS NULL)",
    """
    INSERT OR REPLACE INTO current
    SELECT pair, event, decision, caption, from_pair, reason FROM changes
    WHERE event = :event AND decision IS NOT NULL
    """,
)
# After an undo, of each of its pairs the change that was applied last is valid.
TAKE_BACK = (
    "DELETE FROM current WHERE pair IN (SELECT pair FROM changes WHERE event = :event)",
    """
    INSERT INTO current
    SELECT pair, event, decision, caption, from_pair, reason FROM (
        SELECT changes.*, row_number() OVER (PARTITION BY pair ORDER BY place DESC) AS rank
        FROM changes JOIN applied USING (event)
        WHERE place IS NOT NULL AND pair IN (SELECT pair FROM changes WHERE event = :event)
    ) WHERE rank = 1 AND decision IS NOT NULL
    """,
)
LAST_APPLIED = "SELECT event FROM applied WHERE reviewer = :reviewer AND place IS NOT NULL ORDER BY place DESC LIMIT 1"
# What the reviewer undid last, unless they have decided something since.
LAST_UNDONE = """
SELECT events.target FROM events JOIN applied ON applied.event = events.target
WHERE events.reviewer = :reviewer AND events.kind = 'undo' AND applied.place IS NULL
  AND events.event > (SELECT coalesce(max(event), 0) FROM events WHERE reviewer = :reviewer AND kind = 'decide')
ORDER BY events.event DESC LIMIT 1
"""
OF_PAIRS = "WHERE current.pair IN (SELECT value FROM json_each(?))"  # a list of ids as JSON
Change = tuple[int, str | None, str | None, int | None, str | None]  # pair, decision, caption, from_pair, reason


class DecidedMeanwhile(InputError):
    """A decision on pairs that were decided differently, or got another caption, after they were looked at.

    Args:
        pairs: Ids of these pairs.
        change: What happened to them.
    """

    def __init__(self, pairs: Sequence[int], change: str = "decided") -> None:
        self.pairs = list(pairs)
        others = f" and {len(pairs) - 1:,} more were" if len(pairs) > 1 else " was"
        super().__init__(f"pair {pairs[0]}{others} {change} meanwhile: nothing was recorded; look again and repeat it")


class Journal:
    """The decisions of all reviewers, in one file that several processes may read and write at the same time.

    Every call is one transaction, which is on the disk when the call returns. A process that is killed loses nothing
    that a call returned, and leaves nothing half-done.

    Args:
        path: The file. The first decision creates it; without it, there are no decisions.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def decide(
        self,
        changes: Iterable[Change],
        reviewer: str,
        key: str | None = None,
        seen: Mapping[int, str | None] | None = None,
        only_undecided: bool = False,
    ) -> int | None:
        """Append one event with decisions on pairs, and return its id. One undo takes back the whole event.

        Args:
            changes: Pair, decision (None clears the decision on the pair), new caption, the pair that the caption is
                from, and reason; each pair at most once.
            reviewer: Who decides.
            key: A text that the caller chose for this event. A second call with the same key does nothing and returns
                the id of the first, so that a request can be repeated.
            seen: For pairs, the time of the decision that the reviewer saw, None for no decision.
            only_undecided: Whether pairs that have a decision are left out. Without any other nothing is recorded, and
                None is returned.

        Raises:
            DecidedMeanwhile: A pair of `seen` has another decision by now. Then nothing is recorded.
            WriteError: The file cannot be written, or another process has kept it locked for a minute.
            InputError: The file is damaged.
        """
        with self._writing() as database:
            if (done := _event_of(database, key, DECIDE)) is not None:
                return done
            if changed := _changed(database, seen or {}):
                raise DecidedMeanwhile(changed)
            if only_undecided:
                decided = {pair for (pair,) in database.execute("SELECT pair FROM current")}
                changes = [change for change in changes if change[0] not in decided]
                if not changes:
                    return None
            event = _append(database, reviewer, DECIDE, None, key)
            rows = ((event, *change) for change in changes)
            database.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.execute("INSERT INTO applied VALUES (?, ?, ?)", (event, reviewer, event))
            _run(database, APPLY, event)
            return event

    def undo(self, reviewer: str, key: str | None = None) -> int | None:
        """Take back the reviewer's last decision event that is valid; return its id, or None if there is none.

        What another reviewer decided on the same pairs later stays; what was valid before is valid again.
        """
        return self._move(UNDO, LAST_APPLIED, reviewer, key)

    def redo(self, reviewer: str, key: str | None = None) -> int | None:
        """Apply again what the reviewer undid last; return its id, or None if there is nothing to redo.

        A new decision of the reviewer ends what can be redone.
        """
        return self._move(REDO, LAST_UNDONE, reviewer, key)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; an empty list where there is no file yet."""
        if not self.path.exists():
            return []
        with _one_line(self.path), _connected(f"{self.path.absolute().as_uri()}?mode=ro", READ) as database:
            return database.execute(query, values).fetchall() if _version(database, self.path) else []

    def _move(self, kind: str, find: str, reviewer: str, key: str | None) -> int | None:
        if not self.path.exists():
            return None
        with self._writing() as database:
            if (done := _event_of(database, key, kind)) is not None:
                (target,) = database.execute("SELECT target FROM events WHERE event = ?", (done,)).fetchone()
                return int(target)
            found = database.execute(find, {"reviewer": reviewer}).fetchone()
            if found is None:
                return None
            target = int(found[0])
            event = _append(database, reviewer, kind, target, key)
            place = event if kind == REDO else None
            database.execute("UPDATE applied SET place = ? WHERE event = ?", (place, target))
            _run(database, APPLY if kind == REDO else TAKE_BACK, target)
            return target

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside a transaction, which is committed unless the block raises."""
        with _one_line(self.path), _connected(f"{self.path.absolute().as_uri()}?mode=rwc", WRITE) as database:
            if _version(database, self.path) == 0:
                for statement in TABLES.split(";"):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {VERSION}")
            yield database
            database.execute("COMMIT")


@contextmanager
def _connected(uri: str, first: Sequence[str]) -> Iterator[sqlite3.Connection]:
    """Yield a connection that has run the first statements, and close it; what was not committed never happened.

    While the last of other connections closes, it removes the write-ahead log: SQLite then refuses new connections
    without the patience that it has with writers. They are tried again.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        while True:
            try:
                database = sqlite3.connect(uri, timeout=WAIT, isolation_level=None, uri=True)
                stack.callback(database.close)
                for statement in first:
                    database.execute(statement).fetchall()
                break
            except sqlite3.OperationalError as error:
                stack.close()
                if time.monotonic() - began > (WAIT if "locked" in str(error) else CLOSING):
                    raise
                time.sleep(PAUSE)
        yield database


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables; 0 where there are none.

    Raises:
        InputError: The version is unknown.
    """
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise InputError(f"{path}: was written by a newer pairsift: install that version to read it")
    return version


def _append(database: sqlite3.Connection, reviewer: str, kind: str, target: int | None, key: str | None) -> int:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    values = (now, reviewer, kind, target, key)
    cursor = database.execute("INSERT INTO events (time, reviewer, kind, target, key) VALUES (?, ?, ?, ?, ?)", values)
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _event_of(database: sqlite3.Connection, key: str | None, kind: str) -> int | None:
    """Return the event with this key, or None.

    Raises:
        InputError: The event is of another kind.
    """
    query = "SELECT event, kind FROM events WHERE key = ?"
    found = None if key is None else database.execute(query, (key,)).fetchone()
    if found is None:
        return None
    if found[1] != kind:
        raise InputError(f"the key {key!r} was given to another request ({found[1]}): give each request a new key")
    return int(found[0])


def _changed(database: sqlite3.Connection, seen: Mapping[int, str | None]) -> list[int]:
    """Return the pairs whose valid decision is of another time than the one that was seen, in order."""
    query = "SELECT current.pair, time FROM current JOIN events USING (event)"
    times = dict(database.execute(f"{query} {OF_PAIRS}", (json.dumps(list(seen)),)).fetchall())
    return [pair for pair, time in seen.items() if times.get(pair) != time]


def _run(database: sqlite3.Connection, statements: Iterable[str], event: int) -> None:
    for statement in statements:
        database.execute(statement, {"event": event})


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into one line."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise WriteError(f"{path}: another process has been writing for {WAIT:.0f} seconds: try again") from error
        raise WriteError(f"{path}: cannot be opened or written ({error}); free space, or open the folder") from error
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: is damaged ({error}); take it from a copy of the run, or move it away") from error
