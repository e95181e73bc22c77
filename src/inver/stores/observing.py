"""The health of tables, folded from their events in the order in which they happened.

How far that has come is one row, written with what was folded: an event counts once, whatever ends
the process and however many servers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from inver.domain import health as rules
from inver.domain import learning
from inver.domain.events import COMMITTED, KINDS, STAGED
from inver.domain.health import Committed, Health
from inver.domain.lance import head_of
from inver.domain.ledger import MAIN, AddRecords, Counts, CreateTable, DeleteRecords, PurgeTable
from inver.domain.tables import Format, TableKind
from inver.stores.sql import Row, Steps

CREATED, PURGED, DELETED = KINDS[CreateTable], KINDS[PurgeTable], KINDS[DeleteRecords]
ADDED = KINDS[AddRecords]
FOLDED = frozenset({COMMITTED, CREATED, STAGED, PURGED, DELETED, ADDED})
CLUSTERING = b'"delta.clustering"'
"""Stands in the head of a Delta table that says by what it is to be clustered."""


class _Told(msgspec.Struct):
    """Of an event's data, what is folded."""

    operation: str = ""
    branch: str = ""
    counts: Counts | None = None
    count: int = 0
    format: str | None = None


class _Histogram(msgspec.Struct):
    boundaries: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


class _Report(msgspec.Struct):
    histogram: _Histogram | None = None


_told = msgspec.json.Decoder(_Told).decode
_counts = msgspec.json.Decoder(Counts).decode
_report = msgspec.json.Decoder(_Report).decode
_health = msgspec.json.Decoder(Health).decode
_encode = msgspec.json.encode


def health_of(body: bytes) -> Health:
    return _health(body)


def fold(limit: int) -> Steps[int]:
    """Fold up to `limit` events; returns how many there were, or -1 while another server folds."""
    heads = yield "SELECT seq FROM care_head WHERE id = 1 {skip}", ()
    if not heads:
        return -1
    start = heads[0][0]
    events = yield (
        """SELECT seq, kind, subject, version, at, data FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2""",
        (start, limit),
    )
    if not events:
        return 0
    yield from _fold([event for event in events if event[1] in FOLDED])
    yield "UPDATE care_head SET seq = ?1 WHERE id = 1", (events[-1][0],)
    return len(events)


def _fold(events: list[Row]) -> Steps[None]:
    ids = sorted({event[2] for event in events})
    if not ids:
        return
    tables = yield from _tables(ids)
    healths: dict[str, Health] = {}
    gone: list[str] = []
    for _, kind, table_id, version, at, data in events:
        if kind == PURGED:
            gone.append(table_id)
            healths.pop(table_id, None)
            continue
        found = tables.get(table_id)
        if found is None:
            continue
        format, table_kind = found.format, found.kind
        health = healths.get(table_id, found.health)
        told = _read(data)
        if kind == COMMITTED:
            if told.branch:
                continue
            commit = Committed(version, at, told.operation, told.counts)
            healths[table_id] = rules.folded(health or rules.strange(version - 1), format, (commit,))
        elif kind in (DELETED, ADDED):
            if health is not None and not told.branch:
                count = told.count if kind == ADDED else -told.count
                healths[table_id] = rules.versions_listed(health, count)
        elif kind == STAGED or told.format is not None:
            # A staged table has no version yet; its first one is what it is finished with.
            made = rules.created(-1 if kind == STAGED else version, format, table_kind)
            healths[table_id] = made if health is None else replace(made, cared=health.cared)
        else:
            # A staged table got its first version, of which only the commit has the counts.
            first = yield from commits_between(table_id, version - 1, version, 1)
            healths[table_id] = rules.folded(health or rules.strange(version - 1), format, first)
    for table_id, health in healths.items():
        if tables[table_id].clustered is not health.clustered:
            healths[table_id] = replace(health, clustered=tables[table_id].clustered)
    yield from write_health(healths)
    yield from _forget(gone)


class _Found(msgspec.Struct):
    format: Format
    kind: TableKind
    health: Health | None
    clustered: bool


def _read(data: bytes) -> _Told:
    """What cannot be read is as good as not said: one table's event must not hold up all others."""
    try:
        return _told(data)
    except msgspec.DecodeError:
        return _Told()


def _tables(ids: list[str]) -> Steps[dict[str, _Found]]:
    """Those that are tables; what PostgreSQL folds is locked, since a run may end at the same time."""
    marks = ", ".join(f"?{index}" for index in range(1, len(ids) + 1))
    bodies = yield (
        f"SELECT table_id, body FROM health WHERE table_id IN ({marks}) ORDER BY table_id {{update}}",
        tuple(ids),
    )
    known = {row[0]: _health(row[1]) for row in bodies}
    rows = yield f"SELECT id, format, kind, head FROM tables WHERE id IN ({marks})", tuple(ids)
    return {
        row[0]: _Found(
            Format(row[1]),
            TableKind(row[2]),
            known.get(row[0]),
            row[1] == Format.DELTA and row[3] is not None and CLUSTERING in row[3],
        )
        for row in rows
        if row[2] != TableKind.VIEW
    }


def _forget(table_ids: Iterable[str]) -> Steps[None]:
    for table_id in table_ids:
        yield "DELETE FROM health WHERE table_id = ?1", (table_id,)
        yield "DELETE FROM scans WHERE table_id = ?1", (table_id,)
        yield "DELETE FROM care_policies WHERE securable_id = ?1", (table_id,)


def locked_health(table_id: str) -> Steps[Health]:
    rows = yield "SELECT body FROM health WHERE table_id = ?1 {update}", (table_id,)
    return _health(rows[0][0]) if rows else rules.strange(-1)


def write_health(healths: Mapping[str, Health]) -> Steps[None]:
    if not healths:
        return
    values: list[Any] = []
    for table_id in sorted(healths):
        health = healths[table_id]
        known = health.totals.files is not None and health.totals.sizes is not None
        values += (table_id, health.version, int(known), _encode(health))
    marks = ", ".join(f"(?{at}, ?{at + 1}, ?{at + 2}, -1, ?{at + 3})" for at in range(1, len(values), 4))
    yield (
        f"""INSERT INTO health (table_id, version, known, reported, body) VALUES {marks}
            ON CONFLICT (table_id) DO UPDATE SET version = excluded.version, known = excluded.known,
            body = excluded.body""",
        tuple(values),
    )


def commits_between(table_id: str, after: int, last: int, limit: int) -> Steps[list[Committed]]:
    rows = yield (
        """SELECT version, at, operation, counts FROM commits WHERE table_id = ?1 AND branch = ?2
           AND version > ?3 AND version <= ?4 ORDER BY version LIMIT ?5""",
        (table_id, MAIN, after, last, limit),
    )
    return [_committed(row) for row in rows]


def commits_from(table_id: str, at: int, last: int) -> Steps[list[Committed]]:
    """Since a time, up to a version; the newest thousand of them."""
    rows = yield (
        """SELECT version, at, operation, counts FROM commits WHERE table_id = ?1 AND branch = ?2
           AND version <= ?3 ORDER BY version DESC LIMIT 1000""",
        (table_id, MAIN, last),
    )
    return [_committed(row) for row in reversed(rows) if row[1] >= at]


def _committed(row: Row) -> Committed:
    return Committed(row[0], row[1], row[2], None if row[3] is None else _counts(row[3]))


def unknown_with_reports(limit: int) -> Steps[list[tuple[str, int]]]:
    """Tables of which a client has told more than the commits do, with the newest version it told of."""
    rows = yield (
        """SELECT h.table_id, MAX(r.version) FROM health h JOIN reports r ON r.table_id = h.table_id
           WHERE h.known = 0 AND r.kind = 'commit' AND r.version > h.reported AND r.version <= h.version
           GROUP BY h.table_id ORDER BY h.table_id LIMIT ?1""",
        (limit,),
    )
    return [(row[0], row[1]) for row in rows]


def unknown_with_heads(limit: int) -> Steps[list[str]]:
    """Lance tables of which the newest version tells more than their commits."""
    rows = yield (
        """SELECT h.table_id FROM health h JOIN tables t ON t.id = h.table_id WHERE h.known = 0
           AND t.format = 'LANCE' AND t.state = 'live' AND t.version = h.version AND h.reported < h.version
           ORDER BY h.table_id LIMIT ?1""",
        (limit,),
    )
    return [row[0] for row in rows]


def learn_head(table_id: str) -> Steps[bool]:
    health = yield from locked_health(table_id)
    rows = yield "SELECT version, head FROM tables WHERE id = ?1 AND format = 'LANCE'", (table_id,)
    if not rows or rows[0][0] != health.version:
        return False
    yield "UPDATE health SET reported = ?2 WHERE table_id = ?1", (table_id, health.version)
    totals = head_of(rows[0][1]).totals
    told = {"files": totals.files, "bytes": totals.bytes, "rows": totals.rows, "deleted_rows": totals.deleted}
    numbers = {name: float(value) for name, value in told.items() if value is not None}
    yield from write_health({table_id: learning.told(health, Format.LANCE, numbers, ())})
    return True


def learn_report(table_id: str, version: int, most: int) -> Steps[bool]:
    """Take a client's histogram of one version for true, and fold what came after it once more."""
    health = yield from locked_health(table_id)
    rows = yield (
        """SELECT r.body FROM reports r JOIN tables t ON t.id = r.table_id
           WHERE r.table_id = ?1 AND r.version = ?2 AND r.kind = 'commit' AND t.format = 'DELTA'""",
        (table_id, version),
    )
    yield "UPDATE health SET reported = ?2 WHERE table_id = ?1", (table_id, version)
    histogram = _report(rows[0][0]).histogram if rows else None
    if histogram is None or health.version < version:
        return False
    later = yield from commits_between(table_id, version, health.version, most + 1)
    if len(later) > most:
        return False
    health = learning.reported(
        health,
        Format.DELTA,
        histogram.boundaries,
        histogram.file_counts,
        histogram.total_bytes,
        later,
    )
    yield from write_health({table_id: health})
    return True
