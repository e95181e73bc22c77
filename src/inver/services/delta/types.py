"""What the faces of Unity Catalog ask of Delta tables, and what they get."""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain.delta import CommitInfo, DeltaHead, Protocol, Uniform
from inver.domain.tables import Table, TableDetails


class Staged(msgspec.Struct, frozen=True):
    """An id and a place for a table that its creator may now write and then finish."""

    id: str
    location: str


class NewTable(msgspec.Struct, frozen=True, kw_only=True):
    """A staged table whose version 0 is written. `columns` is the JSON that is kept and shown.

    What is None the request does not say: the protocol where the dialect has it in properties
    (`delta.feature.*`), and the columns where the file alone has them.
    """

    name: tuple[str, ...]
    location: str
    columns: bytes | None = None
    properties: dict[str, str] = {}
    comment: str | None = None
    protocol: Protocol | None = None
    partition_columns: tuple[str, ...] | None = None
    domains: dict[str, Any] = {}
    timestamp: int | None = None
    uniform: Uniform | None = None


class MakeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that has no client to write its version 0. `fields` are those of a Delta schema."""

    name: tuple[str, ...]
    fields: list[dict[str, Any]]
    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    comment: str | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of metadata that go with a commit, or alone; UNSET stays.

    `properties` is the whole new map, already merged by who knows the old one.
    """

    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    set_properties: dict[str, str] = {}
    remove_properties: tuple[str, ...] = ()
    comment: str | None | msgspec.UnsetType = msgspec.UNSET
    protocol: Protocol | msgspec.UnsetType = msgspec.UNSET
    partition_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    set_domains: dict[str, Any] = {}
    remove_domains: tuple[str, ...] = ()
    snapshot_version: int | msgspec.UnsetType = msgspec.UNSET
    snapshot_timestamp: int | msgspec.UnsetType = msgspec.UNSET

    def only_row_tracking(self) -> bool:
        """A high-water mark of row ids moves with data and is no change of metadata."""
        return self == Changes(set_domains=self.set_domains) and set(self.set_domains) <= {
            "delta.rowTracking"
        }


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, a notice of published versions, or both; by id, and by location where the dialect says it."""

    table_id: str
    location: str | None = None
    info: CommitInfo | None = None
    published: int | None = None
    changes: Changes | None = None
    uniform: Uniform | None = None
    expect_etag: int | None = None


class Tail(msgspec.Struct, frozen=True):
    """Ratified commits that may not be published yet, newest first, and the version of the table.

    `commits` is a JSON array of `CommitInfo` as it was kept.
    """

    commits: bytes
    latest: int


class Definition(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a Delta table is besides its version, as of one etag and one state."""

    etag: int
    stored_head: bytes | None
    head: DeltaHead
    columns: bytes
    properties: dict[str, str]

    def is_of(self, table: Table) -> bool:
        return self.etag == table.etag and self.stored_head == table.head


class Snapshot(msgspec.Struct, frozen=True):
    """A table for its readers. `tail` is None when the catalog does not manage it.

    `maintained` says that who asks may maintain the table. The definition is the same object until it
    changes, so what is made of it can be kept with it. `table` may be as old as that: which version it
    has is for `tail` to say, and when it changed last for `updated_at`.
    """

    table: Table
    definition: Definition
    tail: Tail | None
    maintained: bool
    updated_at: int


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that people and older clients are told of a table."""

    table: Table
    details: TableDetails
    head: DeltaHead
    full_name: tuple[str, ...]
    owner: str
    created_by: str
    updated_by: str
    properties: dict[str, str]


class Histogram(msgspec.Struct, frozen=True):
    boundaries: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


class CommitReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client measured of one of its commits. Every count may be missing; zero is a count."""

    version: int | None = None
    files_added: int | None = None
    bytes_added: int | None = None
    clustered_bytes_added: int | None = None
    files_removed: int | None = None
    bytes_removed: int | None = None
    clustered_bytes_removed: int | None = None
    rows_inserted: int | None = None
    rows_removed: int | None = None
    rows_updated: int | None = None
    histogram: Histogram | None = None
