"""What a table is after changes of its metadata, whether they come with a commit or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, DeltaHead, Uniform
from inver.domain.locations import Location
from inver.errors import Invalid
from inver.ports import FullTable
from inver.services.delta.types import Changes

_encode = msgspec.json.encode
_UNIFORM = "delta.universalFormat.enabledFormats"


def with_changes(
    append: ledger.Append, full: FullTable, info: CommitInfo, changes: Changes, uniform: Uniform | None
) -> ledger.Append:
    head, definition = changed(full, info, changes, uniform)
    # What was merged here was read at this etag.
    append = msgspec.structs.replace(append, head=_encode(head), expect_etag=full.table.etag)
    if changes.only_row_tracking() and uniform is None:
        return append
    return msgspec.structs.replace(append, definition=definition)


def changed(
    full: FullTable, info: CommitInfo | None, changes: Changes, uniform: Uniform | None
) -> tuple[DeltaHead, ledger.Definition]:
    """The state and definition of a table after the changes."""
    head = delta.head_of(full.table.head)
    properties = _merged(full.details.properties, changes)
    replacing: dict[str, Any] = {}
    if not isinstance(changes.protocol, msgspec.UnsetType):
        replacing["protocol"] = changes.protocol
    elif isinstance(changes.properties, dict) and any(
        k.startswith("delta.feature.") for k in changes.properties
    ):
        replacing["protocol"] = delta.protocol_of(changes.properties)
    if not isinstance(changes.partition_columns, msgspec.UnsetType):
        replacing["partition_columns"] = changes.partition_columns
    domains = {
        name: value
        for name, value in {**head.domains, **changes.set_domains}.items()
        if name not in changes.remove_domains
    }
    replacing["domains"] = domains
    if info is not None and not changes.only_row_tracking():
        replacing["updated_version"] = info.version
        replacing["updated_timestamp"] = info.timestamp
    if not isinstance(changes.snapshot_version, msgspec.UnsetType):
        replacing["updated_version"] = changes.snapshot_version
    if not isinstance(changes.snapshot_timestamp, msgspec.UnsetType):
        replacing["updated_timestamp"] = changes.snapshot_timestamp
    if uniform is not None:
        check_uniform(full.table.location, properties, uniform)
        if info is not None and uniform.converted_version != info.version:
            raise Invalid(
                "the converted version must be the version of this commit",
                field="uniform.iceberg.converted_delta_version",
            )
        replacing["uniform"] = uniform
    after = msgspec.structs.replace(head, **replacing)
    if head.managed:
        delta.require_managed(full.table.id, after.protocol, properties)
    columns = changes.columns
    if not isinstance(changes.partition_columns, msgspec.UnsetType):
        standing = full.details.columns if isinstance(columns, msgspec.UnsetType) else columns
        check_partitions(changes.partition_columns, standing)
    names = () if isinstance(columns, msgspec.UnsetType) else column_names(columns)
    return after, ledger.Definition(
        comment=changes.comment, properties=properties, columns=columns, column_names=names
    )


def _merged(current: dict[str, str], changes: Changes) -> dict[str, str]:
    if isinstance(changes.properties, dict):
        return delta.stored_properties(changes.properties)
    both = set(changes.set_properties) & set(changes.remove_properties)
    if both:
        raise Invalid(f"{min(both)} is both set and removed", field="remove-properties")
    merged = {**current, **delta.stored_properties(changes.set_properties)}
    return {key: value for key, value in merged.items() if key not in changes.remove_properties}


def check_uniform(location: str, properties: Mapping[str, str], uniform: Uniform) -> None:
    """Iceberg metadata is for tables that have it, and lies where their readers may look."""
    if "iceberg" not in properties.get(_UNIFORM, "").split(","):
        raise Invalid(f"uniform needs the property {_UNIFORM} with iceberg", field="uniform")
    root, place = Location.parse(location), Location.parse(uniform.metadata_location, field="uniform")
    if not root.contains(place) or root == place:
        raise Invalid(
            "the metadata must lie below the table's location", field="uniform.iceberg.metadata_location"
        )


def check_partitions(names: Sequence[str], columns: bytes) -> None:
    """Each is a column; nothing is known of a table whose columns nobody has told."""
    known = {name.lower() for name in column_names(columns)}
    for name in names:
        if known and name.lower() not in known:
            raise Invalid(f"the partition column {name!r} is no column", field="partition-columns")


def column_names(columns: bytes) -> tuple[str, ...]:
    return tuple(str(column["name"]) for column in msgspec.json.decode(columns) if "name" in column)
