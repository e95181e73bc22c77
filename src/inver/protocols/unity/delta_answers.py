"""What delta/v1 answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from inver.domain import delta
from inver.domain.tables import Format
from inver.protocols.unity import columns as cols
from inver.protocols.unity.errors import UnsupportedFormat
from inver.services.credentials import Vended
from inver.services.delta.types import Loaded, Staged

# For a location that needs no keys, and so none that expire.
NEVER_MS = 253_402_300_799_000

SUGGESTED_PROPERTIES: Mapping[str, str | None] = {
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}


class Commit(msgspec.Struct, rename="kebab"):
    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


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
    updated_time: int
    columns: msgspec.Raw
    partition_columns: list[str]
    properties: dict[str, str]
    last_commit_version: int | None = None
    last_commit_timestamp_ms: int | None = None


class LoadedTable(msgspec.Struct, kw_only=True, rename="kebab", omit_defaults=True):
    metadata: Metadata
    commits: list[Commit] | None = None
    uniform: dict[str, Iceberg] | None = None
    latest_table_version: int | None = None


def loaded_table(loaded: Loaded) -> LoadedTable:
    table, head, tail = loaded.table, loaded.head, loaded.tail
    if table.format is not Format.DELTA:
        raise UnsupportedFormat(
            f"UnsupportedTableFormatException: {'.'.join(loaded.full_name)} is a table of {table.format}"
        )
    columns = loaded.details.columns
    partition = head.partition_columns if head.managed else cols.partition_columns(cols.from_kept(columns))
    answer = LoadedTable(
        metadata=Metadata(
            etag=etag_of(table.etag),
            table_type=table.kind,
            table_uuid=table.id,
            location=table.location,
            created_time=table.created_at,
            updated_time=table.updated_at,
            columns=msgspec.Raw(cols.struct_json(columns)),
            partition_columns=list(partition),
            properties=loaded.properties,
        )
    )
    if head.managed or head.updated_timestamp:
        answer.metadata.last_commit_version = head.updated_version
        answer.metadata.last_commit_timestamp_ms = head.updated_timestamp
    if tail is not None:
        answer.commits = [
            Commit(
                info.version,
                info.timestamp,
                info.file_name,
                info.file_size,
                info.file_modification_timestamp,
            )
            for info in tail.commits
        ]
        answer.latest_table_version = tail.latest
    if head.uniform is not None:
        uniform = head.uniform
        answer.uniform = {
            "iceberg": Iceberg(
                uniform.metadata_location,
                uniform.converted_version,
                uniform.converted_at,
                uniform.base_version,
            )
        }
    return answer


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
        "suggested-properties": dict(SUGGESTED_PROPERTIES),
    }


def _features(names: Iterable[str]) -> dict[str, list[str]]:
    protocol = delta.protocol_of({f"delta.feature.{name}": "supported" for name in names})
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
