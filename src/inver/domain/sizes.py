"""Bins of file sizes: four to each doubling, so that three quarters of a power of two is a boundary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MOST = 2**63 - 1
Bins = Mapping[int, tuple[int, int]]
"""Files and bytes by bin."""


def bin_of(size: int) -> int:
    bits = size.bit_length()
    return bits << 2 | (size >> bits - 3 & 3) if bits > 2 else size


def floor_of(place: int) -> int:
    """The smallest size in a bin."""
    if place < 12:
        return min(place, 4)
    return (4 | place & 3) << (place >> 2) - 3


def flat(bins: Bins) -> tuple[tuple[int, int, int], ...]:
    return tuple([(place, files, total) for place, (files, total) in bins.items() if files or total])


def merged(bins: Bins, changes: Iterable[tuple[int, int, int]]) -> dict[int, tuple[int, int]] | None:
    """None when a bin would hold less than nothing, or more than can be: the numbers do not fit together."""
    found = dict(bins)
    for place, files, total in changes:
        known = found.get(place, (0, 0))
        files, total = known[0] + files, known[1] + total
        if not 0 <= total <= MOST or not 0 <= files <= MOST or (total and not files):
            return None
        if files:
            found[place] = files, total
        else:
            found.pop(place, None)
    return found


def below(bins: Bins, limit: int) -> tuple[int, int]:
    """Files and bytes of the bins that lie wholly below `limit`."""
    files = total = 0
    for place, (count, size) in bins.items():
        if floor_of(place + 1) <= limit:
            files += count
            total += size
    return files, total
