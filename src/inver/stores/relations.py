"""Tables: how the operations on their names and definitions are decided."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import ledger
from inver.domain.events import STAGED
from inver.domain.ledger import Reason, Result
from inver.domain.names import name_key
from inver.domain.tables import NAMED, State, TableKind, require_transition
from inver.errors import AlreadyExists, NotFound
from inver.stores.deciding import (
    Change,
    Context,
    Noop,
    Outcome,
    collect,
    conflict,
    encode,
    require_etag,
    update_row,
)
from inver.stores.epoch import BUMP_EPOCH
from inver.stores.sql import Row, Steps, UniqueViolation

_LOCKED = "id, state, version, etag, schema_id, name, catalog_id, location_key"


def lock_table(table_id: str) -> Steps[Row]:
    rows = yield f"SELECT {_LOCKED} FROM tables WHERE id = ?1 {{update}}", (table_id,)
    if not rows:
        raise NotFound("the table does not exist", kind="table")
    return rows[0]


def lock_named(context: Context, table_id: str, expect_etag: int | None) -> Steps[Row]:
    row = yield from lock_table(table_id)
    if row[1] not in NAMED:
        raise NotFound("the table does not exist", kind="table")
    require_etag(context, table_id, expect_etag, row[3])
    return row


def create_table(context: Context, op: ledger.CreateTable) -> Steps[Outcome]:
    rows = yield "SELECT catalog_id FROM schemas WHERE id = ?1 {share}", (op.schema_id,)
    if not rows:
        raise NotFound("the schema does not exist", kind="schema")
    if op.state in NAMED:
        taken = yield (
            """SELECT 1 FROM tables WHERE schema_id = ?1 AND name_key = ?2
               AND state IN ('live', 'declared')""",
            (op.schema_id, name_key(op.name)),
        )
        if taken:
            raise AlreadyExists(f"table {op.name!r} already exists", kind="table")
    # An id that the server chose is in nobody else's way; who picks a place is checked against all others.
    picked = op.kind is TableKind.EXTERNAL or op.id not in op.location_key
    yield from _require_free_location(op.id, op.location_key, picked)
    try:
        yield (
            """INSERT INTO tables VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1, ?12,
               ?13, ?14, ?13, ?14, ?13, NULL, ?11)""",
            (
                op.id,
                rows[0][0],
                op.schema_id,
                op.name,
                name_key(op.name),
                op.format,
                op.kind,
                op.state,
                op.location,
                op.location_key,
                op.version,
                op.head,
                context.by,
                context.at,
            ),
        )
    except UniqueViolation:
        raise AlreadyExists(f"table {op.name!r} already exists", kind="table") from None
    yield (
        "INSERT INTO details VALUES (?1, ?2, ?3, ?4)",
        (op.id, op.comment, encode(op.properties), op.columns),
    )
    yield from _insert_columns(op.id, op.column_names)
    return Change(
        Result(op.id, op.version),
        {"name": op.name, "schema_id": op.schema_id, "format": op.format},
        STAGED if op.state is State.STAGED else None,
    )


def move(table_id: str, place: ledger.Place) -> Steps[None]:
    yield from _require_free_location(table_id, place.location_key, True)
    yield (
        "UPDATE tables SET kind = ?2, location = ?3, location_key = ?4 WHERE id = ?1",
        (table_id, place.kind, place.location, place.location_key),
    )


def _require_free_location(table_id: str, key: str, picked: bool) -> Steps[None]:
    """No table lies inside another's folder. `key` ends with a slash."""
    # Two creations that cannot see each other yet must not both find the folder free.
    yield ("{locations_exclusive}" if picked else "{locations_shared}"), ()
    ancestors = []
    end = key.rfind("/", 0, len(key) - 1)
    while end > 0:
        ancestors.append(key[: end + 1])
        end = key.rfind("/", 0, end)
    inside = yield (
        """SELECT name FROM tables WHERE location_key >= ?1 AND location_key < ?2
           AND state <> 'purged' AND id <> ?3 LIMIT 1""",
        (key, key[:-1] + "0", table_id),
    )
    if not inside and ancestors:
        marks = ", ".join(f"?{index}" for index in range(2, len(ancestors) + 2))
        inside = yield (
            f"""SELECT name FROM tables WHERE id <> ?1 AND location_key IN ({marks})
                AND state <> 'purged' LIMIT 1""",
            (table_id, *ancestors),
        )
    if inside:
        raise AlreadyExists("the location overlaps the location of another table", kind="location")


def _insert_columns(table_id: str, names: tuple[str, ...]) -> Steps[None]:
    for position, name in enumerate(names):
        yield "INSERT INTO columns VALUES (?1, ?2, ?3, ?4)", (table_id, position, name, name_key(name))


def alter_table(context: Context, op: ledger.AlterTable) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, op.expect_etag)
    if op.expect_version is not None and op.expect_version != row[2]:
        raise conflict(context, op.table_id, Reason.VERSION_TAKEN, op.expect_version, row[2])
    changed = yield from define(op.table_id, op)
    owner = {}
    if op.owner is not msgspec.UNSET:
        owner = {"owner": op.owner}
        yield BUMP_EPOCH, ()
    state = {} if op.head is msgspec.UNSET else {"head": op.head}
    yield from update_row("tables", op.table_id, {**owner, **state}, context)
    return Change(Result(op.table_id, row[2]), {"changed": sorted({*changed, *owner})})


def define(table_id: str, op: ledger.AlterTable | ledger.Definition) -> Steps[list[str]]:
    """Write the parts of a definition that are given; returns their names."""
    sets: dict[str, Any] = {}
    collect(sets, op, ("comment", "columns"))
    if sets:
        columns = ", ".join(f"{name} = ?{index}" for index, name in enumerate(sets, start=2))
        yield f"UPDATE details SET {columns} WHERE table_id = ?1", (table_id, *sets.values())
    if op.columns is not msgspec.UNSET:
        yield "DELETE FROM columns WHERE table_id = ?1", (table_id,)
        yield from _insert_columns(table_id, op.column_names)
    return list(sets)


def rename_table(context: Context, op: ledger.RenameTable) -> Steps[Outcome]:
    rows = yield "SELECT catalog_id FROM schemas WHERE id = ?1 {share}", (op.schema_id,)
    if not rows:
        raise NotFound("the target schema does not exist", kind="schema")
    row = yield from lock_named(context, op.table_id, op.expect_etag)
    if row[4] == op.schema_id and row[5] == op.name:
        return Noop(Result(op.table_id, row[2]))
    sets = {
        "catalog_id": rows[0][0],
        "schema_id": op.schema_id,
        "name": op.name,
        "name_key": name_key(op.name),
    }
    try:
        yield from update_row("tables", op.table_id, sets, context)
    except UniqueViolation:
        raise AlreadyExists(f"table {op.name!r} already exists", kind="table") from None
    # What the table inherits changes with its place, and what is known of it with its name.
    yield BUMP_EPOCH, ()
    return Change(
        Result(op.table_id, row[2]),
        {"name": op.name, "schema_id": op.schema_id, "old_name": row[5], "old_schema_id": row[4]},
    )


def drop_table(context: Context, op: ledger.DropTable) -> Steps[Outcome]:
    row = yield from lock_named(context, op.table_id, op.expect_etag)
    yield from _set_state(context, row, State.DROPPED, {"dropped_at": context.at})
    return Change(Result(op.table_id, row[2]), {"name": row[5], "purge_at": op.purge_at})


def undrop_table(context: Context, op: ledger.UndropTable) -> Steps[Outcome]:
    rows = yield "SELECT schema_id, name FROM tables WHERE id = ?1", (op.table_id,)
    if not rows:
        raise NotFound("the table does not exist", kind="table")
    schema_id, name = op.schema_id or rows[0][0], op.name or rows[0][1]
    schema = yield "SELECT catalog_id FROM schemas WHERE id = ?1 {share}", (schema_id,)
    if not schema:
        raise NotFound("the schema does not exist any more", kind="schema", fix="give another schema")
    row = yield from lock_table(op.table_id)
    if row[1] != State.DROPPED:
        raise NotFound("no dropped table has this id", kind="table")
    sets = {
        "catalog_id": schema[0][0],
        "schema_id": schema_id,
        "name": name,
        "name_key": name_key(name),
        "dropped_at": None,
    }
    try:
        yield from _set_state(context, row, State.LIVE, sets)
    except UniqueViolation:
        raise AlreadyExists(
            f"table {name!r} already exists", kind="table", fix="undrop it under another name"
        ) from None
    if (schema_id, name) != (row[4], row[5]):
        # What the table inherits changes with its place.
        yield BUMP_EPOCH, ()
    return Change(Result(op.table_id, row[2]), {"name": name, "schema_id": schema_id})


def purge_table(context: Context, op: ledger.PurgeTable) -> Steps[Outcome]:
    row = yield from lock_table(op.table_id)
    if row[1] == State.PURGED:
        return Noop(Result(op.table_id, row[2]))
    require_etag(context, op.table_id, op.expect_etag, row[3])
    yield from _set_state(context, row, State.PURGED, {})
    yield "DELETE FROM grants WHERE securable_id = ?1", (op.table_id,)
    yield "DELETE FROM columns WHERE table_id = ?1", (op.table_id,)
    yield "DELETE FROM parts WHERE table_id = ?1", (op.table_id,)
    yield "DELETE FROM records WHERE table_id = ?1", (op.table_id,)
    yield "DELETE FROM waiting WHERE table_id = ?1", (op.table_id,)
    return Change(Result(op.table_id, row[2]), {"name": row[5]})


def _set_state(context: Context, row: Row, target: State, sets: dict[str, Any]) -> Steps[None]:
    require_transition(State(row[1]), target)
    yield from update_row("tables", row[0], {"state": target, **sets}, context)
