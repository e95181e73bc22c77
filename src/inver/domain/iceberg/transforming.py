"""What partition transforms make of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inver.domain.iceberg.schemas import kind_of
from inver.domain.iceberg.transforms import VOID
from inver.domain.iceberg.values import DAY_MICROS, date_of

_TIMES = frozenset(["year", "month", "day", "hour"])
_HOUR_MICROS = DAY_MICROS // 24


def name_of(transform: str) -> str:
    return transform.partition("[")[0]


def width_of(transform: str) -> int:
    return int(transform.partition("[")[2][:-1])


def is_known(transform: str) -> bool:
    return name_of(transform) in {"identity", "bucket", "truncate", VOID, *_TIMES}


def is_time(transform: str) -> bool:
    return transform in _TIMES


def preserves_order(transform: str) -> bool:
    return name_of(transform) in {"identity", "truncate", *_TIMES}


def result_type(transform: str, source: str) -> str:
    match name_of(transform):
        case "bucket" | "year" | "month" | "hour":
            return "int"
        case "day":
            return "date"
    return source


def function(transform: str, source: str) -> Callable[[Any], Any]:
    """For values that are not null."""
    kind = kind_of(source)
    match name_of(transform):
        case "bucket":
            width, hashed = width_of(transform), _hashed(kind)
            return lambda value: (murmur3(hashed(value)) & 0x7FFF_FFFF) % width
        case "truncate" if kind in ("string", "binary"):
            width = width_of(transform)
            return lambda value: value[:width]
        case "truncate":
            width = width_of(transform)
            return lambda value: value - value % width
        case "hour":
            hour = _HOUR_MICROS * _unit(kind)
            return lambda value: value // hour
        case "year" | "month" | "day":
            return _calendar(transform, kind)
    return lambda value: value


def murmur3(data: bytes) -> int:
    """The 32-bit variant for x86 with seed 0, as an unsigned number."""
    state, blocks = 0, len(data) & ~3
    for at in range(0, blocks, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13 | state >> 19) * 5 + 0xE654_6B64) & 0xFFFF_FFFF
    if blocks < len(data):
        state ^= _mixed(int.from_bytes(data[blocks:], "little"))
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EB_CA6B & 0xFFFF_FFFF
    state = (state ^ state >> 13) * 0xC2B2_AE35 & 0xFFFF_FFFF
    return state ^ state >> 16


def _mixed(block: int) -> int:
    block = block * 0xCC9E_2D51 & 0xFFFF_FFFF
    block = (block << 15 | block >> 17) & 0xFFFF_FFFF
    return block * 0x1B87_3593 & 0xFFFF_FFFF


def _hashed(kind: str) -> Callable[[Any], bytes]:
    match kind:
        case "string":
            return lambda value: value.encode("utf-8", "surrogatepass")
        case "decimal":
            return lambda value: value.to_bytes(
                ((value if value >= 0 else ~value).bit_length() + 8) // 8, "big", signed=True
            )
        case "uuid" | "fixed" | "binary":
            return lambda value: value
    unit = _unit(kind)
    # A time has the same bucket whether it is kept in micro- or in nanoseconds.
    return lambda value: (value // unit).to_bytes(8, "little", signed=True)


def _unit(kind: str) -> int:
    return 1000 if kind.endswith("_ns") else 1


def _calendar(transform: str, kind: str) -> Callable[[int], int]:
    day = 1 if kind == "date" else DAY_MICROS * _unit(kind)
    if transform == "day":
        return lambda value: value // day
    if transform == "year":
        return lambda value: date_of(value // day)[0] - 1970

    def month(value: int) -> int:
        years, months, _ = date_of(value // day)
        return (years - 1970) * 12 + months - 1

    return month
