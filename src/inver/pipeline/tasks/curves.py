"""Space-filling curves: rows that are near in several columns get places that are near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from inver.domain.care import Curve

_ALONE = 1 << 16
_TOGETHER = 1 << 10
_PLACES = 62
_TEXT = 32


def ranges_of(columns: int) -> int:
    """Into how many ranges each of so many columns is cut: all their numbers must fit into one."""
    return _ALONE if columns == 1 else 1 << min(_TOGETHER.bit_length() - 1, _PLACES // columns)


def comparable(values: Any) -> tuple[Any, Any]:
    """A column as an array that can be sorted, and where it has no value."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    missing = values.is_null().to_numpy(zero_copy_only=False)
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        short = pc.fill_null(pc.binary_slice(values.cast(pa.binary()), 0, _TEXT), b"")
        return np.array(short.to_numpy(zero_copy_only=False), dtype=f"S{_TEXT}"), missing
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False), missing


def bounds(sample: Any, ranges: int) -> Any:
    """Where the ranges of a column begin, so that each has about as many rows of the sample."""
    found, missing = comparable(sample)
    ordered = np.sort(found[~missing])
    if not len(ordered):
        return ordered
    places = np.linspace(0, len(ordered) - 1, min(ranges, len(ordered)) + 1).astype(np.int64)[1:-1]
    return np.unique(ordered[places])


def places(columns: Sequence[Any], cuts: Sequence[Any], curve: Curve = Curve.HILBERT) -> pa.Array:
    """The place of each row on the curve."""
    ranks = []
    for values, cut in zip(columns, cuts, strict=True):
        found, missing = comparable(values)
        rank: Any = np.searchsorted(cut, found.astype(cut.dtype, copy=False), side="right").astype(np.int64)
        rank[missing] = 0
        ranks.append(rank)
    if len(ranks) == 1:
        return pa.array(ranks[0])
    bits = ranges_of(len(ranks)).bit_length() - 1
    return pa.array(hilbert(ranks, bits) if curve is Curve.HILBERT else interleaved(ranks, bits))


def hilbert(columns: Sequence[Any], bits: int) -> Any:
    """Skilling's transformation, on whole arrays of numbers below 2 ** bits."""
    axes = [column.astype(np.int64, copy=True) for column in columns]
    count = len(axes)
    bit = 1 << (bits - 1)
    while bit > 1:
        below = bit - 1
        for axis in range(count):
            is_set = (axes[axis] & bit) != 0
            swapped = np.where(is_set, 0, (axes[0] ^ axes[axis]) & below)
            axes[0] = np.where(is_set, axes[0] ^ below, axes[0]) ^ swapped
            axes[axis] = axes[axis] ^ swapped if axis else axes[0]
        bit >>= 1
    return interleaved(_gray(axes, bits), bits)


def _gray(axes: list[Any], bits: int) -> list[Any]:
    for axis in range(1, len(axes)):
        axes[axis] = axes[axis] ^ axes[axis - 1]
    turned = np.zeros_like(axes[0])
    bit = 1 << (bits - 1)
    while bit > 1:
        turned = np.where((axes[-1] & bit) != 0, turned ^ (bit - 1), turned)
        bit >>= 1
    return [axis ^ turned for axis in axes]


def interleaved(axes: Sequence[Any], bits: int) -> Any:
    """The bits of all numbers in turn, which is the Z-order."""
    place = np.zeros_like(axes[0])
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            place = (place << 1) | ((axis >> bit) & 1)
    return place
