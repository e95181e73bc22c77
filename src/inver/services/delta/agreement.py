"""A request and the staged file that it is about say the same thing.

The file is what readers read. What the request leaves out is taken from it, because the older
dialects have no words for all of it; what the two say differently is refused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from inver.domain import delta, ledger
from inver.domain.delta import CommitSummary
from inver.domain.tables import Table
from inver.errors import Invalid
from inver.services.delta.types import Changes

CLUSTERING = "delta.clustering"

_decode = msgspec.json.decode
_encode = msgspec.json.encode


def is_plain(summary: CommitSummary) -> bool:
    """Whether the file changes nothing of what the catalog knows of a table but its version."""
    return summary.protocol is None and summary.metadata is None and CLUSTERING not in summary.domains


def completed(changes: Changes | None, summary: CommitSummary, columns: bytes) -> Changes | None:
    """The changes with those that only the file tells; `columns` are those of the table so far."""
    told = changes or Changes()
    found: dict[str, Any] = {}
    if summary.protocol is not None and told.protocol is msgspec.UNSET:
        found["protocol"] = summary.protocol
    if summary.metadata is not None:
        if told.partition_columns is msgspec.UNSET:
            found["partition_columns"] = summary.metadata.partition_columns
        fields = _fields_of_schema(summary.metadata.schema)
        if told.columns is msgspec.UNSET and fields != _fields_of_columns(columns):
            found["columns"] = _encode(fields)
    if CLUSTERING in summary.domains and CLUSTERING not in {*told.set_domains, *told.remove_domains}:
        clustering = summary.domains[CLUSTERING]
        if clustering is None:
            found["remove_domains"] = (*told.remove_domains, CLUSTERING)
        else:
            found["set_domains"] = {**told.set_domains, CLUSTERING: _clustering(clustering)}
    return msgspec.structs.replace(told, **found) if found else changes


def compare(table: Table, append: ledger.Append, summary: CommitSummary) -> None:
    head = delta.head_of(append.head if append.head is not None else table.head)
    if summary.protocol is not None:
        declared, written = head.protocol, summary.protocol
        if set(declared.writer_features) != set(written.writer_features) or (
            declared.min_reader,
            declared.min_writer,
        ) != (written.min_reader, written.min_writer):
            raise Invalid("the staged commit has another protocol than the request", field="protocol")
    metadata = summary.metadata
    if metadata is None:
        return
    if metadata.properties.get(delta.TABLE_ID) != table.id:
        raise Invalid(f"the staged commit has another {delta.TABLE_ID}", field=delta.TABLE_ID)
    if tuple(metadata.partition_columns) != tuple(head.partition_columns):
        raise Invalid(
            "the staged commit has other partition columns than the request", field="partition-columns"
        )


def _fields_of_schema(schema: bytes) -> list[dict[str, Any]]:
    try:
        fields = _decode(schema)["fields"]
        return [_field(each) for each in fields]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise Invalid("the staged commit has no valid schema", field="metadata.schema") from None


def _fields_of_columns(columns: bytes) -> list[dict[str, Any]]:
    """Columns are kept as fields, or with the field as JSON text beside what follows from it."""
    return [
        _field(_decode(each["type_json"]) if each.get("type_json") else each) for each in _decode(columns)
    ]


def _field(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": given["name"],
        "type": given.get("type"),
        "nullable": given.get("nullable", True),
        "metadata": given.get("metadata") or {},
    }


def _clustering(configuration: str) -> dict[str, Any]:
    try:
        return {"clusteringColumns": _decode(configuration)["clusteringColumns"]}
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise Invalid(f"the staged commit has no valid {CLUSTERING}", field="domain-metadata") from None
