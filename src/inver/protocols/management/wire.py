"""The management API's own types: what a request may contain and what an answer does contain."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inver.domain.ddl import MAX_TEXT, parse_columns
from inver.domain.securables import Catalog, Schema
from inver.domain.tables import Format, State, Table, TableDetails, TableKind
from inver.errors import Invalid
from inver.ports import Commit, Report
from inver.services import intents as ask
from inver.services.delta.types import MakeTable
from inver.services.portions import Native

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=4_096)]
Label = Annotated[str, Meta(min_length=1, max_length=255)]
Long = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Path = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=18)]
Properties = Annotated[dict[Annotated[str, Meta(max_length=255)], Text], Meta(max_length=1_000)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


# --- catalogs and schemas ---


class CreateCatalog(Strict):
    name: Name
    comment: Text | None = None
    properties: Properties = {}
    storage_root: Text | None = None


class CreateSchema(Strict):
    """`path` names the new schema below its catalog; all but its last name must exist."""

    path: Path
    comment: Text | None = None
    properties: Properties = {}
    storage_root: Text | None = None


class AlterDescription(Strict):
    name: Name | UnsetType = UNSET
    comment: Text | None | UnsetType = UNSET
    properties: Properties | UnsetType = UNSET
    owner: Name | UnsetType = UNSET


class CatalogInfo(msgspec.Struct, kw_only=True):
    id: str
    name: str
    comment: str | None
    properties: dict[str, str]
    storage_root: str | None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str

    @classmethod
    def of(cls, catalog: Catalog) -> CatalogInfo:
        return msgspec.convert(catalog, cls, from_attributes=True)


class CatalogList(msgspec.Struct):
    catalogs: list[CatalogInfo]
    next_page_token: str | None


class SchemaInfo(msgspec.Struct, kw_only=True):
    id: str
    catalog_id: str
    name: str
    path: list[str]
    comment: str | None
    properties: dict[str, str]
    storage_root: str | None
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str

    @classmethod
    def of(cls, schema: Schema) -> SchemaInfo:
        return msgspec.convert(schema, cls, from_attributes=True)


class SchemaList(msgspec.Struct):
    schemas: list[SchemaInfo]
    next_page_token: str | None


# --- tables ---


class CreateTable(Strict):
    """`schema` and `partition_by` are for managed Delta tables: the server writes version 0 with them."""

    name: Name
    format: Format
    kind: Literal["MANAGED", "EXTERNAL"] = "MANAGED"
    location: Text | None = None
    version: Long = 0
    comment: Text | None = None
    properties: Properties = {}
    columns: Annotated[list[dict[str, Any]], Meta(max_length=10_000)] = []
    schema: Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)] | None = None
    partition_by: Annotated[list[Name], Meta(max_length=1_000)] = []

    def intent(self, name: tuple[str, ...]) -> ask.Intent:
        if self.schema is not None:
            return self._made(name, self.schema)
        if self.partition_by:
            raise Invalid("partition columns are those of a schema", field="partition_by", fix="give schema")
        return ask.CreateTable(
            name=name,
            format=self.format,
            kind=TableKind(self.kind),
            location=self.location,
            version=self.version,
            comment=self.comment,
            properties=self.properties,
            columns=msgspec.json.encode(self.columns),
        )

    def _made(self, name: tuple[str, ...], schema: str) -> Native:
        if self.format is not Format.DELTA or self.kind != "MANAGED":
            raise Invalid("schema is for managed Delta tables", field="schema", fix="give columns instead")
        for field in ("columns", "location", "version"):
            if getattr(self, field):
                raise Invalid(f"{field} cannot be given together with schema", field=field)
        asked = MakeTable(
            name=name,
            fields=parse_columns(schema, "schema"),
            partition_by=tuple(self.partition_by),
            properties=self.properties,
            comment=self.comment,
        )
        return Native(Format.DELTA, msgspec.Raw(msgspec.json.encode(asked)), asked)


class AlterTable(Strict):
    comment: Text | None | UnsetType = UNSET
    properties: Properties | UnsetType = UNSET
    columns: Annotated[list[dict[str, Any]], Meta(max_length=10_000)] | UnsetType = UNSET
    owner: Name | UnsetType = UNSET


class RenameTable(Strict):
    to: Path


class UndropTable(Strict):
    to: Path | None = None


class TableInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    name: str
    catalog_id: str
    schema_id: str
    format: Format
    kind: TableKind
    state: State
    location: str
    version: int
    owner: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    dropped_at: int | None = None
    full_name: list[str] | UnsetType = UNSET
    comment: str | None | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    columns: msgspec.Raw | UnsetType = UNSET

    @classmethod
    def of(
        cls, table: Table, details: TableDetails | None = None, full_name: tuple[str, ...] = ()
    ) -> TableInfo:
        info = cls(
            id=table.id,
            name=table.name,
            catalog_id=table.catalog_id,
            schema_id=table.schema_id,
            format=table.format,
            kind=table.kind,
            state=table.state,
            location=table.location,
            version=table.version,
            owner=table.owner,
            created_at=table.created_at,
            created_by=table.created_by,
            updated_at=table.updated_at,
            updated_by=table.updated_by,
            dropped_at=table.dropped_at,
        )
        if full_name:
            info.full_name = list(full_name)
        if details is not None:
            info.comment = details.comment
            info.properties = details.properties
            info.columns = msgspec.Raw(details.columns)
        return info


class TableList(msgspec.Struct):
    tables: list[TableInfo]
    next_page_token: str | None


class CommitInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    version: int
    at: int
    by: str
    operation: str
    token: str
    transaction: str
    payload: msgspec.Raw
    counts: msgspec.Raw | None = None

    @classmethod
    def of(cls, commit: Commit) -> CommitInfo:
        return cls(
            version=commit.version,
            at=commit.at,
            by=commit.by,
            operation=commit.operation,
            token=commit.token,
            transaction=str(commit.transaction),
            payload=msgspec.Raw(commit.payload),
            counts=None if commit.counts is None else msgspec.Raw(commit.counts),
        )


class History(msgspec.Struct):
    """Newest first."""

    commits: list[CommitInfo]


class ReportInfo(msgspec.Struct):
    version: int
    at: int
    by: str
    report: msgspec.Raw

    @classmethod
    def of(cls, report: Report) -> ReportInfo:
        return cls(report.version, report.at, report.by, msgspec.Raw(report.body))


class ReportList(msgspec.Struct):
    """What clients measured of their commits, newest version first."""

    reports: list[ReportInfo]
