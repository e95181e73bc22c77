"""Schemas: types, fields and their ids, and what a format version allows of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from inver.domain.iceberg.defaults import check_default
from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import (
    INT_MAX,
    decode_any,
    elements,
    encode,
    get,
    get_bool,
    get_int,
    get_objects,
    get_str,
    members,
    number,
    shown,
    with_members,
)
from inver.errors import Invalid

MAX_DEPTH = 100
"""Types nested deeper than this are refused, well before a reader's stack ends."""

_PLAIN = frozenset(
    [
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
        "string",
        "uuid",
        "binary",
        "unknown",
        "variant",
    ]
)
_FIXED = re.compile(r"fixed\[\s*(\d{1,9})\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_GEOMETRY = re.compile(r"geometry\s*(?:\(\s*([^)]*?)\s*\))?", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*(?:\(\s*([^,]*?)\s*(?:,\s*(\w*)\s*)?\))?", re.IGNORECASE)
_EDGES = frozenset(["spherical", "vincenty", "thomas", "andoyer", "karney"])
_DEFAULT_CRS = "OGC:CRS84"
_SINCE_V3 = frozenset(["timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geography"])


class Field(msgspec.Struct, frozen=True):
    id: int
    name: str
    required: bool
    type: Type
    doc: str | None = None
    initial_default: Any = None
    write_default: Any = None

    def __str__(self) -> str:
        doc = "" if self.doc is None else f" ({self.doc})"
        return f"{self.id}: {self.name}: {'required' if self.required else 'optional'} {self.type}{doc}"


class StructType(msgspec.Struct, frozen=True):
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


class ListType(msgspec.Struct, frozen=True):
    element: Field

    def __str__(self) -> str:
        return f"list<{self.element.type}>"


class MapType(msgspec.Struct, frozen=True):
    key: Field
    value: Field

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


Type: TypeAlias = str | StructType | ListType | MapType
"""A primitive type is its canonical name."""


class Schema(msgspec.Struct, frozen=True, dict=True):
    id: int
    struct: StructType
    identifiers: frozenset[int]

    def same(self, other: Schema) -> bool:
        """Whether they differ in nothing but their id."""
        return self.struct == other.struct and self.identifiers == other.identifiers

    @cached_property
    def fields(self) -> dict[int, Field]:
        """All fields by id, those inside of others too."""
        return {field.id: field for field, _, _ in _walk(self.struct)}

    @cached_property
    def names(self) -> dict[int, str]:
        return {field.id: name for field, name, _ in _walk(self.struct)}

    @cached_property
    def parents(self) -> dict[int, int]:
        return {field.id: parent.id for field, _, parent in _walk(self.struct) if parent is not None}

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids by full name, and by the short name that leaves `element` and `value` of structs out."""
        ids = {name: field for field, name in self.names.items()}
        for name, field in _short_names(self.struct, ""):
            ids.setdefault(name, field)
        return ids

    @property
    def highest(self) -> int:
        return max(self.fields, default=0)


def parse_schema(raw: bytes | msgspec.Raw, what: str = "schema") -> Schema:
    node = decode_any(raw, what)
    if type(node) is not dict or node.get("type") != "struct":
        raise IllegalArgument(f"Cannot create {what}, not a struct type: {shown(node)}", field=what)
    identifiers = node.get("identifier-field-ids") or ()
    if type(identifiers) not in (list, tuple) or any(type(each) is not int for each in identifiers):
        raise IllegalArgument("identifier-field-ids must be an array of ids", field="identifier-field-ids")
    schema_id = 0 if node.get("schema-id") is None else get_int(node, "schema-id")
    schema = Schema(schema_id, _struct(node, 0), frozenset(identifiers))
    _check(schema)
    return schema


def check_version(schema: Schema, version: int) -> None:
    """Refuse types and defaults that this format version does not have."""
    if version >= 3:
        return
    problems = []
    for id_ in sorted(schema.fields):
        field = schema.fields[id_]
        if kind_of(field.type) in _SINCE_V3:
            problems.append(
                f"Invalid type for {schema.names[id_]}: {field.type} is not supported until v3",
            )
        elif field.initial_default is not None:
            problems.append(
                f"Invalid initial default for {schema.names[id_]}: non-null default "
                f"({shown(field.initial_default)}) is not supported until v3"
            )
    if problems:
        raise IllegalArgument(f"Invalid schema for v{version}:\n- " + "\n- ".join(problems), field="schema")


def with_schema_id(raw: bytes | msgspec.Raw, schema_id: int) -> bytes:
    return with_members(raw, "schema", schema_id=number(schema_id))


def with_fresh_ids(raw: bytes | msgspec.Raw) -> tuple[bytes, dict[int, int]]:
    """The schema of a new table: id 0, its fields numbered from 1, with the new id of each old one."""
    schema = parse_schema(raw)
    fresh: dict[int, int] = {}

    def take(old: msgspec.Raw) -> msgspec.Raw:
        new = fresh[int(bytes(old))] = len(fresh) + 1
        return number(new)

    renumbered = members(_renumbered(raw, take), "schema")
    renumbered["schema-id"] = number(0)
    if schema.identifiers:
        identifiers = sorted(fresh[id_] for id_ in schema.identifiers)
        renumbered["identifier-field-ids"] = msgspec.Raw(encode(identifiers))
    return encode(renumbered), fresh


def kind_of(type_: Type) -> str:
    """The name of a primitive type without its parameters."""
    return type_.partition("(")[0].partition("[")[0] if isinstance(type_, str) else str(type_)


def is_primitive(type_: Type) -> bool:
    return isinstance(type_, str) and type_ != "variant"


def _struct(node: dict[str, Any], depth: int) -> StructType:
    fields = []
    for each in get_objects(node, "fields", "struct"):
        field_id, name = get_int(each, "id"), get_str(each, "name")
        type_ = _type(get(each, "type"), depth + 1)
        required = get_bool(each, "required")
        doc = None if each.get("doc") is None else get_str(each, "doc")
        for default in ("initial-default", "write-default"):
            if each.get(default) is not None:
                if not isinstance(type_, str):
                    message = f"Invalid default value for {type_}: {shown(each[default])} (must be null)"
                    raise IllegalArgument(message, field=default)
                check_default(type_, each[default])
        if required and type_ == "unknown":
            raise IllegalArgument(f"Cannot create required field with unknown type: {name}", field="type")
        fields.append(
            Field(
                field_id, name, required, type_, doc, each.get("initial-default"), each.get("write-default")
            )
        )
    return StructType(tuple(fields))


def _type(node: Any, depth: int) -> Type:
    if depth > MAX_DEPTH:
        raise IllegalArgument(f"Cannot parse a type nested deeper than {MAX_DEPTH}", field="type")
    if isinstance(node, str):
        return canonical(node)
    if isinstance(node, dict):
        match node.get("type"):
            case "struct":
                return _struct(node, depth)
            case "list":
                element = _type(get(node, "element"), depth + 1)
                required = get_bool(node, "element-required")
                return ListType(Field(get_int(node, "element-id"), "element", required, element))
            case "map":
                key, value = _type(get(node, "key"), depth + 1), _type(get(node, "value"), depth + 1)
                required = get_bool(node, "value-required")
                return MapType(
                    Field(get_int(node, "key-id"), "key", True, key),
                    Field(get_int(node, "value-id"), "value", required, value),
                )
    raise IllegalArgument(f"Cannot parse type from json: {shown(node)}", field="type")


def canonical(name: str) -> str:
    """A primitive type as it is always written."""
    lower = name.lower()
    if lower in _PLAIN:
        return lower
    if found := _FIXED.fullmatch(lower):
        return f"fixed[{int(found[1])}]"
    if found := _DECIMAL.fullmatch(lower):
        precision, scale = int(found[1]), int(found[2])
        if precision > 38:
            message = f"Decimals with precision larger than 38 are not supported: {precision}"
            raise IllegalArgument(message, field="type")
        return f"decimal({precision}, {scale})"
    if found := _GEOMETRY.fullmatch(name):
        return f"geometry({_crs(found[1])})"
    if found := _GEOGRAPHY.fullmatch(name):
        edges = (found[2] or "spherical").lower()
        if edges not in _EDGES:
            raise IllegalArgument(f"Invalid edge interpolation algorithm: {found[2]}", field="type")
        return f"geography({_crs(found[1])}, {edges})"
    raise IllegalArgument(f"Cannot parse type string to primitive: {name}", field="type")


def _crs(given: str | None) -> str:
    if given == "":
        raise IllegalArgument("Invalid CRS: (empty string)", field="type")
    return given or _DEFAULT_CRS


def _walk(
    type_: Type, prefix: str = "", parent: Field | None = None
) -> Iterator[tuple[Field, str, Field | None]]:
    """Every field with its full name and the field it is inside of."""
    for field in _children(type_):
        yield field, prefix + field.name, parent
        yield from _walk(field.type, f"{prefix}{field.name}.", field)


def _short_names(type_: Type, prefix: str) -> Iterator[tuple[str, int]]:
    inside_struct = isinstance(type_, StructType)
    for field in _children(type_):
        name = prefix + field.name
        yield name, field.id
        left_out = not inside_struct and field.name != "key" and isinstance(field.type, StructType)
        yield from _short_names(field.type, prefix if left_out else f"{name}.")


def _children(type_: Type) -> tuple[Field, ...]:
    match type_:
        case StructType():
            return type_.fields
        case ListType():
            return (type_.element,)
        case MapType():
            return (type_.key, type_.value)
        case _:
            return ()


def _check(schema: Schema) -> None:
    names: dict[str, int] = {}
    seen: dict[int, str] = {}
    for field, name, _ in _walk(schema.struct):
        if name in names:
            message = f"Invalid schema: multiple fields for name {name}: {names[name]} and {field.id}"
            raise Invalid(message, field="schema")
        if field.id in seen:
            message = f"Invalid schema: fields {seen[field.id]} and {name} have the same id {field.id}"
            raise IllegalArgument(message, field="schema")
        if not 0 <= field.id <= INT_MAX:
            raise IllegalArgument(f"Invalid schema: {name} has the id {field.id}", field="schema")
        names[name], seen[field.id] = field.id, name
    for id_ in sorted(schema.identifiers):
        _check_identifier(schema, id_)


def _check_identifier(schema: Schema, id_: int) -> None:
    def refuse(which: str, why: str) -> IllegalArgument:
        return IllegalArgument(
            f"Cannot add {which} as an identifier field: {why}", field="identifier-field-ids"
        )

    field = schema.fields.get(id_)
    if field is None:
        raise refuse(f"fieldId {id_}", "field does not exist")
    which = f"field {field.name}"
    if not is_primitive(field.type):
        raise refuse(which, "not a primitive type field")
    if not field.required:
        raise refuse(which, "not a required field")
    if field.type in ("float", "double"):
        raise refuse(which, "must not be float or double field")
    above = []
    parent = schema.parents.get(id_)
    while parent is not None:
        above.append(schema.fields[parent])
        parent = schema.parents.get(parent)
    for each in reversed(above):
        if not isinstance(each.type, StructType):
            raise refuse(which, f"must not be nested in {each}")
        if not each.required:
            raise refuse(which, f"must not be nested in an optional field {each}")


def _renumbered(raw: bytes | msgspec.Raw, take: Callable[[msgspec.Raw], msgspec.Raw]) -> bytes:
    """A type with new ids, the ids of one level before those inside of it; all else keeps its bytes."""
    if not bytes(raw).startswith(b"{"):
        return bytes(raw)
    node = members(raw, "schema")
    inner: list[tuple[dict[str, msgspec.Raw], str]]
    fields: list[dict[str, msgspec.Raw]] = []
    match decode_any(node["type"], "type"):
        case "struct":
            fields = [members(each, "field") for each in elements(node["fields"], "fields")]
            for field in fields:
                field["id"] = take(field["id"])
            inner = [(field, "type") for field in fields]
        case "list":
            node["element-id"] = take(node["element-id"])
            inner = [(node, "element")]
        case _:
            node["key-id"], node["value-id"] = take(node["key-id"]), take(node["value-id"])
            inner = [(node, "key"), (node, "value")]
    for holder, name in inner:
        holder[name] = msgspec.Raw(_renumbered(holder[name], take))
    if fields:
        node["fields"] = msgspec.Raw(encode(fields))
    return encode(node)
