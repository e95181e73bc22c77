"""What a Delta table's schema string says, as far as rules need it: names and types of columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from inver.domain.delta_actions import COLUMN_MAPPING, Metadata
from inver.errors import Invalid

PHYSICAL_NAME = "delta.columnMapping.physicalName"
TYPE_CHANGES = "delta.typeChanges"


class Column(msgspec.Struct, frozen=True):
    """A column at the top of the schema. `type` is a name for primitive types, else None."""

    name: str
    physical: str
    type: str | None


@lru_cache(maxsize=256)
def _fields(schema: str) -> tuple[dict[str, Any], ...]:
    try:
        fields = msgspec.json.decode(schema)["fields"]
        for each in fields:
            each["name"], each["type"]
        return tuple(fields)
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise Invalid("the table's schema is no Delta schema", field="table") from None


def mapped(metadata: Metadata) -> bool:
    """Whether data files name their columns otherwise than the table."""
    return (metadata.configuration.get(COLUMN_MAPPING) or "none").lower() != "none"


def columns(metadata: Metadata) -> list[Column]:
    by_name = mapped(metadata)
    found = []
    for each in _fields(metadata.schema_string):
        physical = (each.get("metadata") or {}).get(PHYSICAL_NAME) if by_name else None
        kind = each["type"]
        found.append(Column(each["name"], physical or each["name"], kind if isinstance(kind, str) else None))
    return found


def physical_partition_columns(metadata: Metadata) -> list[str]:
    """The keys of partition values, in the order of the partition columns."""
    if not mapped(metadata):
        return list(metadata.partition_columns)
    physical = {column.name: column.physical for column in columns(metadata)}
    return [physical.get(name, name) for name in metadata.partition_columns]


def used_types(metadata: Metadata) -> set[str]:
    """Names of every primitive type, also of nested fields."""
    found: set[str] = set()
    _walk(list(_fields(metadata.schema_string)), found)
    return found


def _walk(value: Any, found: set[str]) -> None:
    if isinstance(value, list):
        for each in value:
            _walk(each, found)
    elif isinstance(value, dict):
        for key in ("type", "elementType", "keyType", "valueType"):
            kind = value.get(key)
            if isinstance(kind, str):
                found.add(kind)
            elif kind is not None:
                _walk(kind, found)
        _walk(value.get("fields", []), found)


def types_were_widened(metadata: Metadata) -> bool:
    """Whether files of earlier versions may hold narrower types."""
    return TYPE_CHANGES in metadata.schema_string


def shared_schema(metadata: Metadata) -> str:
    """The schema for recipients that know no Delta: of a column's metadata only its comment stays."""
    fields = [_plain(each) for each in _fields(metadata.schema_string)]
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _plain(each) for key, each in value.items() if key != "metadata"}
    if "metadata" in value:
        comment = (value["metadata"] or {}).get("comment")
        kept["metadata"] = {} if comment is None else {"comment": comment}
    return kept
