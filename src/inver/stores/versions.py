"""Versions, branches and cursors: how an append wins or loses."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from inver.domain import ledger
from inver.domain.ledger import Reason, Result, Winner
from inver.domain.names import name_key
from inver.domain.tables import State
from inver.errors import AlreadyExists, Conflict, Invalid, NotFound
from inver.stores.deciding import (
    Change,
    Context,
    Noop,
    Outcome,
    Pending,
    conflict,
    encode,
    require_etag,
    update_row,
)
from inver.stores.epoch import BUMP_EPOCH
from inver.stores.parts import write_parts
from inver.stores.records import record_version
from inver.stores.relations import define, lock_named, lock_table, move
from inver.stores.sql import Steps, UniqueViolation

STANDING = """SELECT version, token, txn, at, by_id FROM commits
    WHERE table_id = ?1 AND branch = ?2 AND version = ?3"""

ADVANCE_MAIN = """UPDATE tables SET version = ?2, updated_by = ?4, head = COALESCE(?5, head),
        updated_at = CASE WHEN updated_at > ?3 THEN updated_at ELSE ?3 END
    WHERE id = ?1 AND version = ?2 - 1 AND state IN ('live', 'declared')
    AND name_key = COALESCE(?6, name_key) RETURNING updated_at, state"""


def append(context: Context, op: ledger.Append) -> Steps[Outcome]:
    if op.branch != ledger.MAIN or op.expect_etag is not None:
        yield from _require_branch(context, op)
    if op.branch == ledger.MAIN:
        moved = yield ADVANCE_MAIN, (op.table_id, op.version, context.at, context.by, op.head, op.named)
        if not moved:
            raise (yield from refusal(context.index, op))
        at, state = moved[0]
        if state == State.DECLARED:
            # Apart: with every commit it would write what is indexed by the state.
            yield "UPDATE tables SET state = 'live' WHERE id = ?1", (op.table_id,)
    else:
        at = context.at
    if op.parts:
        yield from write_parts(op.table_id, op.parts)
    if op.place is not None:
        yield from move(op.table_id, op.place)
    if op.record is not None:
        yield from record_version(context, op, op.record)
    if op.definition is not None:
        yield from define(op.table_id, op.definition)
        yield "UPDATE tables SET etag = etag + 1 WHERE id = ?1", (op.table_id,)
    context.appended.append(Pending(op, at))
    return Change(Result(op.table_id, op.version), commit_data(op))


def expect(context: Context, op: ledger.Expect) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, None)
    if row[2] < op.version:
        raise conflict(context, op.table_id, Reason.VERSION_GAP, op.version, row[2])
    return Noop(Result(op.table_id, op.version))


def finish_table(context: Context, op: ledger.FinishTable) -> Steps[Outcome]:
    rows = yield "SELECT catalog_id FROM schemas WHERE id = ?1 {share}", (op.schema_id,)
    if not rows:
        raise NotFound("the schema does not exist", kind="schema")
    row = yield from lock_table(op.table_id)
    if row[1] == State.PURGED:
        raise NotFound("the staged table was not finished in time", kind="table", fix="stage it again")
    if row[1] != State.STAGED:
        raise AlreadyExists(f"the staged table {op.table_id} is finished already", kind="table")
    sets = {
        "catalog_id": rows[0][0],
        "schema_id": op.schema_id,
        "name": op.name,
        "name_key": name_key(op.name),
        "state": State.LIVE,
        "version": op.first.version,
        "published": op.first.version,
        "head": op.first.head,
    }
    try:
        yield from update_row("tables", op.table_id, sets, context)
    except UniqueViolation:
        raise AlreadyExists(f"table {op.name!r} already exists", kind="table") from None
    if op.schema_id != row[4]:
        # What the table inherits changes with its place.
        yield BUMP_EPOCH, ()
    yield from define(op.table_id, op.definition)
    yield from write_parts(op.table_id, op.first.parts)
    context.appended.append(Pending(op.first, context.at))
    return Change(Result(op.table_id, op.first.version), {"name": op.name, "schema_id": op.schema_id})


def commit_data(op: ledger.Append) -> dict[str, Any]:
    data: dict[str, Any] = {"operation": op.operation}
    if op.branch:
        data["branch"] = op.branch
    if op.counts is not None:
        data["counts"] = msgspec.Raw(op.counts)
    return data


def event_data(op: ledger.Append) -> bytes:
    """The same bytes as `commit_data` encoded, for a plain append."""
    operation = _quoted(op.operation)
    if op.counts is None:
        return b'{"operation":%b}' % operation
    return b'{"operation":%b,"counts":%b}' % (operation, op.counts)


@lru_cache(maxsize=256)
def _quoted(text: str) -> bytes:
    return encode(text)


def is_plain(transaction: ledger.Transaction) -> bool:
    """Nothing but appends to main, without other conditions or records: the shape that batches take."""
    if transaction.keyed is not None or transaction.work or not transaction.operations:
        return False
    for op in transaction.operations:
        if type(op) is not ledger.Append or not _is_bare(op):
            return False
        if op.head is not None or op.parts or op.named is not None or op.record is not None:
            return False
    return True


def is_alone(transaction: ledger.Transaction) -> bool:
    """One append to main that one guarded UPDATE decides; a head, parts and a record may follow it."""
    if transaction.keyed is not None or transaction.work or len(transaction.operations) != 1:
        return False
    op = transaction.operations[0]
    return type(op) is ledger.Append and _is_bare(op)


def _is_bare(op: ledger.Append) -> bool:
    if op.branch or op.definition is not None:
        return False
    return op.expect_etag is None and op.place is None


def _require_branch(context: Context, op: ledger.Append) -> Steps[None]:
    row = yield from lock_named(context, op.table_id, None)
    if op.branch == ledger.MAIN and op.version <= row[2]:
        # Who won may have changed the etag too; what was lost is the version.
        raise (yield from refusal(context.index, op))
    require_etag(context, op.table_id, op.expect_etag, row[3])
    if op.branch == ledger.MAIN:
        return
    moved = yield (
        "UPDATE branches SET version = ?3 WHERE table_id = ?1 AND name = ?2 AND version = ?3 - 1 RETURNING 1",
        (op.table_id, op.branch, op.version),
    )
    if not moved:
        raise (yield from refusal(context.index, op))


def refusal(index: int, op: ledger.Append) -> Steps[Exception]:
    """Why an append lost: the table is gone, or its branch stands elsewhere."""
    if op.branch == ledger.MAIN:
        rows = yield (
            "SELECT version FROM tables WHERE id = ?1 AND state IN ('live', 'declared')",
            (op.table_id,),
        )
    else:
        rows = yield (
            "SELECT version FROM branches WHERE table_id = ?1 AND name = ?2",
            (op.table_id, op.branch),
        )
    if not rows:
        kind = "table" if op.branch == ledger.MAIN else "branch"
        return NotFound(f"the {kind} does not exist", kind=kind)
    standing = yield STANDING, (op.table_id, op.branch, op.version)
    winner = Winner(*standing[0]) if standing else None
    return lost(index, op, rows[0][0], winner)


def lost(index: int, op: ledger.Append, current: int, winner: Winner | None) -> Conflict:
    detail = ledger.conflict_of(index, op, current, winner)
    if detail.reason is Reason.VERSION_TAKEN:
        message = f"version {op.version} is taken; the table is at version {current}"
    elif op.named is not None and op.version == current + 1:
        message = "the table has another name by now"
    else:
        message = f"version {op.version} does not follow version {current}"
    return Conflict(message, [detail])


def create_branch(context: Context, op: ledger.CreateBranch) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, None)
    if op.branch == ledger.MAIN:
        raise Invalid("a branch needs a name", field="branch")
    most = row[2] if op.within is None else op.within
    if op.version > most:
        raise Invalid(f"version {op.version} does not exist; the table is at {most}", field="version")
    taken = yield (
        "SELECT version FROM branches WHERE table_id = ?1 AND name = ?2",
        (op.table_id, op.branch),
    )
    if taken:
        raise conflict(context, op.table_id, Reason.BRANCH_EXISTS, None, taken[0][0])
    yield "INSERT INTO branches VALUES (?1, ?2, ?3)", (op.table_id, op.branch, op.version)
    return Change(Result(op.table_id, op.version), {"branch": op.branch})


def move_cursor(context: Context, op: ledger.MoveCursor) -> Steps[Outcome]:
    rows = yield "SELECT value FROM cursors WHERE name = ?1 {update}", (op.name,)
    current = rows[0][0] if rows else None
    if current != op.expect:
        raise conflict(context, op.name, Reason.CURSOR_MOVED, op.expect, current)
    if op.value is None:
        yield "DELETE FROM cursors WHERE name = ?1", (op.name,)
    elif rows:
        yield (
            "UPDATE cursors SET value = ?2, updated_at = ?3, updated_by = ?4 WHERE name = ?1",
            (op.name, op.value, context.at, context.by),
        )
    else:
        try:
            yield "INSERT INTO cursors VALUES (?1, ?2, ?3, ?4)", (op.name, op.value, context.at, context.by)
        except UniqueViolation:
            raise conflict(context, op.name, Reason.CURSOR_MOVED, None, "another value") from None
    return Change(Result(op.name), {"from": op.expect, "to": op.value})
