"""SQL written once for both dialects, and the seam by which it is run.

A piece of store logic is a generator: it yields `(sql, parameters)` and receives the rows. SQLite
drives it inside the event loop, PostgreSQL awaits each statement, and the logic does not know which.

Statements use `?1`, `?2`, ... and these marks:

    {update}    FOR UPDATE on PostgreSQL; SQLite has one writer and needs no row lock
    {share}     FOR SHARE
    {skip}      FOR UPDATE SKIP LOCKED
    {locations_shared}, {locations_exclusive}
                a whole statement: the lock under which table locations are compared
    {key}       the type of text that is compared byte by byte
    {bytes}     the type of raw bytes
    {int}       64-bit integers; on SQLite the spelling that makes a primary key the row's own place
    {clustered} keep the rows in the order of their primary key, where the dialect can
    {now_ms}    the database's own time, in milliseconds since the epoch
    {roomy}     leave room on the page for the next version of a row that changes often
    {sqlite}    in front of a statement that is for SQLite alone
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

Row: TypeAlias = Any
"""A tuple on SQLite, a record on PostgreSQL; both are read by position."""

Statement: TypeAlias = tuple[str, tuple[Any, ...]]
T = TypeVar("T")
Steps: TypeAlias = Generator[Statement, list[Row], T]

_SQLITE = {
    "{update}": "",
    "{share}": "",
    "{skip}": "",
    "{locations_shared}": "",
    "{locations_exclusive}": "",
    "{key}": "TEXT",
    "{bytes}": "BLOB",
    "{int}": "INTEGER",
    "{clustered}": "WITHOUT ROWID",
    "{roomy}": "",
    "{sqlite}": "",
    "{now_ms}": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
_POSTGRES = {
    "{update}": "FOR UPDATE",
    "{share}": "FOR SHARE",
    "{skip}": "FOR UPDATE SKIP LOCKED",
    "{locations_shared}": "SELECT pg_advisory_xact_lock_shared(7283001)",
    "{locations_exclusive}": "SELECT pg_advisory_xact_lock(7283001)",
    "{key}": 'TEXT COLLATE "C"',
    "{bytes}": "BYTEA",
    "{int}": "BIGINT",
    "{clustered}": "",
    "{roomy}": "WITH (fillfactor = 70)",
    "{now_ms}": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
}
_MARK = re.compile(r"\{[a-z_]+\}")
_PARAMETER = re.compile(r"\?(\d+)")


class UniqueViolation(Exception):
    """A name or id is taken; thrown into the generator that asked."""


def one(sql: str, parameters: tuple[Any, ...], make: Callable[[Row], T]) -> Steps[T | None]:
    """What a question for at most one row finds."""
    rows = yield sql, parameters
    return make(rows[0]) if rows else None


def many(sql: str, parameters: tuple[Any, ...], make: Callable[[Row], T]) -> Steps[list[T]]:
    rows = yield sql, parameters
    return [make(row) for row in rows]


def sqlite_text(sql: str) -> str:
    return _MARK.sub(lambda mark: _SQLITE[mark.group()], sql)


def postgres_text(sql: str) -> str:
    if sql.startswith("{sqlite}"):
        return ""
    return _PARAMETER.sub(r"$\1", _MARK.sub(lambda mark: _POSTGRES[mark.group()], sql))
