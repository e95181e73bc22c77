"""Bodies of requests as types. What does not fit is refused with the name of its field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import members, refuse_nul
from inver.domain.iceberg.updates import REQUIREMENTS, UPDATES, AssertCreate, Requirement, Update, union_of
from inver.errors import Invalid

Name = Annotated[str, Meta(min_length=1)]
T = TypeVar("T")


class Identifier(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    name: Name


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    identifier: Identifier | None = None
    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()
    care: str | None = None
    """The run of care that asks, if one does; see `yielding`."""

    @property
    def is_create(self) -> bool:
        return any(type(each) is AssertCreate for each in self.requirements)


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    schema: Raw
    location: str | None = None
    partition_spec: Raw | None = None
    write_order: Raw | None = None
    stage_create: bool = False
    properties: dict[str, str] = {}


class CreateView(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    name: Name
    schema: Raw
    view_version: Raw
    location: str | None = None
    properties: dict[str, str] = {}


class _CreateTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """As it is sent: what is raw may be null, which no union with it can say."""

    name: Name
    schema: Raw
    location: str | None = None
    partition_spec: Raw = Raw(b"null")
    write_order: Raw = Raw(b"null")
    stage_create: bool = False
    properties: dict[str, str] | None = None


class _Commit(msgspec.Struct, frozen=True):
    """With the types of all updates and requirements spelled as the specification spells them."""

    updates: list[union_of(UPDATES)]  # type: ignore[valid-type]
    requirements: list[union_of(REQUIREMENTS)] | None = None  # type: ignore[valid-type]
    identifier: Identifier | None = None


class _Loose(msgspec.Struct, frozen=True):
    updates: list[Raw]
    requirements: list[Raw] | None = None
    identifier: Identifier | None = None


class _Transaction(msgspec.Struct, frozen=True, rename="kebab"):
    table_changes: Annotated[list[Raw], Meta(min_length=1)]


_commit = msgspec.json.Decoder(_Commit).decode
_loose = msgspec.json.Decoder(_Loose).decode
_transaction = msgspec.json.Decoder(_Transaction).decode
_create_table = msgspec.json.Decoder(_CreateTable).decode
_create_view = msgspec.json.Decoder(CreateView).decode
_update_decoders = {tag: msgspec.json.Decoder(each) for tag, each in UPDATES.items()}
_requirement_decoders = {tag: msgspec.json.Decoder(each) for tag, each in REQUIREMENTS.items()}


def decode_commit(body: bytes) -> CommitRequest:
    """One commit to a table or a view. Requirements may be missing, updates may not."""
    refuse_nul(body)
    return _decode_commit(body)


def decode_transaction(body: bytes) -> tuple[CommitRequest, ...]:
    """The changes of a transaction over several tables; each says which table it is for."""
    refuse_nul(body)
    changes = tuple(_decode_commit(bytes(raw)) for raw in _checked(_transaction, body).table_changes)
    for index, change in enumerate(changes):
        if change.identifier is None:
            raise Invalid("Invalid table change: identifier is missing", field=f"table-changes[{index}]")
    return changes


def decode_create_table(body: bytes) -> CreateTable:
    refuse_nul(body)
    sent = _checked(_create_table, body)
    return CreateTable(
        name=sent.name,
        schema=sent.schema,
        location=sent.location,
        partition_spec=_given(sent.partition_spec),
        write_order=_given(sent.write_order),
        stage_create=sent.stage_create,
        properties=sent.properties or {},
    )


def decode_create_view(body: bytes) -> CreateView:
    refuse_nul(body)
    return _checked(_create_view, body)


def _decode_commit(body: bytes) -> CommitRequest:
    updates: list[Any]
    requirements: list[Any]
    try:
        found = _commit(body)
        identifier, updates, requirements = found.identifier, found.updates, found.requirements or []
    except msgspec.ValidationError:
        # Older writers spell actions in other cases; and the one that is unknown is to be named.
        loose = _checked(_loose, body)
        identifier = loose.identifier
        updates = [
            _one(raw, f"updates[{at}]", "update", "action", _update_decoders)
            for at, raw in enumerate(loose.updates)
        ]
        requirements = [
            _one(raw, f"requirements[{at}]", "requirement", "type", _requirement_decoders)
            for at, raw in enumerate(loose.requirements or ())
        ]
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"the request is not valid JSON: {error}") from None
    return CommitRequest(identifier=identifier, requirements=tuple(requirements), updates=tuple(updates))


def _one(raw: Raw, where: str, what: str, tag: str, decoders: dict[str, Any]) -> Any:
    node = members(raw, where)
    written = node.get(tag)
    if written is None:
        raise IllegalArgument(f"Cannot parse {what}. Missing field: {tag}", field=f"{where}.{tag}")
    name = msgspec.json.decode(written)
    decoder = decoders.get(name.lower()) if isinstance(name, str) else None
    if decoder is None:
        raise Invalid(f"Unknown {what}: {bytes(written).decode()}", field=f"{where}.{tag}")
    node[tag] = Raw(msgspec.json.encode(name.lower()))
    return _checked(decoder.decode, msgspec.json.encode(node), where)


def _checked(decode: Callable[[bytes], T], body: bytes, where: str = "") -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = f"{where}{path.rstrip('`')}".removeprefix(".") or None
        raise Invalid(message if field is None else f"{message} ({field})", field=field) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"the request is not valid JSON: {error}") from None


def _given(raw: Raw) -> Raw | None:
    """A spec or an order that is null is one that was not given."""
    return None if bytes(raw) == b"null" else raw
