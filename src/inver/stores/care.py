"""Questions about the health of tables and about runs of care."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from inver.domain.care import HOUR_MS, Job
from inver.domain.runs import Policy, Run
from inver.domain.tables import Format, TableKind
from inver.ports import KnownTable
from inver.stores import observing
from inver.stores.caring import RUN, WHOLE_RUN, run_of, whole_run_of
from inver.stores.deciding import SEPARATOR
from inver.stores.sql import Row, Steps

T = TypeVar("T")
LAST_ID = "~"
"""Sorts after every id."""
_policy = msgspec.json.Decoder(Policy).decode

# Reads are counted apart: few tables have any, and most of those that are asked for have none.
_KNOWN = f"""SELECT t.id, t.catalog_id, t.schema_id, c.name, s.path, t.name, t.owner, t.format, t.kind,
    t.version, t.published, t.created_at, t.head IS NOT NULL, h.body, pc.body, pt.body, {RUN}
    FROM tables t JOIN schemas s ON s.id = t.schema_id JOIN catalogs c ON c.id = s.catalog_id
    LEFT JOIN health h ON h.table_id = t.id
    LEFT JOIN care_policies pc ON pc.securable_id = t.catalog_id
    LEFT JOIN care_policies pt ON pt.securable_id = t.id
    LEFT JOIN care_runs r ON r.table_id = t.id"""
_LIVE = "t.state = 'live' AND t.kind <> 'VIEW'"


class CareReads(ABC):
    @abstractmethod
    async def read(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T: ...

    async def fold_events(self, limit: int) -> int:
        return await self.write(lambda: observing.fold(limit))

    async def unknown_with_reports(self, limit: int) -> list[tuple[str, int]]:
        return await self.read(observing.unknown_with_reports(limit))

    async def learn_report(self, table_id: str, version: int, most: int) -> bool:
        return await self.write(lambda: observing.learn_report(table_id, version, most))

    async def unknown_with_heads(self, limit: int) -> list[str]:
        return await self.read(observing.unknown_with_heads(limit))

    async def learn_head(self, table_id: str) -> bool:
        return await self.write(lambda: observing.learn_head(table_id))

    async def count_scan(self, table_id: str, at: int) -> None:
        await self.write(lambda: _count_scan(table_id, at))

    async def forget_scans(self, before: int) -> None:
        await self.write(lambda: _forget_scans(before))

    async def known_tables(
        self, after: str, limit: int, since: int, catalog_id: str | None = None
    ) -> list[KnownTable]:
        return await self.read(_known_tables(after, limit, since, catalog_id))

    async def known_table(self, table_id: str, since: int) -> KnownTable | None:
        return await self.read(_known_table(table_id, since))

    async def care_rates(self) -> Mapping[tuple[Format, Job], float]:
        return await self.read(_rates())

    async def care_policy(self, securable_id: str) -> Policy | None:
        return await self.read(_policy_of(securable_id))

    async def care_run(self, run_id: str) -> Run | None:
        return await self.read(_run(run_id))

    async def care_runs(self, table_id: str | None, before: str, limit: int) -> list[Run]:
        return await self.read(_runs(table_id, before or LAST_ID, limit))

    async def beat_run(self, run_id: str, until: int, progress: int, message: str) -> bool:
        return await self.write(lambda: _beat(run_id, until, progress, message))


def _known(row: Row, scans: Mapping[str, int]) -> KnownTable:
    values = tuple(row)
    return KnownTable(
        id=values[0],
        catalog_id=values[1],
        schema_id=values[2],
        name=(values[3], *values[4].split(SEPARATOR), values[5]),
        owner=values[6],
        format=Format(values[7]),
        kind=TableKind(values[8]),
        version=values[9],
        published=values[10],
        created_at=values[11],
        has_head=bool(values[12]),
        health=None if values[13] is None else observing.health_of(values[13]),
        policies=(_decoded(values[14]), _decoded(values[15])),
        scans=scans.get(values[0], 0),
        run=None if values[16] is None else run_of(values[16:]),
    )


def _decoded(body: bytes | None) -> Policy | None:
    return None if body is None else _policy(body)


def _known_tables(after: str, limit: int, since: int, catalog_id: str | None) -> Steps[list[KnownTable]]:
    of_catalog = "" if catalog_id is None else "AND t.catalog_id = ?3"
    rows = yield (
        f"""{_KNOWN} AND r.state = 'running' WHERE {_LIVE} AND t.id > ?1 {of_catalog}
            ORDER BY t.id LIMIT ?2""",
        (after, limit) if catalog_id is None else (after, limit, catalog_id),
    )
    if not rows:
        return []
    scans = yield from _scans(rows[0][0], rows[-1][0], since)
    return [_known(row, scans) for row in rows]


def _known_table(table_id: str, since: int) -> Steps[KnownTable | None]:
    rows = yield (
        f"{_KNOWN} WHERE {_LIVE} AND t.id = ?1 ORDER BY r.id DESC LIMIT 1",
        (table_id,),
    )
    if not rows:
        return None
    return _known(rows[0], (yield from _scans(table_id, table_id, since)))


def _scans(first: str, last: str, since: int) -> Steps[dict[str, int]]:
    rows = yield (
        """SELECT table_id, CAST(SUM(count) AS BIGINT) FROM scans
           WHERE table_id >= ?1 AND table_id <= ?2 AND hour >= ?3 GROUP BY table_id""",
        (first, last, since // HOUR_MS),
    )
    return {row[0]: row[1] for row in rows}


def _count_scan(table_id: str, at: int) -> Steps[None]:
    yield (
        """INSERT INTO scans VALUES (?1, ?2, 1)
           ON CONFLICT (table_id, hour) DO UPDATE SET count = scans.count + 1""",
        (table_id, at // HOUR_MS),
    )


def _forget_scans(before: int) -> Steps[None]:
    yield "DELETE FROM scans WHERE hour < ?1", (before // HOUR_MS,)


def _rates() -> Steps[dict[tuple[Format, Job], float]]:
    rows = yield "SELECT format, job, bytes_s FROM care_rates", ()
    return {(Format(row[0]), Job(row[1])): float(row[2]) for row in rows}


def _policy_of(securable_id: str) -> Steps[Policy | None]:
    rows = yield "SELECT body FROM care_policies WHERE securable_id = ?1", (securable_id,)
    return _policy(rows[0][0]) if rows else None


def _run(run_id: str) -> Steps[Run | None]:
    rows = yield f"SELECT {WHOLE_RUN} FROM care_runs r WHERE r.id = ?1", (run_id,)
    return whole_run_of(rows[0]) if rows else None


def _runs(table_id: str | None, before: str, limit: int) -> Steps[list[Run]]:
    of_table = "" if table_id is None else "AND r.table_id = ?3"
    rows = yield (
        f"SELECT {RUN} FROM care_runs r WHERE r.id < ?1 {of_table} ORDER BY r.id DESC LIMIT ?2",
        (before, limit) if table_id is None else (before, limit, table_id),
    )
    return [run_of(row) for row in rows]


def _beat(run_id: str, until: int, progress: int, message: str) -> Steps[bool]:
    rows = yield (
        """UPDATE care_runs SET lease_until = ?2, progress = ?3, message = ?4
           WHERE id = ?1 AND state = 'running' RETURNING id""",
        (run_id, until, progress, message),
    )
    return bool(rows)
