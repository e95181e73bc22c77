"""Partition and sort transforms: how they are written and what they apply to."""

from __future__ import annotations

import re

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import INT_MAX
from inver.domain.iceberg.schemas import Type, is_primitive, kind_of

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


def applies(transform: str, source: Type) -> bool:
    if transform == "identity":
        return is_primitive(source) and kind_of(source) not in ("geometry", "geography")
    sources = _SOURCES.get(transform.partition("[")[0])
    return sources is None or kind_of(source) in sources
