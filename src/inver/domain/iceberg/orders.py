"""Sort orders: binding to a schema, and when two orders are the same."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import (
    decode_any,
    elements,
    encode,
    get_int,
    get_objects,
    get_str,
    members,
    number,
    shown,
    text,
)
from inver.domain.iceberg.schemas import Schema, is_primitive
from inver.domain.iceberg.transforms import applies, canonical_transform
from inver.errors import Invalid

UNSORTED = b'{"order-id":0,"fields":[]}'
FIRST_ORDER = 1
"""The id 0 is that of the order without fields."""


class SortField(msgspec.Struct, frozen=True):
    transform: str
    source_id: int
    direction: str
    null_order: str

    def __str__(self) -> str:
        nulls = self.null_order.upper().replace("-", " ")
        return f"{self.transform}({self.source_id}) {self.direction.upper()} {nulls}"


class Order(msgspec.Struct, frozen=True):
    id: int
    fields: tuple[SortField, ...]


def parse_order(raw: bytes | msgspec.Raw) -> Order:
    node = decode_any(raw, "sort order")
    if type(node) is not dict:
        raise IllegalArgument(f"Cannot parse sort order from non-object: {shown(node)}", field="sort-order")
    order_id = get_int(node, "order-id")
    fields = []
    for each in get_objects(node, "fields", "sort order"):
        direction, nulls = get_str(each, "direction").lower(), get_str(each, "null-order").lower()
        if direction not in ("asc", "desc"):
            raise IllegalArgument(f"Invalid sort direction: {each['direction']}", field="direction")
        if nulls not in ("nulls-first", "nulls-last"):
            raise IllegalArgument(f"Unexpected null order: {each['null-order']}", field="null-order")
        transform = canonical_transform(get_str(each, "transform"))
        fields.append(SortField(transform, get_int(each, "source-id"), direction, nulls))
    if fields and order_id == 0:
        raise IllegalArgument("Sort order ID 0 is reserved for unsorted order", field="order-id")
    if not fields and order_id != 0:
        raise IllegalArgument("Unsorted order ID must be 0", field="order-id")
    return Order(order_id, tuple(fields))


def check_order(order: Order, schema: Schema) -> None:
    for field in order.fields:
        source = schema.fields.get(field.source_id)
        if source is None:
            raise Invalid(f"Cannot find source column for sort field: {field}", field="source-id")
        if not is_primitive(source.type):
            raise Invalid(f"Cannot sort by non-primitive source field: {source.type}", field="source-id")
        if not applies(field.transform, source.type):
            message = f"Invalid source type {source.type} for transform: {field.transform}"
            raise Invalid(message, field="transform")


def write_order(raw: bytes | msgspec.Raw, order: Order) -> bytes:
    """The order as it was sent, with the ids and spellings that it has here."""
    node = members(raw, "sort order")
    node["order-id"] = number(order.id)
    written = [members(each, "sort order") for each in elements(node["fields"], "sort order")]
    for field, out in zip(order.fields, written, strict=True):
        out["transform"] = text(field.transform)
        out["source-id"] = number(field.source_id)
        out["direction"] = text(field.direction)
        out["null-order"] = text(field.null_order)
    node["fields"] = msgspec.Raw(encode(written))
    return encode(node)


def fresh_order(raw: bytes | msgspec.Raw, fresh: Mapping[int, int]) -> bytes:
    """The order of a new table, its columns by their new ids."""
    order = parse_order(raw)
    fields = []
    for field in order.fields:
        if field.source_id not in fresh:
            raise Invalid(f"Cannot find source column for sort field: {field}", field="source-id")
        fields.append(msgspec.structs.replace(field, source_id=fresh[field.source_id]))
    return write_order(raw, Order(FIRST_ORDER if fields else 0, tuple(fields)))
