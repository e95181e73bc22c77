"""Bodies of the Iceberg REST protocol, except those that change metadata: these the domain reads itself."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.reports import ReportType

Text = Annotated[str, Meta(min_length=1)]
Path = Annotated[tuple[str, ...], Meta(min_length=1)]


class CreateNamespace(msgspec.Struct, frozen=True):
    namespace: Path
    properties: dict[str, str] | None = None


class UpdateProperties(msgspec.Struct, frozen=True):
    removals: list[str] | None = None
    updates: dict[str, str] | None = None


class TableIdentifier(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    name: Text

    def within(self, catalog: str) -> Identifier:
        return Identifier(catalog, self.namespace, self.name)


class Rename(msgspec.Struct, frozen=True):
    source: TableIdentifier
    destination: TableIdentifier


class Register(msgspec.Struct, frozen=True, rename="kebab"):
    name: Text
    metadata_location: Text
    overwrite: bool = False


class RegisterView(msgspec.Struct, frozen=True, rename="kebab"):
    name: Text
    metadata_location: Text


class Report(msgspec.Struct, frozen=True, rename="kebab"):
    """A scan report or a commit report; what it measured is kept as it came."""

    report_type: ReportType
    snapshot_id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    metrics: dict[str, Any]


class Listing(msgspec.Struct, frozen=True, rename="kebab"):
    identifiers: list[TableIdentifier]
    next_page_token: str | None


class NamespaceListing(msgspec.Struct, frozen=True, rename="kebab"):
    namespaces: list[tuple[str, ...]]
    next_page_token: str | None


class Namespace(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    properties: dict[str, str]
