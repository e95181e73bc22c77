"""What a table is after changes of its metadata, whether they come with a commit or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, DeltaHead, Uniform
from inver.domain.locations import Location
from inver.errors import Invalid, PreconditionFailed
from inver.ports import FullTable
from inver.services.delta.types import Changes, Proposal

_encode = msgspec.json.encode
_decode = msgspec.json.decode
_UNIFORM = "delta.universalFormat.enabledFormats"


def with_changes(
    append: ledger.Append, full: FullTable, proposal: Proposal, changes: Changes
) -> ledger.Append:
    head, definition = changed(full, proposal, changes)
    # What was merged here was read at this etag.
    append = msgspec.structs.replace(append, head=_encode(head), expect_etag=full.table.etag)
    if changes.only_row_tracking():
        # Iceberg metadata and marks of row ids move with the data.
        return append
    return msgspec.structs.replace(append, definition=definition)


def changed(full: FullTable, proposal: Proposal, changes: Changes) -> tuple[DeltaHead, ledger.Definition]:
    """The state and definition of a table after the changes: those proposed, and those of the file."""
    info, uniform = proposal.info, proposal.uniform
    head = delta.head_of(full.table.head)
    properties = _merged(full.details.properties, changes)
    replacing: dict[str, Any] = {}
    if not isinstance(changes.protocol, msgspec.UnsetType):
        replacing["protocol"] = changes.protocol
    elif isinstance(changes.properties, dict):
        told = delta.spelled_protocol(changes.properties)
        if told is not None and not delta.is_same_protocol(told, head.protocol):
            replacing["protocol"] = told
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
        replacing["uniform"] = _next_uniform(full.table.location, head, properties, info, uniform)
    elif not has_iceberg(properties):
        # What nobody keeps up any more is not shown to readers.
        replacing["uniform"] = None
    columns, partition = _columns(full, head, changes)
    if partition is not None:
        replacing["partition_columns"] = partition
    after = msgspec.structs.replace(head, **replacing)
    if head.managed and proposal.changes is not None:
        delta.require_features(after.protocol, proposal.changes.set_domains)
    if head.managed:
        delta.require_managed(full.table.id, after.protocol, properties)
    names = () if isinstance(columns, msgspec.UnsetType) else column_names(columns)
    return after, ledger.Definition(
        comment=changes.comment, properties=properties, columns=columns, column_names=names
    )


def _columns(
    full: FullTable, head: DeltaHead, changes: Changes
) -> tuple[bytes | msgspec.UnsetType, tuple[str, ...] | None]:
    """The columns and those that divide the table, as far as either changes; they are of one schema."""
    columns, partition = changes.columns, changes.partition_columns
    if isinstance(columns, msgspec.UnsetType) and isinstance(partition, msgspec.UnsetType):
        return msgspec.UNSET, None
    before = full.details.columns
    after = before if isinstance(columns, msgspec.UnsetType) else columns
    if isinstance(partition, msgspec.UnsetType):
        partition = head.partition_columns if head.managed else marked_partitions(before)
    partition = check_partitions(partition, after)
    # The catalog keeps the state of its own tables; of others it has what their columns say.
    return (columns, partition) if head.managed else (with_partitions(after, partition), partition)


def _next_uniform(
    location: str, head: DeltaHead, properties: Mapping[str, str], info: CommitInfo | None, uniform: Uniform
) -> Uniform:
    check_uniform(location, properties, uniform)
    if info is not None and uniform.converted_version != info.version:
        raise Invalid(
            "the converted version must be the version of this commit",
            field="uniform.iceberg.converted_delta_version",
        )
    base, standing = uniform.base_version, head.uniform
    if base is not None and (standing is None or standing.converted_version != base):
        now = "not converted" if standing is None else f"converted up to version {standing.converted_version}"
        raise PreconditionFailed(f"the Iceberg metadata builds on version {base}, and the table is {now}")
    return uniform


def _merged(current: dict[str, str], changes: Changes) -> dict[str, str]:
    if isinstance(changes.properties, dict):
        return delta.stored_properties(changes.properties)
    both = set(changes.set_properties) & set(changes.remove_properties)
    if both:
        raise Invalid(f"{min(both)} is both set and removed", field="remove-properties")
    merged = {**current, **delta.stored_properties(changes.set_properties)}
    return {key: value for key, value in merged.items() if key not in changes.remove_properties}


def has_iceberg(properties: Mapping[str, str]) -> bool:
    return "iceberg" in properties.get(_UNIFORM, "").split(",")


def check_uniform(location: str, properties: Mapping[str, str], uniform: Uniform) -> None:
    """Iceberg metadata is for tables that have it, and lies where their readers may look."""
    if not has_iceberg(properties):
        raise Invalid(f"uniform needs the property {_UNIFORM} with iceberg", field="uniform")
    if uniform.base_version is not None and uniform.base_version >= uniform.converted_version:
        raise Invalid(
            "the metadata must build on a version before its own",
            field="uniform.iceberg.base_converted_delta_version",
        )
    field = "uniform.iceberg.metadata_location"
    root, place = Location.parse(location), Location.parse(uniform.metadata_location, field=field)
    if not root.contains(place) or root == place:
        raise Invalid("the metadata must lie below the table's location", field=field)


def check_first_uniform(location: str, properties: Mapping[str, str], uniform: Uniform) -> None:
    """The same for a new table, whose metadata builds on nothing."""
    check_uniform(location, properties, uniform)
    if uniform.base_version is not None:
        raise Invalid(
            "a new table has no metadata to build on", field="uniform.iceberg.base_converted_delta_version"
        )


def check_partitions(names: Sequence[str], columns: bytes) -> tuple[str, ...]:
    """Each is a column, once, and is named as its column is.

    Nothing is known of a table whose columns nobody has told.
    """
    known = {name.lower(): name for name in column_names(columns)}
    found: dict[str, str] = {}
    for name in names:
        key = name.lower()
        if known and key not in known:
            raise Invalid(f"the partition column {name!r} is no column", field="partition-columns")
        if key in found:
            raise Invalid(f"the partition column {name!r} is there twice", field="partition-columns")
        found[key] = known.get(key, name)
    return tuple(found.values())


def column_names(columns: bytes) -> tuple[str, ...]:
    return tuple(str(column["name"]) for column in _decode(columns) if "name" in column)


def marked_partitions(columns: bytes) -> tuple[str, ...]:
    """The partition columns of a table whose columns say so themselves."""
    marked = [(column.get("partition_index"), column.get("name")) for column in _decode(columns)]
    return tuple(str(name) for place, name in sorted(each for each in marked if each[0] is not None))


def with_partitions(columns: bytes, names: Sequence[str]) -> bytes:
    places = {name.lower(): index for index, name in enumerate(names)}
    found = _decode(columns)
    for column in found:
        column.pop("partition_index", None)
        place = places.get(str(column.get("name")).lower())
        if place is not None:
            column["partition_index"] = place
    return _encode(found)
