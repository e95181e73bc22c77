"""What a Lance manifest says, read from its protobuf without a library of Lance.

A manifest file ends with the position of its message, two format numbers and a magic word. The
message may point to two more of the same file: the indices and the transaction that made it.
Fields that are not looked at are skipped, so newer writers are understood as far as they go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from inver.domain.lance import DataFile, Fragment, Index, Manifest
from inver.errors import Invalid

MAGIC = b"LANC"
# Features whose absence from this reader changes neither schema nor fragments. With any other one,
# what is read of the fragments could be less than there is.
_KNOWN_FLAGS = 0x1FF
_OPERATIONS = {
    100: "Append",
    101: "Delete",
    102: "Overwrite",
    103: "CreateIndex",
    104: "Rewrite",
    105: "Merge",
    106: "Restore",
    107: "ReserveFragments",
    108: "Update",
    109: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
    112: "UpdateMemWalState",
    113: "Clone",
    114: "UpdateBases",
    115: "DataOverlay",
    116: "AppendFragmentReuseTransitions",
}
Value = int | bytes
# The next version of a table has the same schema and most of the same fragments.
_SCHEMAS, _FRAGMENTS, _SMALL = 64, 4_096, 1_024


def read_manifest(data: bytes) -> Manifest:
    """Invalid if the bytes are no manifest."""
    try:
        return _read(data)
    except (IndexError, ValueError, UnicodeDecodeError, TypeError) as error:
        raise Invalid(f"the file is not a Lance manifest: {error}", field="manifest_path") from None


def _read(data: bytes) -> Manifest:
    if len(data) < 16 or data[-4:] != MAGIC:
        raise ValueError("it does not end with LANC")
    found: dict[str, Any] = {}
    fields: list[bytes] = []
    fragments: list[Fragment] = []
    metadata: dict[str, str] = {}
    writer = b""
    for number, value in _fields(_section(data, int.from_bytes(data[-16:-8], "little", signed=True))):
        match number:
            case 1:
                fields.append(_bytes(value))
            case 2:
                message = _bytes(value)
                known = _known_fragment(message) if len(message) <= _SMALL else _fragment(message)
                fragments.append(known)
            case 3:
                found["version"] = _int(value)
            case 6:
                found["indices"] = _indices(_section(data, _int(value)))
            case 7:
                found["timestamp"] = _timestamp(_bytes(value))
            case 9:
                found["reader_flags"] = _int(value)
            case 10:
                found["writer_flags"] = _int(value)
            case 12:
                found["transaction"] = _bytes(value).decode()
            case 13:
                writer = _bytes(value)
            case 19:
                key, text = _entry(_bytes(value))
                metadata[key] = text
            case 20:
                found["branch"] = _bytes(value).decode()
            case 21:
                found["operation"] = _operation(_section(data, _int(value)))
    if "version" not in found:
        raise ValueError("it has no version")
    understood = found.get("reader_flags", 0) & ~_KNOWN_FLAGS == 0
    schema, columns, digest = _known_schema(tuple(fields))
    return Manifest(
        **found,
        writer="/".join(_bytes(part).decode() for number, part in _fields(writer) if number in (1, 2)),
        fragments=tuple(fragments) if understood else None,
        schema=schema,
        digest=digest,
        columns=columns,
        metadata=metadata,
    )


def _section(data: bytes, start: int) -> bytes:
    if start < 0 or start + 4 > len(data):
        raise ValueError("a section lies outside the file")
    end = start + 4 + int.from_bytes(data[start : start + 4], "little")
    if end > len(data):
        raise ValueError("a section ends outside the file")
    return data[start + 4 : end]


def _fragment(message: bytes) -> Fragment:
    number = rows = deleted = 0
    files: list[DataFile] = []
    for field, value in _fields(message):
        if field == 1:
            number = _int(value)
        elif field == 2:
            inner = dict(_fields(_bytes(value)))
            size = inner.get(6)
            files.append(DataFile(_bytes(inner.get(1, b"")).decode(), None if size is None else _int(size)))
        elif field == 3:
            deleted = _int(dict(_fields(_bytes(value))).get(4, 0))
        elif field == 4:
            rows = _int(value)
    return Fragment(number, rows, deleted, tuple(files))


_known_fragment = lru_cache(_FRAGMENTS)(_fragment)


def _indices(message: bytes) -> tuple[Index, ...]:
    found = []
    for number, value in _fields(message):
        if number != 1:
            continue
        fields: list[int] = []
        inner: dict[int, Value] = {}
        for field, part in _fields(_bytes(value)):
            if field == 2:
                fields += _numbers(part)
            else:
                inner[field] = part
        raw = _bytes(dict(_fields(_bytes(inner.get(1, b"")))).get(1, b""))
        created = inner.get(8)
        found.append(
            Index(
                uuid=str(UUID(bytes=raw)),
                name=_bytes(inner.get(3, b"")).decode(),
                fields=tuple(fields),
                version=_int(inner.get(4, 0)),
                created_at=None if created is None else _int(created),
            )
        )
    return tuple(found)


def _operation(message: bytes) -> str | None:
    for number, _ in _fields(message):
        if number in _OPERATIONS:
            return _OPERATIONS[number]
    return None


def _timestamp(message: bytes) -> int:
    parts = dict(_fields(message))
    return _int(parts.get(1, 0)) * 1000 + _int(parts.get(2, 0)) // 1_000_000


# --- the schema ---


class _Field:
    """A field of the schema; its children name it as their parent."""

    def __init__(self, message: bytes) -> None:
        parts: dict[int, Value] = {}
        self.metadata: dict[str, str] = {}
        for number, value in _fields(message):
            if number == 10:
                key, text = _entry(_bytes(value))
                self.metadata[key] = text
            else:
                parts[number] = value
        self.name = _bytes(parts.get(2, b"")).decode()
        self.id = _signed(parts.get(3, 0))
        self.parent = _signed(parts.get(4, 0))
        self.logical = _bytes(parts.get(5, b"")).decode()
        self.nullable = bool(_int(parts.get(6, 0)))


@lru_cache(_SCHEMAS)
def _known_schema(messages: tuple[bytes, ...]) -> tuple[dict[str, Any], dict[int, str], str]:
    schema, columns = _schema([_Field(message) for message in messages])
    return schema, columns, hashlib.sha256(msgspec.json.encode(schema)).hexdigest()


def _schema(fields: list[_Field]) -> tuple[dict[str, Any], dict[int, str]]:
    """The JSON form of the Arrow schema, and the path of each field by its id."""
    children: dict[int, list[_Field]] = {}
    for field in fields:
        children.setdefault(field.parent, []).append(field)
    columns: dict[int, str] = {}

    def shown(field: _Field, above: str, depth: int) -> dict[str, Any]:
        if depth > 64:
            raise ValueError("its schema is nested too deeply")
        columns[field.id] = path = f"{above}.{field.name}" if above else field.name
        below = [shown(child, path, depth + 1) for child in children.get(field.id, ())]
        made = {"name": field.name, "type": _type(field.logical, below), "nullable": field.nullable}
        return {**made, "metadata": field.metadata} if field.metadata else made

    return {"fields": [shown(field, "", 0) for field in children.get(-1, ())]}, columns


def _type(logical: str, below: list[dict[str, Any]]) -> dict[str, Any]:
    name, _, rest = logical.partition(":")
    if name == "fixed_size_list":
        inner, _, length = rest.rpartition(":")
        item = below[0]["type"] if below else _type(inner, [])
        fields = [{"name": "item", "type": item, "nullable": True}]
        return {"type": name, "fields": fields, "length": int(length)}
    if name == "fixed_size_binary":
        return {"type": name, "length": int(rest)}
    if name.endswith(".struct"):
        name = name.removesuffix(".struct")
    if below:
        return {"type": name, "fields": below}
    return {"type": logical}


# --- the wire format of protobuf ---


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        value: Value
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            value = message[at : at + size]
            at += size
        elif kind == 1:
            value = message[at : at + 8]
            at += 8
        elif kind == 5:
            value = message[at : at + 4]
            at += 4
        else:
            raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("a field ends outside its message")
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = message[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


def _numbers(value: Value) -> list[int]:
    """A repeated number: one by itself, or many packed."""
    if isinstance(value, int):
        return [_signed(value)]
    found = []
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _entry(message: bytes) -> tuple[str, str]:
    parts = dict(_fields(message))
    return _bytes(parts.get(1, b"")).decode(), _bytes(parts.get(2, b"")).decode("utf-8", "replace")


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError("a number was expected")
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("bytes were expected")
    return value


def _signed(value: Value) -> int:
    number = _int(value)
    return number - 2**64 if number >= 2**63 else number
