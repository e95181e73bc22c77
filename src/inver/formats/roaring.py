"""Sets of row numbers in the portable 64-bit Roaring format.

A set is kept as one integer per block of 65 536 numbers, whose bits are the numbers that are in it:
union and difference are then one operation of Python each.

    u64 count of 32-bit bitmaps, then for each: u32 key (the high half of its numbers), and
    u32 cookie, sizes of containers, containers of 16-bit numbers (array, bitmap or runs)
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from sys import byteorder

_BLOCK = 1 << 16
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192
_COOKIE = 12346
_COOKIE_RUNS = 12347
_OFFSETS_FROM = 4
_MAX_ROW = (1 << 63) - 1


class BadBitmap(ValueError):
    """The bytes are no Roaring bitmap; the message says why."""


class RowSet:
    """Row numbers from 0 to 2^63 - 1."""

    __slots__ = ("_blocks",)

    def __init__(self, rows: Iterable[int] = ()) -> None:
        found: dict[int, bytearray] = {}
        for row in rows:
            if not 0 <= row <= _MAX_ROW:
                raise ValueError(f"{row} is no row number")
            block = found.get(row >> 16)
            if block is None:
                block = found[row >> 16] = bytearray(_BITMAP_BYTES)
            block[(row & 0xFFFF) >> 3] |= 1 << (row & 7)
        self._blocks = {key: int.from_bytes(block, "little") for key, block in found.items()}

    @classmethod
    def _of(cls, blocks: dict[int, int]) -> RowSet:
        made = cls()
        made._blocks = {key: bits for key, bits in blocks.items() if bits}
        return made

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._blocks.values())

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __contains__(self, row: int) -> bool:
        return bool(self._blocks.get(row >> 16, 0) >> (row & 0xFFFF) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSet) and self._blocks == other._blocks

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        for key in sorted(self._blocks):
            start = key << 16
            for place, byte in enumerate(self._blocks[key].to_bytes(_BITMAP_BYTES, "little")):
                if byte:
                    yield from (start + place * 8 + bit for bit in _BITS[byte])

    def __or__(self, other: RowSet) -> RowSet:
        keys = {*self._blocks, *other._blocks}
        return RowSet._of({key: self._blocks.get(key, 0) | other._blocks.get(key, 0) for key in keys})

    def __sub__(self, other: RowSet) -> RowSet:
        return RowSet._of({key: bits & ~other._blocks.get(key, 0) for key, bits in self._blocks.items()})

    def bitmap(self, rows: int) -> bytes:
        """A bit for each of the first `rows` rows, lowest bit first, as Arrow keeps truth values."""
        blocks = (self._blocks.get(key, 0) for key in range((rows + _BLOCK - 1) // _BLOCK))
        return b"".join(bits.to_bytes(_BITMAP_BYTES, "little") for bits in blocks)[: (rows + 7) // 8]

    def serialize(self) -> bytes:
        bitmaps: dict[int, dict[int, int]] = {}
        for key in sorted(self._blocks):
            bitmaps.setdefault(key >> 16, {})[key & 0xFFFF] = self._blocks[key]
        parts = [struct.pack("<Q", len(bitmaps))]
        for high, containers in bitmaps.items():
            parts += [struct.pack("<I", high), _serialized(containers)]
        return b"".join(parts)

    @classmethod
    def parse(cls, data: bytes) -> RowSet:
        """All of the bytes, or BadBitmap."""
        reader = _Reader(data)
        (count,) = reader.take("<Q")
        if count > 1 << 31:
            raise BadBitmap(f"it claims {count} bitmaps")
        blocks: dict[int, int] = {}
        before = -1
        for _ in range(count):
            (high,) = reader.take("<I")
            if not before < high < 1 << 31:
                raise BadBitmap("the keys of its bitmaps are not in order")
            before = high
            for key, bits in _containers(reader):
                blocks[high << 16 | key] = bits
        if reader.left:
            raise BadBitmap(f"{reader.left} bytes follow its end")
        made = cls()
        made._blocks = blocks
        return made


_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def bytes(self, length: int) -> bytes:
        if length > self.left:
            raise BadBitmap("it ends too early")
        self._at += length
        return self._data[self._at - length : self._at]

    def take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))


def _serialized(containers: dict[int, int]) -> bytes:
    sizes, offsets, bodies = [], [], []
    at = 8 + 8 * len(containers)
    for key, bits in containers.items():
        count = bits.bit_count()
        body = _body(bits, count)
        sizes.append(struct.pack("<HH", key, count - 1))
        offsets.append(struct.pack("<I", at))
        bodies.append(body)
        at += len(body)
    head = struct.pack("<II", _COOKIE, len(containers))
    return b"".join([head, *sizes, *offsets, *bodies])


def _body(bits: int, count: int) -> bytes:
    data = bits.to_bytes(_BITMAP_BYTES, "little")
    if count > _ARRAY_MAX:
        return data
    numbers = [place * 8 + bit for place, byte in enumerate(data) if byte for bit in _BITS[byte]]
    return struct.pack(f"<{count}H", *numbers)


def _containers(reader: _Reader) -> Iterator[tuple[int, int]]:
    (cookie,) = reader.take("<I")
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(reader.bytes((count + 7) // 8), "little")
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _COOKIE:
        (count,) = reader.take("<I")
        flags, has_offsets = 0, True
    else:
        raise BadBitmap(f"a bitmap begins with the unknown cookie {cookie}")
    if count > _BLOCK:
        raise BadBitmap(f"a bitmap claims {count} containers")
    sizes = [reader.take("<HH") for _ in range(count)]
    if any(one[0] >= two[0] for one, two in pairwise(sizes)):
        raise BadBitmap("the keys of its containers are not in order")
    if has_offsets:
        # Containers follow each other, so where they begin is known without being told.
        reader.bytes(4 * count)
    for number, (key, less_one) in enumerate(sizes):
        bits = _runs(reader) if flags >> number & 1 else _numbers(reader, less_one + 1)
        if bits.bit_count() != less_one + 1:
            raise BadBitmap("a container has another number of rows than it claims")
        yield key, bits


def _numbers(reader: _Reader, count: int) -> int:
    if count > _ARRAY_MAX:
        return int.from_bytes(reader.bytes(_BITMAP_BYTES), "little")
    numbers = array("H", reader.bytes(2 * count))
    if byteorder == "big":
        numbers.byteswap()
    block = bytearray(_BITMAP_BYTES)
    for number in numbers:
        block[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(block, "little")


def _runs(reader: _Reader) -> int:
    (count,) = reader.take("<H")
    bits = 0
    for _ in range(count):
        start, more = reader.take("<HH")
        if start + more >= _BLOCK:
            raise BadBitmap("a run ends behind its container")
        bits |= ((1 << (more + 1)) - 1) << start
    return bits
