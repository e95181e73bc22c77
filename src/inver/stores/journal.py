"""A whole transaction: its operations in order, then everything that is recorded with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inver.domain import governance, ledger, runs, shares
from inver.domain.events import KINDS
from inver.domain.ledger import Append, Receipt, Result, Transaction, Winner, replayed_transaction
from inver.errors import Conflict, NotFound, Refused, Stale
from inver.ids import new_id
from inver.ports import KeyTaken
from inver.stores import caring, containers, governing, records, relations, sharing, versions
from inver.stores.deciding import Change, Context, Outcome, encode
from inver.stores.epoch import READ_EPOCH
from inver.stores.sql import Steps, UniqueViolation

EXECUTE: dict[type[ledger.Operation], Callable[[Context, Any], Steps[Outcome]]] = {
    ledger.CreateCatalog: containers.create_catalog,
    ledger.AlterCatalog: containers.alter_catalog,
    ledger.DropCatalog: containers.drop_catalog,
    ledger.CreateSchema: containers.create_schema,
    ledger.AlterSchema: containers.alter_schema,
    ledger.DropSchema: containers.drop_schema,
    ledger.CreateTable: relations.create_table,
    ledger.AlterTable: relations.alter_table,
    ledger.RenameTable: relations.rename_table,
    ledger.DropTable: relations.drop_table,
    ledger.UndropTable: relations.undrop_table,
    ledger.PurgeTable: relations.purge_table,
    ledger.Append: versions.append,
    ledger.Expect: versions.expect,
    ledger.FinishTable: versions.finish_table,
    ledger.CreateBranch: versions.create_branch,
    ledger.DropBranch: records.drop_branch,
    ledger.AddRecords: records.add_records,
    ledger.DeleteRecords: records.delete_records,
    ledger.MoveCursor: versions.move_cursor,
    governance.CreatePrincipal: governing.create_principal,
    governance.AlterPrincipal: governing.alter_principal,
    governance.DeletePrincipal: governing.delete_principal,
    governance.AddMember: governing.add_member,
    governance.RemoveMember: governing.remove_member,
    governance.CreateToken: governing.create_token,
    governance.RevokeToken: governing.revoke_token,
    governance.CreateSecret: governing.create_secret,
    governance.RevokeSecret: governing.revoke_secret,
    governance.Grant: governing.grant,
    governance.Revoke: governing.revoke,
    governance.RecordDenial: governing.record_denial,
    shares.CreateShare: sharing.create_share,
    shares.DropShare: sharing.drop_share,
    shares.AddToShare: sharing.add_to_share,
    shares.RemoveFromShare: sharing.remove_from_share,
    shares.GrantShare: sharing.grant_share,
    shares.RevokeShare: sharing.revoke_share,
    shares.CreateRecipient: sharing.create_recipient,
    shares.AlterRecipient: sharing.alter_recipient,
    shares.DropRecipient: sharing.drop_recipient,
    shares.AddCredential: sharing.add_credential,
    shares.RotateRecipient: sharing.rotate_recipient,
    shares.RevokeRecipient: sharing.revoke_recipient,
    shares.UseActivation: sharing.use_activation,
    shares.RecordAccess: sharing.record_access,
    runs.StartRun: caring.start_run,
    runs.FinishRun: caring.finish_run,
    runs.SetCarePolicy: caring.set_policy,
    runs.DropCarePolicy: caring.drop_policy,
}

TAKE_SEQUENCE = "UPDATE event_head SET seq = seq + ?1 WHERE id = 1 RETURNING seq"
INSERT_EVENT = "INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
INSERT_COMMIT = "INSERT INTO commits VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
INSERT_WORK = "INSERT INTO work VALUES (?1, ?2, ?3, ?4, 'waiting', ?5, 0, NULL, 0, NULL, ?6)"
INSERT_KEY = "INSERT INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"


def decide(transaction: Transaction) -> Steps[Receipt]:
    """Run inside one database transaction; an exception means that nothing of it may stay."""
    context = Context(transaction)
    if transaction.epoch is not None:
        rows = yield READ_EPOCH, ()
        if rows[0][0] != transaction.epoch:
            raise Stale
    yield from _lock_in_order(transaction)
    outcomes: list[Outcome] = []
    for index, operation in enumerate(transaction.operations):
        context.index = index
        try:
            outcomes.append((yield from EXECUTE[type(operation)](context, operation)))
        except Refused as refused:
            refused.operation = index
            # Only a transaction that has written nothing yet can be one that was decided before. A commit
            # that happened is not denied because its table is gone: its files may be needed again.
            if index == 0 and isinstance(refused, Conflict | NotFound):
                receipt = yield from replay_of(transaction)
                if receipt is not None:
                    return receipt
            raise refused
    return (yield from _record(context, outcomes))


def replay_of(transaction: Transaction) -> Steps[Receipt | None]:
    """The receipt of a transaction that was decided before, recognised by the tokens of its commits."""
    standing: list[Winner] = []
    for operation in transaction.operations:
        if isinstance(operation, ledger.Expect):
            continue
        if not isinstance(operation, Append):
            return None
        rows = yield versions.STANDING, (operation.table_id, operation.branch, operation.version)
        if not rows or rows[0][1] != operation.token:
            return None
        standing.append(Winner(*rows[0]))
    number = replayed_transaction(standing)
    if number is None:
        return None
    results = transaction.results(
        [
            Result(op.table_id, op.version)
            for op in transaction.operations
            if isinstance(op, Append | ledger.Expect)
        ]
    )
    return Receipt(number, standing[0].at, results, replayed=True)


def _lock_in_order(transaction: Transaction) -> Steps[None]:
    """Rows that several operations will change are locked by id first, so that two transactions queue."""
    if len(transaction.operations) < 2:
        return
    touched = sorted({op.table_id for op in transaction.operations if hasattr(op, "table_id")})
    if len(touched) > 1:
        marks = ", ".join(f"?{index}" for index in range(1, len(touched) + 1))
        yield f"SELECT id FROM tables WHERE id IN ({marks}) ORDER BY id {{update}}", tuple(touched)


def _record(context: Context, outcomes: list[Outcome]) -> Steps[Receipt]:
    transaction = context.transaction
    results = transaction.results([outcome.result for outcome in outcomes])
    changes = [
        (operation, outcome)
        for operation, outcome in zip(transaction.operations, outcomes, strict=True)
        if isinstance(outcome, Change)
    ]
    for work in transaction.work:
        yield (
            INSERT_WORK,
            (new_id(), work.kind, work.subject, work.payload, work.not_before, context.at),
        )
    number = 0
    if changes:
        rows = yield TAKE_SEQUENCE, (len(changes),)
        number = rows[0][0] - len(changes) + 1
    for seq, (operation, change) in enumerate(changes, start=number):
        result = change.result
        yield (
            INSERT_EVENT,
            (
                seq,
                number,
                context.at,
                context.by,
                change.kind or KINDS[type(operation)],
                result.subject,
                result.version,
                encode(change.data),
            ),
        )
    for pending in context.appended:
        op = pending.append
        yield (
            INSERT_COMMIT,
            (
                op.table_id,
                op.branch,
                op.version,
                pending.at,
                context.by,
                op.operation,
                op.token,
                number,
                op.payload,
                op.counts,
            ),
        )
    keyed = transaction.keyed
    if keyed is not None:
        try:
            yield (
                INSERT_KEY,
                (
                    keyed.scope,
                    keyed.key,
                    keyed.principal,
                    keyed.fingerprint,
                    number,
                    context.at,
                    encode(results),
                ),
            )
        except UniqueViolation:
            raise KeyTaken from None
    return Receipt(number, context.at, results)
