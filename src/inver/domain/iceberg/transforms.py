"""Partition and sort transforms: how they are written and what they apply to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol, TypeVar

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import INT_MAX
from inver.domain.iceberg.schemas import Type, is_primitive, kind_of
from inver.errors import Invalid

T = TypeVar("T")

VOID = "void"

_WIDTH = re.compile(r"(\w+)\[(\d+)\]")
_PLAIN = frozenset({"identity", "year", "month", "day", "hour", VOID})
_TIMES = frozenset(["timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"])
_DATES = _TIMES | {"date"}
_SOURCES = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMES,
    "bucket": _DATES | frozenset(["int", "long", "time", "string", "binary", "fixed", "decimal", "uuid"]),
    "truncate": frozenset(["int", "long", "string", "binary", "decimal"]),
}


def canonical_transform(written: str) -> str:
    """A known transform in its usual spelling; one that a later version may know stays as it is."""
    found = _WIDTH.fullmatch(written)
    if found and (name := found[1].lower()) in ("bucket", "truncate"):
        width = int(found[2]) if len(found[2]) <= 10 else INT_MAX + 1
        if not 0 < width <= INT_MAX:
            what = "number of buckets" if name == "bucket" else "truncate width"
            raise IllegalArgument(f"Invalid {what}: {found[2]} (must be > 0)", field="transform")
        return f"{name}[{width}]"
    lower = written.lower()
    return lower if lower in _PLAIN else written


class Sourced(Protocol):
    """A field of a partition spec or of a sort order."""

    @property
    def source_id(self) -> int: ...


def source_of(field: Sourced, known: Mapping[int, T], what: str) -> T:
    found = known.get(field.source_id)
    if found is None:
        raise Invalid(f"Cannot find source column for {what} field: {field}", field="source-id")
    return found


def check_source(source: Type, transform: str, what: str) -> None:
    """Whether one can `sort` or `partition` by this transform of a column."""
    if not is_primitive(source):
        raise Invalid(f"Cannot {what} by non-primitive source field: {source}", field="source-id")
    if not applies(transform, source):
        raise Invalid(f"Invalid source type {source} for transform: {transform}", field="transform")


def applies(transform: str, source: Type) -> bool:
    if transform == "identity":
        return is_primitive(source) and kind_of(source) not in ("geometry", "geography")
    sources = _SOURCES.get(transform.partition("[")[0])
    return sources is None or kind_of(source) in sources
