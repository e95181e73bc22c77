"""What becomes of a rewrite when others have committed first.

the winner...                                        the rewrite...
only adds files                                      goes on; only its commit is made anew
removes or adds again a file of a bin                drops this bin and keeps the others
changes the schema, partitioning, mapping, tracking  is given up
needs a writer feature that is not known here        is given up
changes properties that files do not depend on       goes on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from inver.domain.delta_actions import Metadata, Protocol
from inver.domain.delta_bins import Bin
from inver.errors import Conflict, Unsupported

ROW_TRACKING = "delta.rowTracking"
CLUSTERING = "delta.clustering"
CATALOG_MANAGED = frozenset({"catalogManaged", "catalogOwned-preview"})

WRITER_FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
        *("allowColumnDefaults", "identityColumns", "columnMapping", "deletionVectors", "timestampNtz"),
        *("domainMetadata", "rowTracking", "clustering", "v2Checkpoint", "checkpointProtection"),
        *("inCommitTimestamp", "inCommitTimestamp-preview", "vacuumProtocolCheck"),
        *("typeWidening", "typeWidening-preview", *CATALOG_MANAGED),
    }
)
"""What a table may ask of those who copy its rows from file to file."""
_LAST_WRITER_VERSION = 7

# On these depends how a file must be written, or what its actions must say.
_SHAPES_FILES = (
    "delta.columnMapping.",
    "delta.enableRowTracking",
    "delta.rowTracking",
    "delta.enableIcebergCompat",
    "delta.universalFormat.",
    "delta.parquet.",
    "delta.enableVariantShredding",
)


class Standing(msgspec.Struct, frozen=True):
    """What a commit of the next version builds on. `timestamp` is that of the last commit."""

    version: int
    timestamp: int
    protocol: Protocol
    metadata: Metadata
    domains: dict[str, str]

    @property
    def high_water_mark(self) -> int:
        """The greatest row id that was given out, -1 before the first."""
        try:
            found = msgspec.json.decode(self.domains.get(ROW_TRACKING, "{}"), type=_Tracking)
        except msgspec.DecodeError:
            raise Unsupported("the domain delta.rowTracking of the table is not understood") from None
        return found.mark

    @property
    def gives_row_ids(self) -> bool:
        """Whether every file that is added must have row ids: the feature asks for it, used or not."""
        features = self.protocol.writer_features or ()
        return "rowTracking" in features and not self.metadata.enabled("delta.rowTrackingSuspended")

    @property
    def keeps_row_ids(self) -> bool:
        return self.gives_row_ids and self.metadata.enabled("delta.enableRowTracking")


class _Tracking(msgspec.Struct):
    mark: int = msgspec.field(default=-1, name="rowIdHighWaterMark")


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was first. `touched` are the paths of all files that it adds or removes."""

    version: int
    timestamp: int
    touched: frozenset[str] = frozenset()
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    domains: Mapping[str, str | None] = {}


def follow(standing: Standing, winner: Winner) -> Standing:
    """The table after a winner, or Conflict where files made for what was before are of no use."""
    if winner.version != standing.version + 1:
        raise ValueError(f"version {winner.version} does not follow {standing.version}")
    if winner.protocol is not None:
        try:
            check_writer(winner.protocol)
        except Unsupported as unknown:
            raise Conflict(f"version {winner.version} changed the protocol: {unknown.message}") from None
    if winner.metadata is not None:
        changed = _changed_shape(standing.metadata, winner.metadata)
        if changed:
            raise Conflict(f"version {winner.version} changed {changed}")
    domains = dict(standing.domains)
    for name, value in winner.domains.items():
        if name == CLUSTERING and domains.get(name) != value:
            raise Conflict(f"version {winner.version} changed the clustering columns")
        if value is None:
            domains.pop(name, None)
        else:
            domains[name] = value
    return Standing(
        winner.version,
        max(winner.timestamp, standing.timestamp),
        winner.protocol or standing.protocol,
        winner.metadata or standing.metadata,
        domains,
    )


def untouched(bins: Iterable[Bin], winner: Winner) -> list[Bin]:
    """The bins of which the winner has left every file as it was."""
    return [each for each in bins if winner.touched.isdisjoint(each.paths)]


def check_writer(protocol: Protocol) -> None:
    """Unsupported, unless everything that the table asks of its writers is known here."""
    if protocol.min_writer_version > _LAST_WRITER_VERSION:
        raise Unsupported(
            f"the table requires writer version {protocol.min_writer_version}; "
            f"{_LAST_WRITER_VERSION} is the last known"
        )
    unknown = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
    if unknown:
        raise Unsupported(f"the table requires writer features that are not known here: {', '.join(unknown)}")


def _changed_shape(before: Metadata, after: Metadata) -> str | None:
    if before.id != after.id:
        return "the table itself"
    if before.schema_string != after.schema_string:
        return "the schema"
    if before.partition_columns != after.partition_columns:
        return "the partitioning"
    for key in sorted({*before.configuration, *after.configuration}):
        same = before.configuration.get(key) == after.configuration.get(key)
        if not same and key.startswith(_SHAPES_FILES):
            return f"the property {key}"
    return None
