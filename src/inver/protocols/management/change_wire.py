"""Transactions, events and problems of the management API: what is asked, and what is answered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from inver.domain.events import Event, cloud_type
from inver.domain.ledger import Append, ConflictDetail, Receipt, Winner
from inver.errors import Invalid
from inver.protocols.management.wire import CreateTable, Label, Long, Path, Strict, Text
from inver.services import intents as ask
from inver.services.names import TableRef

_NOTHING = msgspec.Raw(b"{}")


class TableName(Strict):
    """A table by `id`, or by `name`: catalog, schemas, table."""

    id: Annotated[str, Meta(min_length=36, max_length=36)] | None = None
    name: Path | None = None

    def ref(self) -> TableRef:
        if (self.id is None) == (self.name is None):
            raise Invalid("give a table either by id or by name", field="table")
        return TableRef(None if self.id is None else self.id.lower(), self.name)


class CountsBody(Strict, omit_defaults=True):
    rows_added: Long | None = None
    rows_removed: Long | None = None
    files_added: Long | None = None
    files_removed: Long | None = None
    bytes_added: Long | None = None
    bytes_removed: Long | None = None


class CommitOp(Strict, tag_field="op", tag="commit"):
    """A new version of a table. It wins only if the branch stands at `version - 1`.

    `token` identifies the attempt: sent again with the same token it is a success, with another
    it is a conflict.
    """

    table: TableName
    version: Long
    token: Label
    branch: Annotated[str, Meta(max_length=255)] = ""
    operation: Label = "commit"
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: _NOTHING)
    counts: CountsBody | None = None

    def intent(self) -> ask.Intent:
        counts = None if self.counts is None else msgspec.json.encode(self.counts)
        table = self.table
        if table.id is not None and table.name is None:
            return Append(
                table_id=table.id.lower(),
                version=self.version,
                token=self.token,
                branch=self.branch,
                operation=self.operation,
                payload=bytes(self.payload),
                counts=counts,
            )
        return ask.Commit(
            table=table.ref(),
            version=self.version,
            token=self.token,
            branch=self.branch,
            operation=self.operation,
            payload=bytes(self.payload),
            counts=counts,
        )


class CreateTableOp(CreateTable, tag_field="op", tag="create-table"):
    name: Path  # type: ignore[assignment]

    def intent(self) -> ask.Intent:  # type: ignore[override]
        return super().intent(self.name)


class CreateBranchOp(Strict, tag_field="op", tag="create-branch"):
    table: TableName
    branch: Label
    version: Long

    def intent(self) -> ask.Intent:
        return ask.CreateBranch(table=self.table.ref(), branch=self.branch, version=self.version)


class RenameTableOp(Strict, tag_field="op", tag="rename-table"):
    table: TableName
    to: Path

    def intent(self) -> ask.Intent:
        return ask.RenameTable(table=self.table.ref(), to=self.to)


class DropTableOp(Strict, tag_field="op", tag="drop-table"):
    table: TableName

    def intent(self) -> ask.Intent:
        return ask.DropTable(table=self.table.ref())


class UndropTableOp(Strict, tag_field="op", tag="undrop-table"):
    table: TableName
    to: Path | None = None

    def intent(self) -> ask.Intent:
        ref = self.table.ref()
        if ref.id is None:
            raise Invalid("a dropped table has no name: give its id", field="table.id")
        return ask.UndropTable(table_id=ref.id, to=self.to)


class MoveCursorOp(Strict, tag_field="op", tag="move-cursor"):
    """Moves a named position from `expect` to `value`; null means that there is none."""

    cursor: Label
    expect: Text | None
    value: Text | None

    def intent(self) -> ask.Intent:
        return ask.MoveCursor(cursor=self.cursor, expect=self.expect, value=self.value)


class DeltaCommitOp(Strict, tag_field="op", tag="delta-commit"):
    """A commit of a managed Delta table: what Unity Catalog's `POST /delta/commit` takes."""

    commit: msgspec.Raw


class IcebergCommitOp(Strict, tag_field="op", tag="iceberg-commit"):
    """A commit of an Iceberg table, with requirements and updates as the Iceberg REST protocol has them."""

    table: Path
    commit: msgspec.Raw


class LanceOp(Strict, tag_field="op", tag="lance"):
    """One operation of Lance's `batch-commit`: declares or deregisters a table, makes or deletes versions."""

    operation: msgspec.Raw


NativeOp = DeltaCommitOp | IcebergCommitOp | LanceOp
AnyOp = (
    CommitOp
    | CreateTableOp
    | CreateBranchOp
    | RenameTableOp
    | DropTableOp
    | UndropTableOp
    | MoveCursorOp
    | DeltaCommitOp
    | IcebergCommitOp
    | LanceOp
)


class TransactionRequest(Strict):
    operations: Annotated[list[AnyOp], Meta(min_length=1, max_length=1_000)]


class OperationResult(msgspec.Struct, omit_defaults=True):
    id: str
    version: int | None = None


class TransactionResult(msgspec.Struct):
    """`transaction` is the number of its first event; `replayed` says that it had happened before."""

    transaction: str
    at: int
    replayed: bool
    results: list[OperationResult]

    @classmethod
    def of(cls, receipt: Receipt) -> TransactionResult:
        return cls(
            str(receipt.transaction),
            receipt.at,
            receipt.replayed,
            [OperationResult(result.subject, result.version) for result in receipt.results],
        )


class WinnerInfo(msgspec.Struct):
    version: int
    transaction: str
    at: int
    by: str

    @classmethod
    def of(cls, winner: Winner) -> WinnerInfo:
        return cls(winner.version, str(winner.transaction), winner.at, winner.by)


class ConflictInfo(msgspec.Struct, omit_defaults=True):
    operation: int
    subject: str
    reason: str
    expected: int | str | None
    current: int | str | None
    winner: WinnerInfo | None = None

    @classmethod
    def of(cls, detail: ConflictDetail) -> ConflictInfo:
        return cls(
            detail.operation,
            detail.subject,
            detail.reason,
            detail.expected,
            detail.current,
            None if detail.winner is None else WinnerInfo.of(detail.winner),
        )


# --- events ---


class CloudEvent(msgspec.Struct, rename={"inver_transaction": "invertransaction"}):
    """CloudEvents 1.0. `id` is the event's sequence number."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    inver_transaction: str
    data: msgspec.Raw

    @classmethod
    def of(cls, event: Event, source: str) -> CloudEvent:
        data = {
            **msgspec.json.decode(event.data, type=dict[str, msgspec.Raw]),
            "by": msgspec.Raw(msgspec.json.encode(event.by)),
        }
        if event.version is not None:
            data["version"] = msgspec.Raw(b"%d" % event.version)
        return cls(
            "1.0",
            str(event.seq),
            source,
            cloud_type(event.kind),
            event.subject,
            rfc3339(event.at),
            "application/json",
            str(event.transaction),
            msgspec.Raw(msgspec.json.encode(data)),
        )


class EventList(msgspec.Struct):
    """`next` is what to give as `after` the next time."""

    events: list[CloudEvent]
    next: str


class TransactionInfo(msgspec.Struct):
    transaction: str
    at: int
    by: str
    events: list[CloudEvent]


class CursorInfo(msgspec.Struct):
    cursor: str
    value: str


class ServerInfo(msgspec.Struct):
    name: str
    version: str
    database: str
    last_event: str


class Problem(msgspec.Struct, omit_defaults=True):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    fix: str | None = None
    request_id: str | None = None
    operation: int | None = None
    conflicts: list[ConflictInfo] = []


def rfc3339(at_ms: int) -> str:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
