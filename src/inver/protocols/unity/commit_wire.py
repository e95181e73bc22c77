"""Commits and metrics in Unity's own dialect.

Two versions of it are in use. What they spell differently is read in both spellings on all routes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from inver.domain import delta
from inver.errors import Invalid
from inver.protocols.unity import columns as cols
from inver.protocols.unity.columns import Columns
from inver.protocols.unity.wire import Body, Count, Long, Properties, Text
from inver.services.delta import types as ask
from inver.services.delta.types import Changes, Proposal


class CommitInfo(Body):
    version: Long
    timestamp: Long
    file_name: str
    file_size: Long
    file_modification_timestamp: Long

    def info(self) -> delta.CommitInfo:
        return delta.CommitInfo(
            self.version, self.timestamp, self.file_name, self.file_size, self.file_modification_timestamp
        )


class ColumnInfos(Body):
    columns: Columns | None = None


class FileFormat(Body):
    provider: str | None = None
    options: Properties | None = None


class Metadata(Body):
    """Flat, or with `schema` and `properties` each inside an object of its own.

    Of the name and the format of files nothing is kept: the log knows one format, the catalog the name.
    """

    id: str | None = None
    name: str | None = None
    description: Text | None = None
    provider: str | None = None
    options: Properties | None = None
    format: FileFormat | None = None
    schema: Columns | ColumnInfos | None = None
    partition_columns: Annotated[list[str], Meta(max_length=cols.MAX_COLUMNS)] | None = None
    properties: dict[str, str | dict[str, str] | None] | None = None
    created_time: Count | Annotated[str, Meta(pattern="^[0-9]{1,19}$")] | None = None

    def changes(self) -> Changes:
        given: dict[str, Any] = {}
        schema = self.schema.columns if isinstance(self.schema, ColumnInfos) else self.schema
        if schema is not None:
            columns = cols.from_infos(schema, "metadata.schema")
            given["columns"] = cols.encode(columns)
            marked = cols.partition_columns(columns)
            if marked:
                given["partition_columns"] = marked
        if self.partition_columns is not None:
            given["partition_columns"] = tuple(self.partition_columns)
        if self.properties is not None:
            given["properties"] = self._properties(self.properties)
        if self.description is not None:
            given["comment"] = self.description or None
        if not given:
            raise Invalid(
                "metadata changes nothing", field="metadata", fix="give description, schema or properties"
            )
        return Changes(**given)

    @staticmethod
    def _properties(given: dict[str, str | dict[str, str] | None]) -> dict[str, str]:
        inner = given.get("properties")
        if isinstance(inner, dict):
            return inner
        flat: dict[str, str] = {}
        for key, value in given.items():
            if not isinstance(value, str):
                raise Invalid(f"the property {key!r} must be text", field="metadata.properties")
            flat[key] = value
        return flat


class Iceberg(Body):
    metadata_location: str
    converted_delta_version: Count
    converted_delta_timestamp: Count | str
    base_converted_delta_version: Count | None = None


class Uniform(Body):
    iceberg: Iceberg | None = None

    def uniform(self) -> delta.Uniform | None:
        given = self.iceberg
        if given is None:
            return None
        return delta.Uniform(
            given.metadata_location,
            given.converted_delta_version,
            milliseconds(given.converted_delta_timestamp, "uniform.iceberg.converted_delta_timestamp"),
            given.base_converted_delta_version,
        )


class Commit(Body):
    table_id: str
    table_uri: str
    commit_info: CommitInfo | None = None
    latest_published_version: Long | None = None
    latest_backfilled_version: Long | None = None
    metadata: Metadata | None = None
    uniform: Uniform | None = None

    def proposal(self) -> Proposal:
        info = self.commit_info
        if info is None and (self.metadata is not None or self.uniform is not None):
            raise Invalid("metadata and uniform need a commit", field="commit_info", fix="give commit_info")
        return Proposal(
            table_id=self.table_id,
            location=self.table_uri,
            info=None if info is None else info.info(),
            published=self._published(),
            changes=None if self.metadata is None else self.metadata.changes(),
            uniform=None if self.uniform is None else self.uniform.uniform(),
        )

    def _published(self) -> int | None:
        published, backfilled = self.latest_published_version, self.latest_backfilled_version
        if published is None or backfilled is None or published == backfilled:
            return backfilled if published is None else published
        raise Invalid(
            "latest_published_version and latest_backfilled_version differ", field="latest_published_version"
        )


class GetCommits(Body):
    table_id: str
    table_uri: str
    start_version: Count | None = None
    end_version: Count | None = None


# --- metrics ---


class Histogram(Body):
    sorted_bin_boundaries: tuple[Long, ...] = ()
    file_counts: tuple[Long, ...] = ()
    total_bytes: tuple[Long, ...] = ()

    def histogram(self) -> ask.Histogram:
        return ask.Histogram(self.sorted_bin_boundaries, self.file_counts, self.total_bytes)


class CommitReport(Body):
    commit_version: Count
    num_files_added: Count | None = None
    num_bytes_added: Count | None = None
    num_clustered_bytes_added: Count | None = None
    num_files_removed: Count | None = None
    num_bytes_removed: Count | None = None
    num_clustered_bytes_removed: Count | None = None
    num_rows_inserted: Count | None = None
    num_rows_removed: Count | None = None
    num_rows_updated: Count | None = None
    file_size_histogram: Histogram | None = None

    def report(self) -> ask.CommitReport:
        return ask.CommitReport(
            version=self.commit_version,
            files_added=self.num_files_added,
            bytes_added=self.num_bytes_added,
            clustered_bytes_added=self.num_clustered_bytes_added,
            files_removed=self.num_files_removed,
            bytes_removed=self.num_bytes_removed,
            clustered_bytes_removed=self.num_clustered_bytes_removed,
            rows_inserted=self.num_rows_inserted,
            rows_removed=self.num_rows_removed,
            rows_updated=self.num_rows_updated,
            histogram=None if self.file_size_histogram is None else self.file_size_histogram.histogram(),
        )


class Report(Body):
    commit_report: CommitReport | None = None


class Metrics(Body):
    table_id: str
    table_uri: str
    report: Report | None = None


def milliseconds(given: int | str, field: str) -> int:
    """Milliseconds since the epoch, also from an ISO 8601 instant."""
    if isinstance(given, int):
        return given
    try:
        instant = datetime.fromisoformat(given)
    except ValueError:
        raise Invalid(f"{field} is not an ISO 8601 timestamp", field=field) from None
    if instant.tzinfo is None:
        raise Invalid(f"{field} has no time zone", field=field, fix="end it with Z")
    since = round(instant.timestamp() * 1000)
    if since < 0:
        raise Invalid(f"{field} is before 1970", field=field)
    return since
