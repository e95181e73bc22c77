"""The types of delta/v1. Its names are in kebab-case, all but those of Delta's own domains."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from inver.domain import delta
from inver.protocols.unity import columns as cols
from inver.protocols.unity.commit_wire import milliseconds
from inver.protocols.unity.wire import Count, Long, Properties, Text
from inver.services.delta import types as ask

Names = Annotated[list[str], Meta(max_length=cols.MAX_COLUMNS)]


class Body(msgspec.Struct, kw_only=True, rename="kebab"):
    pass


# --- parts ---


class Protocol(Body):
    min_reader_version: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    min_writer_version: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def protocol(self) -> delta.Protocol:
        return delta.Protocol(
            self.min_reader_version,
            self.min_writer_version,
            self.reader_features or (),
            self.writer_features or (),
        )


class Domains(msgspec.Struct, forbid_unknown_fields=True):
    """A domain that is not known here is refused: to drop it in silence would lose it."""

    clustering: delta.Clustering | None = msgspec.field(default=None, name=delta.CLUSTERING)
    row_tracking: delta.RowTracking | None = msgspec.field(default=None, name=delta.ROW_TRACKING)

    def domains(self) -> dict[str, Any]:
        given = {delta.CLUSTERING: self.clustering, delta.ROW_TRACKING: self.row_tracking}
        return {name: msgspec.to_builtins(value) for name, value in given.items() if value is not None}


class Iceberg(Body):
    metadata_location: str
    converted_delta_version: Count
    converted_delta_timestamp: Long | str
    base_converted_delta_version: Count | None = None


class Uniform(Body):
    iceberg: Iceberg

    def uniform(self) -> delta.Uniform:
        given = self.iceberg
        return delta.Uniform(
            given.metadata_location,
            given.converted_delta_version,
            milliseconds(given.converted_delta_timestamp, "uniform.iceberg.converted-delta-timestamp"),
            given.base_converted_delta_version,
        )


class Commit(Body):
    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long

    def info(self) -> delta.CommitInfo:
        return delta.CommitInfo(
            self.version, self.timestamp, self.file_name, self.file_size, self.file_modification_timestamp
        )


# --- requests ---


class Stage(Body):
    name: str


class Create(Body):
    name: str
    location: str
    table_type: str
    columns: dict[str, Any]
    protocol: Protocol
    properties: Properties
    last_commit_timestamp_ms: Count
    comment: Text | None = None
    partition_columns: Names | None = None
    domain_metadata: Domains | None = None
    uniform: Uniform | None = None


class Rename(Body):
    new_name: str


class AssertTableUuid(Body, tag_field="type", tag="assert-table-uuid"):
    uuid: str


class AssertEtag(Body, tag_field="type", tag="assert-etag"):
    etag: str


class AddCommit(Body, tag_field="action", tag="add-commit"):
    commit: Commit
    uniform: Uniform | None = None


class SetLatestBackfilledVersion(Body, tag_field="action", tag="set-latest-backfilled-version"):
    latest_published_version: Long


class SetProperties(Body, tag_field="action", tag="set-properties"):
    updates: Properties


class RemoveProperties(Body, tag_field="action", tag="remove-properties"):
    removals: Names


class SetProtocol(Body, tag_field="action", tag="set-protocol"):
    protocol: Protocol


class SetColumns(Body, tag_field="action", tag="set-columns"):
    columns: dict[str, Any]


class SetPartitionColumns(Body, tag_field="action", tag="set-partition-columns"):
    partition_columns: Names


class SetTableComment(Body, tag_field="action", tag="set-table-comment"):
    """Clients clear a comment with null, with nothing, or with no text."""

    comment: Text | None = None


class SetDomainMetadata(Body, tag_field="action", tag="set-domain-metadata"):
    updates: Domains


class RemoveDomainMetadata(Body, tag_field="action", tag="remove-domain-metadata"):
    domains: Names


class UpdateSnapshotVersion(Body, tag_field="action", tag="update-metadata-snapshot-version"):
    last_commit_version: Count
    last_commit_timestamp_ms: Count


Requirement: TypeAlias = AssertTableUuid | AssertEtag
Action: TypeAlias = (
    AddCommit
    | SetLatestBackfilledVersion
    | SetProperties
    | RemoveProperties
    | SetProtocol
    | SetColumns
    | SetPartitionColumns
    | SetTableComment
    | SetDomainMetadata
    | RemoveDomainMetadata
    | UpdateSnapshotVersion
)


class Update(Body):
    requirements: Annotated[list[Requirement], Meta(max_length=100)]
    updates: Annotated[list[Action], Meta(max_length=100)]


class Histogram(Body):
    sorted_bin_boundaries: tuple[Long, ...]
    file_counts: tuple[Long, ...]
    total_bytes: tuple[Long, ...]
    commit_version: Count | None = None


class CommitReport(Body):
    num_files_added: Count | None = None
    num_bytes_added: Count | None = None
    num_files_removed: Count | None = None
    num_bytes_removed: Count | None = None
    num_rows_inserted: Count | None = None
    num_rows_removed: Count | None = None
    num_rows_updated: Count | None = None
    file_size_histogram: Histogram | None = None

    def report(self) -> ask.CommitReport:
        sizes = self.file_size_histogram
        return ask.CommitReport(
            version=None if sizes is None else sizes.commit_version,
            files_added=self.num_files_added,
            bytes_added=self.num_bytes_added,
            files_removed=self.num_files_removed,
            bytes_removed=self.num_bytes_removed,
            rows_inserted=self.num_rows_inserted,
            rows_removed=self.num_rows_removed,
            rows_updated=self.num_rows_updated,
            histogram=None
            if sizes is None
            else ask.Histogram(sizes.sorted_bin_boundaries, sizes.file_counts, sizes.total_bytes),
        )


class Report(Body):
    commit_report: CommitReport | None = None


class Metrics(Body):
    table_id: str
    report: Report | None = None
