"""Columns as Unity lists them, and as the struct of delta/v1.

The list is what the catalog keeps. Each column carries its field of the Delta schema in
`type_json`, so nothing is lost on the way from one form to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from inver.domain.datatypes import (
    BY_TYPE_NAME,
    DataType,
    check_column_name,
    ddl,
    kebab,
    precision_and_scale,
    read_field,
    read_fields,
    read_type,
    type_name,
)
from inver.domain.ddl import parse_ddl
from inver.errors import Invalid
from inver.protocols.unity.telling import name_of, text_of

MAX_COLUMNS = 32_768
_REMEMBERED_BYTES = 64 * 1024

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class ColumnInfo(msgspec.Struct, kw_only=True):
    """A column as clients send it. All is optional but the name and something that tells the type.

    `type` and `metadata` are there in columns that are written as plain fields of a Delta schema.
    """

    name: str | None = None
    type_text: str | None = None
    type_json: str | None = None
    type_name: str | None = None
    type_precision: Int32 | None = None
    type_scale: Int32 | None = None
    type_interval_type: str | None = None
    type_internal_type: str | None = None
    position: Int32 | None = None
    comment: str | None = None
    nullable: bool | None = None
    partition_index: Int32 | None = None
    type: Any = None
    metadata: dict[str, Any] | None = None


Columns = Annotated[list[ColumnInfo], Meta(max_length=MAX_COLUMNS)]


class Column(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A column as it is kept and shown."""

    name: str
    type_text: str
    type_json: str
    type_name: str
    type_precision: int
    type_scale: int
    position: int
    nullable: bool
    comment: str | None = None
    partition_index: int | None = None
    # One thing, by its names in the two versions of the dialect.
    type_interval_type: str | None = None
    type_internal_type: str | None = None


_kept = msgspec.json.Decoder(list[Column]).decode
_sent = msgspec.json.Decoder(list[ColumnInfo]).decode
_json = msgspec.json.Decoder().decode
encode = msgspec.json.encode


def from_infos(given: Sequence[ColumnInfo], field: str = "columns") -> list[Column]:
    """Checked and completed, in the order of their positions."""
    found = [_from_info(info, index, f"{field}[{index}]") for index, info in enumerate(given)]
    _require_unique(found, field)
    for name in ("position", "partition_index"):
        taken: set[int] = set()
        for index, column in enumerate(found):
            number = getattr(column, name)
            if number is not None and (number < 0 or number in taken):
                place = f"{field}[{index}].{name}"
                raise Invalid(f"{place}: {number} is negative or there twice", field=place)
            if number is not None:
                taken.add(number)
    return sorted(found, key=lambda column: column.position)


def from_struct(struct: Any, field: str = "columns") -> list[Column]:
    """The struct of delta/v1, every required key of which must be there."""
    if not isinstance(struct, dict) or struct.get("type") != "struct":
        raise Invalid(f"{field} must be a struct", field=field)
    fields = read_fields(struct, field, complete=True)
    if len(fields) > MAX_COLUMNS:
        raise Invalid(f"{field} has more than {MAX_COLUMNS} fields", field=field)
    return [_column(given, encode(given).decode(), position) for position, given in enumerate(fields)]


def from_kept(columns: bytes) -> list[Column]:
    """What the catalog keeps of any table; columns that another protocol wrote are completed."""
    try:
        return _kept(columns)
    except msgspec.ValidationError:
        pass
    try:
        given = _sent(columns)
    except msgspec.ValidationError:
        return []
    found = []
    for index, info in enumerate(given):
        try:
            found.append(_from_info(info, index, f"columns[{index}]"))
        except Invalid:
            found.append(_foreign(info, index))
    return found


def partitioned(columns: Iterable[Column], names: Sequence[str]) -> list[Column]:
    """With the partition columns of the table's state, which is newer than what a column says itself."""
    places = {name.lower(): index for index, name in enumerate(names)}
    return [
        msgspec.structs.replace(column, partition_index=places.get(column.name.lower()))
        if column.partition_index != places.get(column.name.lower())
        else column
        for column in columns
    ]


def partition_columns(columns: Iterable[Column]) -> tuple[str, ...]:
    marked = [
        (column.partition_index, column.name) for column in columns if column.partition_index is not None
    ]
    return tuple(name for _, name in sorted(marked))


def struct_json(columns: bytes) -> bytes:
    """The struct of delta/v1. Tables are loaded far more often than their columns change."""
    if len(columns) > _REMEMBERED_BYTES:
        return _struct_json(columns)
    return _remembered_struct(columns)


def _struct_json(columns: bytes) -> bytes:
    fields = []
    for column in from_kept(columns):
        text = column.type_json.encode()
        if b'"elementType"' in text or b'"keyType"' in text:
            given = read_field(_json(text), column.name)
            text = encode({**given, "type": kebab(given["type"])})
        fields.append(text)
    return b'{"type":"struct","fields":[' + b",".join(fields) + b"]}"


_remembered_struct = lru_cache(maxsize=1024)(_struct_json)


def _from_info(info: ColumnInfo, index: int, path: str) -> Column:
    name = check_column_name(info.name, f"{path}.name")
    given, text = _field_of(info, name, path)
    column = _column(given, text, index if info.position is None else info.position)
    column.type_text = text_of(given["type"], info.type_text, f"{path}.type_text")
    column.type_name = name_of(column.type_name, info.type_name, f"{path}.type_name")
    column.comment = info.comment if info.comment is not None else column.comment
    column.partition_index = info.partition_index
    column.type_interval_type = column.type_internal_type = info.type_interval_type or info.type_internal_type
    return column


def _field_of(info: ColumnInfo, name: str, path: str) -> tuple[dict[str, Any], str]:
    """The field of the Delta schema and its JSON text; the client's own text where it is a whole field."""
    if info.type_json:
        field = _type_json(info.type_json, f"{path}.type_json")
        if isinstance(field, dict) and "name" in field:
            return _matching(read_field(field, f"{path}.type_json"), field, info, name, path)
        if isinstance(field, dict) and field.get("type") not in ("array", "map", "struct"):
            field = field.get("type")
        kind = read_type(field, f"{path}.type_json")
    elif info.type is not None:
        kind = read_type(info.type, f"{path}.type")
    elif info.type_text:
        kind = parse_ddl(info.type_text, f"{path}.type_text")
    else:
        kind = _named_type(info, path)
    metadata = dict(info.metadata or {})
    if info.comment is not None:
        metadata.setdefault("comment", info.comment)
    nullable = True if info.nullable is None else info.nullable
    made = {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}
    return made, encode(made).decode()


def _matching(
    read: dict[str, Any], field: dict[str, Any], info: ColumnInfo, name: str, path: str
) -> tuple[dict[str, Any], str]:
    if read["name"] != name:
        raise Invalid(
            f"{path}.type_json is the field {read['name']!r}, the column is {name!r}",
            field=f"{path}.type_json",
        )
    if info.nullable is not None and info.nullable != read["nullable"]:
        raise Invalid(f"{path}.nullable and {path}.type_json differ", field=f"{path}.nullable")
    whole = "nullable" in field and "metadata" in field and read["type"] == field["type"]
    assert info.type_json is not None
    return read, info.type_json if whole else encode(read).decode()


def _type_json(text: str, path: str) -> Any:
    if "\\u0000" in text:
        raise Invalid(f"{path} contains NUL", field=path)
    try:
        return _json(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid(f"{path} is not valid JSON", field=path) from None


def _named_type(info: ColumnInfo, path: str) -> DataType:
    named = (info.type_name or "").upper()
    if named == "DECIMAL":
        return read_type(f"decimal({info.type_precision or 10},{info.type_scale or 0})", f"{path}.type_name")
    if named not in BY_TYPE_NAME:
        raise Invalid(
            f"{path} has no type",
            field=path,
            fix="give type_json, type_text, or the type_name of a plain type",
        )
    return BY_TYPE_NAME[named]


def _column(field: dict[str, Any], text: str, position: int) -> Column:
    kind = field["type"]
    precision, scale = precision_and_scale(kind)
    comment = field["metadata"].get("comment")
    return Column(
        name=field["name"],
        type_text=ddl(kind),
        type_json=text,
        type_name=type_name(kind),
        type_precision=precision,
        type_scale=scale,
        position=position,
        nullable=field["nullable"],
        comment=comment if isinstance(comment, str) else None,
    )


def _foreign(info: ColumnInfo, index: int) -> Column:
    """A column of a type that Delta does not have: shown by its own words, as no type of Delta."""
    text = info.type_text or (info.type if isinstance(info.type, str) else encode(info.type).decode())
    name = info.name or f"_{index}"
    nullable = info.nullable is not False
    field = {"name": name, "type": text, "nullable": nullable, "metadata": {}}
    return Column(
        name=name,
        type_text=text,
        type_json=encode(field).decode(),
        type_name="USER_DEFINED_TYPE",
        type_precision=0,
        type_scale=0,
        position=index,
        nullable=nullable,
        comment=info.comment,
    )


def _require_unique(columns: Iterable[Column], field: str) -> None:
    names: set[str] = set()
    for index, column in enumerate(columns):
        if column.name.lower() in names:
            place = f"{field}[{index}].name"
            raise Invalid(f"{place}: {column.name!r} is there twice, letter case aside", field=place)
        names.add(column.name.lower())
