"""Predicates over files: whether a file can have a row that a reader wants.

What is known of a file is its partition values, and perhaps bounds of other columns. So a predicate
has a set of possible outcomes out of true, false and null, and a file may be left out when true is
not among them. Whatever cannot be understood or compared has every outcome, which leaves nothing out.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from inver.domain.delta_actions import Metadata, Words
from inver.domain.delta_schema import Column, columns, physical_partition_columns

TRUE, FALSE, NULL = 1, 2, 4
ANYTHING = TRUE | FALSE | NULL

Value: TypeAlias = Any
"""Of a comparable Python type: bool, int, float, Decimal, str, date or datetime."""


class ColumnRef(msgspec.Struct, frozen=True):
    name: str


class Literal(msgspec.Struct, frozen=True):
    """`text` is None for null. `kind` is a Delta type, or None if the other side decides.

    `cut` is whether less than a millisecond of a timestamp may be missing.
    """

    text: str | None
    kind: str | None = None
    cut: bool = False


class Compare(msgspec.Struct, frozen=True):
    op: str
    left: Predicate
    right: Predicate


class IsNull(msgspec.Struct, frozen=True):
    child: Predicate


class Not(msgspec.Struct, frozen=True):
    child: Predicate


class Both(msgspec.Struct, frozen=True):
    children: tuple[Predicate, ...]


class Either(msgspec.Struct, frozen=True):
    children: tuple[Predicate, ...]


Predicate: TypeAlias = ColumnRef | Literal | Compare | IsNull | Not | Both | Either

_MILLISECOND = datetime.timedelta(milliseconds=1)
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a column's values in one file. A bound that is None is not known."""

    low: Value = None
    high: Value = None
    may_be_null: bool = True
    may_be_value: bool = True


class Filter:
    """A predicate on the files of a table with this metadata."""

    def __init__(self, predicate: Predicate, metadata: Metadata) -> None:
        self._predicate = predicate
        self._columns = {column.name.lower(): column for column in columns(metadata)}
        self._partitions = set(physical_partition_columns(metadata))

    @property
    def unknown_columns(self) -> list[str]:
        return sorted(name for name in referenced(self._predicate) if name.lower() not in self._columns)

    @property
    def partitions_only(self) -> bool:
        """Whether partition values alone decide."""
        used = {self._columns.get(name.lower()) for name in referenced(self._predicate)}
        return all(column is not None and column.physical in self._partitions for column in used)

    def keep_partition(self, values: Words) -> bool:
        return bool(self._outcomes(lambda column: self._of_partition(column, values)) & TRUE)

    def admits_partition(self, values: Words) -> bool:
        """Whether the predicate is certainly true: where it decides what somebody may see."""
        return self._outcomes(lambda column: self._of_partition(column, values)) == TRUE

    def keep_file(self, values: Words, stats: str | None) -> bool:
        found = _decoded_stats(stats)
        if found is None:
            return True
        return bool(self._outcomes(lambda column: self._of_file(column, values, found)) & TRUE)

    def _outcomes(self, known: Callable[[Column], Known]) -> int:
        return _outcomes(self._predicate, self._columns, known)

    def _of_partition(self, column: Column, values: Words) -> Known:
        if column.physical not in self._partitions or column.physical not in values:
            return Known()
        text = values[column.physical]
        # The log writes null and the empty string the same way.
        if text is None or (text == "" and column.type != "string"):
            return Known(may_be_value=False)
        value = _stored_value(text, column.type)
        if text == "":
            return Known(value, value)
        return Known() if value is None else Known(value, value, may_be_null=False)

    def _of_file(self, column: Column, values: Words, stats: Mapping[str, Any]) -> Known:
        if column.physical in self._partitions:
            return self._of_partition(column, values)
        return _of_statistics(column, stats)


def referenced(predicate: Predicate) -> set[str]:
    if isinstance(predicate, ColumnRef):
        return {predicate.name}
    if isinstance(predicate, Literal):
        return set()
    if isinstance(predicate, Compare):
        return referenced(predicate.left) | referenced(predicate.right)
    children = predicate.children if isinstance(predicate, Both | Either) else (predicate.child,)
    return set().union(*map(referenced, children))


def _outcomes(each: Predicate, by_name: Mapping[str, Column], known: Callable[[Column], Known]) -> int:
    if isinstance(each, Both | Either):
        parts = [_outcomes(child, by_name, known) for child in each.children]
        # `a OR b` is `NOT (NOT a AND NOT b)`.
        return _both(parts) if isinstance(each, Both) else _negated(_both(map(_negated, parts)))
    if isinstance(each, Not):
        return _negated(_outcomes(each.child, by_name, known))
    if isinstance(each, IsNull):
        column = _column(each.child, by_name)
        if column is None:
            return ANYTHING
        facts = known(column)
        return (TRUE if facts.may_be_null else 0) | (FALSE if facts.may_be_value else 0)
    if isinstance(each, Compare):
        return _compared(each, by_name, known)
    if isinstance(each, ColumnRef):
        return _compared(Compare("=", each, Literal("true", "boolean")), by_name, known)
    return {None: NULL, "true": TRUE, "false": FALSE}.get(each.text and each.text.lower(), ANYTHING)


def _negated(outcomes: int) -> int:
    swapped = (TRUE if outcomes & FALSE else 0) | (FALSE if outcomes & TRUE else 0)
    return swapped | outcomes & NULL


def _both(parts: Iterable[int]) -> int:
    result = TRUE
    for part in parts:
        outcomes = 0
        if (result | part) & FALSE:
            outcomes |= FALSE
        if result & TRUE and part & TRUE:
            outcomes |= TRUE
        if (result & NULL and part & (TRUE | NULL)) or (part & NULL and result & TRUE):
            outcomes |= NULL
        result = outcomes
    return result


def _column(each: Predicate, by_name: Mapping[str, Column]) -> Column | None:
    return by_name.get(each.name.lower()) if isinstance(each, ColumnRef) else None


def _compared(each: Compare, by_name: Mapping[str, Column], known: Callable[[Column], Known]) -> int:
    left, op, right = each.left, each.op, each.right
    if isinstance(left, Literal):
        left, op, right = right, _FLIPPED[op], left
    column = _column(left, by_name)
    if column is None or not isinstance(right, Literal):
        return ANYTHING
    if right.text is None:
        return NULL
    parse = _stored_value if right.kind == "float" else parse_value
    value = parse(right.text, column.type)
    if value is None or not _comparable(column.type, right.kind):
        return ANYTHING
    facts = known(column)
    outcomes = NULL if facts.may_be_null else 0
    low, high = facts.low, facts.high
    if right.cut:
        # Towards 1970, so before that the value is smaller than what is left of it.
        low, high = _moved(low, -_MILLISECOND), _moved(high, _MILLISECOND)
    if facts.may_be_value:
        outcomes |= _against(op, low, high, value)
    return outcomes


def _moved(moment: datetime.datetime | None, by: datetime.timedelta) -> datetime.datetime | None:
    try:
        return None if moment is None else moment + by
    except OverflowError:
        return None


def _against(op: str, low: Value, high: Value, value: Value) -> int:
    """Outcomes for a value between two bounds."""
    below = low is None or low < value
    above = high is None or high > value
    equal = (low is None or low <= value) and (high is None or high >= value)
    true = {
        "<": below,
        "<=": below or equal,
        ">": above,
        ">=": above or equal,
        "=": equal,
        "<>": below or above,
    }
    false = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
    return (TRUE if true[op] else 0) | (FALSE if true[false[op]] else 0)


_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_NUMBERS = _INTEGERS | {"float", "double", "decimal"}


def _comparable(column: str | None, literal: str | None) -> bool:
    """Whether a literal means the same as when its text is read as the column's type."""
    if literal is None or column == literal or literal == "string":
        return column != "boolean" or literal in (None, "boolean", "string")
    kind = "decimal" if column is not None and column.startswith("decimal") else column
    return kind in _NUMBERS and literal in _NUMBERS


def parse_value(text: str, kind: str | None) -> Value | None:
    """A value of a primitive type, or None if the text is none or the type cannot be compared.

    A timestamp without its zone is in the zone of whoever wrote it, so nothing is known of it.
    """
    try:
        if kind == "string":
            return text
        if kind in _INTEGERS:
            number = Decimal(text)
            return int(number) if number == number.to_integral_value() else number
        if kind in ("float", "double"):
            value = float(text)
            return None if value != value else value
        if kind is not None and kind.startswith("decimal"):
            exact = Decimal(text)
            return exact if exact.is_finite() else None
        if kind == "boolean":
            return {"true": True, "false": False}.get(text.lower())
        if kind == "date":
            return datetime.date.fromisoformat(text)
        if kind in ("timestamp", "timestamp_ntz"):
            moment = datetime.datetime.fromisoformat(text)
            return moment if (moment.tzinfo is None) == (kind == "timestamp_ntz") else None
    except (ValueError, InvalidOperation, OverflowError):
        pass
    return None


class _Stats(msgspec.Struct):
    num_records: int | None = msgspec.field(default=None, name="numRecords")
    min_values: dict[str, Any] = msgspec.field(default_factory=dict, name="minValues")
    max_values: dict[str, Any] = msgspec.field(default_factory=dict, name="maxValues")
    null_count: dict[str, Any] = msgspec.field(default_factory=dict, name="nullCount")


# Numbers as they were written: a float would move bounds of large and of decimal numbers.
_decode_stats = msgspec.json.Decoder(_Stats, float_hook=Decimal).decode


def _decoded_stats(text: str | None) -> Any:
    try:
        return None if not text else _decode_stats(text)
    except (msgspec.DecodeError, RecursionError, InvalidOperation):
        return None


def _of_statistics(column: Column, stats: Any) -> Known:
    nulls = stats.null_count.get(column.physical)
    low = _bound(stats.min_values.get(column.physical), column.type)
    high = _bound(stats.max_values.get(column.physical), column.type)
    if column.type in ("float", "double"):
        # No bound tells of NaN, which is larger than every number.
        high = None
    elif isinstance(high, datetime.datetime):
        # Writers cut timestamps to milliseconds.
        high = _moved(high, _MILLISECOND)
    only_nulls = isinstance(nulls, int) and nulls == stats.num_records
    return Known(low, high, nulls != 0, not only_nulls)


def _bound(value: Any, kind: str | None) -> Value | None:
    if value is None or isinstance(value, dict | list):
        return None
    return _stored_value(str(value), kind)


def _stored_value(text: str, kind: str | None) -> Value | None:
    """A value as it is in the data: of a float, its text is shorter than what it is compared by."""
    value = parse_value(text, kind)
    if kind != "float" or value is None:
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return None
