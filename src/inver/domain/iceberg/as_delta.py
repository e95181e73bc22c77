"""Iceberg schemas told as Delta's, for recipients that read Delta.

Data files name their columns as the schema did that they were written by. As long as no name ever
changed its column, recipients find columns by name; otherwise they are told the field ids, which is
Delta's column mapping by id. What Delta has no form for is refused: a recipient would read something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from inver.domain.delta_actions import CHANGE_DATA_FEED, COLUMN_MAPPING, Metadata, Protocol, TableHead
from inver.domain.delta_schema import PHYSICAL_NAME, TYPE_CHANGES
from inver.domain.iceberg.schemas import Field, ListType, MapType, Schema, StructType, Type, kind_of
from inver.errors import Unsupported

NAME_MAPPING = "schema.name-mapping.default"
"""The property by which readers know the columns of files that have no field ids."""
_COLUMN_ID = "delta.columnMapping.id"
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"

_TYPES = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
    "variant": "variant",
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Writers replace the other characters in the names that files have."""


class DeltaSchema(msgspec.Struct, frozen=True):
    """The schema of one version. `mapped` is whether columns are found by id."""

    schema: Schema
    mapped: bool
    text: str
    features: tuple[str, ...]

    def physical(self, field: Field) -> str:
        """What partition values and statistics call a column."""
        return f"col-{field.id}" if self.mapped else field.name

    def head(self, table_id: str, partitions: Sequence[Field], features: Iterable[str] = ()) -> TableHead:
        """With these features besides its own."""
        used = tuple(sorted({*self.features, *features}))
        protocol = Protocol(3, 7, used, (*used, "changeDataFeed")) if used else Protocol(1, 4)
        configuration: dict[str, str | None] = {CHANGE_DATA_FEED: "true"}
        if self.mapped:
            configuration |= {COLUMN_MAPPING: "id", _MAX_COLUMN_ID: str(self.schema.highest)}
        metadata = Metadata(table_id, self.text, tuple(field.name for field in partitions), configuration)
        return TableHead(protocol, metadata)


def delta_schema(
    schema: Schema, known: Sequence[Schema], properties: Mapping[str, str], *, mapped: bool = False
) -> DeltaSchema:
    """`known` are all schemas up to this version in the order of their ids; Unsupported if Delta has no form.

    A schema that was removed since may have had other names, so that names alone do not do. With `mapped`,
    columns are found by id in any case.
    """
    complete = [each.id for each in known] == list(range(len(known)))
    mapped = mapped or not complete or not _same_names(schema, known)
    if NAME_MAPPING in properties and (mapped or not _maps_to_itself(properties[NAME_MAPPING], schema)):
        raise inexpressible(
            f"files of the table may have no field ids (property {NAME_MAPPING}), and columns other names"
        )
    writer = _Writer(mapped, _types_over_time(known))
    text = msgspec.json.encode(writer.struct(schema.struct, "")).decode()
    kinds = {kind_of(field.type) for field in schema.fields.values() if isinstance(field.type, str)}
    used = {
        "columnMapping": mapped,
        "timestampNtz": "timestamp" in kinds,
        "typeWidening": writer.widened,
        "variantType": "variant" in kinds,
        # Which of a table's variants are shredded, only their files tell.
        "variantShredding": "variant" in kinds,
    }
    return DeltaSchema(schema, mapped, text, tuple(name for name, in_use in used.items() if in_use))


def delta_type(type_: str) -> str | None:
    """A primitive type in Delta's words; None where it has none."""
    if kind_of(type_) == "decimal":
        return type_.replace(" ", "")
    return _TYPES.get(type_)


class _Writer:
    def __init__(self, mapped: bool, types: Mapping[int, Sequence[str]]) -> None:
        self._mapped = mapped
        self._types = types
        self.widened = False

    def struct(self, struct: StructType, path: str) -> dict[str, Any]:
        seen: set[str] = set()
        for field in struct.fields:
            if field.name.lower() in seen:
                raise inexpressible(f"Delta cannot tell column {path + field.name!a} from one in other case")
            seen.add(field.name.lower())
        return {"type": "struct", "fields": [self._field(field, path) for field in struct.fields]}

    def _field(self, field: Field, path: str) -> dict[str, Any]:
        name = path + field.name
        if field.initial_default is not None:
            raise inexpressible(
                f"column {name!a} has a default for files that do not have it, and Delta's columns have none"
            )
        metadata: dict[str, Any] = {} if field.doc is None else {"comment": field.doc}
        if self._mapped:
            metadata |= {_COLUMN_ID: field.id, PHYSICAL_NAME: f"col-{field.id}"}
        changes = [
            {"fromType": before, "toType": after, **({"fieldPath": inside} if inside else {})}
            for inside, each in _unnamed(field)
            for before, after in self._changes(each, name)
        ]
        if changes:
            self.widened = True
            metadata[TYPE_CHANGES] = changes
        return {
            "name": field.name,
            "type": self._type(field.type, name),
            "nullable": not field.required,
            "metadata": metadata,
        }

    def _type(self, type_: Type, name: str) -> Any:
        match type_:
            case StructType():
                return self.struct(type_, f"{name}.")
            case ListType():
                return {
                    "type": "array",
                    "elementType": self._type(type_.element.type, f"{name}.element"),
                    "containsNull": not type_.element.required,
                }
            case MapType():
                return {
                    "type": "map",
                    "keyType": self._type(type_.key.type, f"{name}.key"),
                    "valueType": self._type(type_.value.type, f"{name}.value"),
                    "valueContainsNull": not type_.value.required,
                }
        found = delta_type(type_)
        if found is None:
            raise inexpressible(f"column {name!a} is of type {type_}, which Delta does not have")
        return found

    def _changes(self, field: Field, name: str) -> Iterator[tuple[str, str]]:
        """From which types to which ones the column was widened, one after the other."""
        if not isinstance(field.type, str):
            return
        types = self._types[field.id]
        if types[-1] != field.type:
            raise inexpressible(
                f"column {name!a} was of type {types[-1]} before, and {field.type} is narrower"
            )
        for before, after in pairwise(types):
            if before != "unknown":
                yield delta_type(before) or before, delta_type(after) or after


def _unnamed(field: Field) -> Iterator[tuple[str, Field]]:
    """The field, and what it holds that has no name of its own, with the way to it."""
    waiting = [("", field)]
    while waiting:
        path, each = waiting.pop()
        yield path, each
        inside: tuple[Field, ...] = ()
        if isinstance(each.type, ListType):
            inside = (each.type.element,)
        elif isinstance(each.type, MapType):
            inside = (each.type.key, each.type.value)
        waiting += [(f"{path}.{one.name}" if path else one.name, one) for one in inside]


def _types_over_time(known: Sequence[Schema]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for schema in known:
        for id_, field in schema.fields.items():
            if isinstance(field.type, str):
                types = found.setdefault(id_, [])
                if not types or types[-1] != field.type:
                    types.append(field.type)
    return found


def _same_names(schema: Schema, known: Sequence[Schema]) -> bool:
    """Whether every name has always been that of its column, and is so in files."""
    if not all(_PLAIN.fullmatch(field.name) for field in schema.fields.values()):
        return False
    ids = {name: id_ for id_, name in schema.names.items()}
    return all(
        schema.names.get(id_, name) == name and ids.get(name, id_) == id_
        for other in known
        for id_, name in other.names.items()
    )


class _Mapping(msgspec.Struct, rename="kebab"):
    names: list[str]
    field_id: int | None = None
    fields: list[_Mapping] = []


def _maps_to_itself(text: str, schema: Schema) -> bool:
    try:
        waiting = msgspec.json.decode(text, type=list[_Mapping])
    except (msgspec.DecodeError, RecursionError):
        return False
    while waiting:
        each = waiting.pop()
        field = None if each.field_id is None else schema.fields.get(each.field_id)
        if field is not None and each.names != [field.name]:
            return False
        waiting += each.fields
    return True


def inexpressible(problem: str) -> Unsupported:
    return Unsupported(
        f"{problem}: the table cannot be read through Delta Sharing",
        fix="read it through Iceberg REST, or share a Delta table",
    )
