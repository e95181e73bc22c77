"""The things that can be named, owned and granted, and the tree they form."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class SecurableKind(StrEnum):
    METASTORE = "metastore"
    CATALOG = "catalog"
    SCHEMA = "schema"
    TABLE = "table"
    VIEW = "view"
    FUNCTION = "function"
    VOLUME = "volume"


_PARENTS: dict[SecurableKind, frozenset[SecurableKind]] = {
    SecurableKind.METASTORE: frozenset(),
    SecurableKind.CATALOG: frozenset({SecurableKind.METASTORE}),
    SecurableKind.SCHEMA: frozenset({SecurableKind.CATALOG, SecurableKind.SCHEMA}),
    SecurableKind.TABLE: frozenset({SecurableKind.SCHEMA}),
    SecurableKind.VIEW: frozenset({SecurableKind.SCHEMA}),
    SecurableKind.FUNCTION: frozenset({SecurableKind.SCHEMA}),
    SecurableKind.VOLUME: frozenset({SecurableKind.SCHEMA}),
}

METASTORE_ID = "00000000-0000-7000-8000-000000000001"
"""The root of the tree: one per database."""

MAX_SCHEMA_DEPTH = 16


def may_contain(parent: SecurableKind, child: SecurableKind) -> bool:
    return parent in _PARENTS[child]


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    comment: str | None
    properties: dict[str, str]
    storage_root: str | None
    owner: str
    etag: int
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema, or namespace. `path` holds the names from the catalog's child down to this one."""

    id: str
    catalog_id: str
    parent_id: str
    name: str
    path: tuple[str, ...]
    comment: str | None
    properties: dict[str, str]
    storage_root: str | None
    owner: str
    etag: int
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
