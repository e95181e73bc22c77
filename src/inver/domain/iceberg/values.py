"""Single values: as JSON of the protocol, and in the binary form of bounds.

In between they have the form that `content` describes, in which they compare as their type does.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

from inver.domain.iceberg.nodes import INT_MAX, LONG_MAX, shown
from inver.domain.iceberg.schemas import kind_of
from inver.errors import Invalid

DAY_MICROS = 86_400_000_000
FLOAT_MAX = 3.4028234663852886e38

_DATE = r"([+-]?\d{4,9})-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_ISO_DATE = re.compile(_DATE)
_ISO_TIME = re.compile(_TIME)
_ISO_TIMESTAMP = re.compile(rf"{_DATE}T{_TIME}(Z|[+-]\d\d:\d\d)?", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?")
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


class Beyond(Enum):
    """A number that no value of the type reaches."""

    ABOVE = 1
    BELOW = -1


ABOVE: Final = Beyond.ABOVE
BELOW: Final = Beyond.BELOW


def from_json(type_: str, node: Any, field: str) -> Any:
    """A literal for a column of this type. Days and microseconds may come as numbers, too.

    `field` is what is named where the literal is wrong.
    """
    found = _from_json(type_, node)
    if found is None:
        raise Invalid(f"{field}: {shown(node)} is not a value of type {type_}", field=field)
    return found


def to_json(type_: str, value: Any) -> Any:
    if value is None:
        return None
    match kind_of(type_):
        case "decimal":
            return _decimal_text(value, scale_of(type_))
        case "date":
            return date_text(value)
        case "time":
            return _time_text(value * 1000, 6)
        case "timestamp":
            return _timestamp_text(value * 1000, 6)
        case "timestamptz":
            return _timestamp_text(value * 1000, 6) + "+00:00"
        case "timestamp_ns":
            return _timestamp_text(value, 9)
        case "timestamptz_ns":
            return _timestamp_text(value, 9) + "+00:00"
        case "uuid":
            text = value.hex()
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        case "fixed" | "binary":
            return value.hex().upper()
        case "float" | "double" if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_binary(type_: str, data: bytes) -> Any:
    """None where the bytes say nothing that can be relied on."""
    kind, size = kind_of(type_), len(data)
    match kind:
        case "boolean":
            return data != b"\x00" if size == 1 else None
        case "int" | "date":
            return int.from_bytes(data, "little", signed=True) if size == 4 else None
        case "long":
            # Four bytes: it was an int when the file was written.
            return int.from_bytes(data, "little", signed=True) if size in (4, 8) else None
        case "time" | "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            return int.from_bytes(data, "little", signed=True) if size == 8 else None
        case "float":
            return _number("<f", data) if size == 4 else None
        case "double":
            return _number("<d" if size == 8 else "<f", data) if size in (4, 8) else None
        case "decimal":
            return int.from_bytes(data, "big", signed=True) if data else None
        case "string":
            try:
                return data.decode()
            except UnicodeDecodeError:
                return None
        case "uuid":
            return data if size == 16 else None
        case "fixed" | "binary":
            return data
    return None


def scale_of(type_: str) -> int:
    return int(type_.rpartition(",")[2][:-1])


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, which goes on for ever in both directions."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return years + era * 400 + (month <= 2), month, day


def date_text(days: int) -> str:
    year, month, day = date_of(days)
    if 0 <= year <= 9999:
        return f"{year:04}-{month:02}-{day:02}"
    return f"{'-' if year < 0 else '+'}{abs(year):04}-{month:02}-{day:02}"


def _from_json(type_: str, node: Any) -> Any:
    kind = kind_of(type_)
    if isinstance(node, bool):
        return node if kind == "boolean" else None
    match kind:
        case "int" | "date" if isinstance(node, int):
            return _within(node, INT_MAX)
        case "long" | "time" | "timestamp" | "timestamptz" if isinstance(node, int):
            return _within(node, LONG_MAX)
        case "timestamp_ns" | "timestamptz_ns" if isinstance(node, int):
            return _within(node * 1000, LONG_MAX)
        case "float" | "double":
            return _float_literal(kind, node)
        case "decimal":
            return _decimal_literal(type_, node)
    if not isinstance(node, str):
        return None
    match kind:
        case "string":
            return node
        case "date":
            found = _ISO_DATE.fullmatch(node)
            return _days(found) if found else None
        case "time":
            found = _ISO_TIME.fullmatch(node)
            nanos = _nanos(found.groups()) if found else None
            return None if nanos is None else nanos // 1000
        case "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            nanos = _timestamp_nanos(node, "tz" in kind)
            return nanos if nanos is None or kind.endswith("_ns") else nanos // 1000
        case "uuid":
            return bytes.fromhex(node.replace("-", "")) if _UUID.fullmatch(node) else None
        case "binary" | "fixed":
            return _bytes_literal(type_, node)
    return None


def _within(value: int, limit: int) -> int | Beyond:
    return ABOVE if value > limit else BELOW if value < -limit - 1 else value


def _float_literal(kind: str, node: Any) -> float | Beyond | None:
    if isinstance(node, str):
        if len(node) > 100 or not _DECIMAL.fullmatch(node):
            return _INFINITE.get(node)
        # Some clients write decimal literals as text before they know the column.
        node = float(node)
    if not isinstance(node, (int, float)):
        return None
    if kind == "double":
        try:
            return float(node)
        except OverflowError:
            return ABOVE if node > 0 else BELOW
    if abs(node) > FLOAT_MAX:
        return ABOVE if node > 0 else BELOW
    return _number("<f", struct.pack("<f", node))


def _decimal_literal(type_: str, node: Any) -> int | None:
    """Text must fit the scale; a binary fraction cannot, and is rounded."""
    scale = scale_of(type_)
    if isinstance(node, int):
        return int(node * 10**scale)
    try:
        if isinstance(node, float) and math.isfinite(node):
            return int(Decimal(repr(node)).scaleb(scale).to_integral_value(ROUND_HALF_UP))
        if isinstance(node, str) and len(node) < 100 and _DECIMAL.fullmatch(node):
            unscaled = Decimal(node).scaleb(scale)
            if unscaled == unscaled.to_integral_value():
                return int(unscaled)
    except InvalidOperation:
        pass
    return None


def _bytes_literal(type_: str, node: str) -> bytes | None:
    try:
        found = bytes.fromhex(node)
    except ValueError:
        return None
    if " " in node or (type_ != "binary" and len(found) != int(type_[6:-1])):
        return None
    return found


def _days(found: re.Match[str]) -> int | None:
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if not 1 <= month <= 12 or day < 1:
        return None
    days = days_of(year, month, day)
    return days if date_of(days) == (year, month, day) else None


def _nanos(parts: Any) -> int | None:
    """Of hour, minute, second and fraction."""
    hour, minute, second = int(parts[0]), int(parts[1]), int(parts[2] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 10**9 + int((parts[3] or "0").ljust(9, "0"))


def _timestamp_nanos(text: str, zoned: bool) -> int | None:
    found = _ISO_TIMESTAMP.fullmatch(text)
    if found is None or (found[8] is not None) is not zoned:
        return None
    days, nanos = _days(found), _nanos(found.groups()[3:7])
    if days is None or nanos is None:
        return None
    total = days * DAY_MICROS * 1000 + nanos
    if zoned and found[8] not in ("Z", "z"):
        ahead = (int(found[8][1:3]) * 60 + int(found[8][4:6])) * 60 * 10**9
        total += ahead if found[8][0] == "-" else -ahead
    return total


def _time_text(nanos: int, digits: int) -> str:
    seconds, fraction = divmod(nanos, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:09}"[: 9 + digits] if fraction else text


def _timestamp_text(nanos: int, digits: int) -> str:
    days, nanos = divmod(nanos, DAY_MICROS * 1000)
    return f"{date_text(days)}T{_time_text(nanos, digits)}"


def _decimal_text(unscaled: int, scale: int) -> str:
    if scale == 0:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _number(layout: str, data: bytes) -> float:
    found: float = struct.unpack(layout, data)[0]
    return found
