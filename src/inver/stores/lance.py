"""Questions about Lance tables, and the properties of transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from inver.domain.ledger import Record
from inver.domain.names import name_key, path_key
from inver.ports import BranchState
from inver.stores import records
from inver.stores.deciding import SEPARATOR
from inver.stores.sql import Steps

T = TypeVar("T")


class LanceReads(ABC):
    @abstractmethod
    async def read(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def write(self, steps: Callable[[], Steps[T]]) -> T: ...

    async def records(
        self, table_id: str, branch: str, first: int, last: int, limit: int, newest_first: bool = True
    ) -> list[Record]:
        return await self.read(records.listed(table_id, branch, first, last, limit, newest_first))

    async def record_by_key(self, table_id: str, branch: str, key: str) -> Record | None:
        return await self.read(records.by_key(table_id, branch, key))

    async def branches(self, table_id: str) -> list[BranchState]:
        return await self.read(records.branches(table_id))

    async def branch(self, table_id: str, name: str) -> BranchState | None:
        return await self.read(records.branch(table_id, name))

    async def waiting_records(
        self, limit: int, after: tuple[str, str, int] = ("", "", -1)
    ) -> list[tuple[str, str, int]]:
        return await self.read(records.waiting(limit, after))

    async def record_data(self, table_id: str, branch: str, version: int) -> bytes | None:
        return await self.read(records.data_of(table_id, branch, version))

    async def let_go(self, versions: Sequence[tuple[str, str, int]]) -> None:
        if versions:
            await self.write(lambda: records.let_go(versions))

    async def lance_tables(self, after: Sequence[str], limit: int) -> list[tuple[str, tuple[str, ...], bool]]:
        if not after:
            return await self.read(_everywhere("", "", "", limit))
        keys = name_key(after[0]), path_key(after[1:-1]), name_key(after[-1])
        return await self.read(_everywhere(*keys, limit))

    async def transaction_properties(self, number: int) -> dict[str, str]:
        return await self.read(_properties(number))

    async def set_transaction_properties(self, number: int, changes: Mapping[str, str | None]) -> None:
        await self.write(lambda: _set_properties(number, changes))


def _everywhere(
    catalog: str, path: str, name: str, limit: int
) -> Steps[list[tuple[str, tuple[str, ...], bool]]]:
    """Id, full name and whether it has a version, of all Lance tables in the order of their names."""
    rows = yield (
        """SELECT t.id, c.name, s.path, t.name, t.version FROM tables t
           JOIN schemas s ON s.id = t.schema_id JOIN catalogs c ON c.id = s.catalog_id
           WHERE t.format = 'LANCE' AND t.state IN ('live', 'declared') AND t.kind <> 'VIEW'
           AND (c.name_key, s.path_key, t.name_key) > (?1, ?2, ?3)
           ORDER BY c.name_key, s.path_key, t.name_key LIMIT ?4""",
        (catalog, path, name, limit),
    )
    return [(row[0], (row[1], *row[2].split(SEPARATOR), row[3]), row[4] > 0) for row in rows]


def _properties(number: int) -> Steps[dict[str, str]]:
    rows = yield "SELECT key, value FROM transaction_properties WHERE txn = ?1 ORDER BY key", (number,)
    return {row[0]: row[1] for row in rows}


def _set_properties(number: int, changes: Mapping[str, str | None]) -> Steps[None]:
    for key, value in changes.items():
        if value is None:
            yield "DELETE FROM transaction_properties WHERE txn = ?1 AND key = ?2", (number, key)
        else:
            yield (
                """INSERT INTO transaction_properties VALUES (?1, ?2, ?3) ON CONFLICT (txn, key)
                   DO UPDATE SET value = excluded.value""",
                (number, key, value),
            )
