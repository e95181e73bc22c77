"""Sort orders: binding to a schema, and when two orders are the same."""

from __future__ import annotations

from collections.abc import Mapping

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
from inver.domain.iceberg.schemas import Schema
from inver.domain.iceberg.transforms import canonical_transform, check_source, source_of

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
        source = source_of(field, schema.fields, "sort")
        check_source(source.type, field.transform, "sort")


def write_order(raw: bytes | msgspec.Raw, order: Order) -> bytes:
    fields = (
        {
            "transform": text(field.transform),
            "source-id": number(field.source_id),
            "direction": text(field.direction),
            "null-order": text(field.null_order),
        }
        for field in order.fields
    )
    return rewritten(raw, "sort order", "order-id", order.id, fields)


def fresh_order(raw: bytes | msgspec.Raw, fresh: Mapping[int, int]) -> bytes:
    """The order of a new table, its columns by their new ids."""
    order = parse_order(raw)
    fields = []
    for field in order.fields:
        source_id = source_of(field, fresh, "sort")
        fields.append(msgspec.structs.replace(field, source_id=source_id))
    return write_order(raw, Order(FIRST_ORDER if fields else 0, tuple(fields)))
