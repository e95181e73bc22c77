"""Partition specs: binding to a schema, field ids, and when two specs are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import (
    decode_any,
    get_int,
    get_objects,
    get_str,
    number,
    rewritten,
    shown,
    text,
)
from inver.domain.iceberg.schemas import Schema, StructType
from inver.domain.iceberg.transforms import VOID, canonical_transform, check_source, source_of
from inver.errors import Invalid

FIRST_FIELD = 1000
UNPARTITIONED = b'{"spec-id":0,"fields":[]}'


class PartitionField(msgspec.Struct, frozen=True):
    source_id: int
    field_id: int | None
    name: str
    transform: str

    def __str__(self) -> str:
        return f"{self.field_id}: {self.name}: {self.transform}({self.source_id})"


class Spec(msgspec.Struct, frozen=True):
    id: int
    fields: tuple[PartitionField, ...]

    def same(self, other: Spec) -> bool:
        """Whether both partition alike; ids are not compared."""
        return [(f.source_id, f.transform, f.name) for f in self.fields] == [
            (f.source_id, f.transform, f.name) for f in other.fields
        ]

    @property
    def last_field_id(self) -> int:
        return max(FIRST_FIELD - 1, *(field.field_id or 0 for field in self.fields), 0)

    def __str__(self) -> str:
        return "[" + "".join(f"\n  {field}" for field in self.fields) + ("\n]" if self.fields else "]")


def parse_spec(raw: bytes | msgspec.Raw) -> Spec:
    node = decode_any(raw, "spec")
    if type(node) is not dict:
        raise IllegalArgument(f"Cannot parse spec from non-object: {shown(node)}", field="spec")
    # A spec of a request may come without an id: the table gives it one.
    spec_id = 0 if node.get("spec-id") is None else get_int(node, "spec-id")
    fields = []
    for each in get_objects(node, "fields", "partition spec"):
        field_id = None if each.get("field-id") is None else get_int(each, "field-id")
        transform = canonical_transform(get_str(each, "transform"))
        fields.append(PartitionField(get_int(each, "source-id"), field_id, get_str(each, "name"), transform))
    missing = sum(field.field_id is None for field in fields)
    if missing and missing != len(fields):
        message = f"Cannot parse spec with missing field IDs: {missing} missing of {len(fields)} fields."
        raise IllegalArgument(message, field="field-id")
    return Spec(spec_id, tuple(fields))


def check_spec(spec: Spec, schema: Schema) -> None:
    """Refuse a spec that does not fit the schema."""
    check_names(spec, schema)
    for field in spec.fields:
        if field.transform == VOID:
            continue
        source = source_of(field, schema.fields, "partition")
        check_source(source.type, field.transform, "partition")
        parent = schema.parents.get(field.source_id)
        while parent is not None:
            holder = schema.fields[parent].type
            if not isinstance(holder, StructType):
                raise Invalid(f"Invalid partition field parent: {holder}", field="source-id")
            parent = schema.parents.get(parent)


def check_names(spec: Spec, schema: Schema) -> None:
    """A partition field may be called like a column only if it is made of that column."""
    seen: set[str] = set()
    for field in spec.fields:
        column = schema.ids.get(field.name)
        if column is not None and field.source_id in schema.fields and column != field.source_id:
            message = f"Cannot create identity partition sourced from different field in schema: {field.name}"
            raise IllegalArgument(message, field="name")
        if not field.name:
            raise IllegalArgument("Cannot use empty partition name: ", field="name")
        if field.name in seen:
            raise IllegalArgument(f"Cannot use partition name more than once: {field.name}", field="name")
        seen.add(field.name)


def check_ids(spec: Spec, version: int) -> None:
    ids = [field.field_id for field in spec.fields]
    if version == 1 and ids != list(range(FIRST_FIELD, FIRST_FIELD + len(ids))):
        raise Invalid(f"Spec does not use sequential IDs that are required in v1: {spec}", field="field-id")
    if len(set(ids)) != len(ids):
        raise IllegalArgument(f"Cannot use partition field id more than once: {spec}", field="field-id")


def assign_ids(spec: Spec, version: int, last: int, others: Iterable[Spec]) -> Spec:
    """Give ids to fields without: that of the same field in another spec, or the next free one."""
    if not spec.fields or spec.fields[0].field_id is not None:
        return spec
    known: dict[tuple[int, str], int] = {}
    if version == 1:
        last = FIRST_FIELD - 1
    else:
        for other in others:
            for field in other.fields:
                key = (field.source_id, field.transform)
                known[key] = max(known.get(key, 0), field.field_id or 0)
    last = max(last, FIRST_FIELD - 1)
    fields = []
    for field in spec.fields:
        found = known.pop((field.source_id, field.transform), None)
        if found is None:
            found = last = last + 1
        fields.append(msgspec.structs.replace(field, field_id=found))
    return Spec(spec.id, tuple(fields))


def write_spec(raw: bytes | msgspec.Raw, spec: Spec) -> bytes:
    fields = (
        {
            "source-id": number(field.source_id),
            "field-id": number(field.field_id or 0),
            "transform": text(field.transform),
        }
        for field in spec.fields
    )
    return rewritten(raw, "spec", "spec-id", spec.id, fields)


def fresh_spec(raw: bytes | msgspec.Raw, fresh: Mapping[int, int]) -> bytes:
    """The spec of a new table: id 0, its columns by their new ids, its fields numbered from 1000."""
    spec = parse_spec(raw)
    fields = []
    for index, field in enumerate(spec.fields):
        source_id = source_of(field, fresh, "partition")
        fields.append(PartitionField(source_id, FIRST_FIELD + index, field.name, field.transform))
    return write_spec(raw, Spec(0, tuple(fields)))
