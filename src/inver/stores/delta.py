"""Questions about Delta tables, and the bookkeeping of what is published and reported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from inver.domain.names import name_key, path_key
from inver.domain.tables import Format, Table, TableDetails
from inver.ports import FullTable, LogTail, Report
from inver.stores import tails
from inver.stores.deciding import SEPARATOR
from inver.stores.reads import TABLE_COLUMNS, only, table_of
from inver.stores.sql import Row, Steps, many, one

T = TypeVar("T")
_properties = msgspec.json.Decoder(dict[str, str]).decode

_FULL = f"""SELECT {TABLE_COLUMNS}, d.comment, d.properties, d.columns, c.name, s.path, o.name, m.name, u.name
    FROM tables t JOIN details d ON d.table_id = t.id
    JOIN schemas s ON s.id = t.schema_id JOIN catalogs c ON c.id = s.catalog_id
    LEFT JOIN principals o ON o.id = t.owner LEFT JOIN principals m ON m.id = t.created_by
    LEFT JOIN principals u ON u.id = t.updated_by"""
_NAMED = "t.state IN ('live', 'declared')"


class DeltaReads(ABC):
    @abstractmethod
    async def read(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T: ...

    async def full_table_by_name(self, catalog: str, path: Sequence[str], name: str) -> FullTable | None:
        return await self.read(_full_by_name(name_key(catalog), path_key(path), name_key(name)))

    async def full_table(self, table_id: str) -> FullTable | None:
        return await self.read(_full_by_id(table_id))

    async def full_tables(self, ids: Sequence[str]) -> list[FullTable]:
        return await self.read(_full_by_ids(ids))

    async def table_at(self, location_key: str) -> Table | None:
        return await self.read(_at(location_key))

    async def tables_below(self, lower: str, upper: str, limit: int) -> list[Table]:
        return await self.read(_below(lower, upper, limit))

    # As SQLite asks; PostgreSQL asks for many tables at once.

    def tail(self, table_id: str, first: int, last: int) -> Awaitable[LogTail | None]:
        return self.read(tails.by_id((table_id, first, last)))

    def tail_by_name(self, catalog: str, path: Sequence[str], name: str) -> Awaitable[LogTail | None]:
        return self.read(tails.by_name(tails.keys_of(catalog, path, name)))

    async def unpublished(self, limit: int, format: Format = Format.DELTA, after: str = "") -> list[str]:
        return await self.read(_unpublished(limit, format, after))

    async def mark_published(self, versions: Mapping[str, int]) -> None:
        if versions:
            await self.write(lambda: _mark_published(versions))

    async def add_report(
        self, table_id: str, version: int, at: int, by: str, body: bytes, kind: str = "commit"
    ) -> None:
        await self.write(lambda: _add_report(table_id, version, kind, at, by, body))

    async def reports(self, table_id: str, limit: int) -> list[Report]:
        return await self.read(_reports(table_id, limit))


def _full_of(row: Row) -> FullTable:
    details = TableDetails(comment=row[18], properties=_properties(row[19]), columns=bytes(row[20]))
    table = table_of(row)
    return FullTable(
        table=table,
        details=details,
        full_name=(row[21], *row[22].split(SEPARATOR), table.name),
        owner=row[23] or table.owner,
        created_by=row[24] or table.created_by,
        updated_by=row[25] or table.updated_by,
    )


def _full_by_name(catalog_key: str, path_key: str, name_key: str) -> Steps[FullTable | None]:
    return one(
        f"""{_FULL} WHERE c.name_key = ?1 AND s.path_key = ?2 AND t.name_key = ?3 AND {_NAMED}
            AND {only(views=False)}""",
        (catalog_key, path_key, name_key),
        _full_of,
    )


def _full_by_id(table_id: str) -> Steps[FullTable | None]:
    return one(f"{_FULL} WHERE t.id = ?1 AND {_NAMED}", (table_id,), _full_of)


def _full_by_ids(ids: Sequence[str]) -> Steps[list[FullTable]]:
    if not ids:
        return []
    marks = ", ".join(f"?{index}" for index in range(1, len(ids) + 1))
    rows = yield f"{_FULL} WHERE t.id IN ({marks}) AND {_NAMED}", tuple(ids)
    found = {row[0]: _full_of(row) for row in rows}
    return [found[each] for each in ids if each in found]


def _at(location_key: str) -> Steps[Table | None]:
    return one(
        f"SELECT {TABLE_COLUMNS} FROM tables t WHERE t.location_key = ?1 AND t.state <> 'purged'",
        (location_key,),
        table_of,
    )


def _below(lower: str, upper: str, limit: int) -> Steps[list[Table]]:
    return many(
        f"""SELECT {TABLE_COLUMNS} FROM tables t WHERE t.location_key >= ?1 AND t.location_key < ?2
            AND t.state <> 'purged' LIMIT ?3""",
        (lower, upper, limit),
        table_of,
    )


def _unpublished(limit: int, format: Format, after: str) -> Steps[list[str]]:
    managed = "AND kind = 'MANAGED'" if format is Format.DELTA else ""
    rows = yield (
        f"""SELECT id FROM tables WHERE format = ?2 AND published < version AND state = 'live'
           {managed} AND head IS NOT NULL AND id > ?3 ORDER BY id LIMIT ?1""",
        (limit, format, after),
    )
    return [row[0] for row in rows]


def _mark_published(versions: Mapping[str, int]) -> Steps[None]:
    """Rows are locked in the order of their ids, as commits lock them."""
    marks = ", ".join(f"(?{n}, CAST(?{n + 1} AS BIGINT))" for n in range(1, 2 * len(versions), 2))
    yield (
        f"""WITH done (table_id, reached) AS (VALUES {marks}), locked (table_id) AS MATERIALIZED (
                SELECT id FROM tables WHERE id IN (SELECT table_id FROM done) ORDER BY id {{update}})
            UPDATE tables SET published = reached FROM done JOIN locked USING (table_id)
            WHERE id = table_id AND published < reached AND version >= reached""",
        tuple(value for pair in versions.items() for value in pair),
    )


def _add_report(table_id: str, version: int, kind: str, at: int, by: str, body: bytes) -> Steps[None]:
    yield (
        """INSERT INTO reports VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (table_id, version, kind)
           DO UPDATE SET at = excluded.at, by_id = excluded.by_id, body = excluded.body""",
        (table_id, version, kind, at, by, body),
    )


def _reports(table_id: str, limit: int) -> Steps[list[Report]]:
    rows = yield (
        """SELECT version, at, by_id, body FROM reports WHERE table_id = ?1
           ORDER BY version DESC, kind LIMIT ?2""",
        (table_id, limit),
    )
    return [Report(version=row[0], at=row[1], by=row[2], body=bytes(row[3])) for row in rows]
