"""Default values of columns in Iceberg's JSON form for single values."""

from __future__ import annotations

import re
from typing import Any

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import INT_MAX, LONG_MAX, shown

_DATE = r"[+-]?\d{4,}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.(\d*))?|\.(\d+))")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_TEXTS = {
    "date": re.compile(_DATE),
    "time": re.compile(_TIME),
    "timestamp": re.compile(f"{_DATE}T{_TIME}"),
    "timestamptz": re.compile(f"{_DATE}T{_TIME}(?:Z|[+-]00:00)"),
    "uuid": re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    "binary": _HEX,
    "string": re.compile(r"(?s:.*)"),
}
_TEXTS["timestamp_ns"], _TEXTS["timestamptz_ns"] = _TEXTS["timestamp"], _TEXTS["timestamptz"]


def check_default(type_: str, value: Any) -> None:
    """`type_` is the canonical name of a primitive type, the value is not null."""
    if not _fits(type_, value):
        raise IllegalArgument(f"Cannot parse default as a {type_} value: {shown(value)}", field="default")


def _fits(type_: str, value: Any) -> bool:
    match type_:
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -INT_MAX - 1 <= value <= INT_MAX
        case "long":
            return type(value) is int and -LONG_MAX - 1 <= value <= LONG_MAX
        case "float" | "double":
            return type(value) in (int, float)
    if not isinstance(value, str):
        return False
    if type_ in _TEXTS:
        return _TEXTS[type_].fullmatch(value) is not None
    if type_.startswith("decimal"):
        found = _DECIMAL.fullmatch(value)
        scale = int(type_.rpartition(" ")[2][:-1])
        return found is not None and len(found[1] or found[2] or "") == scale
    if type_.startswith("fixed"):
        return _HEX.fullmatch(value) is not None and len(value) == 2 * int(type_[6:-1])
    return False
