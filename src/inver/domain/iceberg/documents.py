"""Metadata documents of tables, written out of a state."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Raw

from inver.domain.iceberg.nodes import encode, members
from inver.domain.iceberg.series import Series
from inver.domain.iceberg.snapshots import read_ref
from inver.domain.iceberg.state import (
    ENCRYPTION_KEY,
    METADATA_LOG,
    NO_SNAPSHOT,
    ORDER,
    PARTITION_STATISTICS,
    SCHEMA,
    SNAPSHOT,
    SNAPSHOT_LOG,
    SPEC,
    STATISTICS,
    Head,
    State,
)
from inver.errors import Broken

Snapshots = Literal["all", "refs"]

ARRAYS = {
    "schemas": SCHEMA,
    "partition-specs": SPEC,
    "sort-orders": ORDER,
    "snapshots": SNAPSHOT,
    "statistics": STATISTICS,
    "partition-statistics": PARTITION_STATISTICS,
    "snapshot-log": SNAPSHOT_LOG,
    "metadata-log": METADATA_LOG,
}
KNOWN = frozenset(
    {
        *ARRAYS,
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "schema",
        "current-schema-id",
        "partition-spec",
        "default-spec-id",
        "last-partition-id",
        "default-sort-order-id",
        "properties",
        "current-snapshot-id",
        "next-row-id",
        "encryption-keys",
        "refs",
    }
)


def table_document(state: State, head: Head, snapshots: Snapshots) -> list[bytes]:
    """The document in pieces; joined, they are the metadata file."""
    version = head.format_version
    scalars: dict[str, Any] = {
        "format-version": version,
        "table-uuid": head.uuid,
        "location": head.location,
    }
    if version > 1:
        scalars["last-sequence-number"] = head.last_sequence_number
    scalars |= {
        "last-updated-ms": head.last_updated_ms,
        "last-column-id": head.last_column_id,
        "current-schema-id": head.current_schema_id,
        "default-spec-id": head.default_spec_id,
        "last-partition-id": head.last_partition_id,
        "default-sort-order-id": head.default_sort_order_id,
        "properties": head.properties,
        "current-snapshot-id": head.current_snapshot_id,
    }
    if head.current_snapshot_id == NO_SNAPSHOT and version >= 3:
        scalars["current-snapshot-id"] = None
    if version >= 3:
        scalars["next-row-id"] = head.next_row_id
    if version == 1:
        # Readers of the first days know only these.
        scalars["schema"] = Raw(_body(state, SCHEMA, head.current_schema_id))
        spec = members(_body(state, SPEC, head.default_spec_id), "spec")
        scalars["partition-spec"] = spec["fields"]
    scalars["refs"] = head.refs
    out = [encode(scalars | head.unknown)[:-1]]
    if len(state.parts(ENCRYPTION_KEY)):
        write_array(out, "encryption-keys", state.parts(ENCRYPTION_KEY))
    shown = state.series if snapshots == "all" else _referenced(state, head)
    for field, kind in ARRAYS.items():
        write_array(out, field, shown.get(kind))
    out.append(b"}")
    return out


def write_array(out: list[bytes], field: str, series: Series | None) -> None:
    out.append(b',"%s":[' % field.encode())
    if series is not None:
        series.write(out)
    out.append(b"]")


def _body(state: State, kind: str, key: int) -> bytes:
    body = state.parts(kind).get(str(key))
    if body is None:
        raise Broken(f"the table has no {kind} {key}")
    return body


def _referenced(state: State, head: Head) -> dict[str, Series]:
    """With the snapshots that a ref names, and the statistics of no others."""
    all_of = state.parts(SNAPSHOT)
    named = {str(read_ref(raw).snapshot_id) for raw in head.refs.values()}
    named.add(str(head.current_snapshot_id))
    shown = dict(state.series)
    shown[SNAPSHOT] = Series.of(
        sorted(
            ((key, all_of.position(key), _body(state, SNAPSHOT, int(key))) for key in named if key in all_of),
            key=lambda part: part[1],
        )
    )
    for kind in (STATISTICS, PARTITION_STATISTICS):
        shown[kind] = Series.of(
            part
            for part in state.parts(kind).items()
            if (of := part[0].partition("#")[0]) in named or of not in all_of
        )
    return shown
