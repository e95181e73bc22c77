"""Where a table stands and which of its commits may not be published: what every reader of it asks.

One statement has the table, its commits and the epoch under which they were read. On PostgreSQL the
questions that wait together are asked as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from inver.domain.ledger import MAIN
from inver.domain.names import name_key, path_key
from inver.ports import LogTail
from inver.stores.reads import TABLE_COLUMNS, only, table_of
from inver.stores.sql import Row, Steps

Q = TypeVar("Q")
R = TypeVar("R")

ById: TypeAlias = tuple[str, int, int]
"""The id of a table, and the first and the last version that are asked for."""
ByName: TypeAlias = tuple[str, str, str]
"""The keys of catalog, schema path and name."""

MOST = 256

_EPOCH = "(SELECT epoch FROM access_epoch WHERE id = 1)"
_NAMED = f"t.state IN ('live', 'declared') AND {only(views=False)}"
_COMMITS = f"FROM commits c WHERE c.table_id = t.id AND c.branch = '{MAIN}' AND c.version > t.published"
_WIDTH = TABLE_COLUMNS.count(",") + 1

_BY_ID = f"""SELECT {TABLE_COLUMNS}, {_EPOCH}, (SELECT CAST(group_concat(payload, ',') AS BLOB) FROM
        (SELECT payload {_COMMITS} AND c.version >= ?2 AND c.version <= ?3 ORDER BY c.version DESC))
    FROM tables t WHERE t.id = ?1 AND {_NAMED}"""
_BY_NAME = f"""SELECT {TABLE_COLUMNS}, {_EPOCH}, (SELECT CAST(group_concat(payload, ',') AS BLOB) FROM
        (SELECT payload {_COMMITS} ORDER BY c.version DESC))
    FROM catalogs k JOIN schemas s ON s.catalog_id = k.id AND s.path_key = ?2
    JOIN tables t ON t.schema_id = s.id AND t.name_key = ?3 AND {_NAMED} WHERE k.name_key = ?1"""

_JOINED = "string_agg(c.payload, ','::bytea ORDER BY c.version DESC)"
_ALL_BY_ID = f"""SELECT {TABLE_COLUMNS}, {_EPOCH},
        (SELECT {_JOINED} {_COMMITS} AND c.version >= q.lowest AND c.version <= q.highest), q.n
    FROM unnest(?1::text[], ?2::bigint[], ?3::bigint[]) WITH ORDINALITY AS q(id, lowest, highest, n)
    JOIN tables t ON t.id = q.id AND {_NAMED}"""
_ALL_BY_NAME = f"""SELECT {TABLE_COLUMNS}, {_EPOCH}, (SELECT {_JOINED} {_COMMITS}), q.n
    FROM unnest(?1::text[], ?2::text[], ?3::text[]) WITH ORDINALITY AS q(catalog, path, name, n)
    JOIN catalogs k ON k.name_key = q.catalog
    JOIN schemas s ON s.catalog_id = k.id AND s.path_key = q.path
    JOIN tables t ON t.schema_id = s.id AND t.name_key = q.name AND {_NAMED}"""


def keys_of(catalog: str, path: Sequence[str], name: str) -> ByName:
    return name_key(catalog), path_key(path), name_key(name)


def by_id(asked: ById) -> Steps[LogTail | None]:
    """For SQLite: one question."""
    return _tail(_BY_ID, asked)


def by_name(asked: ByName) -> Steps[LogTail | None]:
    return _tail(_BY_NAME, asked)


def all_by_id(asked: Sequence[ById]) -> Steps[list[LogTail | None]]:
    """For PostgreSQL: many questions as one statement."""
    return _tails(_ALL_BY_ID, asked)


def all_by_name(asked: Sequence[ByName]) -> Steps[list[LogTail | None]]:
    return _tails(_ALL_BY_NAME, asked)


def _tail(sql: str, asked: ById | ByName) -> Steps[LogTail | None]:
    rows = yield sql, asked
    return _tail_of(rows[0]) if rows else None


def _tails(sql: str, asked: Sequence[ById] | Sequence[ByName]) -> Steps[list[LogTail | None]]:
    rows = yield sql, tuple(list(column) for column in zip(*asked, strict=True))
    found: list[LogTail | None] = [None] * len(asked)
    for row in rows:
        found[row[_WIDTH + 2] - 1] = _tail_of(row)
    return found


def _tail_of(row: Row) -> LogTail:
    return LogTail(table_of(row), b"[%b]" % (row[_WIDTH + 1] or b""), row[_WIDTH])


class Together(Generic[Q, R]):
    """Questions that come while others are being answered wait, and are then asked as one."""

    def __init__(self, ask: Callable[[list[Q]], Awaitable[list[R]]]) -> None:
        self._ask = ask
        self._waiting: list[tuple[Q, asyncio.Future[R]]] = []
        self._asking: asyncio.Task[None] | None = None

    def __call__(self, question: Q) -> asyncio.Future[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._run())
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                try:
                    answers = await self._ask([question for question, _ in taken])
                except Exception as error:
                    for _, future in taken:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(taken, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._asking = None
