"""A commit to one table: updates applied one by one, then what every commit ends with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from inver.domain.iceberg.failures import IllegalArgument, StaleCommit
from inver.domain.iceberg.files import next_file, strip_slash
from inver.domain.iceberg.layout import Layout
from inver.domain.iceberg.nodes import LONG_MAX, encode
from inver.domain.iceberg.properties import (
    DELETE_AFTER_COMMIT,
    PREVIOUS_VERSIONS_MAX,
    SUPPORTED_FORMAT_VERSION,
    check_key_kept,
    flag,
    whole_number,
)
from inver.domain.iceberg.snapshots import (
    MAIN,
    TAG,
    Ref,
    Snapshot,
    make_ref,
    parse_snapshot,
    read_ref,
    write_ref,
)
from inver.domain.iceberg.state import (
    ENCRYPTION_KEY,
    METADATA_LOG,
    NO_SNAPSHOT,
    ORDER,
    PARTITION_STATISTICS,
    SCHEMA,
    SNAPSHOT,
    SNAPSHOT_LOG,
    SPEC,
    STATISTICS,
    Change,
    Draft,
    Head,
    State,
    log_key,
    snapshot_of_log_key,
    unchanged,
)
from inver.domain.iceberg.statistics import encryption_key_id
from inver.domain.iceberg.updates import SetSnapshotRef
from inver.errors import Invalid

SKEW_MS = 60_000
"""How far the clocks of writers and servers may lie apart before readers refuse the metadata."""

DEFAULT_PREVIOUS_VERSIONS = 100


class _MetadataLogEntry(msgspec.Struct, rename="kebab"):
    timestamp_ms: int
    metadata_file: str


class _SnapshotLogEntry(msgspec.Struct, rename="kebab"):
    timestamp_ms: int


_metadata_log_entry = msgspec.json.Decoder(_MetadataLogEntry).decode
_snapshot_log_entry = msgspec.json.Decoder(_SnapshotLogEntry).decode


class TableBuilder(Layout):
    """`head` is changed on the way. `base` is None for a table that is being created."""

    def __init__(self, head: Head, base: State | None, now_ms: int) -> None:
        super().__init__(head, Draft(base))
        self._base = base
        self._before = head.properties if base is not None else {}
        # Times of one table never go back, whatever the clocks of its servers say.
        self._now = max(now_ms, head.last_updated_ms)
        self._previous_file = head.metadata_location
        self._previous_ms = head.last_updated_ms
        self._added: dict[int, int] = {}
        self._snapshots: list[Snapshot] = []
        self._log: list[tuple[int, int]] = []
        self._removed = False
        self._taken_back: tuple[Snapshot, ...] = ()

    def finish(self, file_id: str | None) -> Change:
        """Without a file id the metadata is staged: nothing names its file."""
        head = self.head
        if self._base is not None and not self.changed:
            return unchanged(self._base)
        head.last_updated_ms = self._now
        self.check_layout(new=self._base is None)
        if not head.location:
            message = f"Table location is required in format v{head.format_version}"
            raise IllegalArgument(message, field="location")
        check_key_kept(self._before, head.properties)
        self._finish_snapshot_log()
        removed_files = self._finish_metadata_log()
        if file_id is not None:
            head.metadata_location = next_file(head.location, head.properties, self._previous_file, file_id)
        state, parts = self.draft.finish(head)
        return Change(
            state=state,
            head=encode(head),
            parts=parts,
            added=tuple(self._snapshots),
            removed_files=removed_files,
            taken_back=self._taken_back,
        )

    def assign_uuid(self, uuid: str) -> None:
        if uuid.lower() == self.head.uuid.lower():
            return
        if self._base is not None and self.head.uuid:
            raise IllegalArgument("Cannot reassign uuid", field="uuid")
        self.head.uuid = uuid
        self.changed = True

    def upgrade_format_version(self, version: int) -> None:
        if version > SUPPORTED_FORMAT_VERSION:
            message = (
                f"Cannot upgrade table to unsupported format version: v{version}"
                f" (supported: v{SUPPORTED_FORMAT_VERSION})"
            )
            raise IllegalArgument(message, field="format-version")
        if version < self.head.format_version:
            message = f"Cannot downgrade v{self.head.format_version} table to v{version}"
            raise IllegalArgument(message, field="format-version")
        if version != self.head.format_version:
            self.head.format_version = version
            self.changed = True

    def add_snapshot(self, raw: bytes | msgspec.Raw) -> None:
        head, draft = self.head, self.draft
        for kind, what in ((SCHEMA, "a schema"), (SPEC, "a partition spec"), (ORDER, "a sort order")):
            if not draft.count(kind):
                raise Invalid(f"Attempting to add a snapshot before {what} is added", field="snapshot")
        snapshot, body = parse_snapshot(raw)
        key, sequence = str(snapshot.snapshot_id), snapshot.sequence
        if (SNAPSHOT, key) in draft:
            raise Invalid(f"Snapshot already exists for id: {key}", field="snapshot-id")
        if head.format_version == 1:
            if sequence:
                raise IllegalArgument(f"Sequence number must be 0 in v1: {sequence}", field="sequence-number")
        elif sequence < head.last_sequence_number or (
            sequence == head.last_sequence_number and snapshot.parent is not None
        ):
            raise StaleCommit(
                f"Cannot add snapshot with sequence number {sequence} older than last sequence number "
                f"{head.last_sequence_number}"
            )
        head.last_sequence_number = sequence
        if head.format_version >= 3:
            self._take_rows(snapshot.first_row_id, snapshot.added_rows)
        draft.put(SNAPSHOT, key, body)
        self._added[snapshot.snapshot_id] = snapshot.timestamp_ms
        self._snapshots.append(snapshot)
        self.changed = True

    def set_snapshot_ref(self, update: SetSnapshotRef) -> None:
        name, head = update.ref_name, self.head
        ref = make_ref(
            name,
            Ref(
                snapshot_id=update.snapshot_id,
                type=update.type,
                min_snapshots_to_keep=update.min_snapshots_to_keep,
                max_snapshot_age_ms=update.max_snapshot_age_ms,
                max_ref_age_ms=update.max_ref_age_ms,
            ),
        )
        standing = head.refs.get(name)
        if standing is not None and read_ref(standing) == ref:
            return
        if (SNAPSHOT, str(ref.snapshot_id)) not in self.draft:
            raise Invalid(f"Cannot set {name} to unknown snapshot: {ref.snapshot_id}", field="snapshot-id")
        if name == MAIN:
            if ref.type == TAG:
                raise Invalid(f"Cannot set {MAIN} to a tag, it must be a branch", field="type")
            head.current_snapshot_id = ref.snapshot_id
            # Going back to an older snapshot happens now, not when that was made.
            self._log.append((self._added.get(ref.snapshot_id, self._now), ref.snapshot_id))
        head.refs = head.refs | {name: write_ref(ref)}
        self.changed = True

    def remove_snapshot_ref(self, name: str) -> None:
        if name == MAIN:
            self.head.current_snapshot_id = NO_SNAPSHOT
        if name in self.head.refs:
            self.head.refs = {other: ref for other, ref in self.head.refs.items() if other != name}
            self.changed = True

    def remove_snapshots(self, ids: Iterable[int]) -> None:
        gone = [key for key in dict.fromkeys(map(str, ids)) if (SNAPSHOT, key) in self.draft]
        if not gone:
            return
        self.draft.remove(SNAPSHOT, gone)
        for key in gone:
            self._remove_all(STATISTICS, key)
            self._remove_all(PARTITION_STATISTICS, key)
        for name, raw in tuple(self.head.refs.items()):
            if (SNAPSHOT, str(read_ref(raw).snapshot_id)) not in self.draft:
                self.remove_snapshot_ref(name)
        self._removed = self.changed = True

    def take_back(self, name: str, snapshot_id: int, newest_first: Sequence[Snapshot]) -> None:
        """Let a branch name an older snapshot as if those after it, the table's newest, had never been."""
        head, draft, oldest = self.head, self.draft, newest_first[-1]
        gone = {str(snapshot.snapshot_id) for snapshot in newest_first}
        draft.remove(SNAPSHOT, gone)
        for key in gone:
            self._remove_all(STATISTICS, key)
            self._remove_all(PARTITION_STATISTICS, key)
        ref = msgspec.structs.replace(read_ref(head.refs[name]), snapshot_id=snapshot_id)
        head.refs = head.refs | {name: write_ref(ref)}
        # What follows has the numbers that its writer has counted from the older snapshot.
        head.last_sequence_number = max(0, oldest.sequence - 1)
        if isinstance(oldest.first_row_id, int):
            head.next_row_id = oldest.first_row_id
        if name == MAIN:
            head.current_snapshot_id = snapshot_id
            log = draft.keys(SNAPSHOT_LOG)
            draft.remove(SNAPSHOT_LOG, [key for key in log if snapshot_of_log_key(key) in gone])
            left = [draft.get(SNAPSHOT_LOG, key) for key in draft.keys(SNAPSHOT_LOG)[-1:]]
            head.last_log_ms = _snapshot_log_entry(left[0]).timestamp_ms if left and left[0] else None
        self._taken_back += tuple(newest_first)
        self.changed = True

    def set_location(self, location: str) -> None:
        location = strip_slash(location)
        if not location:
            raise IllegalArgument("Invalid location: empty", field="location")
        if location != self.head.location:
            self.head.location = location
            self.changed = True

    def set_properties(self, values: dict[str, str]) -> None:
        if values:
            self.head.properties = self.head.properties | values
            self.changed = True

    def remove_properties(self, names: Iterable[str]) -> None:
        if gone := frozenset(names):
            kept = {name: value for name, value in self.head.properties.items() if name not in gone}
            self.head.properties = kept
            self.changed = True

    def set_statistics(self, kind: str, snapshot_id: int, raw: msgspec.Raw) -> None:
        key = str(snapshot_id)
        self._remove_all(kind, key, keep_first=True)
        self.draft.put(kind, key, bytes(raw))
        self.changed = True

    def remove_statistics(self, kind: str, snapshot_id: int) -> None:
        if (kind, str(snapshot_id)) in self.draft:
            self._remove_all(kind, str(snapshot_id))
            self.changed = True

    def add_encryption_key(self, raw: msgspec.Raw) -> None:
        key_id = encryption_key_id(raw)
        if (ENCRYPTION_KEY, key_id) not in self.draft:
            self.draft.put(ENCRYPTION_KEY, key_id, bytes(raw))
            self.changed = True

    def remove_encryption_key(self, key_id: str) -> None:
        if (ENCRYPTION_KEY, key_id) in self.draft:
            self.draft.remove(ENCRYPTION_KEY, (key_id,))
            self.changed = True

    def _take_rows(self, first: object, added: object) -> None:
        head = self.head
        if not isinstance(first, int) or not isinstance(added, int):
            raise Invalid("Cannot add a snapshot: first-row-id is null", field="first-row-id")
        if first < head.next_row_id:
            raise StaleCommit(
                "Cannot add a snapshot, first-row-id is behind table next-row-id: "
                f"{first} < {head.next_row_id}"
            )
        if first + added > LONG_MAX:
            raise IllegalArgument(f"Cannot add a snapshot, too many rows: {added}", field="added-rows")
        # A first row beyond the next free one leaves a gap: what follows must not fill it with other rows.
        head.next_row_id = first + added

    def _remove_all(self, kind: str, key: str, keep_first: bool = False) -> None:
        """A registered document may hold several files of one snapshot; see `registration.repeated_key`."""
        again = 1
        while (kind, f"{key}#{again}") in self.draft:
            self.draft.remove(kind, (f"{key}#{again}",))
            again += 1
        if not keep_first:
            self.draft.remove(kind, (key,))

    def _finish_snapshot_log(self) -> None:
        head, draft = self.head, self.draft
        current = head.current_snapshot_id
        between = {id_ for _, id_ in self._log if id_ in self._added and id_ != current}
        new: list[tuple[int, int]] = []
        gap = False
        for entry in self._log:
            if self._removed and (SNAPSHOT, str(entry[1])) not in draft:
                new.clear()
                gap = True
            elif entry[1] not in between:
                new.append(entry)
        if self._removed:
            self._cut_snapshot_log(frozenset(map(str, between)), whole=gap)
        if not draft.count(SNAPSHOT_LOG):
            head.last_log_ms = None
        if current != NO_SNAPSHOT and (between or self._removed):
            last = [str(id_) for _, id_ in new[-1:]] or [
                snapshot_of_log_key(key) for key in draft.keys(SNAPSHOT_LOG)[-1:]
            ]
            if last and last != [str(current)]:
                message = "Cannot set invalid snapshot log: latest entry is not the current snapshot"
                raise Invalid(message, field="updates")
        position = draft.next_position(SNAPSHOT_LOG)
        for timestamp, snapshot_id in new:
            before = head.last_log_ms
            if before is not None and timestamp < before - SKEW_MS:
                message = (
                    f"Invalid snapshot timestamp {timestamp}: before last snapshot log entry at {before}"
                )
                raise IllegalArgument(message, field="timestamp-ms")
            if self._now < timestamp - SKEW_MS:
                message = (
                    f"Invalid update timestamp {self._now}: before last snapshot log entry at {timestamp}"
                )
                raise IllegalArgument(message, field="timestamp-ms")
            body = b'{"timestamp-ms":%d,"snapshot-id":%d}' % (timestamp, snapshot_id)
            draft.put(SNAPSHOT_LOG, log_key(position, snapshot_id), body)
            head.last_log_ms = timestamp
            position += 1

    def _cut_snapshot_log(self, between: frozenset[str], whole: bool) -> None:
        """Drop what lies before a gap: the log would else claim that another snapshot was current then."""
        kept: list[str] = []
        keys = self.draft.keys(SNAPSHOT_LOG)
        for key in () if whole else keys:
            snapshot_id = snapshot_of_log_key(key)
            if (SNAPSHOT, snapshot_id) not in self.draft:
                kept.clear()
            elif snapshot_id not in between:
                kept.append(key)
        self.draft.remove(SNAPSHOT_LOG, set(keys).difference(kept))

    def _finish_metadata_log(self) -> tuple[str, ...]:
        """Note the file that was current, and say which ones fall out of the log and may be deleted."""
        head, draft = self.head, self.draft
        # Asked of new tables too: with a number that is none, nothing could be committed to one.
        most = max(1, whole_number(head.properties, PREVIOUS_VERSIONS_MAX, DEFAULT_PREVIOUS_VERSIONS))
        if self._previous_file is None:
            return ()
        removed: tuple[str, ...] = ()
        surplus = draft.count(METADATA_LOG) - most + 1
        if surplus > 0:
            gone = draft.keys(METADATA_LOG)[:surplus]
            if flag(head.properties, DELETE_AFTER_COMMIT):
                bodies = (draft.get(METADATA_LOG, key) for key in gone)
                removed = tuple(_metadata_log_entry(body).metadata_file for body in bodies if body)
            draft.remove(METADATA_LOG, gone)
        entry = _MetadataLogEntry(self._previous_ms, self._previous_file)
        draft.put(METADATA_LOG, str(draft.next_position(METADATA_LOG)), encode(entry))
        return removed
