"""Avro object container files, as far as Iceberg's writers use them.

The schema in a file's header is compiled once into functions that go over the bytes; fields that
nobody needs are passed over without making values of them. Fields are known by their `field-id`,
which is what Iceberg resolves schemas by: a record becomes a dict by id.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from inver.errors import Invalid
from inver.formats.avro_codecs import MAX_BLOCK, codec

MAGIC = b"Obj\x01"
SYNC = 16
MAX_DEPTH = 32

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Skip: TypeAlias = Callable[[bytes, int], int]


class Damaged(Invalid):
    """The bytes are not what they must be."""


class Container:
    """`unwanted` are ids of fields to pass over."""

    def __init__(self, data: bytes, unwanted: frozenset[int] = frozenset()) -> None:
        if data[:4] != MAGIC:
            raise Damaged("the file is not an Avro container")
        try:
            self.metadata, at = _header(data)
            self._read = _Compiler(unwanted).reader(msgspec.json.decode(self.metadata["avro.schema"]), 0)
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise Damaged(f"the header of the Avro file cannot be read: {error}") from None
        self._unpack = codec(self.metadata.get("avro.codec", b"null").decode("latin-1"))
        self._sync = data[at : at + SYNC]
        self._data = data
        self._start = at + SYNC

    def records(self, first: int = 0) -> Iterator[Any]:
        """From the record with this number on. Blocks that lie before it are not unpacked."""
        data, at, sync = self._data, self._start, self._sync
        try:
            while at < len(data):
                count, at = _long(data, at)
                size, at = _long(data, at)
                end = at + size
                if count < 0 or size < 0 or data[end : end + SYNC] != sync:
                    raise Damaged("a block of the Avro file is cut off")
                if first < count:
                    yield from islice(self._block(self._unpack(data[at:end]), count), first, None)
                first, at = max(first - count, 0), end + SYNC
        except (IndexError, ValueError, struct.error, zlib.error, OSError, lzma.LZMAError) as error:
            raise Damaged(f"a block of the Avro file is damaged: {error}") from None

    def _block(self, block: bytes, count: int) -> Iterator[Any]:
        read, at = self._read, 0
        if count > len(block):
            raise Damaged("a block of the Avro file has a wrong length")
        for _ in range(count):
            record, at = read(block, at)
            yield record
        if at != len(block):
            raise Damaged("a block of the Avro file is damaged")


class _Compiler:
    def __init__(self, unwanted: frozenset[int]) -> None:
        self._unwanted = unwanted
        self._named: dict[str, Mapping[str, Any]] = {}

    def reader(self, schema: Any, depth: int) -> Read:
        if depth > MAX_DEPTH:
            raise ValueError("the schema is nested too deeply")
        schema, kind = self._resolve(schema)
        inner = depth + 1
        match kind:
            case "union":
                return _union([self.reader(each, inner) for each in schema])
            case "record":
                return self._record(schema, inner)
            case "array" if schema.get("logicalType") == "map":
                key, value = self._pair(schema["items"])
                kinds = self._resolve(key)[1], self._resolve(value)[1]
                return _PAIRS.get(kinds) or _pairs(self.reader(key, inner), self.reader(value, inner))
            case "array":
                return _array(self.reader(schema["items"], inner))
            case "map":
                return _pairs(_string, self.reader(schema["values"], inner))
            case "fixed":
                read = _fixed(int(schema["size"]))
            case _:
                read = _PRIMITIVES[kind]
        return _decimal(read) if schema.get("logicalType") == "decimal" else read

    def _skipper(self, schema: Any, depth: int) -> Skip:
        schema, kind = self._resolve(schema)
        match kind:
            case "union":
                return _skip_union([self._skipper(each, depth + 1) for each in schema])
            case "int" | "long":
                return _skip_long
            case "bytes" | "string":
                return _skip_bytes
            case "array" if schema.get("logicalType") == "map":
                key, value = self._pair(schema["items"])
                kinds = self._resolve(key)[1], self._resolve(value)[1]
                if kinds in _PAIRS:
                    return _skip_counts if _PAIRS[kinds] is _counts else _skip_bounds
                return _skip_pairs(self._skipper(key, depth + 1), self._skipper(value, depth + 1))
        read = self.reader(schema, depth)
        return lambda data, at: read(data, at)[1]

    def _record(self, schema: Mapping[str, Any], depth: int) -> Read:
        steps: list[tuple[int | None, Any]] = []
        for field in schema["fields"]:
            field_id = field.get("field-id")
            if field_id is None or field_id in self._unwanted:
                steps.append((None, self._skipper(field["type"], depth)))
            else:
                steps.append((field_id, self.reader(field["type"], depth)))

        def read(data: bytes, at: int) -> tuple[dict[int, Any], int]:
            record = {}
            for field_id, step in steps:
                if field_id is None:
                    at = step(data, at)
                else:
                    record[field_id], at = step(data, at)
            return record, at

        return read

    def _resolve(self, schema: Any) -> tuple[Any, str]:
        """A schema and its kind. A type that was given a name is meant wherever the name stands."""
        if isinstance(schema, list):
            return schema, "union"
        if isinstance(schema, str):
            schema = self._named.get(schema) or {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._resolve(kind)
        if "name" in schema:
            self._named[schema["name"]] = schema
        return schema, kind

    def _pair(self, items: Any) -> tuple[Any, Any]:
        """Avro's own maps have texts as keys, so Iceberg writes the others as arrays of pairs."""
        key, value = self._resolve(items)[0]["fields"]
        return key["type"], value["type"]


def _header(data: bytes) -> tuple[dict[str, bytes], int]:
    return _pairs(_string, _bytes)(data, 4)


# --- values ---


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number has too many bytes")
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("a text has a wrong length")
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes(data, at)
    return found.decode(), at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """How many items follow; 0 at the end. A negative count says that the size in bytes is next."""
    count, at = _long(data, at)
    if count < 0:
        count = -count
        _, at = _long(data, at)
    if count > len(data):
        raise ValueError("an array has a wrong length")
    return count, at


def _fixed(size: int) -> Read:
    if not 0 <= size <= MAX_BLOCK:
        raise ValueError("a type has a wrong size")

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise ValueError("a value is cut off")
        return data[at : at + size], at + size

    return read


def _decimal(read: Read) -> Read:
    """As the whole number of its smallest unit; the scale is known from the table's schema."""

    def read_decimal(data: bytes, at: int) -> tuple[int, int]:
        found, at = read(data, at)
        return int.from_bytes(found, "big", signed=True), at

    return read_decimal


def _union(branches: list[Read]) -> Read:
    if len(branches) == 2 and branches[0] is _null:
        present = branches[1]

        def optional(data: bytes, at: int) -> tuple[Any, int]:
            return present(data, at + 1) if data[at] == 2 else (None, _no_value(data, at))

        return optional

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        if branch < 0:
            raise ValueError("a union has a wrong branch")
        return branches[branch](data, at)

    return read


def _no_value(data: bytes, at: int) -> int:
    if data[at] != 0:
        raise ValueError("a union has a wrong branch")
    return at + 1


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                found, at = item(data, at)
                items.append(found)
            count, at = _count(data, at)
        return items, at

    return read


def _pairs(key: Read, value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
        pairs: dict[Any, Any] = {}
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                found, at = key(data, at)
                pairs[found], at = value(data, at)
            count, at = _count(data, at)
        return pairs, at

    return read


def _counts(data: bytes, at: int) -> tuple[dict[int, int], int]:
    """Numbers by column. These maps are most of a manifest, so as little as possible is called here."""
    pairs: dict[int, int] = {}
    count, at = _count(data, at)
    while count:
        for _ in range(count):
            key = data[at]
            at += 1
            if key & 0x80:
                key, at = _long(data, at - 1)
            else:
                key = (key >> 1) ^ -(key & 1)
            value = data[at]
            at += 1
            if value & 0x80:
                pairs[key], at = _long(data, at - 1)
            else:
                pairs[key] = (value >> 1) ^ -(value & 1)
        count, at = _count(data, at)
    return pairs, at


def _bounds(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Bytes by column."""
    pairs: dict[int, bytes] = {}
    count, at = _count(data, at)
    while count:
        for _ in range(count):
            key = data[at]
            at += 1
            if key & 0x80:
                key, at = _long(data, at - 1)
            else:
                key = (key >> 1) ^ -(key & 1)
            size = data[at]
            if size & 0x81:
                pairs[key], at = _bytes(data, at)
            else:
                end = at + 1 + (size >> 1)
                pairs[key] = data[at + 1 : end]
                at = end
        count, at = _count(data, at)
    return pairs, at


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _double(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<d", data, at)[0], at + 8


def _float(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<f", data, at)[0], at + 4


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


_PRIMITIVES: Mapping[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
    "enum": _long,
}
_PAIRS: Mapping[tuple[str, str], Read] = {("int", "long"): _counts, ("int", "bytes"): _bounds}


# --- what is passed over ---


def _skip_long(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _skip_counts(data: bytes, at: int) -> int:
    count, at = _count(data, at)
    while count:
        for _ in range(2 * count):
            while data[at] & 0x80:
                at += 1
            at += 1
        count, at = _count(data, at)
    return at


def _skip_bounds(data: bytes, at: int) -> int:
    count, at = _count(data, at)
    while count:
        for _ in range(count):
            while data[at] & 0x80:
                at += 1
            size = data[at + 1]
            at = _bytes(data, at + 1)[1] if size & 0x81 else at + 2 + (size >> 1)
        count, at = _count(data, at)
    return at


def _skip_bytes(data: bytes, at: int) -> int:
    return _bytes(data, at)[1]


def _skip_union(branches: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = _long(data, at)
        if branch < 0:
            raise ValueError("a union has a wrong branch")
        return branches[branch](data, at)

    return skip


def _skip_pairs(key: Skip, value: Skip) -> Skip:
    def skip(data: bytes, at: int) -> int:
        count, at = _count(data, at)
        while count:
            for _ in range(count):
                at = value(data, key(data, at))
            count, at = _count(data, at)
        return at

    return skip
