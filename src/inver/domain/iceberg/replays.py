"""Recognising a commit that has been made before.

A writer that lost the answer to a commit sends it again, and its requirements no longer hold: its
own commit moved the table. When all that the request asks for is in the table already, it has
succeeded, and telling the writer otherwise would make it delete files that the table needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from inver.domain.iceberg.files import strip_slash
from inver.domain.iceberg.orders import parse_order
from inver.domain.iceberg.partitions import parse_spec
from inver.domain.iceberg.requests import CommitRequest
from inver.domain.iceberg.schemas import parse_schema
from inver.domain.iceberg.snapshots import Ref, make_ref, parse_snapshot, read_ref, read_snapshot
from inver.domain.iceberg.state import (
    ENCRYPTION_KEY,
    ORDER,
    PARTITION_STATISTICS,
    SCHEMA,
    SNAPSHOT,
    SPEC,
    STATISTICS,
    Head,
    State,
)
from inver.domain.iceberg.updates import (
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AddSpec,
    AssertTableUuid,
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
    SetProperties,
    SetSnapshotRef,
    Update,
    UpgradeFormatVersion,
)
from inver.errors import Invalid


def is_applied(state: State, request: CommitRequest) -> bool:
    """Whether the table has the snapshots of this request and everything else that it asks for.

    Only requests with snapshots are recognised: those of others are the same when applied again.
    """
    head = state.head
    if not isinstance(head, Head) or not any(isinstance(each, AddSnapshot) for each in request.updates):
        return False
    for requirement in request.requirements:
        if isinstance(requirement, AssertTableUuid) and requirement.uuid.lower() != head.uuid.lower():
            return False
    # The cheap question first: nearly every request that fails is not a replay.
    updates = sorted(request.updates, key=lambda update: not isinstance(update, AddSnapshot))
    try:
        return all(_holds(state, head, update, request) for update in updates)
    except Invalid:
        return False


def has_snapshots(state: State, request: CommitRequest) -> bool:
    """Whether the request brings snapshots, and the table has them all, whatever became of the rest of it."""
    added = [update for update in request.updates if isinstance(update, AddSnapshot)]
    try:
        return bool(added) and all(_has_snapshot(state, update) for update in added)
    except Invalid:
        return False


def manifest_lists(requests: Iterable[CommitRequest]) -> set[str]:
    """Files of their own that the snapshots of requests name."""
    found = set()
    for request in requests:
        for update in request.updates:
            if isinstance(update, AddSnapshot):
                try:
                    place = parse_snapshot(update.snapshot)[0].manifest_list
                except Invalid:
                    continue
                if isinstance(place, str):
                    found.add(place)
    return found


def _holds(state: State, head: Head, update: Update, request: CommitRequest) -> bool:
    match update:
        case AddSnapshot():
            return _has_snapshot(state, update)
        case SetSnapshotRef():
            return _has_ref(state, head, update)
        case SetProperties(values=values):
            return all(head.properties.get(name) == value for name, value in values.items())
        case RemoveProperties(names=names):
            return not any(name in head.properties for name in names)
        case SetLocation(location=location):
            return strip_slash(location) == head.location
        case AssignUuid(uuid=uuid):
            return uuid.lower() == head.uuid.lower()
        case UpgradeFormatVersion(format_version=version):
            return version <= head.format_version
        case RemoveSnapshots(snapshot_ids=ids):
            return not any(str(id_) in state.parts(SNAPSHOT) for id_ in ids)
        case RemoveSnapshotRef(ref_name=name):
            again = any(
                isinstance(each, SetSnapshotRef) and each.ref_name == name for each in request.updates
            )
            return again or name not in head.refs
        case RemoveSchemas(schema_ids=ids):
            return not any(str(id_) in state.parts(SCHEMA) for id_ in ids)
        case RemovePartitionSpecs(spec_ids=ids):
            return not any(str(id_) in state.parts(SPEC) for id_ in ids)
        case RemoveStatistics(snapshot_id=id_):
            return str(id_) not in state.parts(STATISTICS)
        case RemovePartitionStatistics(snapshot_id=id_):
            return str(id_) not in state.parts(PARTITION_STATISTICS)
        case RemoveEncryptionKey(key_id=key):
            return key not in state.parts(ENCRYPTION_KEY)
        case _:
            return _holds_layout(state, head, update, request)


def _holds_layout(state: State, head: Head, update: Update, request: CommitRequest) -> bool:
    match update:
        case AddSchema(schema=raw):
            return _schema_id(state, raw) is not None
        case AddSpec(spec=raw):
            return _spec_id(state, raw) is not None
        case AddSortOrder(sort_order=raw):
            return _order_id(state, raw) is not None
        case SetCurrentSchema(schema_id=id_):
            added = [each.schema for each in request.updates if isinstance(each, AddSchema)]
            return head.current_schema_id == (_schema_id(state, added[-1]) if id_ == -1 and added else id_)
        case SetDefaultSpec(spec_id=id_):
            specs = [each.spec for each in request.updates if isinstance(each, AddSpec)]
            return head.default_spec_id == (_spec_id(state, specs[-1]) if id_ == -1 and specs else id_)
        case SetDefaultSortOrder(sort_order_id=id_):
            orders = [each.sort_order for each in request.updates if isinstance(each, AddSortOrder)]
            return head.default_sort_order_id == (
                _order_id(state, orders[-1]) if id_ == -1 and orders else id_
            )
        case _:
            return False


def _has_snapshot(state: State, update: AddSnapshot) -> bool:
    sent, body = parse_snapshot(update.snapshot)
    held = state.parts(SNAPSHOT).get(str(sent.snapshot_id))
    if held is None:
        return False
    return held == body or read_snapshot(held) == sent


def _has_ref(state: State, head: Head, update: SetSnapshotRef) -> bool:
    """Whether the ref is where it was asked to be, or has moved on from there."""
    raw = head.refs.get(update.ref_name)
    if raw is None:
        return False
    ref = read_ref(raw)
    wanted = make_ref(update.ref_name, Ref(snapshot_id=update.snapshot_id, type=update.type))
    return ref.type == wanted.type and _descends(state, ref.snapshot_id, wanted.snapshot_id)


def _descends(state: State, snapshot_id: int, ancestor: int) -> bool:
    snapshots = state.parts(SNAPSHOT)
    seen: set[int] = set()
    at: int | None = snapshot_id
    while at is not None and at not in seen:
        if at == ancestor:
            return True
        seen.add(at)
        body = snapshots.get(str(at))
        at = None if body is None else read_snapshot(body).parent
    return False


def _schema_id(state: State, raw: Raw) -> int | None:
    wanted = parse_schema(raw)
    held = map(parse_schema, state.parts(SCHEMA).bodies())
    return next((schema.id for schema in held if schema.same(wanted)), None)


def _spec_id(state: State, raw: Raw) -> int | None:
    wanted = parse_spec(raw)
    held = map(parse_spec, state.parts(SPEC).bodies())
    return next((spec.id for spec in held if spec.same(wanted)), None)


def _order_id(state: State, raw: Raw) -> int | None:
    wanted = parse_order(raw)
    held = map(parse_order, state.parts(ORDER).bodies())
    return next((order.id for order in held if order.fields == wanted.fields), None)
