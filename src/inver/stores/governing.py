"""Principals, credentials and grants: how their operations are decided.

Everything that can take a right away moves the access epoch, so that no server decides by what it
remembers from before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import governance as g
from inver.domain.ledger import Result
from inver.domain.names import name_key
from inver.domain.principals import ADMINS, BUILT_IN, EVERYONE, PrincipalKind
from inver.errors import AlreadyExists, Conflict, Invalid, NotEmpty, NotFound, Refused
from inver.stores.deciding import Change, Context, Noop, Outcome, require_etag
from inver.stores.epoch import BUMP_EPOCH, LOCK_EPOCH
from inver.stores.sql import Row, Steps, UniqueViolation

_FIXED = frozenset(principal.id for principal in BUILT_IN)


def create_principal(context: Context, op: g.CreatePrincipal) -> Steps[Outcome]:
    try:
        yield (
            "INSERT INTO principals VALUES (?1, ?2, ?3, ?4, 0, ?5, 1, ?6, ?7)",
            (op.id, op.name, name_key(op.name), op.kind, op.comment, context.at, context.by),
        )
    except UniqueViolation:
        raise AlreadyExists(f"principal {op.name!r} already exists", kind="principal") from None
    return Change(Result(op.id), {"name": op.name, "kind": op.kind})


def alter_principal(context: Context, op: g.AlterPrincipal) -> Steps[Outcome]:
    row = yield from _lock(op.id)
    require_etag(context, op.id, op.expect_etag, row[2])
    sets: dict[str, Any] = {}
    if op.comment is not msgspec.UNSET:
        sets["comment"] = op.comment
    if op.disabled is not msgspec.UNSET:
        if op.disabled and op.id in _FIXED:
            raise Invalid(f"{row[0]!r} is built in and cannot be disabled", field="disabled")
        sets["disabled"] = int(op.disabled)
        if bool(row[3]) is not op.disabled:
            yield BUMP_EPOCH, ()
    columns = "".join(f", {name} = ?{index}" for index, name in enumerate(sets, start=2))
    yield f"UPDATE principals SET etag = etag + 1{columns} WHERE id = ?1", (op.id, *sets.values())
    return Change(Result(op.id), {"name": row[0], "changed": sorted(sets)})


def delete_principal(context: Context, op: g.DeletePrincipal) -> Steps[Outcome]:
    row = yield from _lock(op.id)
    if op.id in _FIXED:
        raise Invalid(f"{row[0]!r} is built in and cannot be deleted", field="principal")
    owns = yield (
        """SELECT 'a catalog' FROM catalogs WHERE owner = ?1
           UNION ALL SELECT 'a schema' FROM schemas WHERE owner = ?1
           UNION ALL SELECT 'a share' FROM shares WHERE owner = ?1
           UNION ALL SELECT 'a recipient' FROM recipients WHERE owner = ?1
           UNION ALL SELECT 'a table' FROM tables WHERE owner = ?1 AND state <> 'purged' LIMIT 1""",
        (op.id,),
    )
    if owns:
        raise NotEmpty(
            f"principal {row[0]!r} owns {owns[0][0]}", fix="give what it owns to another principal first"
        )
    for statement in (
        "DELETE FROM grants WHERE principal_id = ?1",
        "DELETE FROM members WHERE member_id = ?1 OR group_id = ?1",
        "DELETE FROM tokens WHERE principal_id = ?1",
        "DELETE FROM secrets WHERE principal_id = ?1",
        "DELETE FROM principals WHERE id = ?1",
    ):
        yield statement, (op.id,)
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"name": row[0]})


def add_member(context: Context, op: g.AddMember) -> Steps[Outcome]:
    group = yield from _lock_group(op.group_id)
    member = yield from _lock(op.member_id)
    if op.group_id == EVERYONE.id:
        raise Invalid("every principal is in 'everyone' already", field="group")
    # Two changes that cannot see each other yet could close a circle together.
    yield LOCK_EPOCH, ()
    depth = yield from _depth_above(op.group_id, op.member_id)
    depth += (yield from _depth_below(op.member_id)) if member[1] == PrincipalKind.GROUP else 0
    if depth > g.MAX_GROUP_DEPTH:
        raise Invalid(f"groups nest at most {g.MAX_GROUP_DEPTH} deep", field="member")
    added = yield (
        "INSERT INTO members VALUES (?1, ?2) ON CONFLICT (group_id, member_id) DO NOTHING RETURNING 1",
        (op.group_id, op.member_id),
    )
    if not added:
        return Noop(Result(op.group_id))
    yield BUMP_EPOCH, ()
    return Change(Result(op.group_id), {"group": group[0], "member": member[0], "member_id": op.member_id})


def remove_member(context: Context, op: g.RemoveMember) -> Steps[Outcome]:
    group = yield from _lock_group(op.group_id)
    if op.group_id == ADMINS.id:
        others = yield (
            "SELECT 1 FROM members WHERE group_id = ?1 AND member_id <> ?2 LIMIT 1",
            (op.group_id, op.member_id),
        )
        if not others:
            raise Refused(
                "the last administrator cannot be removed",
                fix=f"put somebody else into {ADMINS.name!r} first",
            )
    gone = yield (
        "DELETE FROM members WHERE group_id = ?1 AND member_id = ?2 RETURNING 1",
        (op.group_id, op.member_id),
    )
    if not gone:
        return Noop(Result(op.group_id))
    yield BUMP_EPOCH, ()
    return Change(Result(op.group_id), {"group": group[0], "member_id": op.member_id})


def _depth_above(group_id: str, member_id: str) -> Steps[int]:
    """Levels of groups from `group_id` upwards, itself included; `member_id` there would close a circle."""
    level, depth = {group_id}, 1
    while level:
        if member_id in level:
            raise Refused("a group cannot contain itself, directly or through others")
        above: set[str] = set()
        for each in sorted(level):
            rows = yield "SELECT group_id FROM members WHERE member_id = ?1", (each,)
            above.update(row[0] for row in rows)
        level, depth = above, depth + 1
        if depth > g.MAX_GROUP_DEPTH + 1:
            break
    return depth - 1


def _depth_below(group_id: str) -> Steps[int]:
    """Levels of groups from `group_id` downwards, itself included."""
    level, depth = {group_id}, 0
    while level and depth <= g.MAX_GROUP_DEPTH:
        below: set[str] = set()
        for each in sorted(level):
            rows = yield (
                """SELECT m.member_id FROM members m JOIN principals p ON p.id = m.member_id
                   WHERE m.group_id = ?1 AND p.kind = 'group'""",
                (each,),
            )
            below.update(row[0] for row in rows)
        level, depth = below, depth + 1
    return depth


def create_token(context: Context, op: g.CreateToken) -> Steps[Outcome]:
    row = yield from _lock(op.principal_id)
    if row[1] == PrincipalKind.GROUP:
        raise Invalid("a group has no tokens; its members have", field="principal")
    yield (
        "INSERT INTO tokens VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL)",
        (op.id, op.principal_id, op.hash, op.label, op.scope, context.at, context.by, op.expires_at),
    )
    return Change(
        Result(op.id), {"principal_id": op.principal_id, "scope": op.scope, "expires_at": op.expires_at}
    )


def revoke_token(context: Context, op: g.RevokeToken) -> Steps[Outcome]:
    rows = yield "SELECT principal_id, revoked_at FROM tokens WHERE id = ?1 {update}", (op.id,)
    if not rows:
        raise NotFound("the token does not exist", kind="token")
    if rows[0][1] is not None:
        return Noop(Result(op.id))
    yield "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1", (op.id, context.at)
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"principal_id": rows[0][0]})


def create_secret(context: Context, op: g.CreateSecret) -> Steps[Outcome]:
    row = yield from _lock(op.principal_id)
    if row[1] == PrincipalKind.GROUP:
        raise Invalid("a group has no client secrets; its members have", field="principal")
    live = yield (
        """SELECT count(*) FROM secrets WHERE principal_id = ?1 AND revoked_at IS NULL
           AND (expires_at IS NULL OR expires_at > ?2)""",
        (op.principal_id, context.at),
    )
    if live[0][0] >= g.MAX_LIVE_SECRETS:
        raise Conflict(f"principal {row[0]!r} has {g.MAX_LIVE_SECRETS} live secrets; revoke one first")
    yield (
        "INSERT INTO secrets VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)",
        (op.id, op.principal_id, op.hash, op.label, context.at, context.by, op.expires_at),
    )
    return Change(Result(op.id), {"principal_id": op.principal_id, "expires_at": op.expires_at})


def revoke_secret(context: Context, op: g.RevokeSecret) -> Steps[Outcome]:
    rows = yield (
        "SELECT revoked_at FROM secrets WHERE id = ?1 AND principal_id = ?2 {update}",
        (op.id, op.principal_id),
    )
    if not rows:
        raise NotFound("the secret does not exist", kind="secret")
    if rows[0][0] is not None:
        return Noop(Result(op.id))
    yield "UPDATE secrets SET revoked_at = ?2 WHERE id = ?1", (op.id, context.at)
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"principal_id": op.principal_id})


def grant(context: Context, op: g.Grant) -> Steps[Outcome]:
    yield from _lock(op.principal_id)
    added = []
    for privilege in op.privileges:
        rows = yield (
            """INSERT INTO grants VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (securable_id, principal_id, privilege) DO NOTHING RETURNING 1""",
            (op.securable_id, op.principal_id, privilege, op.kind, context.at, context.by),
        )
        if rows:
            added.append(privilege)
    return (yield from _granted(op, added))


def revoke(context: Context, op: g.Revoke) -> Steps[Outcome]:
    gone = []
    for privilege in op.privileges:
        rows = yield (
            """DELETE FROM grants WHERE securable_id = ?1 AND principal_id = ?2 AND privilege = ?3
               RETURNING 1""",
            (op.securable_id, op.principal_id, privilege),
        )
        if rows:
            gone.append(privilege)
    return (yield from _granted(op, gone))


def _granted(op: g.Grant | g.Revoke, changed: list[Any]) -> Steps[Outcome]:
    if not changed:
        return Noop(Result(op.securable_id))
    yield BUMP_EPOCH, ()
    return Change(
        Result(op.securable_id),
        {"kind": op.kind, "principal_id": op.principal_id, "privileges": changed},
    )


def record_denial(context: Context, op: g.RecordDenial) -> Steps[Outcome]:
    yield from ()
    return Change(
        Result(op.subject), {"principal_id": op.principal_id, "action": op.action, "times": op.times}
    )


def _lock(principal_id: str) -> Steps[Row]:
    rows = yield "SELECT name, kind, etag, disabled FROM principals WHERE id = ?1 {update}", (principal_id,)
    if not rows:
        raise NotFound("the principal does not exist", kind="principal")
    return rows[0]


def _lock_group(group_id: str) -> Steps[Row]:
    row = yield from _lock(group_id)
    if row[1] != PrincipalKind.GROUP:
        raise Invalid(f"{row[0]!r} is not a group", field="group")
    return row
