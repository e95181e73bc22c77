"""Statistics of a data file as Delta's log has them, made from the file's own footer.

A bound is left out rather than guessed: a wrong one makes readers skip rows that they look for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from inver.pipeline.tasks.delta_schema import Leaf

PREFIX = 32
"""Characters of a text that a bound keeps."""
_ASCII_LAST = "\x7f"
_LAST = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)
_NUMBERS = ("long", "integer", "short", "byte")
_FLOATS = ("float", "double")


class Watched:
    """What footers do not tell: collections that are null, and numbers that are none."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._collections = [leaf for leaf in leaves if leaf.type is None]
        self._floats = [leaf for leaf in leaves if leaf.type in _FLOATS]
        self.nulls = dict.fromkeys((leaf.path for leaf in self._collections), 0)
        self.with_nan: set[tuple[str, ...]] = set()

    def see(self, table: pa.Table) -> None:
        for leaf in self._collections:
            self.nulls[leaf.path] += _values(table, leaf).null_count
        for leaf in self._floats:
            if leaf.path not in self.with_nan and pc.any(pc.is_nan(_values(table, leaf))).as_py():
                self.with_nan.add(leaf.path)


def statistics(footer: Any, leaves: Sequence[Leaf], watched: Watched) -> str:
    columns = _columns(footer)
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for leaf in leaves:
        if leaf.type is None:
            _put(nulls, leaf.path, watched.nulls[leaf.path])
            continue
        place = columns.get(".".join(leaf.path))
        if place is None:
            continue
        found = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        absent = _nulls(found)
        if absent is not None:
            _put(nulls, leaf.path, absent)
        low, high = _bounds(found, leaf, leaf.path in watched.with_nan)
        if low is not None:
            _put(lows, leaf.path, low)
        if high is not None:
            _put(highs, leaf.path, high)
    made = {"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    return msgspec.json.encode({**made, "tightBounds": True}).decode()


def _columns(footer: Any) -> dict[str, int]:
    """By path. One that a field of a struct shares with a column whose name has a dot is nobody's."""
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    times = Counter(paths)
    return {path: place for place, path in enumerate(paths) if times[path] == 1}


def _nulls(chunks: Sequence[Any]) -> int | None:
    total = 0
    for chunk in chunks:
        known = chunk.statistics
        if known is None or not known.has_null_count:
            return None
        total += known.null_count
    return total


def _bounds(chunks: Sequence[Any], leaf: Leaf, with_nan: bool) -> tuple[Any, Any]:
    kind = leaf.type or ""
    pairs = []
    for chunk in chunks:
        known = chunk.statistics
        if known is None or not known.has_null_count:
            return None, None
        if known.has_min_max:
            pairs.append(_pair(known, kind))
        elif known.null_count < chunk.num_values:
            return None, None
    if not pairs or any(pair is None for pair in pairs):
        return None, None
    sound = [pair for pair in pairs if pair is not None]
    low = _shown(min(pair[0] for pair in sound), kind, low=True)
    # Readers sort what is not a number behind all numbers.
    high = None if with_nan else _shown(max(pair[1] for pair in sound), kind, low=False)
    return low, high


def _pair(known: Any, kind: str) -> tuple[Any, Any] | None:
    if kind in _NUMBERS or kind in ("date", "timestamp", "timestamp_ntz"):
        return known.min_raw, known.max_raw
    if kind in _FLOATS:
        pair = known.min_raw, known.max_raw
        return None if any(isnan(each) for each in pair) else pair
    if kind == "string" or kind.startswith("decimal("):
        return known.min, known.max
    return None


def _shown(value: Any, kind: str, *, low: bool) -> Any:
    if kind in _NUMBERS:
        return value
    if kind in _FLOATS:
        return value if isfinite(value) else None
    if kind == "string":
        return _text(value, low)
    try:
        if kind == "date":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + timedelta(milliseconds=value // 1000)
            return moment.isoformat(timespec="milliseconds") + ("Z" if kind == "timestamp" else "")
    except OverflowError:
        return None
    # A JSON number with all its digits.
    return msgspec.Raw(format(value, "f").encode()) if isinstance(value, Decimal) else None


def _text(value: str, low: bool) -> str | None:
    if low or len(value) <= PREFIX:
        return value[:PREFIX]
    following = value[PREFIX]
    if following < _ASCII_LAST:
        return value[:PREFIX] + _ASCII_LAST
    return value[:PREFIX] + _LAST if following < _LAST else None


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _values(table: pa.Table, leaf: Leaf) -> Any:
    column = table[leaf.path[0]]
    return column if len(leaf.path) == 1 else pc.struct_field(column, list(leaf.path[1:]))
