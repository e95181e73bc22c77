"""Data files of Iceberg tables told as Delta's: partition values, statistics, deletion vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from inver.domain.delta_actions import Add, DeletionVector, Words
from inver.domain.iceberg.as_delta import NAME_MAPPING, DeltaSchema, inexpressible
from inver.domain.iceberg.content import Content, ContentFile, Manifest, Metrics
from inver.domain.iceberg.partitions import Spec
from inver.domain.iceberg.schemas import Field, Schema, StructType, kind_of
from inver.domain.iceberg.values import from_binary, to_json
from inver.errors import Unsupported

IDENTITY = "identity"
PARQUET = "parquet"
_PARTITIONING = frozenset(["boolean", "int", "long", "date", "decimal", "string"])
"""Types whose partition values every reader of Delta reads alike."""
_BOUNDED = frozenset(
    ["int", "long", "float", "double", "date", "decimal", "string", "timestamp", "timestamptz"]
)
_encode = msgspec.json.encode


def partition_columns(
    schema: Schema, specs: Mapping[int, Spec], manifests: Sequence[Manifest], default: int
) -> tuple[Field, ...]:
    """The columns that are a partition value of every file which the manifests list.

    Files have these columns too, so that one which is left out is read like any other. An empty text is left
    out: to Delta it is null. Without manifests, it is the partitioning of files to come.
    """
    data = [manifest for manifest in manifests if manifest.content is Content.DATA]
    used: list[tuple[Spec, Manifest | None]] = [(specs[default], None)] if not data else []
    for manifest in data:
        used += [(spec, manifest) for spec in _specs_of(manifest, specs)]
    found = tuple(
        field
        for field in schema.struct.fields
        if isinstance(field.type, str)
        and kind_of(field.type) in _PARTITIONING
        and all(_partitions(field, spec, manifest) for spec, manifest in used)
    )
    # Delta has no files without any column.
    return found if len(found) < len(schema.struct.fields) else ()


def check_partitions(
    properties: Mapping[str, str],
    specs: Mapping[int, Spec],
    manifests: Sequence[Manifest],
    told: Sequence[Field],
) -> None:
    """Files that came from elsewhere may lack the columns that they are partitioned by."""
    if NAME_MAPPING not in properties:
        return
    ids = {field.id for field in told}
    for manifest in manifests:
        for spec in _specs_of(manifest, specs):
            for field in spec.fields:
                if field.transform == IDENTITY and field.source_id not in ids:
                    raise inexpressible(
                        f"files of the table may not have the column of partition field {field.name!a}"
                    )


def alike(manifests: Iterable[Manifest]) -> list[Manifest]:
    """One manifest for all that mean the same for partition columns: there are few kinds of them."""
    kinds: dict[object, Manifest] = {}
    for manifest in manifests:
        empty = tuple(summary.lower == b"" for summary in manifest.partitions or ())
        kinds.setdefault((manifest.content, manifest.spec_id, empty), manifest)
    return list(kinds.values())


class DeltaFiles:
    """`location` is the table's, which paths are told below of."""

    def __init__(
        self, schema: DeltaSchema, partitions: Sequence[Field], specs: Mapping[int, Spec], location: str
    ) -> None:
        self._schema = schema
        self._partitions = partitions
        self._places = {spec_id: _places(spec) for spec_id, spec in specs.items()}
        self._root = location.rstrip("/") + "/"
        ids = {field.id for field in partitions}
        self._columns = [field for field in schema.schema.struct.fields if field.id not in ids]

    def add(self, file: ContentFile, vector: DeletionVector | None) -> Add:
        path = file.path.removeprefix(self._root)
        # The log of a Delta table has paths percent-encoded, and what Iceberg names is meant literally.
        return Add(
            path=path.replace("%", "%25"),
            partition_values=self._values(file),
            size=file.size,
            stats=_encode(self._statistics(file)).decode(),
            deletion_vector=vector,
        )

    def _values(self, file: ContentFile) -> Words:
        places = self._places[file.spec_id]
        return {
            self._schema.physical(field): _word(field, file.partition[places[field.id]])
            for field in self._partitions
        }

    def _statistics(self, file: ContentFile) -> dict[str, Any]:
        metrics = file.metrics
        return {
            "numRecords": file.record_count,
            "minValues": self._tree(self._columns, lambda field: _lower(field, metrics)),
            "maxValues": self._tree(self._columns, lambda field: _upper(field, metrics)),
            "nullCount": self._tree(self._columns, lambda field: (metrics.null_counts or {}).get(field.id)),
            # Bounds of text may be cut, and those of timestamps are rounded here.
            "tightBounds": False,
        }

    def _tree(self, fields: Sequence[Field], known: Callable[[Field], Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in fields:
            if isinstance(field.type, StructType):
                value: Any = self._tree(field.type.fields, known) or None
            else:
                value = known(field) if isinstance(field.type, str) else None
            if value is not None:
                found[self._schema.physical(field)] = value
        return found


def check_readable(file: ContentFile) -> None:
    if file.format != PARQUET:
        raise Unsupported(
            f"the table has {file.format} files, and Delta Sharing tells of Parquet files only",
            fix="rewrite them as Parquet",
        )
    if file.key_metadata is not None:
        raise Unsupported("files of the table are encrypted, and recipients have no keys to them")


def check_delete(delete: ContentFile) -> None:
    if delete.content is Content.EQUALITY_DELETES:
        raise Unsupported(
            "the table has equality deletes, which Delta Sharing cannot express",
            fix="compact the table, so that they are applied",
        )
    if not delete.is_vector and delete.format != PARQUET:
        raise Unsupported(
            f"the table has position deletes in {delete.format} files, and only Parquet is read here",
            fix="compact the table, so that they are applied",
        )


def _specs_of(manifest: Manifest, specs: Mapping[int, Spec]) -> Iterable[Spec]:
    """Of an old manifest it is not known before it is read."""
    return specs.values() if manifest.spec_id is None else filter(None, [specs.get(manifest.spec_id)])


def _places(spec: Spec) -> dict[int, int]:
    """By column, where the partition has its value."""
    return {field.source_id: at for at, field in enumerate(spec.fields) if field.transform == IDENTITY}


def _partitions(field: Field, spec: Spec, manifest: Manifest | None) -> bool:
    place = _places(spec).get(field.id)
    if place is None or field.type != "string" or manifest is None:
        return place is not None
    summaries = manifest.partitions
    return summaries is not None and len(summaries) > place and summaries[place].lower != b""


def _word(field: Field, value: Any) -> str | None:
    if value is None:
        return None
    assert isinstance(field.type, str)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(to_json(field.type, value))
    if not text or (field.type == "date" and len(text) != 10):
        raise inexpressible(f"Delta has no form for the partition value {text!a} of column {field.name!a}")
    return text


def _lower(field: Field, metrics: Metrics) -> Any:
    return _bound(field, metrics.lower, metrics, 0)


def _upper(field: Field, metrics: Metrics) -> Any:
    return _bound(field, metrics.upper, metrics, 999)


def _bound(field: Field, bounds: Mapping[int, bytes] | None, metrics: Metrics, up: int) -> Any:
    """A bound that holds for readers who know milliseconds only, and who take NaN for the largest number."""
    data = (bounds or {}).get(field.id)
    assert isinstance(field.type, str)
    kind = kind_of(field.type)
    if data is None or kind not in _BOUNDED:
        return None
    value = from_binary(field.type, data)
    if value is None or kind in ("string", "int", "long"):
        return value
    if kind in ("float", "double"):
        known = (metrics.nan_counts or {}).get(field.id) == 0
        return value if known and math.isfinite(value) else None
    if kind in ("timestamp", "timestamptz"):
        value = (value + up) // 1000 * 1000
    text = to_json(field.type, value)
    if kind == "decimal":
        return msgspec.Raw(text.encode())
    # Years that take a sign are beyond what readers know.
    return None if text[0] in "+-" else text.replace("+00:00", "Z")
