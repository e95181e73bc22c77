"""Snapshots and the refs that name them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import INT_MAX, LONG_MAX, decode_as, encode, members

Int = Annotated[int, Meta(ge=-INT_MAX - 1, le=INT_MAX)]
Long = Annotated[int, Meta(ge=-LONG_MAX - 1, le=LONG_MAX)]

MAIN = "main"
BRANCH = "branch"
TAG = "tag"


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """What the catalog reads of a snapshot; the rest stays in its bytes."""

    snapshot_id: Long
    timestamp_ms: Long
    sequence_number: Long | None | UnsetType = UNSET
    parent_snapshot_id: Long | None | UnsetType = UNSET
    manifest_list: str | None | UnsetType = UNSET
    manifests: list[str] | None | UnsetType = UNSET
    summary: dict[str, str] | UnsetType = UNSET
    schema_id: Int | None | UnsetType = UNSET
    first_row_id: Long | None | UnsetType = UNSET
    added_rows: Long | None | UnsetType = UNSET
    key_id: str | None | UnsetType = UNSET

    @property
    def sequence(self) -> int:
        return self.sequence_number or 0

    @property
    def parent(self) -> int | None:
        return None if self.parent_snapshot_id is UNSET else self.parent_snapshot_id


class Ref(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    snapshot_id: Long
    type: str
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


_snapshot = msgspec.json.Decoder(Snapshot)
_ref = msgspec.json.Decoder(Ref)


def parse_snapshot(raw: bytes | msgspec.Raw) -> tuple[Snapshot, bytes]:
    """The snapshot, and its bytes without fields that are null: readers refuse those."""
    snapshot = decode_as(_snapshot, raw, "snapshot")
    if snapshot.manifest_list in (None, UNSET) and snapshot.manifests in (None, UNSET):
        raise IllegalArgument("Cannot parse missing string: manifest-list", field="manifest-list")
    first, added = snapshot.first_row_id, snapshot.added_rows
    if isinstance(first, int):
        if first < 0:
            message = f"Invalid first-row-id (cannot be negative): {first}"
            raise IllegalArgument(message, field="first-row-id")
        if not isinstance(added, int):
            message = "Invalid added-rows (required when first-row-id is set): null"
            raise IllegalArgument(message, field="added-rows")
    if isinstance(added, int) and added < 0:
        raise IllegalArgument(f"Invalid added-rows (cannot be negative): {added}", field="added-rows")
    body = bytes(raw)
    if b"null" in body:
        fields = members(body, "snapshot")
        kept = {name: value for name, value in fields.items() if bytes(value) != b"null"}
        if len(kept) != len(fields):
            body = encode(kept)
    return snapshot, body


def read_snapshot(body: bytes) -> Snapshot:
    """A snapshot that the table holds."""
    return _snapshot.decode(body)


def parse_ref(raw: bytes | msgspec.Raw, name: str) -> Ref:
    return make_ref(name, decode_as(_ref, raw, f"ref {name}"))


def make_ref(name: str, ref: Ref) -> Ref:
    """The ref with its type in its usual spelling; retention that such a ref does not have is refused."""
    kind = ref.type.lower()
    if kind not in (BRANCH, TAG):
        raise IllegalArgument(f"Invalid snapshot ref type: {ref.type}", field="type")
    for value, camel, limit in (
        (ref.min_snapshots_to_keep, "minSnapshotsToKeep", "Min snapshots to keep must be greater than 0"),
        (ref.max_snapshot_age_ms, "maxSnapshotAgeMs", "Max snapshot age must be greater than 0 ms"),
    ):
        if value is not None and kind == TAG:
            raise IllegalArgument(f"Tags do not support setting {camel}", field=name)
        if value is not None and value <= 0:
            raise IllegalArgument(limit, field=name)
    if ref.max_ref_age_ms is not None and ref.max_ref_age_ms <= 0:
        raise IllegalArgument("Max reference age must be greater than 0", field=name)
    return ref if ref.type == kind else msgspec.structs.replace(ref, type=kind)


def write_ref(ref: Ref) -> msgspec.Raw:
    return msgspec.Raw(encode(ref))


def read_ref(raw: msgspec.Raw) -> Ref:
    return _ref.decode(raw)
