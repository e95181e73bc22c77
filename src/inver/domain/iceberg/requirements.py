"""Checking what a writer requires of the table or view that it commits to."""

from __future__ import annotations

from collections.abc import Iterable

from inver.domain.iceberg.failures import IllegalArgument, RequirementFailed
from inver.domain.iceberg.nodes import listed
from inver.domain.iceberg.snapshots import read_ref
from inver.domain.iceberg.state import Head, State, ViewHead
from inver.domain.iceberg.updates import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUuid,
    AssertViewUuid,
    Requirement,
)
from inver.errors import Invalid


def check(state: State, requirements: Iterable[Requirement]) -> None:
    """Of a table or view that exists."""
    if isinstance(state.head, ViewHead):
        check_view(state.head, requirements)
    else:
        check_table(state.head, requirements)


def check_create(requirements: Iterable[Requirement]) -> None:
    """A table that is to be created can meet no other requirement than that it is not there."""
    others = [each.tag() for each in requirements if type(each) is not AssertCreate]
    if others:
        raise IllegalArgument(f"Invalid create requirements: {listed(others)}", field="requirements")


def check_table(head: Head, requirements: Iterable[Requirement]) -> None:
    for requirement in requirements:
        match requirement:
            case AssertRefSnapshotId():
                _check_ref(head, requirement.ref, requirement.snapshot_id)
            case AssertTableUuid(uuid=uuid):
                if uuid.lower() != head.uuid.lower():
                    raise RequirementFailed(f"UUID does not match: expected {head.uuid} != {uuid}")
            case AssertCreate():
                raise RequirementFailed("table already exists")
            case AssertLastAssignedFieldId(last_assigned_field_id=id_):
                _same("last assigned field id", id_, head.last_column_id)
            case AssertCurrentSchemaId(current_schema_id=id_):
                _same("current schema", id_, head.current_schema_id)
            case AssertLastAssignedPartitionId(last_assigned_partition_id=id_):
                _same("last assigned partition id", id_, head.last_partition_id)
            case AssertDefaultSpecId(default_spec_id=id_):
                _same("default partition spec", id_, head.default_spec_id)
            case AssertDefaultSortOrderId(default_sort_order_id=id_):
                _same("default sort order", id_, head.default_sort_order_id)
            case _:
                raise Invalid(f"Cannot validate {requirement.tag()} against a table", field="requirements")


def check_view(head: ViewHead, requirements: Iterable[Requirement]) -> None:
    for requirement in requirements:
        if not isinstance(requirement, AssertViewUuid):
            raise Invalid(f"Cannot validate {requirement.tag()} against a view", field="requirements")
        if requirement.uuid.lower() != head.uuid.lower():
            raise RequirementFailed(f"view UUID does not match: expected {head.uuid} != {requirement.uuid}")


def _same(what: str, expected: int, current: int) -> None:
    if expected != current:
        raise RequirementFailed(f"{what} changed: expected id {expected} != {current}")


def _check_ref(head: Head, name: str, expected: int | None) -> None:
    raw = head.refs.get(name)
    if raw is None:
        if expected is not None:
            raise RequirementFailed(f"branch or tag {name} is missing, expected {expected}")
        return
    ref = read_ref(raw)
    if expected is None:
        raise RequirementFailed(f"{ref.type} {name} was created concurrently")
    if ref.snapshot_id != expected:
        raise RequirementFailed(f"{ref.type} {name} has changed: expected id {expected} != {ref.snapshot_id}")
