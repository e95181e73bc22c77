"""What must hold between the rows of the database, and what of it does not.

Each question is one statement, so that it sees one moment of a database that goes on working, and
looks at a bounded number of rows, so that SQLite does not keep the event loop from answering others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from inver.domain.idempotency import GRACE_MS, LIFETIME_MS
from inver.ports import Finding
from inver.stores.sql import Row, Steps

T = TypeVar("T")
Read = Callable[[Steps[list[Row]]], Awaitable[list[Row]]]

WINDOW = 1_000
"""Versions of each table, and events, that are looked at: the newest ones."""

PAGE = 100
MOST = 100
"""Offenders that are counted; more make no difference."""

STALLED_MS = 10 * 60 * 1000
UNPUBLISHED_MS = 15 * 60 * 1000
KEYS_LATE_MS = 15 * 60 * 1000
CLOCK_MS = 60 * 1000

# Jumps from table to table along the primary key instead of reading every commit.
_HISTORY = """
    WITH RECURSIVE ids(id, n) AS (
        SELECT MIN(table_id), 1 FROM commits WHERE table_id > ?1
        UNION ALL
        SELECT (SELECT MIN(c.table_id) FROM commits c WHERE c.table_id > ids.id), ids.n + 1
        FROM ids WHERE ids.id IS NOT NULL AND ids.n < ?3)
    SELECT ids.id, t.version,
        (SELECT MAX(c.version) FROM commits c WHERE c.table_id = ids.id AND c.branch = ''),
        (SELECT MIN(c.version) FROM commits c
         WHERE c.table_id = ids.id AND c.branch = '' AND c.version > t.version - ?2),
        (SELECT COUNT(*) FROM commits c
         WHERE c.table_id = ids.id AND c.branch = '' AND c.version > t.version - ?2)
    FROM ids LEFT JOIN tables t ON t.id = ids.id WHERE ids.id IS NOT NULL ORDER BY ids.id"""

_EVENTS = """
    SELECT h.seq, (SELECT MAX(e.seq) FROM events e),
        (SELECT MIN(e.seq) FROM events e WHERE e.seq > h.seq - ?1),
        (SELECT COUNT(*) FROM events e WHERE e.seq > h.seq - ?1)
    FROM event_head h WHERE h.id = 1"""

# Each selects what offends, so an empty answer is a good one. ?1 is the moment that counts.
_OFFENDERS: tuple[tuple[str, str, int | None], ...] = (
    (
        "names",
        """SELECT MIN(name) FROM catalogs GROUP BY name_key HAVING COUNT(*) > 1
           UNION ALL SELECT MIN(path) FROM schemas GROUP BY catalog_id, path_key HAVING COUNT(*) > 1
           UNION ALL SELECT MIN(name) FROM tables WHERE state IN ('live', 'declared')
           GROUP BY schema_id, name_key HAVING COUNT(*) > 1""",
        None,
    ),
    (
        "parents",
        """SELECT s.id FROM schemas s
           WHERE NOT EXISTS (SELECT 1 FROM catalogs c WHERE c.id = s.catalog_id)
           OR (s.parent_id <> s.catalog_id AND NOT EXISTS (SELECT 1 FROM schemas p WHERE p.id = s.parent_id))
           UNION ALL SELECT t.id FROM tables t WHERE t.state IN ('live', 'declared', 'staged')
           AND NOT EXISTS (SELECT 1 FROM schemas s WHERE s.id = t.schema_id)""",
        None,
    ),
    (
        "grants",
        """SELECT g.securable_id FROM grants g
           WHERE NOT EXISTS (SELECT 1 FROM principals p WHERE p.id = g.principal_id)""",
        None,
    ),
    ("idempotency", "SELECT key FROM idempotency WHERE at < ?1", -LIFETIME_MS - GRACE_MS - KEYS_LATE_MS),
    ("work-failed", "SELECT kind || ' ' || subject FROM work WHERE state = 'failed'", None),
    (
        "work-stalled",
        """SELECT kind || ' ' || subject FROM work
           WHERE state = 'waiting' AND not_before < ?1 AND lease_until < ?1""",
        -STALLED_MS,
    ),
    (
        "unpublished",
        """SELECT t.id FROM tables t WHERE t.format = 'DELTA' AND t.kind = 'MANAGED' AND t.state = 'live'
           AND t.published < t.version AND t.head IS NOT NULL AND EXISTS (SELECT 1 FROM commits c
           WHERE c.table_id = t.id AND c.branch = '' AND c.version = t.published + 1 AND c.at < ?1)""",
        -UNPUBLISHED_MS,
    ),
    (
        "event-times",
        f"""SELECT CAST(seq AS TEXT) FROM events
            WHERE seq > (SELECT seq FROM event_head WHERE id = 1) - {WINDOW} AND at > ?1""",
        CLOCK_MS,
    ),
)


async def examine(read: Read, now: int) -> list[Finding]:
    found = [*await _history(read), _events((await read(_rows(_EVENTS, WINDOW)))[0])]
    for name, sql, shift in _OFFENDERS:
        limited = f"SELECT * FROM ({sql}) AS offenders LIMIT {MOST}"
        rows = await read(_rows(limited) if shift is None else _rows(limited, now + shift))
        found.append(_finding(name, [str(row[0]) for row in rows]))
        await asyncio.sleep(0)
    return found


def database_time() -> Steps[int]:
    """Milliseconds since the epoch, by the database's own clock."""
    rows = yield "SELECT {now_ms}", ()
    return int(rows[0][0])


async def _history(read: Read) -> list[Finding]:
    broken: list[str] = []
    orphans: list[str] = []
    after = ""
    while rows := await read(_rows(_HISTORY, after, WINDOW, PAGE)):
        for table_id, version, newest, oldest, count in rows:
            if version is None:
                orphans.append(table_id)
            elif newest is not None and (newest != version or count != version - oldest + 1):
                broken.append(table_id)
        after = rows[-1][0]
        await asyncio.sleep(0)
    return [_finding("versions", broken), _finding("commits", orphans)]


def _events(row: Row) -> Finding:
    head, newest, oldest, count = row
    if newest is None:
        return _finding("events", [] if head == 0 else [f"head {head}, no events"])
    problems = [] if head == newest else [f"head {head}, newest {newest}"]
    if oldest is not None and count != newest - oldest + 1:
        problems.append(f"{newest - oldest + 1 - count} missing between {oldest} and {newest}")
    return _finding("events", problems)


def _finding(name: str, offenders: list[str]) -> Finding:
    return Finding(name, len(offenders), tuple(offenders[:5]))


def _rows(sql: str, *parameters: str | int) -> Steps[list[Row]]:
    return (yield sql, parameters)
