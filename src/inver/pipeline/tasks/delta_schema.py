"""The schema of a Delta table as Arrow has it in data files, and the columns that have statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from inver.domain.delta_actions import COLUMN_MAPPING, Metadata
from inver.domain.delta_schema import PHYSICAL_NAME, mapped
from inver.errors import Unsupported

FIELD_ID = "delta.columnMapping.id"
ARROW_ID = b"PARQUET:field_id"

_INDEXED = 32
_PRIMITIVE = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_NO_VALUES = ("void", "null")
"""Columns of these types are in no file."""


def data_schema(metadata: Metadata, partitions: bool = False) -> pa.Schema:
    """Physical names and ids; every field may be null, whatever the table says of it."""
    by_name = mapped(metadata)
    return pa.schema([_field(each, by_name) for each in _columns(metadata, partitions)])


def by_field_id(metadata: Metadata) -> bool:
    return (metadata.configuration.get(COLUMN_MAPPING) or "").lower() == "id"


@dataclass(frozen=True)
class Leaf:
    """A column that statistics are about: its physical path, and its type's name; None for collections."""

    path: tuple[str, ...]
    type: str | None


def indexed(metadata: Metadata) -> list[Leaf]:
    """The columns for which the table wants statistics."""
    by_name = mapped(metadata)
    columns = _columns(metadata)
    named = metadata.configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        wanted = [_names(each) for each in _split(named)]
        leaves = (leaf for column in columns for leaf in _leaves(column, by_name))
        return [leaf for logical, leaf in leaves if any(logical[: len(name)] == name for name in wanted)]
    text = metadata.configuration.get("delta.dataSkippingNumIndexedCols") or str(_INDEXED)
    limit = int(text) if text.lstrip("-").isdecimal() else _INDEXED
    found = [leaf for column in columns for _, leaf in _leaves(column, by_name)]
    return found if limit < 0 else found[:limit]


def _columns(metadata: Metadata, partitions: bool = False) -> list[dict[str, Any]]:
    fields = msgspec.json.decode(metadata.schema_string)["fields"]
    without = () if partitions else metadata.partition_columns
    return [each for each in fields if each["name"] not in without and each["type"] not in _NO_VALUES]


def _physical(field: dict[str, Any], by_name: bool) -> str:
    name: str = (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) if by_name else field["name"]
    return name


def _field(field: dict[str, Any], by_name: bool) -> pa.Field:
    number = (field.get("metadata") or {}).get(FIELD_ID) if by_name else None
    ids = None if number is None else {ARROW_ID: str(number).encode()}
    return pa.field(_physical(field, by_name), _type(field["type"], by_name), metadata=ids)


def _type(kind: Any, by_name: bool) -> pa.DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind.replace(" ", ""))
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind not in _PRIMITIVE:
            raise Unsupported(f"columns of type {kind} are not rewritten here")
        return _PRIMITIVE[kind]
    if kind["type"] == "struct":
        fields = [each for each in kind["fields"] if each["type"] not in _NO_VALUES]
        return pa.struct([_field(each, by_name) for each in fields])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _type(kind["elementType"], by_name)))
    if kind["type"] == "map":
        return pa.map_(_type(kind["keyType"], by_name), _type(kind["valueType"], by_name))
    raise Unsupported(f"columns of type {kind['type']} are not rewritten here")


def _leaves(
    field: dict[str, Any], by_name: bool, logical: tuple[str, ...] = (), physical: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    logical, physical = (*logical, field["name"]), (*physical, _physical(field, by_name))
    kind = field["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        for each in kind["fields"]:
            yield from _leaves(each, by_name, logical, physical)
    else:
        yield logical, Leaf(physical, kind if isinstance(kind, str) else None)


def _split(names: str) -> list[str]:
    """At commas outside of backticks."""
    return [each.strip() for each in re.findall(r"(?:`(?:[^`]|``)*`|[^,`])+", names)]


def _names(dotted: str) -> tuple[str, ...]:
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", dotted)
    return tuple(quoted.replace("``", "`") or plain for quoted, plain in parts)
