"""What delta/v1 answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from inver.domain import delta
from inver.domain.tables import Format, Table
from inver.protocols.unity import columns as cols
from inver.protocols.unity.errors import UnsupportedFormat
from inver.services.credentials import Vended
from inver.services.delta.types import Definition, Snapshot, Staged

encode = msgspec.json.encode

# For a location that needs no keys, and so none that expire.
NEVER_MS = 253_402_300_799_000


class Iceberg(msgspec.Struct, rename="kebab", omit_defaults=True):
    metadata_location: str
    converted_delta_version: int
    converted_delta_timestamp: int
    base_converted_delta_version: int | None = None


class Metadata(msgspec.Struct, kw_only=True, rename="kebab", omit_defaults=True):
    etag: str
    table_type: str
    table_uuid: str
    location: str
    created_time: int
    columns: msgspec.Raw
    partition_columns: list[str]
    properties: dict[str, str]
    last_commit_version: int | None = None
    last_commit_timestamp_ms: int | None = None


class LoadedTables:
    """Answers of loads. What changes only with a table's definition is written once and kept with it."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[Definition, bytes, bytes]] = {}

    def answer(self, snapshot: Snapshot) -> bytes:
        table, tail = snapshot.table, snapshot.tail
        definition, metadata, uniform = self._written.get(table.id, _NOTHING)
        if definition is not snapshot.definition:
            metadata, uniform = _metadata(snapshot), _uniform(snapshot.definition)
            if len(self._written) >= WRITTEN_LIMIT:
                self._written.clear()
            self._written[table.id] = snapshot.definition, metadata, uniform
        if tail is None:
            return b'{"metadata":%b,"updated-time":%d}%b}' % (metadata, snapshot.updated_at, uniform)
        return b'{"metadata":%b,"updated-time":%d},"commits":%b,"latest-table-version":%d%b%b}' % (
            metadata,
            snapshot.updated_at,
            _kebab(tail.commits),
            tail.latest,
            uniform,
            _MAINTENANCE if snapshot.maintained else b"",
        )


WRITTEN_LIMIT = 4_096
# Without these, clients leave to the catalog what is not plain reading and writing.
_MAINTENANCE = b',"allowed-maintenance-operations":' + encode(
    ["DATA_REORGANIZATION", "DATA_CLEANUP", "METADATA_CLEANUP"]
)
_NOTHING: tuple[Definition | None, bytes, bytes] = (None, b"", b"")


def _metadata(snapshot: Snapshot) -> bytes:
    """Everything about a table but its last change, as an object that is still open."""
    table, definition = snapshot.table, snapshot.definition
    require_delta(table)
    head, columns = definition.head, definition.columns
    partition = head.partition_columns if head.managed else cols.partition_columns(cols.from_kept(columns))
    metadata = Metadata(
        etag=etag_of(table.etag),
        table_type=table.kind,
        table_uuid=table.id,
        location=table.location,
        created_time=table.created_at,
        columns=msgspec.Raw(cols.struct_json(columns)),
        partition_columns=list(partition),
        properties=definition.properties,
    )
    if head.managed or head.updated_timestamp:
        metadata.last_commit_version = head.updated_version
        metadata.last_commit_timestamp_ms = head.updated_timestamp
    return encode(metadata)[:-1]


def require_delta(table: Table) -> None:
    """Clients look for the name of the exception in the text, and ask Unity's own dialect then."""
    if table.format is not Format.DELTA:
        raise UnsupportedFormat(f"UnsupportedTableFormatException: {table.name} is a table of {table.format}")


def _uniform(definition: Definition) -> bytes:
    uniform = definition.head.uniform
    if uniform is None:
        return b""
    iceberg = Iceberg(
        uniform.metadata_location, uniform.converted_version, uniform.converted_at, uniform.base_version
    )
    return b',"uniform":' + encode({"iceberg": iceberg})


def _kebab(commits: bytes) -> bytes:
    """The same commits under this dialect's names; inside of a text a quote has a backslash before it."""
    for theirs, ours in _NAMES:
        commits = commits.replace(theirs, ours)
    return commits


_NAMES = tuple(
    (f'"{name}":'.encode(), f'"{name.replace("_", "-")}":'.encode())
    for name in delta.CommitInfo.__struct_fields__
    if "_" in name
)


def staged_table(staged: Staged, vended: Vended) -> dict[str, Any]:
    """A property of null is one that the engine makes up itself."""
    return {
        "table-id": staged.id,
        "table-type": "MANAGED",
        "location": staged.location,
        "storage-credentials": [storage_credential(vended)],
        "required-protocol": {
            "min-reader-version": delta.Protocol().min_reader,
            "min-writer-version": delta.Protocol().min_writer,
            **_features(delta.REQUIRED_FEATURES),
        },
        "suggested-protocol": _features(delta.RECOMMENDED_FEATURES),
        "required-properties": {**delta.REQUIRED_PROPERTIES, delta.TABLE_ID: staged.id},
        "suggested-properties": dict(delta.RECOMMENDED_PROPERTIES),
    }


def _features(names: Iterable[str]) -> dict[str, list[str]]:
    protocol = delta.with_features(names)
    return {
        "reader-features": list(protocol.reader_features),
        "writer-features": list(protocol.writer_features),
    }


def storage_credential(vended: Vended) -> dict[str, Any]:
    """The keys of one cloud, or none where clients reach the location by themselves."""
    keys = vended.keys
    config: dict[str, str] = {}
    if keys is not None:
        secrets = {
            "s3.secret-access-key": keys.secret_access_key,
            "s3.session-token": keys.session_token,
            "azure.sas-token": keys.sas_token,
            "gcs.oauth-token": keys.oauth_token,
        }
        config = {name: secret.reveal() for name, secret in secrets.items() if secret is not None}
        if keys.access_key_id is not None:
            config["s3.access-key-id"] = keys.access_key_id
    return {
        "prefix": vended.location,
        "operation": vended.access,
        "expiration-time-ms": NEVER_MS if keys is None else keys.expires_at,
        "config": config,
    }


def etag_of(counter: int) -> str:
    return f"etag-{counter}"
