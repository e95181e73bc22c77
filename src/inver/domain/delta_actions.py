"""The actions of a Delta log, with the names that the log gives them.

A data file is known by its path, decoded once, together with the id of its deletion vector: the
same file with another vector is another logical file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias
from urllib.parse import unquote

import msgspec

from inver.errors import Invalid

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Words: TypeAlias = dict[str, str | None]
FileKey: TypeAlias = tuple[str, str | None]

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
ICT_VERSION = "delta.inCommitTimestampEnablementVersion"
CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
COLUMN_MAPPING = "delta.columnMapping.mode"


class DeletionVector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: _Amount
    cardinality: _Amount
    offset: _Amount | None = None

    @property
    def id(self) -> str:
        return vector_id(self.storage_type, self.path_or_inline_dv, self.offset)


def vector_id(storage_type: str, path_or_inline_dv: str, offset: int | None) -> str:
    text = storage_type + path_or_inline_dv
    return text if offset is None else f"{text}@{offset}"


class Add(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    partition_values: Words
    size: _Amount
    modification_time: int = 0
    data_change: bool = True
    stats: str | None = None
    tags: Words | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None


class Remove(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    data_change: bool = True
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: Words | None = None
    size: _Amount | None = None
    stats: str | None = None
    tags: Words | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None


class Cdc(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    path: str
    partition_values: Words
    size: _Amount
    tags: Words | None = None


DataFile: TypeAlias = Add | Remove | Cdc


def decoded(path: str) -> str:
    """A path as storage knows it. The log has it percent-encoded, once."""
    if "%" not in path:
        return path
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"the path {path!a} is not percent-encoded UTF-8", field="table") from None


def file_key(action: Add | Remove) -> FileKey:
    vector = action.deletion_vector
    return decoded(action.path), None if vector is None else vector.id


class Protocol(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Features are None where the versions say everything, which is not the same as an empty list."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class FileFormat(msgspec.Struct, frozen=True):
    provider: str = "parquet"
    options: Words = {}


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    schema_string: str = '{"type":"struct","fields":[]}'
    partition_columns: tuple[str, ...] = ()
    configuration: Words = {}
    format: FileFormat = FileFormat()
    name: str | None = None
    description: str | None = None
    created_time: int | None = None

    def enabled(self, key: str) -> bool:
        return (self.configuration.get(key) or "").lower() == "true"


class CommitInfo(msgspec.Struct, rename="camel", gc=False):
    in_commit_timestamp: int | None = None
    operation: str | None = None
    operation_metrics: dict[str, object] | None = None


class CommitChanges(msgspec.Struct, frozen=True):
    """Files that tell what a version changed; `protocol` and `metadata` are set where it changes them,
    `standing` is the metadata that it has either way."""

    version: int
    timestamp: int
    files: Sequence[DataFile]
    standing: Metadata
    protocol: Protocol | None = None
    metadata: Metadata | None = None


class DomainMetadata(msgspec.Struct, frozen=True):
    domain: str
    configuration: str = ""
    removed: bool = False


class AppTransaction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    app_id: str
    version: int
    last_updated: int | None = None


class Sidecar(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    size_in_bytes: int = 0
    modification_time: int = 0


class TableHead(msgspec.Struct, frozen=True):
    """What readers must know of a version before its files."""

    protocol: Protocol
    metadata: Metadata


class TableState(msgspec.Struct, kw_only=True):
    """What a log says of a table besides its files, as of one version."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, str] = {}
    transactions: dict[str, AppTransaction] = {}
