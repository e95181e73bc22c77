"""Versions as clients list them: written with a commit, taken away without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from inver.domain import ledger
from inver.domain.ledger import ConflictDetail, Reason, Record, Result
from inver.errors import Conflict, NotFound
from inver.ports import BranchState
from inver.stores.deciding import Change, Context, Outcome, conflict
from inver.stores.relations import lock_named
from inver.stores.sql import Row, Steps, many, one

BY_KEY = "SELECT version FROM records WHERE table_id = ?1 AND branch = ?2 AND key = ?3"
_INSERT = "INSERT INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
_INSERT_WAITING = "INSERT INTO waiting VALUES (?1, ?2, ?3, ?4)"
_COLUMNS = """r.version, r.at, r.key, r.body, EXISTS (SELECT 1 FROM waiting w
    WHERE w.table_id = r.table_id AND w.branch = r.branch AND w.version = r.version)"""
_SPAN = "WHERE table_id = ?1 AND branch = ?2 AND version >= ?3 AND version < ?4"

Version: TypeAlias = tuple[str, str, int]
"""Of a table and a branch."""


def record_version(context: Context, op: ledger.Append, record: Record) -> Steps[None]:
    """The branch is locked, so whoever looks first also writes first."""
    if record.key is not None:
        rows = yield BY_KEY, (op.table_id, op.branch, record.key)
        if rows:
            detail = ConflictDetail(
                operation=context.index,
                subject=op.table_id,
                reason=Reason.COMMITTED_BEFORE,
                expected=op.version - 1,
                current=rows[0][0],
            )
            raise Conflict(f"this transaction is version {rows[0][0]} already", [detail])
    yield from insert(op.table_id, op.branch, record)


def insert(table_id: str, branch: str, record: Record) -> Steps[None]:
    yield _INSERT, (table_id, branch, record.version, record.at, record.key, record.body)
    if record.data is not None:
        yield _INSERT_WAITING, (table_id, branch, record.version, record.data)


def add_records(context: Context, op: ledger.AddRecords) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, None)
    for record in op.records:
        yield from insert(op.table_id, op.branch, record)
    return Change(
        Result(op.table_id, row[2], len(op.records)), {"branch": op.branch, "count": len(op.records)}
    )


def delete_records(context: Context, op: ledger.DeleteRecords) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, None)
    before = yield from _newest(op.table_id, op.branch)
    count = 0
    for start, end in op.ranges:
        span = (op.table_id, op.branch, start, 2**63 - 1 if end is None else end)
        gone = yield f"DELETE FROM records {_SPAN} RETURNING 1", span
        yield f"DELETE FROM waiting {_SPAN}", span
        count += len(gone)
    after = yield from _newest(op.table_id, op.branch)
    whole = after is None and any(end is None for _, end in op.ranges)
    if after != before and not whole and not op.newest:
        raise conflict(context, op.table_id, Reason.NEWEST_VERSION, before, after)
    data = {"branch": op.branch, "count": count} if op.branch else {"count": count}
    return Change(Result(op.table_id, row[2], count), data)


def drop_branch(context: Context, op: ledger.DropBranch) -> Steps[Outcome]:
    """Its commits stay, under a name that nobody can give, so that the branch can be made anew."""
    row = yield from lock_named(context, op.table_id, None)
    gone = yield (
        "DELETE FROM branches WHERE table_id = ?1 AND name = ?2 RETURNING version",
        (op.table_id, op.branch),
    )
    if not gone:
        raise NotFound("the branch does not exist", kind="branch")
    for listed_in in ("records", "waiting"):
        yield f"DELETE FROM {listed_in} WHERE table_id = ?1 AND branch = ?2", (op.table_id, op.branch)
    taken = yield (
        "SELECT MAX(txn) FROM commits WHERE table_id = ?1 AND branch = ?2",
        (op.table_id, op.branch),
    )
    yield (
        "UPDATE commits SET branch = ?3 WHERE table_id = ?1 AND branch = ?2",
        (op.table_id, op.branch, f"{op.branch}\x1f{taken[0][0] or 0}"),
    )
    return Change(Result(op.table_id, row[2]), {"branch": op.branch})


def _newest(table_id: str, branch: str) -> Steps[int | None]:
    rows = yield (
        "SELECT MAX(version) FROM records WHERE table_id = ?1 AND branch = ?2",
        (table_id, branch),
    )
    newest: int | None = rows[0][0]
    return newest


# --- questions ---


def _record_of(row: Row) -> Record:
    return Record(row[0], row[1], row[2], bytes(row[3]), b"" if row[4] else None)


def listed(
    table_id: str, branch: str, first: int, last: int, limit: int, newest_first: bool
) -> Steps[list[Record]]:
    """`first` and `last` included."""
    order = "DESC" if newest_first else "ASC"
    return many(
        f"""SELECT {_COLUMNS} FROM records r WHERE r.table_id = ?1 AND r.branch = ?2
            AND r.version >= ?3 AND r.version <= ?4 ORDER BY r.version {order} LIMIT ?5""",
        (table_id, branch, first, last, limit),
        _record_of,
    )


def by_key(table_id: str, branch: str, key: str) -> Steps[Record | None]:
    return one(
        f"SELECT {_COLUMNS} FROM records r WHERE r.table_id = ?1 AND r.branch = ?2 AND r.key = ?3",
        (table_id, branch, key),
        _record_of,
    )


def branches(table_id: str) -> Steps[list[BranchState]]:
    rows = yield "SELECT name, version FROM branches WHERE table_id = ?1 ORDER BY name", (table_id,)
    return [BranchState(row[0], row[1]) for row in rows]


def branch(table_id: str, name: str) -> Steps[BranchState | None]:
    rows = yield (
        "SELECT name, version FROM branches WHERE table_id = ?1 AND name = ?2",
        (table_id, name),
    )
    return BranchState(rows[0][0], rows[0][1]) if rows else None


def waiting(limit: int, after: Version) -> Steps[list[Version]]:
    rows = yield (
        """SELECT table_id, branch, version FROM waiting WHERE (table_id, branch, version) > (?2, ?3, ?4)
           ORDER BY table_id, branch, version LIMIT ?1""",
        (limit, *after),
    )
    return [(row[0], row[1], row[2]) for row in rows]


def data_of(table_id: str, branch: str, version: int) -> Steps[bytes | None]:
    rows = yield (
        "SELECT data FROM waiting WHERE table_id = ?1 AND branch = ?2 AND version = ?3",
        (table_id, branch, version),
    )
    return bytes(rows[0][0]) if rows else None


def let_go(versions: Sequence[Version]) -> Steps[None]:
    """Versions that follow each other go by one statement."""
    ordered = sorted(set(versions))
    start = 0
    for end, (table_id, branch, version) in enumerate(ordered, start=1):
        if end == len(ordered) or ordered[end] != (table_id, branch, version + 1):
            yield f"DELETE FROM waiting {_SPAN}", (table_id, branch, ordered[start][2], version + 1)
            start = end
