"""The common case on SQLite: a transaction of one append, won by one guarded UPDATE.

Nothing is written unless that wins, so no SAVEPOINT is needed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeAlias

from inver.domain.events import COMMITTED
from inver.domain.ledger import Append, Receipt, Result, Transaction
from inver.stores import journal, records
from inver.stores.parts import write_parts
from inver.stores.sql import Steps
from inver.stores.versions import event_data

Execute: TypeAlias = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]

# Times of one table never go back: behind a clock that did, the full rules decide.
_ADVANCE = """UPDATE tables SET version = ?2, updated_at = ?3, updated_by = ?4
    WHERE id = ?1 AND version = ?2 - 1 AND state = 'live' AND updated_at <= ?3"""
_ADVANCE_PUBLISHED = """UPDATE tables SET version = ?2, updated_at = ?3, updated_by = ?4,
        published = MAX(published, ?5)
    WHERE id = ?1 AND version = ?2 - 1 AND state = 'live' AND updated_at <= ?3"""
_ADVANCE_MORE = """UPDATE tables SET version = ?2, updated_at = ?3, updated_by = ?4,
        head = COALESCE(?5, head), published = MAX(published, COALESCE(?7, published))
    WHERE id = ?1 AND version = ?2 - 1 AND state = 'live' AND updated_at <= ?3
    AND name_key = COALESCE(?6, name_key)"""
_RETURNING = {
    text: f"{text} RETURNING etag, published" for text in (_ADVANCE, _ADVANCE_PUBLISHED, _ADVANCE_MORE)
}


def append_alone(
    execute: Execute,
    drive: Callable[[Steps[Any]], Any],
    transaction: Transaction,
    seq: int,
    before: Receipt | None,
) -> Receipt | None:
    """An append on a live table; None when it did not win and the full rules must say why.

    `before` is the receipt of the version that it follows, if nothing else was written since: to have
    the row returned costs as much again as to change it.
    """
    op = transaction.operations[0]
    assert isinstance(op, Append)
    at, by, record = transaction.at, transaction.by, op.record
    if record is not None and record.key is not None and _is_known(execute, op.table_id, record.key):
        return None
    text: str
    values: tuple[Any, ...]
    if op.head is not None or op.named is not None:
        text, values = _ADVANCE_MORE, (op.table_id, op.version, at, by, op.head, op.named, op.published)
    elif op.published is not None:
        text, values = _ADVANCE_PUBLISHED, (op.table_id, op.version, at, by, op.published)
    else:
        text, values = _ADVANCE, (op.table_id, op.version, at, by)
    if before is not None:
        if not execute(text, values).rowcount:
            return None
        etag, published = before.etag, before.published
        if op.published is not None and (published is None or op.published > published):
            published = op.published
    else:
        moved = execute(_RETURNING[text], values).fetchall()
        if not moved:
            return None
        [(etag, published)] = moved
    if op.parts:
        drive(write_parts(op.table_id, op.parts))
    if record is not None:
        drive(records.insert(op.table_id, "", record))
    execute(
        journal.INSERT_EVENT,
        (seq, seq, at, by, COMMITTED, op.table_id, op.version, event_data(op)),
    )
    execute(
        journal.INSERT_COMMIT,
        (op.table_id, "", op.version, at, by, op.operation, op.token, seq, op.payload, op.counts),
    )
    return Receipt(seq, at, (Result(op.table_id, op.version),), False, etag, published)


def _is_known(execute: Execute, table_id: str, key: str) -> bool:
    """Whether what would make a version has made one."""
    return bool(execute(records.BY_KEY, (table_id, "", key)).fetchall())
