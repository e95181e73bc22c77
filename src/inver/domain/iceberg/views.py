"""Views: versions of a query in several dialects, and commits to them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.files import next_file, strip_slash
from inver.domain.iceberg.layout import LAST_ADDED
from inver.domain.iceberg.nodes import (
    decode_as,
    encode,
    listed,
    number,
    with_members,
)
from inver.domain.iceberg.properties import flag, whole_number
from inver.domain.iceberg.requests import CommitRequest, CreateView
from inver.domain.iceberg.requirements import check_view
from inver.domain.iceberg.schemas import parse_schema, with_schema_id
from inver.domain.iceberg.snapshots import Int, Long
from inver.domain.iceberg.state import (
    SCHEMA,
    VERSION,
    VERSION_LOG,
    Change,
    Draft,
    State,
    ViewHead,
    log_key,
    snapshot_of_log_key,
    unchanged,
)
from inver.domain.iceberg.updates import (
    AddSchema,
    AddViewVersion,
    AssignUuid,
    RemoveProperties,
    SetCurrentViewVersion,
    SetLocation,
    SetProperties,
    Update,
    UpgradeFormatVersion,
)
from inver.errors import Broken, Invalid

SUPPORTED_FORMAT_VERSION = 1
HISTORY_SIZE = "version.history.num-entries"
DROP_DIALECT = "replace.drop-dialect.allowed"
DEFAULT_HISTORY_SIZE = 10
DEFAULT_CODEC = "gzip"


class _Representation(msgspec.Struct, frozen=True):
    type: str
    sql: str | None = None
    dialect: str | None = None


class ViewVersion(msgspec.Struct, frozen=True, rename="kebab"):
    version_id: Int
    timestamp_ms: Long
    schema_id: Int
    summary: dict[str, str]
    representations: list[_Representation]
    default_namespace: list[str]
    default_catalog: str | None = None

    def same(self, other: ViewVersion) -> bool:
        """Whether both would behave alike, whenever and by whom they were made."""
        return (
            self.schema_id == other.schema_id
            and self.representations == other.representations
            and self.default_namespace == other.default_namespace
            and self.default_catalog == other.default_catalog
            and self.summary == other.summary
        )

    def dialects(self) -> list[str]:
        return [
            each.dialect.lower()
            for each in self.representations
            if each.type.lower() == "sql" and each.dialect is not None
        ]


_version = msgspec.json.Decoder(ViewVersion)


def parse_version(raw: bytes | Raw) -> ViewVersion:
    version = decode_as(_version, raw, "view-version")
    for each in version.representations:
        if each.type.lower() == "sql":
            for field in ("sql", "dialect"):
                if getattr(each, field) is None:
                    raise IllegalArgument(f"Cannot parse missing string: {field}", field=field)
    return version


def read_version(body: bytes) -> ViewVersion:
    """A version that the view holds."""
    return _version.decode(body)


class ViewBuilder:
    """`head` is changed on the way. `base` is None for a view that is being created."""

    def __init__(self, head: ViewHead, base: State | None, now_ms: int) -> None:
        self.head = head
        self.draft = Draft(base)
        self.changed = False
        self._base = base
        self._now = now_ms
        self._previous = head.current_version_id
        self._previous_file = head.metadata_location
        self._added: set[int] = set()
        self._entry: tuple[int, int] | None = None
        self._last_version: int | None = None
        self._last_schema: int | None = None

    def apply(self, updates: Sequence[Update]) -> None:
        self._last_version = self._last_schema = None
        for update in updates:
            match update:
                case AddViewVersion():
                    self.add_version(update.view_version)
                case SetCurrentViewVersion():
                    self.set_current_version(update.view_version_id)
                case AddSchema():
                    self.add_schema(update.schema)
                case SetProperties(values=values):
                    self._set_properties(self.head.properties | values, bool(values))
                case RemoveProperties(names=names):
                    kept = {key: value for key, value in self.head.properties.items() if key not in names}
                    self._set_properties(kept, bool(names))
                case SetLocation():
                    self.set_location(update.location)
                case UpgradeFormatVersion():
                    self.upgrade_format_version(update.format_version)
                case AssignUuid(uuid=uuid):
                    if uuid.lower() != self.head.uuid.lower():
                        raise IllegalArgument("Cannot reassign uuid", field="uuid")
                case _:
                    raise Invalid(f"Cannot apply {update.tag()} to a view", field="updates")

    def finish(self, file_id: str) -> Change:
        if self._base is not None and not self.changed:
            return unchanged(self._base)
        head, draft = self.head, self.draft
        if not head.location:
            raise IllegalArgument("Invalid location: null", field="location")
        if not draft.count(VERSION):
            raise IllegalArgument("Invalid view: no versions were added", field="updates")
        if self._entry is not None:
            position = draft.next_position(VERSION_LOG)
            body = b'{"timestamp-ms":%d,"version-id":%d}' % self._entry
            draft.put(VERSION_LOG, log_key(position, self._entry[1]), body)
        if self._base is not None and not flag(head.properties, DROP_DIALECT):
            self._check_dialects(self._base)
        self._expire()
        head.metadata_location = next_file(
            head.location, head.properties, self._previous_file, file_id, DEFAULT_CODEC
        )
        state, parts = draft.finish(head)
        return Change(state=state, head=encode(head), parts=parts)

    def add_schema(self, raw: bytes | Raw) -> int:
        schema = parse_schema(raw)
        found, new = None, 0
        for body in self.draft.bodies(SCHEMA):
            other = parse_schema(body)
            if other.same(schema):
                found = other.id
                break
            new = max(new, other.id + 1)
        if found is None:
            found = new
            self.draft.put(SCHEMA, str(found), with_schema_id(raw, found))
            self.changed = True
        # Somebody may have added the same schema meanwhile: the version that comes with it means that one.
        self._last_schema = found
        return found

    def add_version(self, raw: bytes | Raw) -> int:
        version = parse_version(raw)
        if version.schema_id == LAST_ADDED:
            if self._last_schema is None:
                raise Invalid("Cannot set last added schema: no schema has been added", field="schema-id")
            version = msgspec.structs.replace(version, schema_id=self._last_schema)
        new = version.version_id
        for body in self.draft.bodies(VERSION):
            other = read_version(body)
            if other.same(version):
                # As with schemas: whoever replaces a view by what it has become meanwhile means that version.
                self._last_version = other.version_id
                return other.version_id
            if other.version_id >= new:
                new = other.version_id + 1
        if (SCHEMA, str(version.schema_id)) not in self.draft:
            message = f"Cannot add version with unknown schema: {version.schema_id}"
            raise IllegalArgument(message, field="schema-id")
        dialects = version.dialects()
        for dialect in dialects:
            if dialects.count(dialect) > 1:
                message = f"Invalid view version: Cannot add multiple queries for dialect {dialect}"
                raise IllegalArgument(message, field="representations")
        body = with_members(raw, "view-version", version_id=number(new), schema_id=number(version.schema_id))
        self.draft.put(VERSION, str(new), body)
        self._added.add(new)
        self._last_version = new
        self.changed = True
        return new

    def set_current_version(self, version_id: int) -> None:
        if version_id == LAST_ADDED:
            if self._last_version is None:
                message = "Cannot set last version id: no current version id has been set"
                raise Invalid(message, field="view-version-id")
            version_id = self._last_version
        if version_id == self.head.current_version_id:
            return
        body = self.draft.get(VERSION, str(version_id))
        if body is None:
            message = f"Cannot set current version to unknown version: {version_id}"
            raise IllegalArgument(message, field="view-version-id")
        self.head.current_version_id = version_id
        made = read_version(body).timestamp_ms if version_id in self._added else self._now
        self._entry = (made, version_id)
        self.changed = True

    def set_location(self, location: str) -> None:
        location = strip_slash(location)
        if location != self.head.location:
            self.head.location = location
            self.changed = True

    def upgrade_format_version(self, version: int) -> None:
        if version < self.head.format_version:
            message = f"Cannot downgrade v{self.head.format_version} view to v{version}"
            raise IllegalArgument(message, field="format-version")
        check_supported(version)

    def _set_properties(self, properties: dict[str, str], changed: bool) -> None:
        self.head.properties = properties
        self.changed |= changed

    def _version(self, version_id: int) -> ViewVersion:
        body = self.draft.get(VERSION, str(version_id))
        if body is None:
            message = f"Cannot find current version {version_id} in view versions"
            raise IllegalArgument(message, field="current-version-id")
        return read_version(body)

    def _check_dialects(self, base: State) -> None:
        if (
            not isinstance(base.head, ViewHead)
            or base.head.current_version_id == self.head.current_version_id
        ):
            return
        before = base.parts(VERSION).get(str(base.head.current_version_id))
        old = set(read_version(before).dialects()) if before is not None else set()
        new = set(self._version(self.head.current_version_id).dialects())
        if old - new:
            message = (
                f"Cannot replace view due to loss of view dialects ({DROP_DIALECT}=false):\n"
                f"Previous dialects: {listed(sorted(old))}\nNew dialects: {listed(sorted(new))}"
            )
            raise IllegalArgument(message, field="representations")

    def _expire(self) -> None:
        """Keep the newest versions, at least those of this commit and the current one."""
        head, draft = self.head, self.draft
        size = whole_number(head.properties, HISTORY_SIZE, DEFAULT_HISTORY_SIZE)
        if size <= 0:
            raise IllegalArgument(f"{HISTORY_SIZE} must be positive but was {size}", field=HISTORY_SIZE)
        current = head.current_version_id
        keep = max(size, len(self._added | {current}))
        ids = sorted((int(key) for key in draft.keys(VERSION)), reverse=True)
        if len(ids) <= keep:
            return
        kept = {current, *[id_ for id_ in ids if id_ != current][: keep - 1]}
        draft.remove(VERSION, [str(id_) for id_ in ids if id_ not in kept])
        log = draft.keys(VERSION_LOG)
        cut = max(
            (at + 1 for at, key in enumerate(log) if int(snapshot_of_log_key(key)) not in kept), default=0
        )
        draft.remove(VERSION_LOG, log[:cut])


def commit_view(state: State, requests: Sequence[CommitRequest], *, now_ms: int, file_id: str) -> Change:
    if not isinstance(state.head, ViewHead):
        raise Broken("a table is not a view")
    builder = ViewBuilder(copy.copy(state.head), state, now_ms)
    for request in requests:
        check_view(builder.head, request.requirements)
        builder.apply(request.updates)
    return builder.finish(file_id)


def new_view(request: CreateView, *, location: str, now_ms: int, uuid: str, file_id: str) -> Change:
    """A view as it is asked for; its schema and its version get ids of the catalog's own."""
    version = parse_version(request.view_version)
    others = sorted({each.type for each in version.representations if each.type.lower() != "sql"})
    if others:
        message = f"Found unsupported view representations: {listed(others)}"
        raise IllegalArgument(message, field="view-version")
    if not version.representations:
        raise IllegalArgument("Cannot create view without specifying a query", field="view-version")
    head = ViewHead(
        format_version=SUPPORTED_FORMAT_VERSION,
        uuid=uuid,
        location=strip_slash(location),
        properties=dict(request.properties),
    )
    builder = ViewBuilder(head, None, now_ms)
    schema_id = builder.add_schema(request.schema)
    raw = with_members(
        request.view_version, "view-version", version_id=number(1), schema_id=number(schema_id)
    )
    builder.set_current_version(builder.add_version(raw))
    return builder.finish(file_id)


def check_supported(version: int) -> None:
    if not 0 < version <= SUPPORTED_FORMAT_VERSION:
        raise IllegalArgument(f"Unsupported format version: {version}", field="format-version")
