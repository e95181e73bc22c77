"""Events: one row per change, written with the change, numbered without gaps."""

from __future__ import annotations

import msgspec

from inver.domain import ledger


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`transaction` is the sequence number of the transaction's first event."""

    seq: int
    transaction: int
    at: int
    by: str
    kind: str
    subject: str
    version: int | None
    data: bytes


KINDS: dict[type[ledger.Operation], str] = {
    ledger.CreateCatalog: "catalog.created",
    ledger.AlterCatalog: "catalog.altered",
    ledger.DropCatalog: "catalog.dropped",
    ledger.CreateSchema: "schema.created",
    ledger.AlterSchema: "schema.altered",
    ledger.DropSchema: "schema.dropped",
    ledger.CreateTable: "table.created",
    ledger.Append: "table.committed",
    ledger.CreateBranch: "table.branched",
    ledger.AlterTable: "table.altered",
    ledger.RenameTable: "table.renamed",
    ledger.DropTable: "table.dropped",
    ledger.UndropTable: "table.undropped",
    ledger.PurgeTable: "table.purged",
    ledger.MoveCursor: "cursor.moved",
}

COMMITTED = KINDS[ledger.Append]


def cloud_type(kind: str) -> str:
    """The CloudEvents type of an event kind."""
    return f"io.inver.{kind}.v1"
