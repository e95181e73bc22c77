"""What a commit says besides its files, found without decoding its files."""

from __future__ import annotations

import io
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from inver.domain.delta_actions import Metadata, Protocol, TableHead
from inver.formats.delta_log.actions import actions, first_action
from inver.formats.delta_log.listing import LogFile
from inver.ports import ObjectInfo, ObjectStore

T = TypeVar("T")
_Key: TypeAlias = tuple[str, str, int, int]

_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"')
_HEAD_BYTES = 4096
_MAX_COMMITS = 100_000


@dataclass(frozen=True, slots=True)
class CommitFacts:
    in_commit_timestamp: int | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    vectors: bool = False
    """Whether a file that it adds or removes with data change has a deletion vector."""
    recorded: bool = False
    """Whether it has change data files."""
    bare_removes: bool = False
    """Whether it removes a file without telling the size or the partition values."""


def facts(data: bytes, path: str) -> CommitFacts:
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    vectors = recorded = bare = False
    for line in io.BytesIO(data):
        match = _FIRST_KEY.match(line)
        kind = match[1] if match else b""
        if kind in (b"protocol", b"metaData"):
            for action in actions(line, path):
                protocol = action.protocol or protocol
                metadata = action.meta_data or metadata
        elif kind in (b"add", b"remove"):
            if not vectors and b'"deletionVector"' in line:
                vectors = any(_changes_vector(line, path))
            if kind == b"remove" and not bare:
                bare = b'"size"' not in line or b'"partitionValues"' not in line
        elif kind == b"cdc":
            recorded = True
    return CommitFacts(in_commit_timestamp(data), protocol, metadata, vectors, recorded, bare)


def in_commit_timestamp(data: bytes) -> int | None:
    """Delta looks for it in the first action alone."""
    first = first_action(data)
    info = None if first is None else first.commit_info
    return None if info is None else info.in_commit_timestamp


def change(head: TableHead, found: CommitFacts) -> TableHead:
    if found.protocol is None and found.metadata is None:
        return head
    return TableHead(found.protocol or head.protocol, found.metadata or head.metadata)


def _changes_vector(line: bytes, path: str) -> Iterator[bool]:
    for action in actions(line, path):
        file = action.add or action.remove
        yield file is not None and file.data_change and file.deletion_vector is not None


class FactsKept:
    """Facts of commits that were read before, the least recently used ones forgotten."""

    def __init__(self, limit: int = _MAX_COMMITS) -> None:
        self._limit = limit
        self._facts: OrderedDict[_Key, CommitFacts] = OrderedDict()
        self._times: OrderedDict[_Key, int | None] = OrderedDict()

    def get(self, table: str, file: LogFile) -> CommitFacts | None:
        return self._facts.get(_key(table, file.info))

    def put(self, table: str, file: LogFile, found: CommitFacts) -> None:
        _put(self._facts, _key(table, file.info), found, self._limit)

    async def timestamp(self, store: ObjectStore, table: str, info: ObjectInfo) -> int | None:
        key = _key(table, info)
        known = self._facts.get(key)
        if known is not None:
            return known.in_commit_timestamp
        if key not in self._times:
            head = await store.get_range(info.path, 0, min(_HEAD_BYTES, info.size))
            if b"\n" not in head and len(head) < info.size:
                head = await store.get(info.path)
            _put(self._times, key, in_commit_timestamp(head), self._limit)
        return self._times[key]


def _put(kept: OrderedDict[_Key, T], key: _Key, value: T, limit: int) -> None:
    kept[key] = value
    while len(kept) > limit:
        kept.popitem(last=False)


def _key(table: str, info: ObjectInfo) -> _Key:
    return table, info.path, info.size, info.modified_ms
