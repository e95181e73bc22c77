"""Shares and recipients: how their operations are decided.

Whatever takes something from a recipient moves the access epoch, as it does for principals.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import shares as s
from inver.domain.ledger import Result
from inver.domain.names import name_key
from inver.domain.shares import CredentialKind, ItemKind
from inver.errors import AlreadyExists, Conflict, NotFound
from inver.stores.deciding import Change, Context, Noop, Outcome
from inver.stores.epoch import BUMP_EPOCH
from inver.stores.sql import Steps, UniqueViolation

_encode = msgspec.json.encode
_DAY_MS = 24 * 3600 * 1000


def create_share(context: Context, op: s.CreateShare) -> Steps[Outcome]:
    try:
        yield (
            "INSERT INTO shares VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5)",
            (op.id, op.name, name_key(op.name), op.comment, context.by, context.at),
        )
    except UniqueViolation:
        raise AlreadyExists(f"share {op.name!r} already exists", kind="share") from None
    return Change(Result(op.id), {"name": op.name})


def drop_share(context: Context, op: s.DropShare) -> Steps[Outcome]:
    name = yield from _lock("shares", "share", op.id)
    for statement in (
        "DELETE FROM share_items WHERE share_id = ?1",
        "DELETE FROM share_grants WHERE share_id = ?1",
        "DELETE FROM shares WHERE id = ?1",
    ):
        yield statement, (op.id,)
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"name": name})


def add_to_share(context: Context, op: s.AddToShare) -> Steps[Outcome]:
    item = op.item
    yield from _lock("shares", "share", item.share_id)
    table = "tables" if item.kind is ItemKind.TABLE else "schemas"
    rows = yield f"SELECT 1 FROM {table} WHERE id = ?1 {{share}}", (item.securable_id,)
    if not rows:
        raise NotFound(f"the {item.kind} does not exist", kind=item.kind)
    try:
        yield (
            "INSERT INTO share_items VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            (
                item.id,
                item.share_id,
                item.kind,
                item.securable_id,
                item.schema_name,
                name_key(item.schema_name),
                item.table_name,
                name_key(item.table_name or ""),
                item.start_version,
                int(item.history),
                context.at,
                context.by,
            ),
        )
    except UniqueViolation:
        shown = item.schema_name if item.table_name is None else f"{item.schema_name}.{item.table_name}"
        raise AlreadyExists(
            f"the share has something named {shown!r} already",
            kind="item",
            fix="share it under another name",
        ) from None
    return Change(
        Result(item.share_id),
        {
            "kind": item.kind,
            "securable_id": item.securable_id,
            "schema": item.schema_name,
            "table": item.table_name,
            "start_version": item.start_version,
            "history": item.history,
        },
    )


def remove_from_share(context: Context, op: s.RemoveFromShare) -> Steps[Outcome]:
    yield from _lock("shares", "share", op.share_id)
    gone = yield (
        """DELETE FROM share_items WHERE id = ?1 AND share_id = ?2
           RETURNING kind, securable_id, schema_name, table_name""",
        (op.id, op.share_id),
    )
    if not gone:
        raise NotFound("the share does not have it", kind="item")
    yield BUMP_EPOCH, ()
    kind, securable_id, schema, table = gone[0]
    return Change(
        Result(op.share_id), {"kind": kind, "securable_id": securable_id, "schema": schema, "table": table}
    )


def grant_share(context: Context, op: s.GrantShare) -> Steps[Outcome]:
    yield from _lock("shares", "share", op.share_id)
    name = yield from _lock("recipients", "recipient", op.recipient_id)
    filters = _encode(op.filters, order="sorted")
    rows = yield (
        "SELECT filters FROM share_grants WHERE share_id = ?1 AND recipient_id = ?2",
        (op.share_id, op.recipient_id),
    )
    if rows and bytes(rows[0][0]) == filters:
        return Noop(Result(op.share_id))
    yield (
        """INSERT INTO share_grants VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (share_id, recipient_id)
           DO UPDATE SET filters = excluded.filters, granted_at = excluded.granted_at,
           granted_by = excluded.granted_by""",
        (op.share_id, op.recipient_id, filters, context.at, context.by),
    )
    if rows:
        yield BUMP_EPOCH, ()
    return Change(
        Result(op.share_id), {"recipient_id": op.recipient_id, "recipient": name, "filters": op.filters}
    )


def revoke_share(context: Context, op: s.RevokeShare) -> Steps[Outcome]:
    gone = yield (
        "DELETE FROM share_grants WHERE share_id = ?1 AND recipient_id = ?2 RETURNING 1",
        (op.share_id, op.recipient_id),
    )
    if not gone:
        return Noop(Result(op.share_id))
    yield BUMP_EPOCH, ()
    return Change(Result(op.share_id), {"recipient_id": op.recipient_id})


def create_recipient(context: Context, op: s.CreateRecipient) -> Steps[Outcome]:
    try:
        yield (
            "INSERT INTO recipients VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?7, NULL)",
            (
                op.id,
                op.name,
                name_key(op.name),
                op.kind,
                op.comment,
                _encode(op.networks),
                context.by,
                context.at,
            ),
        )
    except UniqueViolation:
        raise AlreadyExists(f"recipient {op.name!r} already exists", kind="recipient") from None
    return Change(Result(op.id), {"name": op.name, "kind": op.kind, "networks": op.networks})


def alter_recipient(context: Context, op: s.AlterRecipient) -> Steps[Outcome]:
    name = yield from _lock("recipients", "recipient", op.id)
    sets: dict[str, Any] = {}
    if op.comment is not msgspec.UNSET:
        sets["comment"] = op.comment
    if op.networks is not msgspec.UNSET:
        sets["networks"] = _encode(op.networks)
        yield BUMP_EPOCH, ()
    if sets:
        columns = ", ".join(f"{column} = ?{index}" for index, column in enumerate(sets, start=2))
        yield f"UPDATE recipients SET {columns} WHERE id = ?1", (op.id, *sets.values())
    return Change(Result(op.id), {"name": name, "changed": sorted(sets)})


def drop_recipient(context: Context, op: s.DropRecipient) -> Steps[Outcome]:
    name = yield from _lock("recipients", "recipient", op.id)
    for statement in (
        "DELETE FROM recipient_credentials WHERE recipient_id = ?1",
        "DELETE FROM share_grants WHERE recipient_id = ?1",
        "DELETE FROM recipients WHERE id = ?1",
    ):
        yield statement, (op.id,)
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"name": name})


def add_credential(context: Context, op: s.AddCredential) -> Steps[Outcome]:
    yield from _lock("recipients", "recipient", op.recipient_id)
    if op.kind is CredentialKind.ACCESS:
        yield (
            """DELETE FROM recipient_credentials WHERE recipient_id = ?1 AND kind = 'access'
               AND expires_at < ?2""",
            (op.recipient_id, context.at - _DAY_MS),
        )
    else:
        live = yield (
            """SELECT count(*) FROM recipient_credentials WHERE recipient_id = ?1 AND kind <> 'access'
               AND revoked_at IS NULL AND expires_at > ?2""",
            (op.recipient_id, context.at),
        )
        if live[0][0] >= s.MAX_LIVE_CREDENTIALS:
            raise Conflict(
                f"the recipient has {s.MAX_LIVE_CREDENTIALS} live credentials",
                fix="revoke them, or rotate with a shorter grace",
            )
    yield (
        "INSERT INTO recipient_credentials VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, ?8)",
        (op.id, op.recipient_id, op.kind, op.hash, context.at, context.by, op.expires_at, op.token_until),
    )
    return Change(
        Result(op.recipient_id), {"credential": op.id, "kind": op.kind, "expires_at": op.expires_at}
    )


def rotate_recipient(context: Context, op: s.RotateRecipient) -> Steps[Outcome]:
    name = yield from _lock("recipients", "recipient", op.recipient_id)
    yield (
        """UPDATE recipient_credentials SET expires_at = ?2
           WHERE recipient_id = ?1 AND revoked_at IS NULL AND expires_at > ?2""",
        (op.recipient_id, op.until),
    )
    yield (
        """UPDATE recipient_credentials SET revoked_at = ?2
           WHERE recipient_id = ?1 AND kind = 'activation' AND revoked_at IS NULL""",
        (op.recipient_id, context.at),
    )
    yield "UPDATE recipients SET revoked_at = NULL WHERE id = ?1", (op.recipient_id,)
    yield BUMP_EPOCH, ()
    return Change(Result(op.recipient_id), {"name": name, "until": op.until})


def revoke_recipient(context: Context, op: s.RevokeRecipient) -> Steps[Outcome]:
    name = yield from _lock("recipients", "recipient", op.recipient_id)
    yield (
        "UPDATE recipient_credentials SET revoked_at = ?2 WHERE recipient_id = ?1 AND revoked_at IS NULL",
        (op.recipient_id, context.at),
    )
    yield "UPDATE recipients SET revoked_at = ?2 WHERE id = ?1", (op.recipient_id, context.at)
    yield BUMP_EPOCH, ()
    return Change(Result(op.recipient_id), {"name": name})


def use_activation(context: Context, op: s.UseActivation) -> Steps[Outcome]:
    yield from _lock("recipients", "recipient", op.recipient_id)
    used = yield (
        """UPDATE recipient_credentials SET revoked_at = ?3, last_used_at = ?3
           WHERE id = ?1 AND recipient_id = ?2 AND kind = 'activation' AND revoked_at IS NULL
           AND expires_at > ?3 RETURNING 1""",
        (op.id, op.recipient_id, context.at),
    )
    if not used:
        raise NotFound("the activation link is not valid, or was used before", kind="activation")
    return Change(Result(op.recipient_id), {"credential": op.id})


def record_access(context: Context, op: s.RecordAccess) -> Steps[Outcome]:
    yield from ()
    return Change(
        Result(op.subject, op.version),
        {
            "recipient_id": op.recipient_id,
            "share_id": op.share_id,
            "action": op.action,
            **({"times": op.times} if op.times > 1 else {}),
        },
    )


def _lock(table: str, kind: str, row_id: str) -> Steps[str]:
    rows = yield f"SELECT name FROM {table} WHERE id = ?1 {{update}}", (row_id,)
    if not rows:
        raise NotFound(f"the {kind} does not exist", kind=kind)
    name: str = rows[0][0]
    return name
