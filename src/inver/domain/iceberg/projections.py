"""Filters of rows, turned into filters of partitions.

An inclusive projection holds for every partition that may have a row that the filter wants; a
strict one only for partitions of which the filter wants every row. What is left of a filter for the
rows of one partition is its residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from inver.domain.iceberg.expressions import FALSE, TRUE, Expression, Predicate, Term, both, holds, replaced
from inver.domain.iceberg.partitions import Spec
from inver.domain.iceberg.schemas import Schema, kind_of
from inver.domain.iceberg.transforming import function, is_known, is_time, name_of, result_type
from inver.domain.iceberg.transforms import VOID

UNKNOWN_TYPE = "unknown"
_CONTINUOUS = frozenset(["string", "binary"])
_NULLS = frozenset(["is-null", "not-null"])


class Slot(msgspec.Struct, frozen=True):
    """One field of a spec: what it is made of, and the type of its values."""

    position: int
    source_id: int
    transform: str
    source: str
    type: str


def slots_of(spec: Spec, schemas: Sequence[Schema]) -> tuple[Slot, ...]:
    """A column is looked for in all schemas: it may have been dropped after the files were written."""
    slots = []
    for position, field in enumerate(spec.fields):
        found = (schema.fields[field.source_id] for schema in schemas if field.source_id in schema.fields)
        column = next(found, None)
        source = column.type if column is not None and isinstance(column.type, str) else UNKNOWN_TYPE
        known = source != UNKNOWN_TYPE and is_known(field.transform) and field.transform != VOID
        made = result_type(field.transform, source) if known else UNKNOWN_TYPE
        slots.append(Slot(position, field.source_id, field.transform, source, made))
    return tuple(slots)


def inclusive(expression: Expression, slots: Sequence[Slot]) -> Expression:
    """Its terms are positions in the partition, in the place of ids."""
    return _projected(expression, slots, _inclusive)


def residual(expression: Expression, slots: Sequence[Slot], partition: Sequence[Any]) -> Expression:
    """What is still to be asked of each row of a file in this partition."""

    def leaf(predicate: Predicate) -> Expression:
        for slot in slots:
            if slot.source_id != predicate.term.field_id or slot.type == UNKNOWN_TYPE:
                continue
            value = partition[slot.position]
            strict = _strict(predicate, slot)
            if strict is not None and test(strict, value) is True:
                return TRUE
            wide = _inclusive(predicate, slot)
            if wide is not None and test(wide, value) is False:
                return FALSE
        return predicate

    return replaced(expression, leaf)


def matches(expression: Expression, partition: Sequence[Any]) -> bool:
    """Whether a projection holds for a partition, or may."""
    return holds(
        expression, lambda predicate: test(predicate, partition[predicate.term.field_id]) is not False
    )


def test(predicate: Predicate, value: Any) -> bool | None:
    """Of one value; None where engines do not agree, which is about null and what is not equal to it."""
    op, values = predicate.op, predicate.values
    if value is None:
        return op == "is-null" if not op.startswith("not-") else False if op == "not-null" else None
    match op:
        case "is-null":
            return False
        case "not-null":
            return True
        case "is-nan":
            return bool(value != value)
        case "not-nan":
            return bool(value == value)
        case "in":
            return value in values
        case "not-in":
            return value not in values
    if value != value:
        # Whether NaN is larger than all numbers or not comparable is for the engine to say.
        return None
    literal = values[0]
    match op:
        case "eq":
            return bool(value == literal)
        case "not-eq":
            return bool(value != literal)
        case "lt":
            return bool(value < literal)
        case "lt-eq":
            return bool(value <= literal)
        case "gt":
            return bool(value > literal)
        case "gt-eq":
            return bool(value >= literal)
        case "starts-with":
            return bool(value.startswith(literal))
    return not value.startswith(literal)


def _projected(
    expression: Expression,
    slots: Sequence[Slot],
    project: Callable[[Predicate, Slot], Predicate | None],
) -> Expression:
    def leaf(predicate: Predicate) -> Expression:
        found = [
            project(predicate, slot)
            for slot in slots
            if slot.source_id == predicate.term.field_id and slot.type != UNKNOWN_TYPE
        ]
        return both([each for each in found if each is not None])

    return replaced(expression, leaf)


def _inclusive(predicate: Predicate, slot: Slot) -> Predicate | None:
    direct = _direct(predicate, slot)
    if direct is not None or predicate.term.transform is not None:
        return direct
    op, values, make = predicate.op, predicate.values, function(slot.transform, slot.source)
    if op in ("eq", "in"):
        return _on(slot, *_with_early(slot, op, dict.fromkeys(map(make, values))))
    if name_of(slot.transform) == "bucket":
        return None
    step = 0 if kind_of(slot.source) in _CONTINUOUS else 1
    match op:
        case "lt" | "lt-eq":
            bound = make(values[0] - step if op == "lt" and step else values[0])
            return _on(slot, "lt-eq", [bound + 1 if is_time(slot.transform) and bound < 0 else bound])
        case "gt" | "gt-eq":
            return _on(slot, "gt-eq", [make(values[0] + step if op == "gt" and step else values[0])])
        case "starts-with":
            return _on(slot, op, [make(values[0])])
        case "not-starts-with" if make(values[0]) == values[0]:
            return _on(slot, op, values)
    return None


def _strict(predicate: Predicate, slot: Slot) -> Predicate | None:
    direct = _direct(predicate, slot)
    if direct is not None or predicate.term.transform is not None:
        return direct
    op, values, make = predicate.op, predicate.values, function(slot.transform, slot.source)
    if op in ("not-eq", "not-in"):
        return _on(slot, *_with_early(slot, op, dict.fromkeys(map(make, values))))
    if name_of(slot.transform) == "bucket":
        return None
    step = 0 if kind_of(slot.source) in _CONTINUOUS else 1
    match op:
        case "lt" | "lt-eq":
            return _on(slot, "lt", [make(values[0] + step if op == "lt-eq" and step else values[0])])
        case "gt" | "gt-eq":
            bound = make(values[0] - step if op == "gt-eq" and step else values[0])
            return _on(slot, "gt", [bound + 1 if is_time(slot.transform) and bound <= 0 else bound])
        case "starts-with" if make(values[0]) == values[0]:
            return _on(slot, op, values)
        case "not-starts-with":
            return _on(slot, op, [make(values[0])])
    return None


def _direct(predicate: Predicate, slot: Slot) -> Predicate | None:
    """What says of the partition exactly what it says of the rows."""
    transform = predicate.term.transform
    if transform is None:
        exact = slot.transform == "identity" or predicate.op in _NULLS
    else:
        exact = transform == slot.transform
    return _on(slot, predicate.op, predicate.values) if exact else None


def _with_early(slot: Slot, op: str, values: dict[Any, None]) -> tuple[str, list[Any]]:
    """Early writers gave times before 1970 a partition that is one too high."""
    if is_time(slot.transform):
        values |= dict.fromkeys(value + 1 for value in values if value < 0)
    if len(values) > 1:
        op = {"eq": "in", "not-eq": "not-in"}.get(op, op)
    return op, list(values)


def _on(slot: Slot, op: str, values: Sequence[Any]) -> Predicate:
    return Predicate(op, Term(slot.position, slot.transform, slot.type, slot.type), tuple(values))
