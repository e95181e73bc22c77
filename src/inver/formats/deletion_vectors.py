"""Deletion vectors: which rows of a data file are deleted.

    payload   u32 magic, little endian; a 64-bit Roaring bitmap
    file      a version byte, 1; then vectors, each: u32 size of the payload, payload, u32 CRC-32 of
              the payload, both numbers big endian. A descriptor's offset points to the size.

A vector that is not exactly what its descriptor says is refused: with a wrong one, deleted rows
would come back, or live ones disappear.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inver.domain.delta_actions import DeletionVector, decoded
from inver.errors import Invalid
from inver.formats.roaring import BadBitmap, RowSet

MAGIC = 1681511377
NATIVE_MAGIC = 1681511376
FILE_VERSION = 1
INLINE = "i"
RELATIVE = "u"
ABSOLUTE = "p"

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH = 20
_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Place:
    """Where a vector lies: a path below the table, or a location of its own when `absolute`."""

    path: str
    absolute: bool
    offset: int
    length: int
    """Of everything that must be read at the offset."""


def place(vector: DeletionVector) -> Place | None:
    """None for a vector that its descriptor contains."""
    length = vector.size_in_bytes + 8
    offset = 1 if vector.offset is None else vector.offset
    if vector.storage_type == INLINE:
        return None
    if vector.storage_type == RELATIVE:
        return Place(relative_path(vector.path_or_inline_dv), False, offset, length)
    if vector.storage_type == ABSOLUTE:
        return Place(decoded(vector.path_or_inline_dv), True, offset, length)
    raise _bad(vector, f"its storage type {vector.storage_type!a} is unknown")


def relative_path(text: str) -> str:
    """The path of a vector's file: a folder, possibly none, and an id in 20 characters."""
    folder, name = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    if len(name) != _UUID_LENGTH:
        raise Invalid(f"{text!a} names no file of deletion vectors", field="deletionVector")
    file = f"deletion_vector_{uuid.UUID(bytes=from_z85(name, 16))}.bin"
    return f"{folder}/{file}" if folder else file


def parse_inline(vector: DeletionVector) -> RowSet:
    return _rows(vector, from_z85(vector.path_or_inline_dv, vector.size_in_bytes))


def parse_stored(vector: DeletionVector, data: bytes) -> RowSet:
    """Of the bytes that lie at the vector's place."""
    if len(data) != vector.size_in_bytes + 8:
        raise _bad(vector, f"its file has {len(data)} bytes for it and not {vector.size_in_bytes + 8}")
    size, payload = struct.unpack(">I", data[:4])[0], data[4:-4]
    if size != vector.size_in_bytes:
        raise _bad(vector, f"its file says {size} bytes, and its descriptor {vector.size_in_bytes}")
    if struct.unpack(">I", data[-4:])[0] != zlib.crc32(payload):
        raise _bad(vector, "its checksum is wrong")
    return _rows(vector, payload)


def check_file(head: bytes) -> None:
    """The first byte of a file of vectors."""
    if head[:1] != bytes([FILE_VERSION]):
        raise Invalid(
            f"a file of deletion vectors has version {head[:1]!r} and not {FILE_VERSION}",
            field="deletionVector",
        )


def inline(rows: RowSet | Iterable[int]) -> DeletionVector:
    rows = rows if isinstance(rows, RowSet) else RowSet(rows)
    payload = _payload(rows)
    return DeletionVector(INLINE, to_z85(payload), len(payload), len(rows))


def file_of(
    vectors: Sequence[RowSet], name: uuid.UUID, folder: str = ""
) -> tuple[str, bytes, list[DeletionVector]]:
    """The path and the bytes of a file that holds these vectors, and their descriptors."""
    data = bytearray([FILE_VERSION])
    text = folder + to_z85(name.bytes)
    descriptors = []
    for rows in vectors:
        payload = _payload(rows)
        descriptors.append(DeletionVector(RELATIVE, text, len(payload), len(rows), len(data)))
        data += struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    return relative_path(text), bytes(data), descriptors


def changed_rows(before: RowSet | None, after: RowSet | None) -> tuple[RowSet, RowSet]:
    """Rows that a file has lost and rows that it has got back, when its vector changes."""
    one, two = before or RowSet(), after or RowSet()
    return two - one, one - two


def to_z85(data: bytes) -> str:
    data += bytes(-len(data) % 4)
    text: list[str] = []
    for (number,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            number, digit = divmod(number, 85)
            digits.append(_Z85[digit])
        text.extend(reversed(digits))
    return "".join(text)


def from_z85(text: str, length: int) -> bytes:
    """The first `length` bytes of what the text encodes; the rest of it must be padding."""
    if len(text) % 5 or not 0 <= len(text) // 5 * 4 - length < 4:
        raise Invalid(f"{len(text)} characters do not encode {length} bytes", field="deletionVector")
    data = bytearray()
    try:
        for start in range(0, len(text), 5):
            number = 0
            for character in text[start : start + 5]:
                number = number * 85 + _Z85_VALUES[character]
            data += struct.pack(">I", number)
    except (KeyError, struct.error):
        raise Invalid(f"{text!a} is no Base85 text", field="deletionVector") from None
    return bytes(data[:length])


def _payload(rows: RowSet) -> bytes:
    return struct.pack("<I", MAGIC) + rows.serialize()


def _rows(vector: DeletionVector, payload: bytes) -> RowSet:
    if not 4 <= len(payload) <= _MAX_BYTES:
        raise _bad(vector, f"{len(payload)} bytes cannot be one")
    magic = struct.unpack("<I", payload[:4])[0]
    if magic == NATIVE_MAGIC:
        raise _bad(vector, "it is in the native format of an old writer, which no specification describes")
    if magic != MAGIC:
        raise _bad(vector, f"it begins with {magic} and not with {MAGIC}")
    try:
        rows = RowSet.parse(payload[4:])
    except BadBitmap as error:
        raise _bad(vector, str(error)) from None
    if len(rows) != vector.cardinality:
        raise _bad(vector, f"it has {len(rows)} rows, and its descriptor says {vector.cardinality}")
    return rows


def _bad(vector: DeletionVector, problem: str) -> Invalid:
    where = "an inline deletion vector" if vector.storage_type == INLINE else f"deletion vector {vector.id!a}"
    return Invalid(f"{where} is unusable: {problem}", field="deletionVector")
