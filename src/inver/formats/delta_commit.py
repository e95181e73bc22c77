"""What one commit file of a Delta log says: a JSON action on each line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from io import BytesIO
from typing import Annotated, Literal

import msgspec

from inver.domain.delta import CommitSummary, Metadata, Protocol
from inver.errors import Invalid
from inver.formats.delta_counts import Add, Amount, Remove, count

_Int = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MAX_OPERATION = 255
"""The rest of a longer one is left out: it is for people to read."""
MAX_METADATA = 32 * 2**20
"""As much as a request may bring of it."""
_AT_ONCE = 1 << 20
"""The lines of larger files are taken one by one: a list of them all is many times the file."""
# The escape for NUL, unless its backslash is itself escaped.
_nul_escape = re.compile(r"(?<!\\)(?:\\\\)*\\u0000").search


class _CommitInfo(msgspec.Struct, gc=False):
    inCommitTimestamp: Amount | None = None  # noqa: N815
    operation: str | None = None


class _Protocol(msgspec.Struct):
    minReaderVersion: _Int  # noqa: N815
    minWriterVersion: _Int  # noqa: N815
    readerFeatures: tuple[str, ...] | None = None  # noqa: N815
    writerFeatures: tuple[str, ...] | None = None  # noqa: N815


class _Format(msgspec.Struct):
    """The protocol knows no other one."""

    provider: Literal["parquet"] = "parquet"


class _Metadata(msgspec.Struct):
    id: str
    schemaString: str  # noqa: N815
    format: _Format | None = None
    partitionColumns: tuple[str, ...] = ()  # noqa: N815
    configuration: dict[str, str | None] = {}
    name: str | None = None
    description: str | None = None


class _Domain(msgspec.Struct):
    domain: str
    configuration: str | None = None
    removed: bool = False


class _Action(msgspec.Struct, gc=False):
    add: Add | None = None
    remove: Remove | None = None
    commitInfo: _CommitInfo | None = None  # noqa: N815
    protocol: _Protocol | None = None
    metaData: _Metadata | None = None  # noqa: N815
    domainMetadata: _Domain | None = None  # noqa: N815


_decode = msgspec.json.Decoder(_Action).decode
_fields = msgspec.structs.astuple
_OPENING = ord("{")
_OTHERS = len(_Action.__struct_fields__) - 1


def summarize(data: bytes) -> CommitSummary:
    """Read a whole commit file, or raise Invalid, which names the line that is wrong.

    The in-commit timestamp counts only where Delta looks for it: in the first action.
    """
    first: _Action | None = None
    operation: str | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, str | None] = {}
    adds: list[Add] = []
    removes: list[Remove] = []
    plain = data.isascii()
    for number, line in enumerate(_lines(data), start=1):
        if not line or (line[0] != _OPENING and line.isspace()):
            continue
        try:
            # What is passed over is not looked at by the decoder.
            action = _decode(line if plain else line.decode())
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise _unreadable(number, error) from None
        if _fields(action).count(None) < _OTHERS:
            # Of such a line every reader would pick the action it looks for first.
            raise _wrong(number, "more than one action")
        first = first or action
        if action.add is not None:
            adds.append(action.add)
        elif action.remove is not None:
            removes.append(action.remove)
        elif action.commitInfo is not None:
            operation = operation or action.commitInfo.operation
        elif action.protocol is not None:
            if protocol is not None:
                raise _wrong(number, "a second protocol action")
            protocol = _protocol(action.protocol)
        elif action.metaData is not None:
            if metadata is not None:
                raise _wrong(number, "a second metaData action")
            metadata = _metadata(number, action.metaData)
        elif action.domainMetadata is not None:
            domain = action.domainMetadata
            if domain.domain in domains:
                raise _wrong(number, f"a second action for the domain {domain.domain!a}")
            domains[domain.domain] = None if domain.removed else domain.configuration or ""
    if first is None:
        raise Invalid("the commit file has no action", field="commit")
    if operation and "\0" in operation:
        raise _nul("operation")
    return CommitSummary(
        timestamp=None if first.commitInfo is None else first.commitInfo.inCommitTimestamp,
        operation=operation and operation[:MAX_OPERATION],
        protocol=protocol,
        metadata=metadata,
        domains=domains,
        counts=count(adds, removes),
    )


def _lines(data: bytes) -> Iterable[bytes]:
    return data.split(b"\n") if len(data) <= _AT_ONCE else BytesIO(data)


def _unreadable(number: int, error: Exception) -> Invalid:
    if isinstance(error, UnicodeDecodeError):
        return _wrong(number, "bytes that are not UTF-8")
    return _wrong(number, f"no Delta action: {error}")


def _protocol(action: _Protocol) -> Protocol:
    _refuse_nul("protocol", *(action.readerFeatures or ()), *(action.writerFeatures or ()))
    return Protocol(
        action.minReaderVersion,
        action.minWriterVersion,
        action.readerFeatures or (),
        action.writerFeatures or (),
    )


def _metadata(number: int, action: _Metadata) -> Metadata:
    schema, description = action.schemaString, action.description or ""
    properties = {key: value for key, value in action.configuration.items() if value is not None}
    texts = (action.id, action.name or "", *action.partitionColumns, *properties, *properties.values())
    _refuse_nul("description", description)
    _refuse_nul("metadata", *texts)
    if "\\u0000" in schema and _nul_escape(schema) is not None:
        raise _nul("schema")
    if len(schema) + len(description) + sum(map(len, texts)) > MAX_METADATA:
        raise _wrong(number, f"more than {MAX_METADATA} characters of metadata")
    return Metadata(
        id=action.id,
        schema=schema.encode(),
        partition_columns=action.partitionColumns,
        properties=properties,
        name=action.name,
        description=action.description,
    )


def _refuse_nul(what: str, *texts: str) -> None:
    """As in requests: not every database keeps such a text."""
    if any("\0" in text for text in texts):
        raise _nul(what)


def _nul(what: str) -> Invalid:
    return Invalid(f"the {what} in the commit file contains U+0000", field="commit")


def _wrong(number: int, problem: str) -> Invalid:
    return Invalid(f"line {number} of the commit file has {problem}", field="commit")
