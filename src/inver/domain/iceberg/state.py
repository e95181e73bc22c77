"""What the catalog holds of one Iceberg table or view: a small head, and parts that stay bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

import msgspec
from msgspec import Raw

from inver.domain.iceberg.nodes import encode
from inver.domain.iceberg.series import Series
from inver.domain.iceberg.snapshots import Ref, Snapshot, read_ref
from inver.domain.ledger import Part

SCHEMA = "schema"
SPEC = "spec"
ORDER = "order"
SNAPSHOT = "snapshot"
SNAPSHOT_LOG = "snapshot-log"
METADATA_LOG = "metadata-log"
STATISTICS = "statistics"
PARTITION_STATISTICS = "partition-statistics"
ENCRYPTION_KEY = "encryption-key"
VERSION = "version"
VERSION_LOG = "version-log"

NO_SNAPSHOT = -1


class Head(msgspec.Struct, kw_only=True, rename="kebab", omit_defaults=True, tag="table", tag_field="kind"):
    """What every commit reads and writes of a table. Its size does not depend on the number of commits.

    A head that belongs to a state is never changed; a commit works on a copy. `unknown` holds the
    top-level fields of a registered document that this version of Inver does not know.
    `last_log_ms` is the time of the newest entry of the snapshot log.
    """

    format_version: int
    uuid: str
    location: str
    last_sequence_number: int = 0
    last_updated_ms: int = 0
    last_column_id: int = 0
    current_schema_id: int = 0
    default_spec_id: int = 0
    last_partition_id: int = 0
    default_sort_order_id: int = 0
    current_snapshot_id: int = NO_SNAPSHOT
    next_row_id: int = 0
    last_log_ms: int | None = None
    refs: dict[str, Raw] = {}
    properties: dict[str, str] = {}
    metadata_location: str | None = None
    unknown: dict[str, Raw] = {}


class ViewHead(
    msgspec.Struct, kw_only=True, rename="kebab", omit_defaults=True, tag="view", tag_field="kind"
):
    format_version: int
    uuid: str
    location: str
    current_version_id: int = 0
    properties: dict[str, str] = {}
    metadata_location: str | None = None
    unknown: dict[str, Raw] = {}


_decode_head = msgspec.json.Decoder(Head | ViewHead).decode
_NONE = Series.of()


class State:
    """A table or view at one version. Values of older versions stay valid when it moves on."""

    __slots__ = ("head", "series")

    def __init__(self, head: Head | ViewHead, series: Mapping[str, Series]) -> None:
        self.head = head
        self.series = series

    @property
    def is_view(self) -> bool:
        return isinstance(self.head, ViewHead)

    def parts(self, kind: str) -> Series:
        return self.series.get(kind, _NONE)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One new version: what to store of it, and the state that it leads to.

    `removed_files` are metadata files that nothing names any more, to be deleted after the decision.
    `added` are the snapshots that it brings, `taken_back` rewrites of care that made way for a writer, newest
    first.
    """

    state: State
    head: bytes
    parts: tuple[Part, ...] = ()
    added: tuple[Snapshot, ...] = ()
    removed_files: tuple[str, ...] = ()
    taken_back: tuple[Snapshot, ...] = ()
    changed: bool = True


class Draft:
    """The parts that one commit adds, replaces and takes away, beside the ones it started from."""

    __slots__ = ("_added", "_base", "_gone", "_replaced")

    def __init__(self, base: State | None) -> None:
        self._base: Mapping[str, Series] = {} if base is None else base.series
        self._added: dict[str, dict[str, bytes]] = {}
        self._replaced: dict[str, dict[str, bytes]] = {}
        self._gone: dict[str, set[str]] = {}

    def __contains__(self, kind_and_key: tuple[str, str]) -> bool:
        kind, key = kind_and_key
        if key in self._added.get(kind, ()):
            return True
        return key in self._base.get(kind, _NONE) and key not in self._gone.get(kind, ())

    def get(self, kind: str, key: str) -> bytes | None:
        added = self._added.get(kind, {}).get(key)
        if added is not None or key in self._gone.get(kind, ()):
            return added
        return self._replaced.get(kind, {}).get(key) or self._base.get(kind, _NONE).get(key)

    def keys(self, kind: str) -> list[str]:
        keys = self._base.get(kind, _NONE).keys()
        if gone := self._gone.get(kind):
            keys = [key for key in keys if key not in gone]
        return [*keys, *self._added.get(kind, ())]

    def bodies(self, kind: str) -> list[bytes]:
        return [body for key in self.keys(kind) if (body := self.get(kind, key)) is not None]

    def count(self, kind: str) -> int:
        base = len(self._base.get(kind, _NONE)) - len(self._gone.get(kind, ()))
        return base + len(self._added.get(kind, ()))

    def next_position(self, kind: str) -> int:
        return self._base.get(kind, _NONE).next_position + len(self._added.get(kind, ()))

    def put(self, kind: str, key: str, body: bytes) -> None:
        """A new part at the end, or a new body for the one that has this key."""
        if key in self._base.get(kind, _NONE) and key not in self._gone.get(kind, ()):
            self._replaced.setdefault(kind, {})[key] = body
        else:
            self._added.setdefault(kind, {})[key] = body

    def remove(self, kind: str, keys: Iterable[str]) -> None:
        base, added = self._base.get(kind, _NONE), self._added.get(kind, {})
        for key in keys:
            added.pop(key, None)
            if key in base:
                self._gone.setdefault(kind, set()).add(key)
                self._replaced.get(kind, {}).pop(key, None)

    def finish(self, head: Head | ViewHead) -> tuple[State, tuple[Part, ...]]:
        series = dict(self._base)
        parts: list[Part] = []
        for kind, gone in self._gone.items():
            added = self._added.get(kind, {})
            parts.extend(Part(kind, key, 0, None) for key in gone if key not in added)
            series[kind] = series[kind].without(gone)
        for kind, bodies in self._replaced.items():
            if bodies:
                parts.extend(
                    Part(kind, key, series[kind].position(key), body) for key, body in bodies.items()
                )
                series[kind] = series[kind].replace(bodies)
        for kind, bodies in self._added.items():
            position = self._base.get(kind, _NONE).next_position
            grown = series.get(kind) or Series.of()
            for key, body in bodies.items():
                parts.append(Part(kind, key, position, body))
                grown = grown.add(key, position, body)
                position += 1
            series[kind] = grown
        return State(head, series), tuple(parts)


def load(head: bytes, parts: Iterable[Part]) -> State:
    """The state that a store keeps; the parts are ordered by kind and position."""
    series = {
        kind: Series.of((part.key, part.position, part.body) for part in group if part.body is not None)
        for kind, group in groupby(parts, key=lambda part: part.kind)
    }
    return State(_decode_head(head), series)


def unchanged(state: State) -> Change:
    return Change(state=state, head=encode(state.head), changed=False)


def ref_of(state: State, name: str) -> Ref | None:
    raw = state.head.refs.get(name) if isinstance(state.head, Head) else None
    return None if raw is None else read_ref(raw)


def log_key(position: int, snapshot_id: int) -> str:
    """Entries of the snapshot log are found by their snapshot without being read."""
    return f"{position}:{snapshot_id}"


def snapshot_of_log_key(key: str) -> str:
    return key.partition(":")[2]
