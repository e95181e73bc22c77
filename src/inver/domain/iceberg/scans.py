"""Scans: what a reader asks for, and which manifests and files of a table answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from inver.domain.iceberg.content import Content, ContentFile, Manifest
from inver.domain.iceberg.expressions import TRUE, Expression, bind, find
from inver.domain.iceberg.partitions import Spec, parse_spec
from inver.domain.iceberg.projections import Slot, inclusive, matches, residual, slots_of
from inver.domain.iceberg.pruning import metrics_match, summaries_match
from inver.domain.iceberg.schemas import Field, Schema, parse_schema
from inver.domain.iceberg.snapshots import Long, Snapshot, read_snapshot
from inver.domain.iceberg.state import NO_SNAPSHOT, SCHEMA, SNAPSHOT, SPEC, Head, State
from inver.domain.iceberg.transforms import VOID
from inver.errors import Invalid

APPEND = "append"


class ScanRequest(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """In the protocol's words. `select` changes nothing here: every file has all columns."""

    snapshot_id: Long | None = None
    select: list[str] | None = None
    filter: Any = None
    min_rows_requested: Annotated[int, Meta(ge=0)] | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    start_snapshot_id: Long | None = None
    end_snapshot_id: Long | None = None
    stats_fields: list[str] | None = None

    def __post_init__(self) -> None:
        incremental = (self.start_snapshot_id, self.end_snapshot_id)
        if self.snapshot_id is not None and incremental != (None, None):
            raise ValueError(
                "snapshot-id cannot be given together with start-snapshot-id and end-snapshot-id"
            )
        if None in incremental and incremental != (None, None):
            raise ValueError("start-snapshot-id and end-snapshot-id are given both or not at all")

    @property
    def is_incremental(self) -> bool:
        return self.start_snapshot_id is not None


class Partitioning(msgspec.Struct, frozen=True):
    """A spec, and what a scan's filter means for its partitions."""

    spec: Spec
    slots: tuple[Slot, ...]
    shown: tuple[bool, ...]
    """Whether clients know the type of a field: not when its column was dropped."""
    projection: Expression

    @property
    def is_unpartitioned(self) -> bool:
        return all(field.transform == VOID for field in self.spec.fields)


class ScanTask(msgspec.Struct, frozen=True):
    """One file to read, the deletes to apply, and what is still to be asked of its rows."""

    file: ContentFile
    deletes: Sequence[ContentFile]
    residual: Expression


class Scan:
    """A request on one state of a table. `schema_id` is given where the schema was chosen before."""

    def __init__(self, state: State, request: ScanRequest, schema_id: int | None = None) -> None:
        assert isinstance(state.head, Head)
        self.state = state
        self.request = request
        self.head = state.head
        self.snapshots = self._chosen()
        self.schema = self._schema(self._schema_id() if schema_id is None else schema_id)
        self.filter: Expression = TRUE
        if request.filter is not None:
            self.filter = bind(request.filter, self.schema, request.case_sensitive)
        self.stats: frozenset[int] | None = None
        if request.stats_fields:
            self.stats = frozenset(
                find(self.schema, name, request.case_sensitive, f"stats-fields[{at}]")
                for at, name in enumerate(request.stats_fields)
            )
        self._residuals: dict[tuple[int, tuple[Any, ...]], Expression] = {}

    @property
    def snapshot_id(self) -> int | None:
        """The newest snapshot that is read."""
        return self.snapshots[0].snapshot_id if self.snapshots else None

    @cached_property
    def added_by(self) -> frozenset[int] | None:
        """Of an incremental scan, the snapshots whose files are wanted."""
        if not self.request.is_incremental:
            return None
        return frozenset(snapshot.snapshot_id for snapshot in self.snapshots)

    @cached_property
    def partitionings(self) -> Mapping[int, Partitioning]:
        current = self._schema(self.head.current_schema_id)
        found: dict[int, Partitioning] = {}
        for body in self.state.parts(SPEC).bodies():
            spec = parse_spec(body)
            known = all(field.source_id in current.fields for field in spec.fields)
            slots = slots_of(spec, [current] if known else list(self._schemas()))
            shown = tuple(
                field.source_id in current.fields and field.transform != VOID for field in spec.fields
            )
            found[spec.id] = Partitioning(spec, slots, shown, inclusive(self.filter, slots))
        return found

    @cached_property
    def partition_fields(self) -> Mapping[int, tuple[int, ...]]:
        return {
            spec_id: tuple(field.field_id or 0 for field in each.spec.fields)
            for spec_id, each in self.partitionings.items()
        }

    @cached_property
    def columns(self) -> Mapping[int, Field]:
        """Of all times, the newest definition of each."""
        found: dict[int, Field] = {}
        for schema in self._schemas():
            for field_id, field in schema.fields.items():
                found.setdefault(field_id, field)
        return found

    @property
    def needs_metrics(self) -> bool:
        return self.filter != TRUE or self.stats is not None

    def wants_manifest(self, manifest: Manifest) -> bool:
        if not manifest.is_live:
            return False
        if self.added_by is not None and (
            manifest.content is not Content.DATA or manifest.added_snapshot_id not in self.added_by
        ):
            return False
        if manifest.spec_id is None or manifest.spec_id not in self.partitionings:
            return True
        return summaries_match(self.partitionings[manifest.spec_id].projection, manifest.partitions)

    def wants(self, file: ContentFile) -> bool:
        """Whether a data file, or a file of deletes, may have to do with rows that are asked for."""
        if self.added_by is not None and not (file.added and file.snapshot_id in self.added_by):
            return False
        if self.filter == TRUE:
            return True
        if not matches(self.partitionings[file.spec_id].projection, file.partition):
            return False
        # The columns of a position delete file are not those of the table.
        return file.content is Content.POSITION_DELETES or metrics_match(self.filter, file)

    def residual(self, file: ContentFile) -> Expression:
        key = (file.spec_id, file.partition)
        found = self._residuals.get(key)
        if found is None:
            slots = self.partitionings[file.spec_id].slots
            found = self._residuals[key] = residual(self.filter, slots, file.partition)
        return found

    def _chosen(self) -> tuple[Snapshot, ...]:
        request = self.request
        if request.start_snapshot_id is not None and request.end_snapshot_id is not None:
            return self._appends(request.start_snapshot_id, request.end_snapshot_id)
        if request.snapshot_id is not None:
            return (self._snapshot(request.snapshot_id, "snapshot-id"),)
        current = self.head.current_snapshot_id
        return () if current == NO_SNAPSHOT else (self._snapshot(current, "snapshot-id"),)

    def _appends(self, start: int, end: int) -> tuple[Snapshot, ...]:
        """Newest first. The start itself may have expired; that a snapshot came after it is still known."""
        found = []
        snapshot = self._snapshot(end, "end-snapshot-id")
        while snapshot.snapshot_id != start:
            if snapshot.summary is not UNSET and snapshot.summary.get("operation") == APPEND:
                found.append(snapshot)
            parent = snapshot.parent
            if parent == start:
                break
            body = None if parent is None else self.state.parts(SNAPSHOT).get(str(parent))
            if body is None:
                raise Invalid(
                    f"start-snapshot-id {start} is not an ancestor of end-snapshot-id {end}",
                    field="start-snapshot-id",
                )
            snapshot = read_snapshot(body)
        return tuple(found)

    def _snapshot(self, snapshot_id: int, field: str) -> Snapshot:
        body = self.state.parts(SNAPSHOT).get(str(snapshot_id))
        if body is None:
            raise Invalid(f"{field}: the table has no snapshot {snapshot_id}", field=field)
        return read_snapshot(body)

    def _schema_id(self) -> int:
        request = self.request
        if request.use_snapshot_schema:
            wanted = request.snapshot_id if request.end_snapshot_id is None else request.end_snapshot_id
            if wanted is None:
                wanted = self.head.current_snapshot_id
            body = self.state.parts(SNAPSHOT).get(str(wanted))
            known = None if body is None else read_snapshot(body).schema_id
            if isinstance(known, int):
                return known
        return self.head.current_schema_id

    def _schema(self, schema_id: int) -> Schema:
        body = self.state.parts(SCHEMA).get(str(schema_id))
        if body is None:
            raise Invalid(f"the table has no schema {schema_id}", field="snapshot-id")
        return parse_schema(body)

    def _schemas(self) -> Iterator[Schema]:
        """The current one, then the others, newest first."""
        bodies = reversed(self.state.parts(SCHEMA).bodies())
        return chain([self._schema(self.head.current_schema_id)], map(parse_schema, bodies))
