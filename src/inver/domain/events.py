"""Events: one row per change, written with the change, numbered without gaps."""

from __future__ import annotations

import msgspec

from inver.domain import governance, ledger, runs, shares


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
    ledger.FinishTable: "table.created",
    ledger.CreateBranch: "table.branched",
    ledger.DropBranch: "table.branch-dropped",
    ledger.AddRecords: "table.versions-added",
    ledger.DeleteRecords: "table.versions-deleted",
    ledger.AlterTable: "table.altered",
    ledger.RenameTable: "table.renamed",
    ledger.DropTable: "table.dropped",
    ledger.UndropTable: "table.undropped",
    ledger.PurgeTable: "table.purged",
    ledger.MoveCursor: "cursor.moved",
    governance.CreatePrincipal: "principal.created",
    governance.AlterPrincipal: "principal.altered",
    governance.DeletePrincipal: "principal.deleted",
    governance.AddMember: "group.member-added",
    governance.RemoveMember: "group.member-removed",
    governance.CreateToken: "token.created",
    governance.RevokeToken: "token.revoked",
    governance.CreateSecret: "secret.created",
    governance.RevokeSecret: "secret.revoked",
    governance.Grant: "grant.added",
    governance.Revoke: "grant.revoked",
    governance.RecordDenial: "access.denied",
    shares.CreateShare: "share.created",
    shares.DropShare: "share.dropped",
    shares.AddToShare: "share.item-added",
    shares.RemoveFromShare: "share.item-removed",
    shares.GrantShare: "share.granted",
    shares.RevokeShare: "share.revoked",
    shares.CreateRecipient: "recipient.created",
    shares.AlterRecipient: "recipient.altered",
    shares.DropRecipient: "recipient.dropped",
    shares.AddCredential: "recipient.credential-added",
    shares.RotateRecipient: "recipient.rotated",
    shares.RevokeRecipient: "recipient.revoked",
    shares.UseActivation: "recipient.activated",
    shares.RecordAccess: "share.accessed",
    runs.StartRun: "care.started",
    runs.FinishRun: "care.finished",
    runs.SetCarePolicy: "care.policy-set",
    runs.DropCarePolicy: "care.policy-dropped",
}

COMMITTED = KINDS[ledger.Append]
STAGED = "table.staged"


def cloud_type(kind: str) -> str:
    """The CloudEvents type of an event kind."""
    return f"io.inver.{kind}.v1"
