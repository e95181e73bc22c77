"""Commits to tables, and how tables begin."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inver.domain.iceberg.builder import TableBuilder
from inver.domain.iceberg.files import strip_slash
from inver.domain.iceberg.layout import LAST_ADDED
from inver.domain.iceberg.orders import UNSORTED, fresh_order
from inver.domain.iceberg.partitions import UNPARTITIONED, fresh_spec
from inver.domain.iceberg.properties import (
    DEFAULT_FORMAT_VERSION,
    check_supported,
    new_table_properties,
    new_table_version,
)
from inver.domain.iceberg.requests import CommitRequest, CreateTable
from inver.domain.iceberg.requirements import check_create, check_table
from inver.domain.iceberg.schemas import parse_schema, with_fresh_ids
from inver.domain.iceberg.state import PARTITION_STATISTICS, STATISTICS, Change, Head, State
from inver.domain.iceberg.statistics import partition_statistics_of, statistics_of
from inver.domain.iceberg.updates import (
    AddEncryptionKey,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssignUuid,
    RemoveEncryptionKey,
    RemovePartitionSpecs,
    RemovePartitionStatistics,
    RemoveProperties,
    RemoveSchemas,
    RemoveSnapshotRef,
    RemoveSnapshots,
    RemoveStatistics,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetPartitionStatistics,
    SetProperties,
    SetSnapshotRef,
    SetStatistics,
    Update,
    UpgradeFormatVersion,
)
from inver.domain.iceberg.yielding import check_care, give_way
from inver.errors import Broken, Invalid


def commit_table(state: State, requests: Sequence[CommitRequest], *, now_ms: int, file_id: str) -> Change:
    """One new version of all requests, each checked against what the ones before it leave."""
    if not isinstance(state.head, Head):
        raise Broken("a view is not a table")
    builder = TableBuilder(copy.copy(state.head), state, now_ms)
    for request in requests:
        give_way(builder, request)
        check_table(builder.head, request.requirements)
        check_care(builder, request)
        _apply(builder, request.updates)
    return builder.finish(file_id)


def create(
    request: CommitRequest, *, now_ms: int, uuid: str, file_id: str, more: Sequence[CommitRequest] = ()
) -> Change:
    """The commit that creates a table; `uuid` is its id unless the request assigns one.

    `more` are further requests of the same transaction to the table that it creates.
    """
    check_create(request.requirements)
    version = next(
        (each.format_version for each in request.updates if isinstance(each, UpgradeFormatVersion)),
        DEFAULT_FORMAT_VERSION,
    )
    check_supported(version)
    builder = TableBuilder(Head(format_version=version, uuid=uuid, location=""), None, now_ms)
    _apply(builder, request.updates)
    for each in more:
        check_table(builder.head, each.requirements)
        _apply(builder, each.updates)
    return builder.finish(file_id)


def new_table(request: CreateTable, *, location: str, now_ms: int, uuid: str, file_id: str | None) -> Change:
    """A table as it is asked for, with ids of the catalog's own; staged when there is no file id."""
    version = new_table_version(request.properties)
    properties = new_table_properties(request.properties, parse_schema(request.schema), version)
    schema, fresh = with_fresh_ids(request.schema)
    head = Head(format_version=version, uuid=uuid, location=strip_slash(location))
    builder = TableBuilder(head, None, now_ms)
    builder.add_schema(schema)
    builder.set_current_schema(LAST_ADDED)
    builder.add_spec(fresh_spec(request.partition_spec or UNPARTITIONED, fresh))
    builder.set_default_spec(LAST_ADDED)
    builder.add_sort_order(fresh_order(request.write_order or UNSORTED, fresh))
    builder.set_default_sort_order(LAST_ADDED)
    builder.set_properties(properties)
    return builder.finish(file_id)


def _apply(builder: TableBuilder, updates: Iterable[Update]) -> None:
    builder.begin()
    for update in updates:
        step = _STEPS.get(type(update))
        if step is None:
            raise Invalid(f"Cannot apply {update.tag()} to a table", field="updates")
        step(builder, update)


_STEPS: dict[type[Update], Callable[[TableBuilder, Any], None]] = {
    AssignUuid: lambda to, update: to.assign_uuid(update.uuid),
    UpgradeFormatVersion: lambda to, update: to.upgrade_format_version(update.format_version),
    AddSchema: lambda to, update: to.add_schema(update.schema),
    SetCurrentSchema: lambda to, update: to.set_current_schema(update.schema_id),
    RemoveSchemas: lambda to, update: to.remove_schemas(update.schema_ids),
    AddSpec: lambda to, update: to.add_spec(update.spec),
    SetDefaultSpec: lambda to, update: to.set_default_spec(update.spec_id),
    RemovePartitionSpecs: lambda to, update: to.remove_specs(update.spec_ids),
    AddSortOrder: lambda to, update: to.add_sort_order(update.sort_order),
    SetDefaultSortOrder: lambda to, update: to.set_default_sort_order(update.sort_order_id),
    AddSnapshot: lambda to, update: to.add_snapshot(update.snapshot),
    SetSnapshotRef: lambda to, update: to.set_snapshot_ref(update),
    RemoveSnapshots: lambda to, update: to.remove_snapshots(update.snapshot_ids),
    RemoveSnapshotRef: lambda to, update: to.remove_snapshot_ref(update.ref_name),
    SetLocation: lambda to, update: to.set_location(update.location),
    SetProperties: lambda to, update: to.set_properties(update.values),
    RemoveProperties: lambda to, update: to.remove_properties(update.names),
    SetStatistics: lambda to, update: to.set_statistics(
        STATISTICS, statistics_of(update.statistics), update.statistics
    ),
    RemoveStatistics: lambda to, update: to.remove_statistics(STATISTICS, update.snapshot_id),
    SetPartitionStatistics: lambda to, update: to.set_statistics(
        PARTITION_STATISTICS,
        partition_statistics_of(update.partition_statistics),
        update.partition_statistics,
    ),
    RemovePartitionStatistics: lambda to, update: to.remove_statistics(
        PARTITION_STATISTICS, update.snapshot_id
    ),
    AddEncryptionKey: lambda to, update: to.add_encryption_key(update.encryption_key),
    RemoveEncryptionKey: lambda to, update: to.remove_encryption_key(update.key_id),
}
