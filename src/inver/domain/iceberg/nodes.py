"""Reading decoded JSON strictly; every refusal names its field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from inver.domain.iceberg.failures import IllegalArgument
from inver.errors import Invalid

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_any(raw: bytes | msgspec.Raw, what: str) -> Any:
    try:
        return _decode_any(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IllegalArgument(f"Cannot parse {what}: {error}", field=what) from None


def decode_as(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, what: str) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IllegalArgument(f"Cannot parse {what}: {error}", field=what) from None


def members(raw: bytes | msgspec.Raw, what: str) -> dict[str, msgspec.Raw]:
    """The fields of an object, each as the bytes it was written in."""
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IllegalArgument(f"Cannot parse {what}: {error}", field=what) from None


def elements(raw: bytes | msgspec.Raw, what: str) -> list[msgspec.Raw]:
    try:
        return _decode_array(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise IllegalArgument(f"Cannot parse {what}: {error}", field=what) from None


def with_members(raw: bytes | msgspec.Raw, what: str, **changed: msgspec.Raw) -> bytes:
    """The same object with some fields set; names are given with underscores. The others keep their bytes."""
    fields = members(raw, what)
    for name, value in changed.items():
        fields[name.replace("_", "-")] = value
    return encode(fields)


def number(value: int) -> msgspec.Raw:
    return msgspec.Raw(b"%d" % value)


def text(value: str) -> msgspec.Raw:
    return msgspec.Raw(encode(value))


def rewritten(
    raw: bytes | msgspec.Raw, what: str, id_name: str, id: int, fields: Iterable[Mapping[str, msgspec.Raw]]
) -> bytes:
    """A spec or an order as it was sent, with the ids and spellings that it has here."""
    node = members(raw, what)
    node[id_name] = number(id)
    written = [members(each, what) for each in elements(node["fields"], what)]
    for field, out in zip(fields, written, strict=True):
        out.update(field)
    node["fields"] = msgspec.Raw(encode(written))
    return encode(node)


def get(node: Mapping[str, Any], name: str) -> Any:
    value = node.get(name)
    if value is None:
        raise IllegalArgument(f"Cannot parse missing field: {name}", field=name)
    return value


def get_int(node: Mapping[str, Any], name: str) -> int:
    return _whole(node, name, INT_MAX, "int", "an integer")


def get_long(node: Mapping[str, Any], name: str) -> int:
    return _whole(node, name, LONG_MAX, "long", "a long")


def get_str(node: Mapping[str, Any], name: str) -> str:
    return _typed(node, name, str, "string", "a string")


def get_bool(node: Mapping[str, Any], name: str) -> bool:
    return _typed(node, name, bool, "boolean", "a boolean")


def _typed(node: Mapping[str, Any], name: str, kind: type[T], called: str, wanted: str) -> T:
    if name not in node:
        raise IllegalArgument(f"Cannot parse missing {called}: {name}", field=name)
    value = node[name]
    if type(value) is not kind:
        raise IllegalArgument(f"Cannot parse to {wanted} value: {name}: {shown(value)}", field=name)
    return value


def _whole(node: Mapping[str, Any], name: str, most: int, called: str, wanted: str) -> int:
    value = _typed(node, name, int, called, wanted)
    if not -most - 1 <= value <= most:
        raise IllegalArgument(f"Cannot parse to {wanted} value: {name}: {shown(value)}", field=name)
    return value


def get_objects(node: Mapping[str, Any], name: str, what: str) -> list[dict[str, Any]]:
    value = get(node, name)
    if type(value) is not list or any(type(each) is not dict for each in value):
        raise IllegalArgument(f"Cannot parse {what}: {name} must be an array of objects", field=name)
    return value


def get_map(node: Mapping[str, Any], name: str) -> dict[str, str]:
    value = get(node, name)
    if type(value) is not dict or any(type(each) is not str for each in value.values()):
        raise IllegalArgument(f"Cannot parse string map: {name}", field=name)
    return value


def shown(value: Any) -> str:
    """A value as it may stand in a message: JSON, and not longer than a line."""
    try:
        written = encode(value).decode()
    except RecursionError:
        written = type(value).__name__
    return written if len(written) <= 100 else written[:99] + "\N{HORIZONTAL ELLIPSIS}"


def listed(values: Iterable[object]) -> str:
    return "[" + ", ".join(str(value) for value in values) + "]"


def refuse_nul(body: bytes) -> None:
    """No name, property or path may hold a NUL: not every store can keep one."""
    if b"\\u0000" in body and _has_nul(decode_any(body, "the request")):
        raise Invalid("the request contains a NUL character")


def _has_nul(value: Any) -> bool:
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            if "\x00" in value:
                return True
        elif isinstance(value, dict):
            left += value
            left += value.values()
        elif isinstance(value, list):
            left += value
    return False
