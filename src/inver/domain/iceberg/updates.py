"""Updates and requirements of a commit, as they are sent."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from inver.domain.iceberg.snapshots import Int, Long


class Tagged(msgspec.Struct, kw_only=True, rename="kebab"):
    @classmethod
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)


class Update(Tagged, tag_field="action"):
    pass


class AssignUuid(Update, tag="assign-uuid"):
    uuid: str


class UpgradeFormatVersion(Update, tag="upgrade-format-version"):
    format_version: Int


class AddSchema(Update, tag="add-schema"):
    schema: Raw


class SetCurrentSchema(Update, tag="set-current-schema"):
    schema_id: Int


class AddSpec(Update, tag="add-spec"):
    spec: Raw


class SetDefaultSpec(Update, tag="set-default-spec"):
    spec_id: Int


class AddSortOrder(Update, tag="add-sort-order"):
    sort_order: Raw


class SetDefaultSortOrder(Update, tag="set-default-sort-order"):
    sort_order_id: Int


class AddSnapshot(Update, tag="add-snapshot"):
    snapshot: Raw


class SetSnapshotRef(Update, tag="set-snapshot-ref"):
    ref_name: str
    snapshot_id: Long
    type: str
    min_snapshots_to_keep: Int | None = None
    max_snapshot_age_ms: Long | None = None
    max_ref_age_ms: Long | None = None


class RemoveSnapshots(Update, tag="remove-snapshots"):
    snapshot_ids: list[Long]


class RemoveSnapshotRef(Update, tag="remove-snapshot-ref"):
    ref_name: str


class SetLocation(Update, tag="set-location"):
    location: str


class SetProperties(Update, tag="set-properties"):
    """`updated` is the name that older writers use for `updates`."""

    updates: dict[str, str] | None = None
    updated: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.updates is None and self.updated is None:
            raise ValueError("Object missing required field `updates`")

    @property
    def values(self) -> dict[str, str]:
        return self.updates if self.updates is not None else self.updated or {}


class RemoveProperties(Update, tag="remove-properties"):
    """`removed` is the name that older writers use for `removals`."""

    removals: list[str] | None = None
    removed: list[str] | None = None

    def __post_init__(self) -> None:
        if self.removals is None and self.removed is None:
            raise ValueError("Object missing required field `removals`")

    @property
    def names(self) -> list[str]:
        return self.removals if self.removals is not None else self.removed or []


class SetStatistics(Update, tag="set-statistics"):
    statistics: Raw


class RemoveStatistics(Update, tag="remove-statistics"):
    snapshot_id: Long


class SetPartitionStatistics(Update, tag="set-partition-statistics"):
    partition_statistics: Raw


class RemovePartitionStatistics(Update, tag="remove-partition-statistics"):
    snapshot_id: Long


class RemovePartitionSpecs(Update, tag="remove-partition-specs"):
    spec_ids: list[Int]


class RemoveSchemas(Update, tag="remove-schemas"):
    schema_ids: list[Int]


class AddEncryptionKey(Update, tag="add-encryption-key"):
    encryption_key: Raw


class RemoveEncryptionKey(Update, tag="remove-encryption-key"):
    key_id: str


class AddViewVersion(Update, tag="add-view-version"):
    view_version: Raw


class SetCurrentViewVersion(Update, tag="set-current-view-version"):
    view_version_id: Int


UPDATES: dict[str, type[Update]] = {update.tag(): update for update in Update.__subclasses__()}


class Requirement(Tagged, tag_field="type"):
    pass


class AssertCreate(Requirement, tag="assert-create"):
    pass


class AssertTableUuid(Requirement, tag="assert-table-uuid"):
    uuid: str


class AssertViewUuid(Requirement, tag="assert-view-uuid"):
    uuid: str


class AssertRefSnapshotId(Requirement, tag="assert-ref-snapshot-id"):
    """A missing or null snapshot id means that there is no such ref."""

    ref: str
    snapshot_id: Long | None = None


class AssertLastAssignedFieldId(Requirement, tag="assert-last-assigned-field-id"):
    last_assigned_field_id: Int


class AssertCurrentSchemaId(Requirement, tag="assert-current-schema-id"):
    current_schema_id: Int


class AssertLastAssignedPartitionId(Requirement, tag="assert-last-assigned-partition-id"):
    last_assigned_partition_id: Int


class AssertDefaultSpecId(Requirement, tag="assert-default-spec-id"):
    default_spec_id: Int


class AssertDefaultSortOrderId(Requirement, tag="assert-default-sort-order-id"):
    default_sort_order_id: Int


REQUIREMENTS: dict[str, type[Requirement]] = {
    requirement.tag(): requirement for requirement in Requirement.__subclasses__()
}


def union_of(types: dict[str, type[Any]]) -> Any:
    found: Any = None
    for each in types.values():
        found = each if found is None else found | each
    return found
