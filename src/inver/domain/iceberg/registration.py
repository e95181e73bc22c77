"""Taking in a table by its metadata file: everything that a reader would refuse is refused here."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from inver.domain.iceberg.builder import SKEW_MS
from inver.domain.iceberg.documents import ARRAYS, KNOWN
from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.files import strip_slash
from inver.domain.iceberg.nodes import (
    decode_any,
    elements,
    encode,
    get_int,
    get_long,
    get_map,
    get_str,
    members,
    refuse_nul,
)
from inver.domain.iceberg.orders import UNSORTED, check_order, parse_order
from inver.domain.iceberg.partitions import assign_ids, check_names, check_spec, parse_spec, write_spec
from inver.domain.iceberg.properties import SUPPORTED_FORMAT_VERSION
from inver.domain.iceberg.schemas import Schema, parse_schema, with_schema_id
from inver.domain.iceberg.snapshots import BRANCH, MAIN, Ref, parse_ref, parse_snapshot, read_ref, write_ref
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
    Change,
    Draft,
    Head,
    log_key,
)
from inver.domain.iceberg.statistics import encryption_key_id, partition_statistics_of, statistics_of
from inver.errors import Invalid


def from_document(body: bytes, *, metadata_location: str | None, uuid: str) -> Change:
    """A table as its metadata file says; `uuid` is for a file of format version 1 that has none."""
    refuse_nul(body)
    fields = members(body, "table metadata")
    document = {name: decode_any(raw, name) for name, raw in fields.items() if name not in ARRAYS}
    version = get_int(document, "format-version")
    if not 1 <= version <= SUPPORTED_FORMAT_VERSION:
        raise IllegalArgument(f"Cannot read unsupported version {version}", field="format-version")
    if document.get("table-uuid") is None and version > 1:
        raise IllegalArgument(f"UUID is required in format v{version}", field="table-uuid")
    current = document.get("current-snapshot-id")
    head = Head(
        format_version=version,
        uuid=uuid if document.get("table-uuid") is None else get_str(document, "table-uuid"),
        location=strip_slash(get_str(document, "location")),
        last_sequence_number=get_long(document, "last-sequence-number") if version > 1 else 0,
        last_updated_ms=get_long(document, "last-updated-ms"),
        last_column_id=get_int(document, "last-column-id"),
        current_snapshot_id=NO_SNAPSHOT if current is None else get_long(document, "current-snapshot-id"),
        next_row_id=get_long(document, "next-row-id") if version >= 3 else 0,
        properties={} if document.get("properties") is None else get_map(document, "properties"),
        metadata_location=metadata_location,
        unknown={name: Raw(bytes(raw)) for name, raw in fields.items() if name not in KNOWN},
    )
    draft = Draft(None)
    _take_layout(head, draft, fields, document)
    _take_snapshots(head, draft, fields)
    for raw in _array(fields, "encryption-keys"):
        _put_new(draft, ENCRYPTION_KEY, encryption_key_id(raw), bytes(raw))
    _take_logs(head, draft, fields)
    state, parts = draft.finish(head)
    return Change(state=state, head=encode(head), parts=parts)


def _array(fields: dict[str, Raw], name: str) -> list[Raw]:
    raw = fields.get(name)
    return [] if raw is None or bytes(raw) == b"null" else elements(raw, name)


def _put_new(draft: Draft, kind: str, key: str, body: bytes) -> None:
    if (kind, key) in draft:
        raise IllegalArgument(f"Invalid table metadata: two of {kind} with the id {key}", field=kind)
    draft.put(kind, key, body)


def _take_layout(head: Head, draft: Draft, fields: dict[str, Raw], document: dict[str, Any]) -> None:
    version = head.format_version
    schemas = [(parse_schema(raw), bytes(raw)) for raw in _array(fields, "schemas")]
    if "schemas" in fields:
        head.current_schema_id = get_int(document, "current-schema-id")
    else:
        _only_v1(version, "schemas")
        old = fields.get("schema")
        if old is None:
            raise IllegalArgument("Cannot parse missing field: schema", field="schema")
        schema = parse_schema(old)
        head.current_schema_id = schema.id
        schemas = [(schema, with_schema_id(old, schema.id))]
    current: Schema | None = None
    for schema, body in schemas:
        _put_new(draft, SCHEMA, str(schema.id), body)
        current = schema if schema.id == head.current_schema_id else current
    if current is None:
        message = f"Cannot find schema with current-schema-id={head.current_schema_id} from schemas"
        raise IllegalArgument(message, field="current-schema-id")
    _take_specs(head, draft, fields, document, current)
    _take_orders(head, draft, fields, document, current)


def _take_specs(
    head: Head, draft: Draft, fields: dict[str, Raw], document: dict[str, Any], schema: Schema
) -> None:
    if "partition-specs" in fields:
        head.default_spec_id = get_int(document, "default-spec-id")
        raws = _array(fields, "partition-specs")
    else:
        _only_v1(head.format_version, "partition-specs")
        if "partition-spec" not in fields:
            raise IllegalArgument("Cannot parse missing field: partition-spec", field="partition-spec")
        raws = [Raw(encode({"spec-id": 0, "fields": fields["partition-spec"]}))]
    last = 0
    for raw in raws:
        spec = parse_spec(raw)
        if any(field.field_id is None for field in spec.fields):
            spec = assign_ids(spec, 1, 0, ())
            raw = Raw(write_spec(raw, spec))
        if spec.id == head.default_spec_id:
            check_spec(spec, schema)
        else:
            check_names(spec, schema)
        last = max(last, spec.last_field_id)
        _put_new(draft, SPEC, str(spec.id), bytes(raw))
    if (SPEC, str(head.default_spec_id)) not in draft:
        message = f"Cannot find partition spec with default-spec-id={head.default_spec_id}"
        raise IllegalArgument(message, field="default-spec-id")
    if document.get("last-partition-id") is None:
        _only_v1(head.format_version, "last-partition-id")
        head.last_partition_id = last
    else:
        head.last_partition_id = get_int(document, "last-partition-id")


def _take_orders(
    head: Head, draft: Draft, fields: dict[str, Raw], document: dict[str, Any], schema: Schema
) -> None:
    raws = [Raw(UNSORTED)]
    if "sort-orders" in fields:
        head.default_sort_order_id = get_int(document, "default-sort-order-id")
        raws = _array(fields, "sort-orders")
    else:
        _only_v1(head.format_version, "sort-orders")
    for raw in raws:
        order = parse_order(raw)
        if order.id == head.default_sort_order_id:
            check_order(order, schema)
        _put_new(draft, ORDER, str(order.id), bytes(raw))
    if (ORDER, str(head.default_sort_order_id)) not in draft:
        message = f"Cannot find sort order with default-sort-order-id={head.default_sort_order_id}"
        raise IllegalArgument(message, field="default-sort-order-id")


def _take_snapshots(head: Head, draft: Draft, fields: dict[str, Raw]) -> None:
    for raw in _array(fields, "snapshots"):
        snapshot, body = parse_snapshot(raw)
        if snapshot.sequence > head.last_sequence_number:
            message = (
                f"Invalid snapshot with sequence number {snapshot.sequence} greater than last sequence "
                f"number {head.last_sequence_number}"
            )
            raise Invalid(message, field="snapshots")
        _put_new(draft, SNAPSHOT, str(snapshot.snapshot_id), body)
    current = head.current_snapshot_id
    if "refs" in fields and bytes(fields["refs"]) != b"null":
        for name, raw in members(fields["refs"], "refs").items():
            ref = parse_ref(raw, name)
            if (SNAPSHOT, str(ref.snapshot_id)) not in draft:
                message = f"Snapshot for reference {name} does not exist in the existing snapshots list"
                raise IllegalArgument(message, field="refs")
            head.refs[name] = Raw(bytes(raw)) if read_ref(raw).type == ref.type else write_ref(ref)
    elif current != NO_SNAPSHOT:
        head.refs[MAIN] = write_ref(Ref(snapshot_id=current, type=BRANCH))
    main = head.refs.get(MAIN)
    if main is not None and read_ref(main).snapshot_id != current:
        message = (
            f"Current snapshot ID does not match main branch ({current} != {read_ref(main).snapshot_id})"
        )
        raise IllegalArgument(message, field="current-snapshot-id")
    if current != NO_SNAPSHOT and (SNAPSHOT, str(current)) not in draft:
        raise IllegalArgument(
            "Invalid table metadata: Cannot find current version", field="current-snapshot-id"
        )
    for name, kind, snapshot_of in (
        ("statistics", STATISTICS, statistics_of),
        ("partition-statistics", PARTITION_STATISTICS, partition_statistics_of),
    ):
        for raw in _array(fields, name):
            draft.put(kind, repeated_key(draft, kind, snapshot_of(raw)), bytes(raw))


def repeated_key(draft: Draft, kind: str, snapshot_id: int) -> str:
    """A document may hold several files of one snapshot; the first has the plain id as its key."""
    key, again = str(snapshot_id), 0
    while (kind, key) in draft:
        again += 1
        key = f"{snapshot_id}#{again}"
    return key


def _take_logs(head: Head, draft: Draft, fields: dict[str, Raw]) -> None:
    last: int | None = None
    for position, raw in enumerate(_array(fields, "snapshot-log")):
        entry = decode_any(raw, "snapshot-log")
        last = _time(entry, "snapshot-log", last)
        draft.put(SNAPSHOT_LOG, log_key(position, get_long(entry, "snapshot-id")), bytes(raw))
    head.last_log_ms = last
    file: int | None = None
    for position, raw in enumerate(_array(fields, "metadata-log")):
        entry = decode_any(raw, "metadata-log")
        file = _time(entry, "metadata-log", file)
        get_str(entry, "metadata-file")
        draft.put(METADATA_LOG, str(position), bytes(raw))
    for time, what in (
        (last, "last snapshot log entry at"),
        (file, "the latest metadata log entry timestamp"),
    ):
        if time is not None and head.last_updated_ms - time < -SKEW_MS:
            message = f"Invalid update timestamp {head.last_updated_ms}: before {what} {time}"
            raise IllegalArgument(message, field="last-updated-ms")


def _time(entry: Any, log: str, before: int | None) -> int:
    if type(entry) is not dict:
        raise IllegalArgument(f"Cannot parse {log}: an entry must be an object", field=log)
    time = get_long(entry, "timestamp-ms")
    if before is not None and time - before < -SKEW_MS:
        raise IllegalArgument(f"Expected sorted {log} entries, got {time} after {before}", field=log)
    return time


def _only_v1(version: int, field: str) -> None:
    if version != 1:
        raise IllegalArgument(f"{field} must exist in format v{version}", field=field)
