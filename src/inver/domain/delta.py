"""Delta's rules for catalog-managed tables: what one must be, what a commit may change, what is derived."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from inver.domain.ledger import Counts
from inver.errors import Invalid

TABLE_ID = "io.unitycatalog.tableId"
CATALOG_MANAGED = "catalogManaged"
STAGED_FOLDER = "_delta_log/_staged_commits"

REQUIRED_FEATURES = (CATALOG_MANAGED, "inCommitTimestamp", "vacuumProtocolCheck")
RECOMMENDED_FEATURES = ("deletionVectors", "v2Checkpoint")
REQUIRED_PROPERTIES = {"delta.enableInCommitTimestamps": "true"}
RECOMMENDED_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}

# Told to clients, computed from the table's state, and never stored as a property of its own.
DERIVED_KEYS = frozenset(
    {
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.lastUpdateVersion",
        "delta.lastCommitTimestamp",
        "delta.rowTracking.rowIdHighWaterMark",
        "delta.clusteringColumns",
        "clusteringColumns",
    }
)
_FEATURE = "delta.feature."
_READER_FEATURES = frozenset(
    {
        "catalogManaged",
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding-preview",
    }
)


class Protocol(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table's protocol action; the names are those of the Delta log."""

    min_reader: int = msgspec.field(default=3, name="minReaderVersion")
    min_writer: int = msgspec.field(default=7, name="minWriterVersion")
    reader_features: tuple[str, ...] = msgspec.field(default=(), name="readerFeatures")
    writer_features: tuple[str, ...] = msgspec.field(default=(), name="writerFeatures")


class Uniform(msgspec.Struct, frozen=True):
    """The Iceberg metadata that a writer made of a Delta version."""

    metadata_location: str
    converted_version: int
    converted_at: int
    base_version: int | None = None


class DeltaHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the catalog knows of a Delta table beyond names, properties and columns.

    `updated_version` and `updated_timestamp` are those of the last commit that changed metadata.
    """

    protocol: Protocol = Protocol()
    partition_columns: tuple[str, ...] = ()
    domains: dict[str, Any] = {}
    updated_version: int = 0
    updated_timestamp: int = 0
    uniform: Uniform | None = None
    managed: bool = True


class Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: list[list[str]]


class RowTracking(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Metadata(msgspec.Struct, frozen=True):
    """The metadata action of a commit, as far as the catalog compares it."""

    id: str
    schema: bytes
    partition_columns: tuple[str, ...]
    properties: dict[str, str]
    name: str | None = None
    description: str | None = None


class CommitSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit file says."""

    timestamp: int | None = None
    operation: str | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: dict[str, str | None] = {}
    counts: Counts = Counts()


class CommitInfo(msgspec.Struct, frozen=True):
    """A staged commit as its writer proposes it."""

    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


CLUSTERING, ROW_TRACKING = "delta.clustering", "delta.rowTracking"
_DOMAINS: dict[str, type[msgspec.Struct]] = {CLUSTERING: Clustering, ROW_TRACKING: RowTracking}
_FEATURES_OF_DOMAINS = {CLUSTERING: "clustering", ROW_TRACKING: "rowTracking"}
_USUAL_NAME = re.compile(r"[0-9]{20}\.[0-9a-f-]{36}\.json").fullmatch
_VERSION = re.compile(r"([0-9]{20})\.").match
_decode_head = msgspec.json.Decoder(DeltaHead).decode


def head_of(stored: bytes | None) -> DeltaHead:
    return DeltaHead(managed=False) if stored is None else _decode_head(stored)


def read_domain(name: str, configuration: str) -> dict[str, Any] | None:
    """What a commit file says of a domain; None for domains that mean nothing to the catalog.

    Those belong to their writers, who may keep any text in them.
    """
    kind = _DOMAINS.get(name)
    if kind is None:
        return None
    try:
        found: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(configuration, type=kind))
    except (msgspec.DecodeError, RecursionError):
        raise Invalid(f"the commit file has no valid {name}", field="domain-metadata") from None
    return found


def check_commit_info(info: CommitInfo, field: str = "commit_info") -> None:
    if (
        info.version > 0
        and info.timestamp > 0
        and info.file_size > 0
        and info.file_modification_timestamp > 0
        and _USUAL_NAME(info.file_name)
        and int(info.file_name[:20]) == info.version
    ):
        return
    for name in ("version", "timestamp", "file_size", "file_modification_timestamp"):
        if getattr(info, name) <= 0:
            raise Invalid(f"the {name.replace('_', ' ')} must be greater than 0", field=f"{field}.{name}")
    check_file_name(info.file_name, info.version, f"{field}.file_name")


def check_file_name(name: str, version: int, field: str) -> None:
    """One path segment: a staged commit lies in the table's own folder and nowhere else.

    Readers take the version from a name that begins with one, whatever the catalog says of it.
    """
    if not name or "/" in name or "\\" in name or name in (".", "..") or not name.endswith(".json"):
        raise Invalid("this must be the name of one .json file", field=field)
    if not name.isprintable() or len(name.encode()) > 255 or "%" in name:
        raise Invalid("the name has characters that no staged commit has", field=field)
    named = _VERSION(name)
    if named is not None and int(named[1]) != version:
        raise Invalid(
            f"the name is one of version {int(named[1])}, the commit is version {version}", field=field
        )


def require_managed(
    table_id: str,
    protocol: Protocol,
    properties: Mapping[str, str],
    features: Iterable[str] = REQUIRED_FEATURES,
) -> None:
    """Refuse what is not a catalog-managed table of this id; each message names its field."""
    if protocol.min_reader < 3:
        raise Invalid("minReaderVersion must be at least 3", field="delta.minReaderVersion")
    if protocol.min_writer < 7:
        raise Invalid("minWriterVersion must be at least 7", field="delta.minWriterVersion")
    for feature in features:
        if feature not in protocol.writer_features:
            raise Invalid(
                f"the table feature {feature} is required",
                field=_FEATURE + feature,
                fix="add it to the protocol",
            )
        if feature in _READER_FEATURES and feature not in protocol.reader_features:
            raise Invalid(f"the reader feature {feature} is required", field=_FEATURE + feature)
    stray = set(protocol.reader_features) - set(protocol.writer_features)
    if stray:
        raise Invalid(f"{min(stray)} is a reader feature and no writer feature", field=_FEATURE + min(stray))
    require_properties(table_id, properties)


def require_properties(table_id: str, properties: Mapping[str, str]) -> None:
    if properties.get(TABLE_ID) != table_id:
        raise Invalid(
            f"{TABLE_ID} must be the id of the staging table",
            field=TABLE_ID,
            fix=f"set it to {table_id}",
        )
    for key, value in REQUIRED_PROPERTIES.items():
        if properties.get(key) != value:
            raise Invalid(f"the property {key} must be {value}", field=key)


def require_features(protocol: Protocol, domains: Iterable[str]) -> None:
    """A domain of Delta is that of a feature, without which no reader looks at it."""
    for name in domains:
        feature = _FEATURES_OF_DOMAINS.get(name)
        if feature is not None and feature not in protocol.writer_features:
            raise Invalid(
                f"the domain {name} needs the table feature {feature}",
                field=name,
                fix="add it to the protocol",
            )


def stored_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Without what is derived from the table's state."""
    return {
        key: value
        for key, value in properties.items()
        if key not in DERIVED_KEYS and not key.startswith(_FEATURE)
    }


def shown_properties(head: DeltaHead, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties as clients expect them back: the stored ones and those that follow from the state."""
    if not head.managed and head.protocol == Protocol():
        # Nobody has told the catalog what the log of this table says.
        return dict(properties)
    shown = dict(properties)
    for feature in head.protocol.writer_features:
        shown[_FEATURE + feature] = "supported"
    shown["delta.minReaderVersion"] = str(head.protocol.min_reader)
    shown["delta.minWriterVersion"] = str(head.protocol.min_writer)
    shown["delta.lastUpdateVersion"] = str(head.updated_version)
    shown["delta.lastCommitTimestamp"] = str(head.updated_timestamp)
    clustering = head.domains.get(CLUSTERING)
    if clustering is not None and "clusteringColumns" in clustering:
        shown["clusteringColumns"] = msgspec.json.encode(clustering["clusteringColumns"]).decode()
    tracking = head.domains.get(ROW_TRACKING)
    if tracking is not None and "rowIdHighWaterMark" in tracking:
        shown["delta.rowTracking.rowIdHighWaterMark"] = str(tracking["rowIdHighWaterMark"])
    return shown


def spelled_protocol(properties: Mapping[str, str]) -> Protocol | None:
    """What a property map says of the protocol; None if it names no feature, and so says nothing."""
    return protocol_of(properties) if any(key.startswith(_FEATURE) for key in properties) else None


def is_same_protocol(one: Protocol, other: Protocol) -> bool:
    """As far as properties can tell: which features concern readers is left to the log."""
    return (one.min_reader, one.min_writer, set(one.writer_features)) == (
        other.min_reader,
        other.min_writer,
        set(other.writer_features),
    )


def protocol_of(properties: Mapping[str, str]) -> Protocol:
    """The protocol that a property map of the older dialects spells out."""
    told = {key[len(_FEATURE) :]: value for key, value in properties.items() if key.startswith(_FEATURE)}
    for feature, value in told.items():
        if value not in ("supported", "enabled"):
            raise Invalid(f"{_FEATURE}{feature} must be supported", field=_FEATURE + feature)
    return with_features(
        told,
        _number(properties, "delta.minReaderVersion", 1),
        _number(properties, "delta.minWriterVersion", 1),
    )


def with_features(features: Iterable[str], min_reader: int = 3, min_writer: int = 7) -> Protocol:
    names = tuple(sorted(features))
    return Protocol(min_reader, min_writer, tuple(name for name in names if name in _READER_FEATURES), names)


def _number(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"{key} must be a whole number", field=key)
    return int(text)


def published_name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def staged_name(file_name: str) -> str:
    return f"{STAGED_FOLDER}/{file_name}"
