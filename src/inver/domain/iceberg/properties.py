"""Table properties that the catalog itself obeys."""

from __future__ import annotations

from collections.abc import Mapping

from inver.domain.iceberg.failures import IllegalArgument
from inver.domain.iceberg.nodes import INT_MAX, listed
from inver.domain.iceberg.schemas import Schema
from inver.errors import Invalid

FORMAT_VERSION = "format-version"
DEFAULT_FORMAT_VERSION = 2
SUPPORTED_FORMAT_VERSION = 3
PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
ENCRYPTION_KEY_ID = "encryption.key-id"

RESERVED = frozenset(
    {
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Words of tools that set what is no property: they act on creation and are never kept."""

_NEW_TABLES = {"write.parquet.compression-codec": "zstd"}
_METRICS_COLUMN = "write.metadata.metrics.column."
_ENCRYPTION = (ENCRYPTION_KEY_ID, "encryption.data-key-length")
_COMMIT = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    written = properties.get(name)
    if written is None:
        return default
    digits = written[1:] if written[:1] in ("-", "+") else written
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and abs(int(written)) <= INT_MAX):
        raise IllegalArgument(f"Invalid value of {name}, must be an integer: {written}", field=name)
    return int(written)


def flag(properties: Mapping[str, str], name: str, default: bool = False) -> bool:
    written = properties.get(name)
    return default if written is None else written.lower() == "true"


def new_table_version(properties: Mapping[str, str]) -> int:
    version = whole_number(properties, FORMAT_VERSION, DEFAULT_FORMAT_VERSION)
    check_supported(version)
    return version


def check_supported(version: int) -> None:
    if not 1 <= version <= SUPPORTED_FORMAT_VERSION:
        message = f"Unsupported format version: v{version} (supported: v{SUPPORTED_FORMAT_VERSION})"
        raise IllegalArgument(message, field=FORMAT_VERSION)


def new_table_properties(given: Mapping[str, str], schema: Schema, version: int) -> dict[str, str]:
    """What a new table keeps of the properties that were asked for."""
    kept = _NEW_TABLES | {name: value for name, value in given.items() if name not in RESERVED}
    names = frozenset(schema.names.values())
    for name in kept:
        column = name.removeprefix(_METRICS_COLUMN)
        if name.startswith(_METRICS_COLUMN) and column not in names:
            message = (
                f"Invalid metrics config, could not find column {column} from table prop {name} in the schema"
            )
            raise Invalid(message, field=name)
    for name in _COMMIT:
        try:
            negative = whole_number(kept, name, 0) < 0
        except IllegalArgument:
            raise Invalid(f"Table property {name} must have integer value", field=name) from None
        if negative:
            raise Invalid(f"Table property {name} must have non negative integer value", field=name)
    encryption = [name for name in _ENCRYPTION if name in kept]
    if version < 3 and encryption:
        message = f"Invalid properties for v{version}: {listed(encryption)}"
        raise IllegalArgument(message, field=encryption[0])
    return kept


def check_key_kept(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """The key that an encrypted table was created with stays its key."""
    key = before.get(ENCRYPTION_KEY_ID)
    if key is not None and after.get(ENCRYPTION_KEY_ID) != key:
        raise IllegalArgument(
            f"Cannot change {ENCRYPTION_KEY_ID} of an encrypted table", field=ENCRYPTION_KEY_ID
        )
