"""The types of Unity's own dialect: what a request may contain and what an answer does contain.

Unknown fields are ignored, since clients of many versions send theirs. Where two versions of the
dialect spell one thing differently, both spellings are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Format
from inver.protocols.unity import columns as cols
from inver.protocols.unity.columns import Column, Columns
from inver.services.delta.types import Loaded

Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# What is called by a name that is longer than any can be is not looked for, nor told back.
Known = Annotated[str, Meta(max_length=1_024)]
Text = Annotated[str, Meta(max_length=65_536)]
Properties = Annotated[dict[Annotated[str, Meta(max_length=1_024)], str], Meta(max_length=10_000)]

# The formats of this dialect do not include Lance, whose own clients of it agree on this word and a property.
LANCE_FORMAT = "TEXT"
MARK = "table_type"


class Body(msgspec.Struct, kw_only=True):
    pass


# --- tables ---


class CreateStagingTable(Body):
    name: str
    catalog_name: Known
    schema_name: Known


class StagingTableInfo(msgspec.Struct, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    id: str
    staging_location: str


class CreateTable(Body):
    name: str
    catalog_name: Known
    schema_name: Known
    table_type: str
    data_source_format: str | None = None
    columns: Columns | None = None
    storage_location: str | None = None
    comment: Text | None = None
    properties: Properties | None = None


class UpdateTable(Body):
    """What belongs to the log of a table is there only to be refused.

    Null takes a comment away, and is as good as left out elsewhere.
    """

    owner: Known | None = None
    comment: Text | None | msgspec.UnsetType = msgspec.UNSET
    new_name: str | None = None
    columns: Any = None
    properties: Any = None
    storage_location: Any = None


class TableInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What clients read without looking whether it is there has no default, so it always is."""

    name: str
    catalog_name: str
    schema_name: str
    full_name: str
    table_type: str
    data_source_format: str | msgspec.UnsetType
    columns: list[Column] | msgspec.UnsetType = msgspec.UNSET
    storage_location: str | None = None
    comment: str | None = None
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    table_id: str

    @classmethod
    def of(
        cls, loaded: Loaded, *, listed: bool = False, columns: bool = True, properties: bool = True
    ) -> TableInfo:
        table, details = loaded.table, loaded.details
        shown: list[Column] | msgspec.UnsetType = msgspec.UNSET
        if columns:
            shown = cols.from_kept(details.columns)
            if loaded.head.managed:
                shown = cols.partitioned(shown, loaded.head.partition_columns)
        return cls(
            name=table.name,
            catalog_name=loaded.full_name[0],
            schema_name=loaded.full_name[1],
            full_name=".".join(loaded.full_name),
            table_type=table.kind,
            data_source_format=_format(table.format, listed),
            columns=shown,
            storage_location=table.location or None,
            comment=details.comment,
            properties=_properties(loaded, listed) if properties else msgspec.UNSET,
            owner=loaded.owner,
            created_at=table.created_at,
            created_by=loaded.created_by,
            updated_at=table.updated_at,
            updated_by=loaded.updated_by,
            table_id=table.id,
        )


def _format(known: Format, listed: bool) -> str | msgspec.UnsetType:
    if known is Format.LANCE:
        return LANCE_FORMAT
    # Clients that do not know the word can read nothing of a list in which it occurs.
    return msgspec.UNSET if listed and known is Format.ICEBERG else known


def _properties(loaded: Loaded, listed: bool) -> dict[str, str]:
    """With the format as a mark, where the word for it is left out."""
    known = loaded.table.format
    if _format(known, listed) == known:
        return loaded.properties
    return {**loaded.properties, MARK: known.lower()}


class TableList(msgspec.Struct, omit_defaults=True):
    tables: list[TableInfo]
    next_page_token: str | None = None


# --- catalogs and schemas ---


class CreateCatalog(Body):
    name: str
    comment: Text | None = None
    properties: Properties | None = None
    storage_root: str | None = None


class CreateSchema(Body):
    name: str
    catalog_name: Known
    comment: Text | None = None
    properties: Properties | None = None
    storage_root: str | None = None


class Update(Body):
    """Of a catalog or a schema; null is as good as left out."""

    comment: Text | None = None
    properties: Properties | None = None
    owner: Known | None = None
    new_name: str | None = None


class CatalogInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    comment: str | None = None
    properties: dict[str, str]
    storage_root: str | None = None
    storage_location: str | None = None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    id: str

    @classmethod
    def of(cls, catalog: Catalog, names: Mapping[str, str]) -> CatalogInfo:
        return cls(
            name=catalog.name,
            comment=catalog.comment,
            properties=catalog.properties,
            storage_root=catalog.storage_root,
            storage_location=catalog.storage_root,
            owner=names.get(catalog.owner, catalog.owner),
            created_at=catalog.created_at,
            created_by=names.get(catalog.created_by, catalog.created_by),
            updated_at=catalog.updated_at,
            updated_by=names.get(catalog.updated_by, catalog.updated_by),
            id=catalog.id,
        )


class CatalogList(msgspec.Struct, omit_defaults=True):
    catalogs: list[CatalogInfo]
    next_page_token: str | None = None


class SchemaInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    catalog_name: str
    full_name: str
    comment: str | None = None
    properties: dict[str, str]
    storage_root: str | None = None
    storage_location: str | None = None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    schema_id: str

    @classmethod
    def of(cls, schema: Schema, catalog: str, names: Mapping[str, str]) -> SchemaInfo:
        return cls(
            name=schema.name,
            catalog_name=catalog,
            full_name=f"{catalog}.{schema.name}",
            comment=schema.comment,
            properties=schema.properties,
            storage_root=schema.storage_root,
            storage_location=schema.storage_root,
            owner=names.get(schema.owner, schema.owner),
            created_at=schema.created_at,
            created_by=names.get(schema.created_by, schema.created_by),
            updated_at=schema.updated_at,
            updated_by=names.get(schema.updated_by, schema.updated_by),
            schema_id=schema.id,
        )


class SchemaList(msgspec.Struct, omit_defaults=True):
    schemas: list[SchemaInfo]
    next_page_token: str | None = None


# --- permissions and credentials ---


Privileges = Annotated[list[str], Meta(max_length=100)]


class PermissionsChange(Body):
    principal: Known
    add: Privileges | None = None
    remove: Privileges | None = None


class UpdatePermissions(Body):
    changes: Annotated[list[PermissionsChange], Meta(max_length=200)]


class PrivilegeAssignment(msgspec.Struct, omit_defaults=True):
    """Clients know the privileges of the protocol, and no others: those stand apart."""

    principal: str
    privileges: list[str]
    further_privileges: list[str] = []


class PermissionsList(msgspec.Struct):
    privilege_assignments: list[PrivilegeAssignment]


class TableCredentialRequest(Body):
    table_id: str
    operation: str


class PathCredentialRequest(Body):
    url: str
    operation: str
