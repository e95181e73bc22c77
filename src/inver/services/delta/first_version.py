"""Version 0 of a managed table: what it must be, and what the catalog learns from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inver.domain import delta, ledger
from inver.domain.delta import CommitInfo, CommitSummary, DeltaHead
from inver.domain.names import check_name
from inver.domain.tables import Table
from inver.errors import Invalid
from inver.services.delta.agreement import (
    as_written,
    fields_of_columns,
    fields_of_schema,
    folded,
    require_written,
    shape,
)
from inver.services.delta.changing import check_first_uniform, check_partitions, column_names
from inver.services.delta.types import NewTable

_encode = msgspec.json.encode


def finishing(
    table: Table, schema_id: str, new: NewTable, size: int, summary: CommitSummary, token: str
) -> ledger.FinishTable:
    """What gives a staged table its name, with the version 0 that lies there in so many bytes."""
    head, properties = _first_head(table, new, summary)
    columns = _first_columns(new, summary)
    assert summary.metadata is not None
    first = ledger.Append(
        table_id=table.id,
        version=0,
        token=token,
        operation=summary.operation or "CREATE TABLE",
        payload=_first_payload(head, size),
        counts=_encode(summary.counts),
        head=_encode(head),
    )
    definition = ledger.Definition(
        comment=new.comment if new.comment is not None else summary.metadata.description,
        properties=properties,
        columns=columns,
        column_names=column_names(columns),
    )
    return ledger.FinishTable(
        table_id=table.id,
        schema_id=schema_id,
        name=check_name(new.name[-1], "name"),
        first=first,
        definition=definition,
    )


def _first_head(table: Table, new: NewTable, summary: CommitSummary) -> tuple[DeltaHead, dict[str, str]]:
    """The state of a new table, from what its version 0 says and what the request says of it."""
    if summary.protocol is None or summary.metadata is None:
        raise Invalid("version 0 has no protocol or no metadata", field="storage_location")
    written = summary.metadata.properties
    delta.require_managed(table.id, summary.protocol, written)
    declared = new.protocol or delta.spelled_protocol(new.properties)
    if declared is not None:
        delta.require_managed(table.id, declared, new.properties or written)
        if set(declared.writer_features) != set(summary.protocol.writer_features):
            odd = set(declared.writer_features) ^ set(summary.protocol.writer_features)
            raise Invalid(
                "the table features differ from those in version 0", field="delta.feature." + min(odd)
            )
        if new.protocol is not None and set(declared.reader_features) != set(
            summary.protocol.reader_features
        ):
            raise Invalid("the reader features differ from those in version 0", field="protocol")
        for kind in ("Reader", "Writer"):
            name = f"min_{kind.lower()}"
            if getattr(declared, name) != getattr(summary.protocol, name):
                field = f"delta.min{kind}Version"
                raise Invalid(f"{field} differs from that of version 0", field=field)
    if not summary.timestamp:
        raise Invalid("version 0 has no in-commit timestamp", field="delta.enableInCommitTimestamps")
    if new.timestamp is not None and new.timestamp != summary.timestamp:
        raise Invalid("the timestamp differs from that of version 0", field="last-commit-timestamp-ms")
    expected = {
        **written,
        "delta.minReaderVersion": str(summary.protocol.min_reader),
        "delta.minWriterVersion": str(summary.protocol.min_writer),
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(summary.timestamp),
    }
    for key, value in expected.items():
        if new.properties.get(key, value) != value:
            raise Invalid(f"{key} must be {value}, as in version 0", field=key)
    require_written(new.properties, written)
    partition = summary.metadata.partition_columns
    if new.partition_columns is not None and folded(new.partition_columns) != folded(partition):
        raise Invalid("the partition columns differ from those of version 0", field="partition-columns")
    properties = delta.stored_properties({**written, **new.properties})
    if new.uniform is not None:
        check_first_uniform(table.location, properties, new.uniform)
        if new.uniform.converted_version > 1:
            raise Invalid("a new table has no such version", field="uniform.iceberg.converted-delta-version")
    read = {name: delta.read_domain(name, text) for name, text in summary.domains.items() if text is not None}
    domains = {name: value for name, value in read.items() if value is not None}
    delta.require_features(summary.protocol, new.domains)
    _check_clustering(new, domains.get(delta.CLUSTERING), written)
    tracked = new.domains.get(delta.ROW_TRACKING)
    if tracked is not None and tracked != domains.get(delta.ROW_TRACKING):
        raise Invalid("the mark of row ids differs from that of version 0", field=delta.ROW_TRACKING)
    head = DeltaHead(
        protocol=summary.protocol,
        partition_columns=partition,
        domains=domains,
        updated_version=0,
        updated_timestamp=summary.timestamp,
        uniform=new.uniform,
    )
    return head, properties


def _check_clustering(new: NewTable, written: Any, properties: Mapping[str, str]) -> None:
    """Whoever tells the clustering columns tells those of version 0."""
    told = new.domains.get(delta.CLUSTERING)
    field = delta.CLUSTERING
    text = new.properties.get("clusteringColumns")
    # With column mapping the log has physical names, while properties are in the words of people.
    if text is not None and properties.get("delta.columnMapping.mode", "none") == "none":
        field = "clusteringColumns"
        try:
            told = {field: msgspec.json.decode(text, type=list[list[str]])}
        except msgspec.DecodeError:
            raise Invalid(f"{field} must be a JSON array of arrays of names", field=field) from None
    if told is not None and folded(told) != folded(written or {"clusteringColumns": []}):
        raise Invalid("the clustering columns differ from those of version 0", field=field)


def _first_columns(new: NewTable, summary: CommitSummary) -> bytes:
    """Those of the request, and of version 0 where the request has none; both must mean the same ones."""
    assert summary.metadata is not None
    fields = fields_of_schema(summary.metadata.schema)
    check_partitions(summary.metadata.partition_columns, _encode(fields))
    if new.columns is None:
        return _encode(fields)
    try:
        told, written = _types(fields_of_columns(new.columns)), _types(fields)
        # Clients of the older dialects may put partition columns last, wherever the log has them.
        same = told == written if new.protocol is not None else dict(told) == dict(written)
    except (AttributeError, RecursionError):
        same = False
    if not same:
        raise Invalid("the columns differ from those of version 0", field="columns")
    return as_written(new.columns, fields)


def _types(fields: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return [(str(field["name"]).lower(), shape(field["type"])) for field in fields]


def _first_payload(head: DeltaHead, size: int) -> bytes:
    """Version 0 is published by its writer, so its commit row names the published file."""
    name = delta.published_name(0).rpartition("/")[2]
    return _encode(CommitInfo(0, head.updated_timestamp, name, size, head.updated_timestamp))
