"""Tables that the catalog makes itself: which features and properties their definition takes.

What needs more than a line in version 0 (names of columns in the files, ids of rows, constraints) is
left to writers that know how to keep it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inver.domain import delta
from inver.domain.datatypes import DataType
from inver.domain.delta import Protocol
from inver.errors import Invalid

_OF_TYPE = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_OF_PROPERTY = {"delta.appendOnly": "appendOnly", "delta.enableChangeDataFeed": "changeDataFeed"}
# Of the properties that mean something to Delta, those that need no feature.
_PLAIN = frozenset(
    "delta." + name
    for name in (
        "autoOptimize.autoCompact",
        "autoOptimize.optimizeWrite",
        "checkpointInterval",
        "dataSkippingNumIndexedCols",
        "dataSkippingStatsColumns",
        "deletedFileRetentionDuration",
        "enableExpiredLogCleanup",
        "isolationLevel",
        "logRetentionDuration",
        "parquet.compression.codec",
        "randomizeFilePrefixes",
        "setTransactionRetentionDuration",
        "targetFileSize",
        "tuneFileSizesForRewrites",
    )
)

_UNFIT = frozenset(" ,;{}()=\n\t")


def properties_of(table_id: str, asked: Mapping[str, str]) -> dict[str, str]:
    """With those that a managed table has anyway; the recommended ones can be asked for otherwise."""
    standing = {**delta.REQUIRED_PROPERTIES, delta.TABLE_ID: table_id}
    for key, value in asked.items():
        if standing.get(key, value) != value:
            raise Invalid(f"the property {key} is the catalog's to set", field=f"properties.{key}")
        known = key in _PLAIN or key in _OF_PROPERTY or key in delta.RECOMMENDED_PROPERTIES or key in standing
        if key.startswith("delta.") and not known:
            raise Invalid(
                f"the catalog does not know how to make a table with {key}",
                field=f"properties.{key}",
                fix="leave it out, or let Spark create the table",
            )
    return {**delta.RECOMMENDED_PROPERTIES, **asked, **standing}


def protocol_for(fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> Protocol:
    features = {*delta.REQUIRED_FEATURES, *delta.RECOMMENDED_FEATURES}
    features |= {_OF_PROPERTY[key] for key in _OF_PROPERTY if properties.get(key, "").lower() == "true"}
    features |= {_OF_TYPE[kind] for kind in _simple(fields) if kind in _OF_TYPE}
    if not all(field["nullable"] for field in fields):
        # What Delta's own writers ask for where a column must have values.
        features.add("invariants")
    return delta.with_features(features)


def check_fields(fields: Sequence[Mapping[str, Any]], partition_columns: Sequence[str]) -> tuple[str, ...]:
    """Refuse what the log has no form for; the partition columns, spelled as the columns are."""
    for kind in _simple(fields):
        if kind.startswith(("char", "varchar", "interval")) or kind == "void":
            raise Invalid(f"columns of a Delta table cannot be of the type {kind}", field="schema")
    for name in _names(fields):
        if not _UNFIT.isdisjoint(name):
            raise Invalid(
                f"the column {name!r} has a character that files of a Delta table cannot have in names",
                field="schema",
                fix="leave out blanks and any of ,;{}()=",
            )
    found = {str(field["name"]).lower(): field for field in fields}
    spelled = []
    for name in partition_columns:
        field = found.get(name.lower())
        if field is None:
            raise Invalid(f"the partition column {name!r} is no column", field="partition_by")
        if not isinstance(field["type"], str) or field["type"] in ("variant", "binary"):
            raise Invalid(f"{name!r} has a type that cannot be partitioned by", field="partition_by")
        spelled.append(str(field["name"]))
    if len(set(spelled)) < len(spelled):
        raise Invalid("a partition column is there twice", field="partition_by")
    if len(spelled) == len(found):
        raise Invalid("a table has columns besides those that it is partitioned by", field="partition_by")
    return tuple(spelled)


def _simple(fields: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return (kind for kind in _types({"type": "struct", "fields": fields}) if isinstance(kind, str))


def _names(fields: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for kind in _types({"type": "struct", "fields": fields}):
        if isinstance(kind, dict):
            yield from (field["name"] for field in kind.get("fields", ()))


def _types(kind: DataType) -> Iterator[DataType]:
    """A type and all that it is made of."""
    yield kind
    if isinstance(kind, dict):
        parts = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
        for part in (*parts, *(field["type"] for field in kind.get("fields", ()))):
            yield from _types(part)
