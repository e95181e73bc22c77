"""Catalogs and schemas: how their operations are decided."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import ledger
from inver.domain.ledger import Result
from inver.domain.names import name_key
from inver.domain.securables import MAX_SCHEMA_DEPTH
from inver.errors import AlreadyExists, Invalid, NotEmpty, NotFound
from inver.stores.deciding import (
    SEPARATOR,
    Change,
    Context,
    Outcome,
    collect,
    encode,
    require_etag,
    update_row,
)
from inver.stores.epoch import BUMP_EPOCH
from inver.stores.sql import Row, Steps, UniqueViolation


def create_catalog(context: Context, op: ledger.CreateCatalog) -> Steps[Outcome]:
    try:
        yield (
            "INSERT INTO catalogs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?7, ?8, ?7)",
            (
                op.id,
                op.name,
                name_key(op.name),
                op.comment,
                encode(op.properties),
                op.storage_root,
                context.by,
                context.at,
            ),
        )
    except UniqueViolation:
        raise AlreadyExists(f"catalog {op.name!r} already exists", kind="catalog") from None
    return Change(Result(op.id), {"name": op.name})


def alter_catalog(context: Context, op: ledger.AlterCatalog) -> Steps[Outcome]:
    row = yield from _lock_catalog(op.id)
    require_etag(context, op.id, op.expect_etag, row[1])
    sets: dict[str, Any] = {}
    collect(sets, op, ("name", "comment", "owner"))
    changed = sorted(sets)
    if op.name is not msgspec.UNSET:
        sets["name_key"] = name_key(op.name)
    if not sets.keys().isdisjoint(("name", "owner")):
        # What is known of who may do what knows everything by its owner and its full name.
        yield BUMP_EPOCH, ()
    try:
        yield from update_row("catalogs", op.id, sets, context)
    except UniqueViolation:
        raise AlreadyExists(f"catalog {op.name!r} already exists", kind="catalog") from None
    return Change(Result(op.id), _altered(op, changed, row[0], row[2]))


def drop_catalog(context: Context, op: ledger.DropCatalog) -> Steps[Outcome]:
    row = yield from _lock_catalog(op.id)
    require_etag(context, op.id, op.expect_etag, row[1])
    if (yield "SELECT 1 FROM schemas WHERE parent_id = ?1 LIMIT 1", (op.id,)):
        raise NotEmpty(f"catalog {row[0]!r} is not empty")
    yield "DELETE FROM catalogs WHERE id = ?1", (op.id,)
    yield "DELETE FROM grants WHERE securable_id = ?1", (op.id,)
    return Change(Result(op.id), {"name": row[0]})


def create_schema(context: Context, op: ledger.CreateSchema) -> Steps[Outcome]:
    if op.parent_id == op.catalog_id:
        rows = yield "SELECT id FROM catalogs WHERE id = ?1 {share}", (op.catalog_id,)
        path, path_key = op.name, name_key(op.name)
        if not rows:
            raise NotFound("the catalog does not exist", kind="catalog")
    else:
        # Whoever renames a schema has the catalog for itself, since the paths of what is inside change.
        yield "SELECT id FROM catalogs WHERE id = ?1 {share}", (op.catalog_id,)
        rows = yield (
            "SELECT path, path_key FROM schemas WHERE id = ?1 AND catalog_id = ?2 {share}",
            (op.parent_id, op.catalog_id),
        )
        if not rows:
            raise NotFound("the parent schema does not exist", kind="schema")
        path = rows[0][0] + SEPARATOR + op.name
        path_key = rows[0][1] + SEPARATOR + name_key(op.name)
    if path.count(SEPARATOR) >= MAX_SCHEMA_DEPTH:
        raise Invalid(f"schemas nest at most {MAX_SCHEMA_DEPTH} deep", field="name")
    shown = path.replace(SEPARATOR, ".")
    try:
        yield (
            """INSERT INTO schemas VALUES
               (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1, ?12, ?11, ?12, ?11)""",
            (
                op.id,
                op.catalog_id,
                op.parent_id,
                op.name,
                name_key(op.name),
                path,
                path_key,
                op.comment,
                encode(op.properties),
                op.storage_root,
                context.by,
                context.at,
            ),
        )
    except UniqueViolation:
        raise AlreadyExists(f"schema {shown!r} already exists", kind="schema") from None
    return Change(Result(op.id), {"name": shown, "catalog_id": op.catalog_id})


def alter_schema(context: Context, op: ledger.AlterSchema) -> Steps[Outcome]:
    if op.name is not msgspec.UNSET:
        yield (
            "SELECT id FROM catalogs WHERE id = (SELECT catalog_id FROM schemas WHERE id = ?1) {update}",
            (op.id,),
        )
    row = yield from _lock_schema(op.id)
    require_etag(context, op.id, op.expect_etag, row[1])
    sets: dict[str, Any] = {}
    collect(sets, op, ("name", "comment", "owner"))
    changed = sorted(sets)
    old_name = row[0].rpartition(SEPARATOR)[2]
    if op.name is not msgspec.UNSET:
        sets |= _renamed(row, op.name)
    if not sets.keys().isdisjoint(("name", "owner")):
        yield BUMP_EPOCH, ()
    try:
        yield from update_row("schemas", op.id, sets, context)
    except UniqueViolation:
        shown = sets["path"].replace(SEPARATOR, ".")
        raise AlreadyExists(f"schema {shown!r} already exists", kind="schema") from None
    if op.name is not msgspec.UNSET:
        yield from _move_inside(row, sets["path"], sets["path_key"])
    return Change(Result(op.id), _altered(op, changed, old_name, row[4]))


def _renamed(row: Row, name: str) -> dict[str, str]:
    above, joint, _ = row[0].rpartition(SEPARATOR)
    above_key = row[2].rpartition(SEPARATOR)[0]
    return {
        "name_key": name_key(name),
        "path": above + joint + name,
        "path_key": above_key + joint + name_key(name),
    }


def _move_inside(row: Row, path: str, path_key: str) -> Steps[None]:
    """The paths of all schemas below one that was renamed; what stays of each is what follows its path."""
    old_path, _, old_key, catalog_id, _ = row
    yield (
        """UPDATE schemas SET path = CAST(?1 AS TEXT) || substr(path, ?2),
               path_key = CAST(?3 AS TEXT) || substr(path_key, ?4)
           WHERE catalog_id = ?5 AND path_key >= ?6 AND path_key < ?7""",
        (
            path,
            len(old_path) + 1,
            path_key,
            len(old_key) + 1,
            catalog_id,
            old_key + SEPARATOR,
            old_key + chr(ord(SEPARATOR) + 1),
        ),
    )


def _altered(
    op: ledger.AlterCatalog | ledger.AlterSchema, changed: list[str], old_name: str, properties: bytes
) -> dict[str, Any]:
    data: dict[str, Any] = {"changed": changed}
    if not isinstance(op.properties, msgspec.UnsetType):
        gone = sorted(msgspec.json.decode(properties).keys() - op.properties.keys())
        data |= {"removed": gone} if gone else {}
    if not isinstance(op.name, msgspec.UnsetType):
        data |= {"name": op.name, "old_name": old_name}
    return data


def drop_schema(context: Context, op: ledger.DropSchema) -> Steps[Outcome]:
    row = yield from _lock_schema(op.id)
    require_etag(context, op.id, op.expect_etag, row[1])
    inside = yield (
        """SELECT 1 FROM schemas WHERE parent_id = ?1
           UNION ALL SELECT 1 FROM tables WHERE schema_id = ?1 AND state IN ('live', 'declared') LIMIT 1""",
        (op.id,),
    )
    if inside:
        raise NotEmpty(f"schema {row[0].replace(SEPARATOR, '.')!r} is not empty")
    yield "DELETE FROM schemas WHERE id = ?1", (op.id,)
    yield "DELETE FROM grants WHERE securable_id = ?1", (op.id,)
    # Its dropped tables inherit nothing any more.
    yield BUMP_EPOCH, ()
    return Change(Result(op.id), {"name": row[0].replace(SEPARATOR, ".")})


def _lock_catalog(catalog_id: str) -> Steps[Row]:
    rows = yield "SELECT name, etag, properties FROM catalogs WHERE id = ?1 {update}", (catalog_id,)
    if not rows:
        raise NotFound("the catalog does not exist", kind="catalog")
    return rows[0]


def _lock_schema(schema_id: str) -> Steps[Row]:
    rows = yield (
        "SELECT path, etag, path_key, catalog_id, properties FROM schemas WHERE id = ?1 {update}",
        (schema_id,),
    )
    if not rows:
        raise NotFound("the schema does not exist", kind="schema")
    return rows[0]
