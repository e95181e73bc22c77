"""Which files of a Delta table no retained version needs.

A version needs the files that are live in it, so a file is needed from where it was added up to before
where it was removed. What was removed lately, or after a version that is pinned, is still needed;
so is what records the changes of such versions. Everything else in the table's folder that is old enough
and that nobody else owns may go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from inver.domain.care import HOUR_MS, Options
from inver.domain.delta_actions import Protocol
from inver.domain.locations import Location
from inver.domain.runs import FLOORS
from inver.errors import Invalid, Refused

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
CHANGE_DATA = "_change_data"
ICEBERG_METADATA = "metadata"

FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults"),
        *("changeDataFeed", "columnMapping", "identityColumns", "deletionVectors", "rowTracking"),
        *("timestampNtz", "domainMetadata", "v2Checkpoint", "catalogManaged", "catalogOwned-preview"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1"),
        *("icebergWriterCompatV3", "clustering", "vacuumProtocolCheck", "inCommitTimestamp"),
        *("inCommitTimestamp-preview", "typeWidening", "typeWidening-preview", "variantType"),
        *("variantType-preview", "variantShredding", "variantShredding-preview", "geospatial"),
        *("collations", "collations-preview", "materializePartitionColumns"),
    }
)
"""What a table may require of those who tidy it up: nothing among them adds files or actions of its own."""

_UNITS = {"week": 604_800_000, "day": 86_400_000, "hour": HOUR_MS, "minute": 60_000, "second": 1_000}
_UNITS |= {"millisecond": 1}
_PART = re.compile(r"(\d+)\s+([a-z]+?)s?(?:\s+|$)")
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """What is retained: removed at `since` or later, or by a commit from `version` on."""

    since: int
    version: int | None = None

    def needs(self, at: int, version: int | None) -> bool:
        """Whether what a commit removed, or recorded as changed, is still needed.

        A checkpoint does not say which commit removed a file: then every pin holds it.
        """
        if at >= self.since:
            return True
        return self.version is not None and (version is None or version >= self.version)


def keep(
    options: Options, configuration: Mapping[str, str | None], pinned_from: int | None, now: int
) -> Keep:
    """What a policy, a table's own properties and pins ask for together; Refused below the floor."""
    return Keep(since=now - retention_ms(options, configuration), version=pinned_from)


def retention_ms(options: Options, configuration: Mapping[str, str | None]) -> int:
    return max(_hours_ms(options, "retention_hours"), _interval(configuration, FILE_RETENTION))


def log_retention_ms(options: Options, configuration: Mapping[str, str | None]) -> int:
    """Never less than for files: a version whose files are kept can be read."""
    wanted = max(_hours_ms(options, "log_retention_hours"), _interval(configuration, LOG_RETENTION))
    return max(wanted, retention_ms(options, configuration))


def staged_ms(options: Options) -> int:
    return _hours_ms(options, "staged_hours")


def _hours_ms(options: Options, name: str) -> int:
    hours: float = getattr(options, name)
    if hours < FLOORS[name] and not options.allow_short_retention:
        raise Refused(
            f"{name} of {hours:g} is below the floor of {FLOORS[name]:g}",
            fix="set allow_short_retention if no reader or writer runs that long",
        )
    return int(hours * HOUR_MS)


def _interval(configuration: Mapping[str, str | None], key: str) -> int:
    text = configuration.get(key)
    if text is None:
        return 0
    try:
        return interval_ms(text)
    except Invalid as error:
        raise Refused(f"{key}: {error.message}") from None


def interval_ms(text: str) -> int:
    """`interval 1 week`, `30 days 12 hours`."""
    rest = text.strip().lower().removeprefix("interval").strip()
    total = end = 0
    for part in _PART.finditer(rest):
        if part.start() != end or part[2] not in _UNITS:
            break
        total += int(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not rest or end != len(rest):
        raise Invalid(f"{text!a} is no interval of weeks, days, hours, minutes and seconds")
    return total


def check_features(protocol: Protocol) -> None:
    """Tables may have files and actions that only those who know their features recognize."""
    if protocol.min_reader_version > 3 or protocol.min_writer_version > 7:
        raise Refused(
            f"the table has reader version {protocol.min_reader_version} and writer version "
            f"{protocol.min_writer_version}; 3 and 7 are the last known"
        )
    unknown = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - FEATURES
    if unknown:
        raise Refused(f"the table has features that are not known here: {', '.join(sorted(unknown))}")


def own_path(path: str, table: Location) -> str | None:
    """Where below the table a file of its log lies; None if elsewhere, as those of a shallow clone do.

    Refused where that cannot be told: nothing may be deleted then that could be this file.
    """
    if _ABSOLUTE.match(path):
        try:
            place = Location.parse(path)
        except Invalid:
            raise Refused(f"the log has a file at {path!a}, and no location is spelled like that") from None
        return table.relative(place) if table.contains(place) and place != table else None
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        raise Refused(f"the log has a file at {path!a}, and no path is spelled like that")
    return path


def is_hidden(path: str, partition_columns: Collection[str]) -> bool:
    """Whether a path below the table belongs to somebody else's bookkeeping, the log's above all."""
    segments = path.split("/")
    if segments[0] == ICEBERG_METADATA and len(segments) > 1:
        return True
    if segments[0] == CHANGE_DATA and len(segments) > 1:
        segments = segments[1:]
    return any(
        segment[:1] in ("_", ".") and not _is_partition(segment, partition_columns) for segment in segments
    )


def _is_partition(segment: str, partition_columns: Collection[str]) -> bool:
    name, equals, _ = segment.partition("=")
    return bool(equals) and name in partition_columns


def nested_table(path: str) -> str | None:
    """The folder inside this one that is a table by itself, if this file of it says so."""
    segments = path.split("/")
    for at, segment in enumerate(segments[1:-1], start=1):
        if segment in ("_delta_log", "_versions"):
            return "/".join(segments[:at])
        if segment == ICEBERG_METADATA and segments[-1].endswith(".metadata.json"):
            return "/".join(segments[:at])
    return None


class Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file that lies in the table's folder."""

    path: str
    size: int
    modified: int


def unneeded(
    listed: Sequence[Listed],
    needed: Collection[str],
    since: int,
    partition_columns: Collection[str] = (),
    nested: Collection[str] = (),
) -> list[Listed]:
    """Files that nobody needs and that are older than what anybody could be about to commit."""
    return [
        file
        for file in listed
        if file.modified < since
        and file.path not in needed
        and not is_hidden(file.path, partition_columns)
        and not any(file.path.startswith(folder + "/") for folder in nested)
    ]


REWRITE_MS = HOUR_MS
"""However short a policy says: a rewrite that has lost its lease may still be about to hear of it."""

_STAGED = re.compile(r"(\d{20})\.[^/]+\.json")
_REWRITTEN = re.compile(r"(?:.*/)?care-[0-9a-f-]{36}[^/]*\.parquet")


def is_left_behind(name: str, latest: int, unpublished: Collection[str]) -> bool:
    """Whether a staged commit has lost its race, or is a copy of what is published.

    Above the latest version somebody may still be about to propose it.
    """
    found = _STAGED.fullmatch(name)
    return found is not None and int(found[1]) <= latest and name not in unpublished


def is_rewritten(path: str) -> bool:
    """Whether the file was written by a rewrite of ours. Of those one runs at a time, under a lease."""
    return _REWRITTEN.fullmatch(path) is not None


def is_underway(file: Listed, now: int) -> bool:
    """Whether a rewrite of ours may be about to commit the file."""
    return is_rewritten(file.path) and file.modified > now - REWRITE_MS
