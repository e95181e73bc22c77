"""The rules of Delta Sharing: what is asked, how it may be answered, and within which bounds."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from inver.domain.delta_actions import CHANGE_DATA_FEED, Metadata, Protocol
from inver.domain.delta_schema import mapped, types_were_widened, used_types
from inver.errors import Invalid, Unsupported

_MAX_VERSION = 2**63 - 1

CATALOG_FEATURES = frozenset(
    {
        *("catalogManaged", "catalogOwned-preview", "v2Checkpoint", "vacuumProtocolCheck"),
        *("inCommitTimestamp", "inCommitTimestamp-preview"),
    }
)
"""About the log and who writes it. A recipient makes a log of its own, in which they are not true."""
_CATALOG_PROPERTIES = (
    "delta.inCommitTimestamp",
    "delta.coordinatedCommits",
    "io.unitycatalog.",
    "delta.feature.",
)
_LOG_PROPERTIES = frozenset({"delta.enableInCommitTimestamps", "delta.checkpointPolicy"})


class ResponseFormat(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


class Capabilities(msgspec.Struct, frozen=True):
    """What the header `delta-sharing-capabilities` says. Without formats, it is parquet alone."""

    formats: frozenset[ResponseFormat] = frozenset({ResponseFormat.PARQUET})
    reader_features: frozenset[str] = frozenset()
    """In lower case."""
    end_stream_action: bool = False
    async_query: bool = False


def capabilities(header: str | None) -> Capabilities:
    """Keys and values are compared without case; those that are not known do not count."""
    given: dict[str, frozenset[str]] = {}
    for part in (header or "").lower().split(";"):
        key, _, values = part.partition("=")
        given[key.strip()] = frozenset(filter(None, (value.strip() for value in values.split(","))))
    formats = frozenset(each for each in ResponseFormat if each in given.get("responseformat", ()))
    if given.get("responseformat") and not formats:
        raise Invalid(
            "responseformat names no known format",
            field="delta-sharing-capabilities",
            fix="ask for parquet or delta",
        )
    return Capabilities(
        formats or frozenset({ResponseFormat.PARQUET}),
        given.get("readerfeatures", frozenset()),
        "true" in given.get("includeendstreamaction", ()),
        "true" in given.get("asyncquery", ()),
    )


def used_features(metadata: Metadata, *, vectors: bool) -> set[str]:
    """Reader features without which these files would be read wrongly; a protocol may list more.

    `vectors` is whether one of the files has a deletion vector.
    """
    types = used_types(metadata)
    used = {
        "deletionVectors": vectors,
        "columnMapping": mapped(metadata),
        "timestampNtz": "timestamp_ntz" in types,
        "typeWidening": types_were_widened(metadata),
        "variantType": "variant" in types,
        "geospatial": any(each.startswith(("geometry", "geography")) for each in types),
    }
    return {feature for feature, in_use in used.items() if in_use}


def response_format(
    asked: Capabilities, protocol: Protocol, metadata: Metadata, *, vectors: bool
) -> ResponseFormat:
    """How to answer so that the recipient reads the right rows, or Unsupported with what to ask for."""
    used = used_features(metadata, vectors=vectors)
    if asked.formats == {ResponseFormat.PARQUET}:
        if used:
            raise Unsupported(
                f"the table uses {_listed(used)}, which the parquet response format cannot express",
                fix="ask with the header delta-sharing-capabilities: responseformat=delta;readerfeatures="
                + ",".join(sorted(feature.lower() for feature in used))
                + " (option responseFormat=delta in Spark, use_delta_format=True in Python)",
            )
        return ResponseFormat.PARQUET
    if ResponseFormat.PARQUET in asked.formats and not used and not visible_features(protocol):
        return ResponseFormat.PARQUET
    missing = {feature for feature in used if not _known_to(asked, feature)}
    if missing:
        raise Unsupported(
            f"the table uses {_listed(missing)}, which the recipient does not say that it can read",
            fix="name them in readerfeatures of the header delta-sharing-capabilities",
        )
    return ResponseFormat.DELTA


def visible_features(protocol: Protocol) -> set[str]:
    """The reader features that a recipient would see."""
    if protocol.min_reader_version == 2:
        return {"columnMapping"}
    return set(protocol.reader_features or ()) - CATALOG_FEATURES


def _known_to(asked: Capabilities, feature: str) -> bool:
    return feature.lower() in asked.reader_features or f"{feature}-preview".lower() in asked.reader_features


def _listed(features: Iterable[str]) -> str:
    return ", ".join(sorted(features))


def shared_protocol(
    protocol: Protocol, metadata: Metadata, asked: Capabilities | None = None, *, vectors: bool
) -> Protocol:
    """The protocol without what is true of the catalog's log only, and without reader features that
    the recipient does not know and that none of the files need."""
    if protocol.min_reader_version < 3:
        features = protocol.writer_features
        kept = None if features is None else tuple(f for f in features if f not in CATALOG_FEATURES)
        return msgspec.structs.replace(protocol, writer_features=kept)
    used = used_features(metadata, vectors=vectors)
    dropped = set(CATALOG_FEATURES)
    for feature in protocol.reader_features or ():
        if (
            asked is not None
            and _family(feature) not in used
            and feature.lower() not in asked.reader_features
        ):
            dropped.add(feature)
    return msgspec.structs.replace(
        protocol,
        # Also when none is left: without the list, readers take the protocol for broken.
        reader_features=tuple(f for f in protocol.reader_features or () if f not in dropped),
        writer_features=tuple(f for f in protocol.writer_features or () if f not in dropped),
    )


def _family(feature: str) -> str:
    return "variantType" if feature.startswith("variant") else feature.removesuffix("-preview")


def shared_metadata(metadata: Metadata) -> Metadata:
    """The metadata without properties that are about the catalog's log."""
    kept = {
        key: value
        for key, value in metadata.configuration.items()
        if key not in _LOG_PROPERTIES and not key.startswith(_CATALOG_PROPERTIES)
    }
    return msgspec.structs.replace(metadata, configuration=kept)


class ChangesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Timestamps are milliseconds since 1970. Exactly one start is set, and at most one end."""

    starting_version: int | None = None
    starting_timestamp: int | None = None
    ending_version: int | None = None
    ending_timestamp: int | None = None
    historical_metadata: bool = False
    historical_protocol: bool = False


def changes_request(given: Mapping[str, str]) -> ChangesRequest:
    """The query parameters of `/changes`."""
    for position in ("starting", "ending"):
        if f"{position}Version" in given and f"{position}Timestamp" in given:
            raise Invalid(
                f"Multiple {position} arguments provided for CDF read. Please provide one of either "
                f"{position}Timestamp or {position}Version.",
                field=f"{position}Version",
            )
    if "startingVersion" not in given and "startingTimestamp" not in given:
        raise Invalid(
            "No startingVersion or startingTimestamp provided for CDF read.", field="startingVersion"
        )
    return ChangesRequest(
        starting_version=version_parameter(given, "startingVersion"),
        starting_timestamp=timestamp_parameter(given, "startingTimestamp"),
        ending_version=version_parameter(given, "endingVersion"),
        ending_timestamp=timestamp_parameter(given, "endingTimestamp"),
        historical_metadata=flag(given, "includeHistoricalMetadata"),
        historical_protocol=flag(given, "includeHistoricalProtocol"),
    )


def version_parameter(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.removeprefix("-").isdigit() and abs(int(text)) <= _MAX_VERSION):
        raise Invalid(f"{name} is not a valid number.", field=name)
    if text.startswith("-"):
        raise Invalid(f"{name} cannot be negative.", field=name)
    return int(text)


def timestamp_parameter(given: Mapping[str, str], name: str) -> int | None:
    """ISO 8601 with a zone; milliseconds since 1970, what is smaller cut off."""
    text = given.get(name)
    if text is None:
        return None
    try:
        # In a query, the plus of a zone arrives as a space.
        moment = datetime.datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text)
        if moment.tzinfo is None:
            raise ValueError("it has no zone")
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError) as error:
        raise Invalid(
            f"Invalid {name}: {text!a} is no ISO 8601 timestamp with a zone, such as "
            f"2022-01-01T00:00:00Z ({error})",
            field=name,
        ) from None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def flag(given: Mapping[str, str], name: str) -> bool:
    """`true` by some clients, `True` by others."""
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise Invalid(f"{name} must be true or false.", field=name)
    return text == "true"


class Moment(msgspec.Struct, frozen=True):
    """A version and when it was committed, in milliseconds since 1970."""

    version: int
    timestamp: int


def starting_at(timestamp: int, found: int | None, latest: Moment, field: str = "startingTimestamp") -> int:
    """The first version at or after a timestamp is `found`; there is none when it is after the last.

    One before the first commit starts with the first, as the specification has it.
    """
    if found is None:
        raise Invalid(
            f"The provided timestamp ({instant(timestamp)}) is after the latest version available to this "
            f"table ({instant(latest.timestamp)}). Please use a timestamp before or at "
            f"{instant(latest.timestamp)}.",
            field=field,
        )
    return found


def as_of(timestamp: int, found: int | None, earliest: Moment, field: str) -> int:
    """The last version at or before a timestamp is `found`; there is none when it is before the first."""
    if found is None:
        raise Invalid(
            f"The provided timestamp ({instant(timestamp)}) is before the earliest version available to this "
            f"table ({instant(earliest.timestamp)}). Please use a timestamp at or after "
            f"{instant(earliest.timestamp)}.",
            field=field,
        )
    return found


def instant(timestamp: int) -> str:
    moment = _EPOCH + _MILLISECOND * timestamp
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def changes_bounds(
    start: int, end: int | None, *, latest: int, earliest: int, shared_since: int = 0
) -> tuple[int, int]:
    """The versions whose changes are told, both included. An end beyond the latest is the latest.

    `earliest` is the oldest version whose commit is still in the log, `shared_since` the version
    from which on the share has the table's history.
    """
    if start < shared_since:
        raise Invalid(
            f"You can only query table changes since version {shared_since}.", field="startingVersion"
        )
    if start > latest:
        raise Invalid(
            f"Provided Start version({start}) for reading change data is invalid. Start version cannot be "
            f"greater than the latest version of the table({latest}).",
            field="startingVersion",
        )
    if end is not None and end < start:
        raise Invalid(
            f"CDF range from start {start} to end {end} was invalid. End cannot be before start.",
            field="endingVersion",
        )
    if start < earliest:
        raise Invalid(
            f"The table's log has been cleaned, and version {start} is no longer in it. The earliest "
            f"available version is {earliest}.",
            field="startingVersion",
        )
    return start, latest if end is None else min(end, latest)


def check_recorded(start: int, end: int, at_start: Metadata, later: Iterable[tuple[int, Metadata]]) -> None:
    """Change data must be recorded at the start and never be turned off; `later` are the versions
    after the start that changed metadata."""
    for version, metadata in [(start, at_start), *later]:
        if not metadata.enabled(CHANGE_DATA_FEED):
            raise Invalid(
                f"Error getting change data for range [{start}, {end}] as change data was not recorded for "
                f"version [{version}]",
                field="startingVersion",
            )


def not_shared(name: str) -> Invalid:
    """The share has the table without its history."""
    return Invalid(f"cdf is not enabled on table {name}", field="table")


def check_query(version: int | None, timestamp: int | None, starting_version: int | None) -> None:
    given = [each for each in (version, timestamp, starting_version) if each is not None]
    if len(given) > 1:
        raise Invalid("Please only provide one of: version,timestamp,startingVersion", field="version")


def query_version(version: int, *, latest: int, shared_since: int = 0) -> int:
    if version < shared_since:
        raise Invalid(f"You can only query table data since version {shared_since}.", field="version")
    if version > latest:
        raise Invalid(
            f"Provided version({version}) is invalid. The latest version of the table is {latest}.",
            field="version",
        )
    return version


def query_bounds(
    start: int, end: int | None, *, latest: int, earliest: int, shared_since: int = 0
) -> tuple[int, int]:
    """The versions of a query with `startingVersion`, where an end beyond the latest is refused."""
    if end is not None and end > latest:
        raise Invalid(
            f"Provided End version({end}) is invalid. End version cannot be greater than the latest version "
            f"of the table({latest}).",
            field="endingVersion",
        )
    return changes_bounds(start, end, latest=latest, earliest=earliest, shared_since=shared_since)
