"""What one commit file of a Delta log says: a JSON action on each line.

How the counts are made:

- A file that is removed and added again under its own path is the same file with another deletion
  vector. It counts neither as added nor as removed, and only the change of its deleted rows counts.
- `files_*` and `bytes_*` count every other add and remove, also those of a rewrite that changes no
  data. Change data files and deletion vectors are no files of the table. `bytes_removed` is None
  when a remove does not say its size.
- `rows_*` count rows that readers see, so a file's rows are its records without its deleted ones,
  and only for actions with `dataChange`. A deletion vector that grows removes rows, one that
  shrinks adds them. A number of records that is not in the action makes the sum None: never a guess.
- `sizes` follow `files_*` and `bytes_*`; `deletes` and `deleted_rows` count deletion vectors that came
  and went, whatever else the action changes.

One file does not tell whether a path that is only added was already there (as when a writer adds
statistics to files of earlier versions); such an add counts as a new file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Annotated, Literal

import msgspec

from inver.domain.delta import CommitSummary, Metadata, Protocol
from inver.domain.ledger import Counts
from inver.domain.sizes import bin_of, flat
from inver.errors import Invalid

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Int = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_AT_ONCE = 1 << 20
"""The lines of larger files are taken one by one: a list of them all is many times the file."""
# Writers put the number first, and then the statistics of every column need not be read.
_records_first = re.compile(r'\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]').match


class _DeletionVector(msgspec.Struct, gc=False):
    cardinality: _Amount


class _Add(msgspec.Struct, gc=False):
    path: str
    size: _Amount
    dataChange: bool  # noqa: N815
    stats: str | None = None
    deletionVector: _DeletionVector | None = None  # noqa: N815


class _Remove(msgspec.Struct, gc=False):
    path: str
    dataChange: bool  # noqa: N815
    size: _Amount | None = None
    stats: str | None = None
    deletionVector: _DeletionVector | None = None  # noqa: N815


class _CommitInfo(msgspec.Struct, gc=False):
    inCommitTimestamp: _Amount | None = None  # noqa: N815
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
    add: _Add | None = None
    remove: _Remove | None = None
    commitInfo: _CommitInfo | None = None  # noqa: N815
    protocol: _Protocol | None = None
    metaData: _Metadata | None = None  # noqa: N815
    domainMetadata: _Domain | None = None  # noqa: N815


class _Statistics(msgspec.Struct, gc=False):
    numRecords: _Amount | None = None  # noqa: N815


_decode = msgspec.json.Decoder(_Action).decode
_statistics = msgspec.json.Decoder(_Statistics).decode
_fields = msgspec.structs.astuple
_OPENING = ord("{")
_OTHERS = len(_Action.__struct_fields__) - 1


def summarize(data: bytes) -> CommitSummary:
    """Read a whole commit file, or raise Invalid, which names the line that is wrong.

    The in-commit timestamp counts only where Delta looks for it: in the first action.
    """
    first: _Action | None = None
    info: _CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, str | None] = {}
    adds: list[_Add] = []
    removes: list[_Remove] = []
    for number, action in _actions(data):
        first = first or action
        if action.add is not None:
            adds.append(action.add)
        elif action.remove is not None:
            removes.append(action.remove)
        elif action.commitInfo is not None:
            info = info or action.commitInfo
        elif action.protocol is not None:
            if protocol is not None:
                raise _wrong(number, "a second protocol action")
            protocol = _protocol(action.protocol)
        elif action.metaData is not None:
            if metadata is not None:
                raise _wrong(number, "a second metaData action")
            metadata = _metadata(action.metaData)
        elif action.domainMetadata is not None:
            domain = action.domainMetadata
            if domain.domain in domains:
                raise _wrong(number, f"a second action for the domain {domain.domain!a}")
            domains[domain.domain] = None if domain.removed else domain.configuration or ""
    if first is None:
        raise Invalid("the commit file has no action", field="commit")
    operation = info.operation if info is not None else None
    _refuse_nul(operation, "operation")
    return CommitSummary(
        timestamp=None if first.commitInfo is None else first.commitInfo.inCommitTimestamp,
        operation=operation,
        protocol=protocol,
        metadata=metadata,
        domains=domains,
        counts=_count(adds, removes),
    )


def _actions(data: bytes) -> Iterator[tuple[int, _Action]]:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise _wrong(data.count(b"\n", 0, error.start) + 1, "bytes that are not UTF-8") from None
    lines: Iterable[bytes] = data.split(b"\n") if len(data) <= _AT_ONCE else BytesIO(data)
    for number, line in enumerate(lines, start=1):
        if line and (line[0] == _OPENING or not line.isspace()):
            try:
                action = _decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise _wrong(number, f"no Delta action: {error}") from None
            if _fields(action).count(None) < _OTHERS:
                # Of such a line every reader would pick the action it looks for first.
                raise _wrong(number, "more than one action")
            yield number, action


def _count(adds: Sequence[_Add], removes: Sequence[_Remove]) -> Counts:
    if len(adds) == 1 and not removes:
        return _one(adds[0])
    rows_added: int | None = 0
    bytes_removed: int | None = 0
    files_added = files_removed = bytes_added = hidden = deletes = deleted_rows = 0
    sizes: dict[int, tuple[int, int]] = {}
    replaced = {remove.path: remove for remove in removes} if adds else {}
    kept = set()
    for add in adds:
        if add.deletionVector is not None:
            deletes += 1
            deleted_rows += add.deletionVector.cardinality
        before = replaced.get(add.path) if replaced else None
        if before is None:
            files_added += 1
            size = add.size
            bytes_added += size
            place = bin_of(size)
            files, total = sizes.get(place, (0, 0))
            sizes[place] = files + 1, total + size
            if add.dataChange and rows_added is not None:
                rows = _rows(add)
                rows_added = None if rows is None else rows_added + rows
            continue
        kept.add(add.path)
        if add.dataChange:
            growth = _deleted(add) - _deleted(before)
            if growth > 0:
                hidden += growth
            elif rows_added is not None:
                rows_added -= growth
    rows_removed: int | None = hidden
    for remove in removes:
        if remove.deletionVector is not None:
            deletes -= 1
            deleted_rows -= remove.deletionVector.cardinality
        if remove.path in kept:
            continue
        files_removed += 1
        if bytes_removed is not None:
            bytes_removed = None if remove.size is None else bytes_removed + remove.size
        if remove.size is not None:
            place = bin_of(remove.size)
            files, total = sizes.get(place, (0, 0))
            sizes[place] = files - 1, total - remove.size
        if remove.dataChange and rows_removed is not None:
            rows = _rows(remove)
            rows_removed = None if rows is None else rows_removed + rows
    return Counts(
        rows_added,
        rows_removed,
        files_added,
        files_removed,
        bytes_added,
        bytes_removed,
        # What came and went can be alike; no sizes at all are for files that did neither.
        flat(sizes) if sizes and bytes_removed is not None else None,
        deletes,
        deleted_rows,
    )


def _one(add: _Add) -> Counts:
    """The same for what most commits are: one new file."""
    size, vector = add.size, add.deletionVector
    return Counts(
        _rows(add) if add.dataChange else 0,
        0,
        1,
        0,
        size,
        0,
        ((bin_of(size), 1, size),),
        0 if vector is None else 1,
        0 if vector is None else vector.cardinality,
    )


def _rows(file: _Add | _Remove) -> int | None:
    """Rows of a file that readers see, or None when the action does not say."""
    if file.stats is None:
        return None
    found = _records_first(file.stats)
    if found is not None:
        records: int | None = int(found[1])
    else:
        try:
            records = _statistics(file.stats).numRecords
        except (msgspec.DecodeError, RecursionError):
            return None
    if file.deletionVector is None or records is None:
        return records
    return None if records < _deleted(file) else records - _deleted(file)


def _deleted(file: _Add | _Remove) -> int:
    return 0 if file.deletionVector is None else file.deletionVector.cardinality


def _protocol(action: _Protocol) -> Protocol:
    return Protocol(
        action.minReaderVersion,
        action.minWriterVersion,
        action.readerFeatures or (),
        action.writerFeatures or (),
    )


def _metadata(action: _Metadata) -> Metadata:
    _refuse_nul(action.description, "description")
    return Metadata(
        id=action.id,
        schema=action.schemaString.encode(),
        partition_columns=action.partitionColumns,
        properties={key: value for key, value in action.configuration.items() if value is not None},
        name=action.name,
        description=action.description,
    )


def _refuse_nul(text: str | None, what: str) -> None:
    """As in requests: not every database keeps such a text."""
    if text is not None and "\0" in text:
        raise Invalid(f"the {what} in the commit file contains U+0000", field="commit")


def _wrong(number: int, problem: str) -> Invalid:
    return Invalid(f"line {number} of the commit file has {problem}", field="commit")
