"""Version 0 of a managed table: what it must be, and what the catalog learns from it."""

from __future__ import annotations

import msgspec

from inver.domain import delta
from inver.domain.delta import CommitInfo, CommitSummary, DeltaHead
from inver.errors import Invalid
from inver.services.delta.agreement import fields_of_schema
from inver.services.delta.changing import check_uniform, column_names
from inver.services.delta.types import NewTable

_encode = msgspec.json.encode


def first_head(
    table_id: str, location: str, new: NewTable, summary: CommitSummary
) -> tuple[DeltaHead, dict[str, str]]:
    """The state of a new table, from what its version 0 says and what the request says of it."""
    if summary.protocol is None or summary.metadata is None:
        raise Invalid("version 0 has no protocol or no metadata", field="storage_location")
    written = summary.metadata.properties
    delta.require_managed(table_id, summary.protocol, written)
    declared = new.protocol
    if declared is None and any(key.startswith("delta.feature.") for key in new.properties):
        declared = delta.protocol_of(new.properties)
    if declared is not None:
        delta.require_managed(table_id, declared, new.properties or written)
        if set(declared.writer_features) != set(summary.protocol.writer_features):
            odd = set(declared.writer_features) ^ set(summary.protocol.writer_features)
            raise Invalid(
                "the table features differ from those in version 0", field="delta.feature." + min(odd)
            )
        for kind in ("Reader", "Writer"):
            name = f"min_{kind.lower()}"
            if getattr(declared, name) != getattr(summary.protocol, name):
                field = f"delta.min{kind}Version"
                raise Invalid(f"{field} differs from that of version 0", field=field)
    elif new.properties and new.properties.get(delta.TABLE_ID, table_id) != table_id:
        raise Invalid(f"{delta.TABLE_ID} must be the id of the staging table", field=delta.TABLE_ID)
    if summary.timestamp is None:
        raise Invalid("version 0 has no in-commit timestamp", field="delta.enableInCommitTimestamps")
    if new.timestamp is not None and new.timestamp != summary.timestamp:
        raise Invalid("the timestamp differs from that of version 0", field="last-commit-timestamp-ms")
    expected = {"delta.lastUpdateVersion": "0", "delta.lastCommitTimestamp": str(summary.timestamp)}
    for key, value in expected.items():
        if new.properties.get(key, value) != value:
            raise Invalid(f"{key} must be {value}, as in version 0", field=key)
    partition = summary.metadata.partition_columns
    if new.partition_columns is not None and tuple(new.partition_columns) != partition:
        raise Invalid("the partition columns differ from those of version 0", field="partition-columns")
    properties = delta.stored_properties({**written, **new.properties})
    if new.uniform is not None:
        check_uniform(location, properties, new.uniform)
        if new.uniform.converted_version > 1:
            raise Invalid("a new table has no such version", field="uniform.iceberg.converted-delta-version")
    read = {name: delta.read_domain(name, text) for name, text in summary.domains.items() if text is not None}
    head = DeltaHead(
        protocol=summary.protocol,
        partition_columns=partition,
        domains={name: value for name, value in read.items() if value is not None},
        updated_version=0,
        updated_timestamp=summary.timestamp,
        uniform=new.uniform,
    )
    return head, properties


def first_columns(new: NewTable, summary: CommitSummary) -> bytes:
    """Those of the request, and of version 0 where the request has none; both must mean the same ones."""
    assert summary.metadata is not None
    fields = fields_of_schema(summary.metadata.schema)
    told = {name.lower() for name in column_names(new.columns)}
    if not told:
        return _encode(fields)
    if told != {str(field["name"]).lower() for field in fields}:
        raise Invalid("the columns differ from those of version 0", field="columns")
    return new.columns


def description(summary: CommitSummary) -> str | None:
    return None if summary.metadata is None else summary.metadata.description


def first_payload(head: DeltaHead, size: int) -> bytes:
    """Version 0 is published by its writer, so its commit row names the published file."""
    name = delta.published_name(0).rpartition("/")[2]
    return _encode(CommitInfo(0, head.updated_timestamp, name, size, head.updated_timestamp))
