"""What the operations of a transaction share while they are being decided."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import ledger
from inver.domain.ledger import ConflictDetail, Reason, Result, Transaction
from inver.errors import Conflict, PreconditionFailed
from inver.stores.sql import Steps

SEPARATOR = "\x1f"
encode = msgspec.json.encode


class Change(msgspec.Struct, frozen=True):
    """What an operation did: its result, the data of its event, and its kind where that is not the usual."""

    result: Result
    data: dict[str, Any]
    kind: str | None = None


class Noop(msgspec.Struct, frozen=True):
    """The operation holds already; it has a result and no event."""

    result: Result


class Pending(msgspec.Struct, frozen=True):
    """A commit row that waits for the number of its transaction."""

    append: ledger.Append
    at: int


Outcome = Change | Noop


class Context:
    """One transaction while it is being decided."""

    __slots__ = ("appended", "index", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.index = 0
        self.appended: list[Pending] = []

    @property
    def at(self) -> int:
        return self.transaction.at

    @property
    def by(self) -> str:
        return self.transaction.by


def conflict(
    context: Context, subject: str, reason: Reason, expected: int | str | None, current: int | str | None
) -> Conflict:
    detail = ConflictDetail(
        operation=context.index, subject=subject, reason=reason, expected=expected, current=current
    )
    kind = PreconditionFailed if reason is Reason.ETAG_CHANGED else Conflict
    return kind(f"{subject}: {reason}, expected {expected}, found {current}", [detail])


def require_etag(context: Context, subject: str, expect: int | None, current: int) -> None:
    if expect is not None and expect != current:
        raise conflict(context, subject, Reason.ETAG_CHANGED, expect, current)


def collect(sets: dict[str, Any], op: Any, fields: tuple[str, ...]) -> None:
    """Columns for the fields that the operation names; maps are stored as JSON."""
    for field in fields:
        value = getattr(op, field)
        if value is not msgspec.UNSET:
            sets[field] = value
    if op.properties is not msgspec.UNSET:
        sets["properties"] = encode(op.properties)


def update_row(table: str, row_id: str, sets: dict[str, Any], context: Context) -> Steps[None]:
    # Column names come from this module, never from a request.
    columns = "".join(f", {name} = ?{index}" for index, name in enumerate(sets, start=4))
    yield (
        f"UPDATE {table} SET etag = etag + 1, updated_at = ?2, updated_by = ?3{columns} WHERE id = ?1",
        (row_id, context.at, context.by, *sets.values()),
    )
