"""The part of a commit that concerns schemas, partition specs and sort orders."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.orders import (
    FIRST_ORDER,
    UNSORTED,
    Order,
    check_order,
    parse_order,
    write_order,
)
from inver.domain.iceberg.partitions import (
    Spec,
    assign_ids,
    check_ids,
    check_names,
    check_spec,
    parse_spec,
    write_spec,
)
from inver.domain.iceberg.schemas import Schema, check_version, parse_schema, with_schema_id
from inver.domain.iceberg.state import ORDER, SCHEMA, SPEC, Draft, Head
from inver.errors import Invalid

LAST_ADDED = -1


class Layout:
    """Works on a head of its own. Only what an update is about is decoded."""

    def __init__(self, head: Head, draft: Draft) -> None:
        self.head = head
        self.draft = draft
        self.changed = False
        self._recheck = False
        self.begin()

    def begin(self) -> None:
        """Start a request: what `-1` means is said by the updates of the same request alone."""
        self._new_schemas: set[int] = set()
        self._new_specs: set[int] = set()
        self._new_orders: set[int] = set()
        self._last_schema: int | None = None
        self._last_spec: int | None = None
        self._last_order: int | None = None

    def schema(self, schema_id: int) -> Schema | None:
        body = self.draft.get(SCHEMA, str(schema_id))
        return None if body is None else parse_schema(body)

    def add_schema(self, raw: bytes | msgspec.Raw) -> None:
        schema = parse_schema(raw)
        check_version(schema, self.head.format_version)
        last_column = max(self.head.last_column_id, schema.highest)
        found, new = None, self.head.current_schema_id
        for body in self.draft.bodies(SCHEMA):
            other = parse_schema(body)
            if other.same(schema):
                found = other.id
                break
            if other.id >= new:
                new = other.id + 1
        if found is not None and last_column == self.head.last_column_id:
            known = self._last_schema is not None and found in self._new_schemas
            self._last_schema = found if known else None
            return
        self.head.last_column_id = last_column
        if found is None:
            found = new
            self.draft.put(SCHEMA, str(found), with_schema_id(raw, found))
        self._new_schemas.add(found)
        self._last_schema = found
        self.changed = True

    def set_current_schema(self, schema_id: int) -> None:
        if schema_id == LAST_ADDED:
            if self._last_schema is None:
                raise Invalid("Cannot set last added schema: no schema has been added", field="schema-id")
            schema_id = self._last_schema
        if schema_id == self.head.current_schema_id:
            return
        schema = self.schema(schema_id)
        if schema is None:
            message = f"Cannot set current schema to unknown schema: {schema_id}"
            raise IllegalArgument(message, field="schema-id")
        for body in self.draft.bodies(SPEC):
            check_names(parse_spec(body), schema)
        self.head.current_schema_id = schema_id
        self.changed = self._recheck = True

    def remove_schemas(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        if self.head.current_schema_id in gone:
            raise IllegalArgument("Cannot remove the current schema", field="schema-ids")
        if gone:
            self.draft.remove(SCHEMA, map(str, gone))
            self.changed = True

    def add_spec(self, raw: bytes | msgspec.Raw) -> None:
        schema = self._current_schema("spec")
        others = [parse_spec(body) for body in self.draft.bodies(SPEC)]
        spec = assign_ids(parse_spec(raw), self.head.format_version, self.head.last_partition_id, others)
        check_spec(spec, schema)
        new = 0
        for other in others:
            if spec.same(other):
                known = self._last_spec is not None and self._last_spec in self._new_specs
                self._last_spec = other.id if known else None
                return
            new = max(new, other.id + 1)
        check_ids(spec, self.head.format_version)
        self.head.last_partition_id = max(self.head.last_partition_id, spec.last_field_id)
        self.draft.put(SPEC, str(new), write_spec(raw, Spec(new, spec.fields)))
        self._new_specs.add(new)
        self._last_spec = new
        self.changed = True

    def set_default_spec(self, spec_id: int) -> None:
        if spec_id == LAST_ADDED:
            if self._last_spec is None:
                raise Invalid("Cannot set last added spec: no spec has been added", field="spec-id")
            spec_id = self._last_spec
        if spec_id == self.head.default_spec_id:
            return
        if (SPEC, str(spec_id)) not in self.draft:
            raise IllegalArgument(f"Cannot set default spec to unknown spec: {spec_id}", field="spec-id")
        self.head.default_spec_id = spec_id
        self.changed = self._recheck = True

    def remove_specs(self, ids: Iterable[int]) -> None:
        gone = set(ids)
        if self.head.default_spec_id in gone:
            raise IllegalArgument("Cannot remove the default partition spec", field="spec-ids")
        if gone:
            self.draft.remove(SPEC, map(str, gone))
            self.changed = True

    def add_sort_order(self, raw: bytes | msgspec.Raw) -> None:
        schema = self._current_schema("sort-order")
        order = parse_order(raw)
        check_order(order, schema)
        found, new = None, FIRST_ORDER
        for body in self.draft.bodies(ORDER):
            other = parse_order(body)
            if other.fields == order.fields:
                found = other.id
                break
            new = max(new, other.id + 1)
        if found is not None:
            known = self._last_order is not None and self._last_order in self._new_orders
            self._last_order = found if known else None
            return
        if order.fields:
            self.draft.put(ORDER, str(new), write_order(raw, Order(new, order.fields)))
        else:
            new = 0
            self.draft.put(ORDER, "0", UNSORTED)
        self._new_orders.add(new)
        self._last_order = new
        self.changed = True

    def set_default_sort_order(self, order_id: int) -> None:
        if order_id == LAST_ADDED:
            if self._last_order is None:
                message = "Cannot set last added sort order: no sort order has been added"
                raise Invalid(message, field="sort-order-id")
            order_id = self._last_order
        if order_id == self.head.default_sort_order_id:
            return
        if (ORDER, str(order_id)) not in self.draft:
            message = f"Cannot set default sort order to unknown sort order: {order_id}"
            raise IllegalArgument(message, field="sort-order-id")
        self.head.default_sort_order_id = order_id
        self.changed = self._recheck = True

    def check_layout(self, new: bool = False) -> None:
        """The default spec and order must fit the current schema; if nothing changed, they still do."""
        if not (new or self._recheck):
            return
        schema = self._current_schema("schema")
        spec = self.draft.get(SPEC, str(self.head.default_spec_id))
        if spec is None:
            raise IllegalArgument("Partition specs cannot be null or empty", field="spec")
        order = self.draft.get(ORDER, str(self.head.default_sort_order_id))
        if order is None:
            raise IllegalArgument("Sort orders cannot be null or empty", field="sort-order")
        check_spec(parse_spec(spec), schema)
        check_order(parse_order(order), schema)

    def _current_schema(self, field: str) -> Schema:
        schema = self.schema(self.head.current_schema_id)
        if schema is None:
            raise IllegalArgument("Cannot find the current schema: no schema has been added", field=field)
        return schema
