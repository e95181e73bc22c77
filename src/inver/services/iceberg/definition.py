"""What is kept of an Iceberg table besides its metadata: columns to show and search, counts, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inver.domain import iceberg
from inver.domain.iceberg import State
from inver.domain.iceberg.snapshots import Snapshot, read_snapshot
from inver.domain.iceberg.state import NO_SNAPSHOT, SCHEMA, SNAPSHOT, Head
from inver.domain.ledger import Counts, Definition, Whole

_encode = msgspec.json.encode
_decode = msgspec.json.decode

# Iceberg's primitive types as Spark writes them, and the name of their kind in listings.
_TYPES = {
    "boolean": ("boolean", "BOOLEAN"),
    "int": ("int", "INT"),
    "long": ("bigint", "LONG"),
    "float": ("float", "FLOAT"),
    "double": ("double", "DOUBLE"),
    "date": ("date", "DATE"),
    "time": ("string", "STRING"),
    "timestamp": ("timestamp_ntz", "TIMESTAMP_NTZ"),
    "timestamptz": ("timestamp", "TIMESTAMP"),
    "timestamp_ns": ("timestamp_ntz", "TIMESTAMP_NTZ"),
    "timestamptz_ns": ("timestamp", "TIMESTAMP"),
    "string": ("string", "STRING"),
    "uuid": ("string", "STRING"),
    "binary": ("binary", "BINARY"),
    "unknown": ("void", "NULL"),
    "variant": ("variant", "VARIANT"),
}
_DELTA = {"bigint": "long", "int": "integer"}

# The words of a snapshot's summary for what the ledger counts.
_COUNTS = {
    "rows_added": "added-records",
    "rows_removed": "deleted-records",
    "files_added": "added-data-files",
    "files_removed": "deleted-data-files",
    "bytes_added": "added-files-size",
    "bytes_removed": "removed-files-size",
}
# What a snapshot removed is there again when it is taken back.
_UNDONE = {
    f"{what}_{after}": _COUNTS[f"{what}_{before}"]
    for what in ("rows", "files", "bytes")
    for after, before in (("added", "removed"), ("removed", "added"))
}


class Payload(msgspec.Struct, omit_defaults=True, rename="kebab"):
    """The permanent record of one version.

    `current_snapshot_id` is what the main branch names, and the schemas that the version knows are those up
    to `last_schema_id`: with them, an old version can be read without its metadata file.
    """

    metadata_location: str | None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    operation: str | None = None
    current_snapshot_id: int = NO_SNAPSHOT
    current_schema_id: int | None = None
    last_schema_id: int | None = None


read_payload = msgspec.json.Decoder(Payload).decode


def definition_of(state: State, before: State) -> Definition | None:
    """What readers of the definition see, where the change touched it."""
    head = state.head
    columns: bytes | msgspec.UnsetType = msgspec.UNSET
    names: tuple[str, ...] = ()
    schema = iceberg.current_schema(state)
    if iceberg.current_schema(before) != schema:
        columns, names = columns_of(schema)
    if before.head.properties == head.properties:
        return None if columns is msgspec.UNSET else Definition(columns=columns, column_names=names)
    return Definition(
        comment=head.properties.get("comment"),
        properties=dict(head.properties),
        columns=columns,
        column_names=names,
    )


def columns_of(schema: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The columns of a schema as all listings show them, and their names."""
    fields = _decode(schema).get("fields", [])
    columns = [_column(field, position) for position, field in enumerate(fields)]
    return _encode(columns), tuple(column["name"] for column in columns)


def history_of(
    state: State, added: Sequence[Snapshot], action: str, taken_back: Sequence[Snapshot] = ()
) -> tuple[str, bytes, bytes | None]:
    """Operation, payload and counts of a commit's row.

    `added` are the snapshots that it brings, `taken_back` those that it undoes.
    """
    payload = Payload(state.head.metadata_location)
    if isinstance(state.head, Head):
        payload.current_snapshot_id = state.head.current_snapshot_id
        payload.current_schema_id = state.head.current_schema_id
        payload.last_schema_id = max(map(int, state.parts(SCHEMA).keys()))
    counts = _counts(state, added, taken_back)
    if not added:
        return action, _encode(payload), counts
    last = added[-1]
    summary = last.summary or {}
    payload.snapshot_id = last.snapshot_id
    payload.sequence_number = last.sequence
    payload.operation = summary.get("operation")
    return payload.operation or action, _encode(payload), counts


def _counts(state: State, added: Sequence[Snapshot], taken_back: Sequence[Snapshot]) -> bytes | None:
    if not isinstance(state.head, Head):
        return None
    found: dict[str, Any] = {"whole": _whole(state, state.head.current_snapshot_id, added)}
    for snapshots, words in ((added, _COUNTS), (taken_back, _UNDONE)):
        for snapshot in snapshots:
            summary = snapshot.summary or {}
            for name, word in words.items():
                if (value := _number(summary, word)) is not None:
                    found[name] = found.get(name, 0) + value
    return _encode(Counts(**found))


def _whole(state: State, current: int, added: Sequence[Snapshot]) -> Whole:
    """The table as its main branch shows it, in the words of the snapshot that this is."""
    snapshots = state.parts(SNAPSHOT)
    if current == NO_SNAPSHOT:
        return Whole(0, 0, 0, 0, 0, len(snapshots), 0)
    last = next((each for each in reversed(added) if each.snapshot_id == current), None)
    if last is None and (body := snapshots.get(str(current))) is not None:
        last = read_snapshot(body)
    summary = (last.summary or {}) if last is not None else {}
    positions = _number(summary, "total-position-deletes")
    equalities = _number(summary, "total-equality-deletes")
    made, kept = _number(summary, "manifests-created"), _number(summary, "manifests-kept")
    return Whole(
        _number(summary, "total-data-files"),
        _number(summary, "total-files-size"),
        _number(summary, "total-records"),
        _number(summary, "total-delete-files"),
        None if positions is None or equalities is None else positions + equalities,
        len(snapshots),
        None if made is None or kept is None else made + kept,
    )


def _number(summary: Mapping[str, str], word: str) -> int | None:
    text = summary.get(word)
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 19):
        return None
    return int(text)


def _column(field: dict[str, Any], position: int) -> dict[str, Any]:
    kind = field.get("type")
    text, name = _type(kind)
    nullable = not field.get("required", False)
    column = {
        "name": str(field.get("name")),
        "type_text": text,
        "type_json": _encode(
            {"name": field.get("name"), "type": _delta(kind), "nullable": nullable, "metadata": {}}
        ).decode(),
        "type_name": name,
        "type_precision": 0,
        "type_scale": 0,
        "position": position,
        "nullable": nullable,
    }
    if name == "DECIMAL":
        precision, _, scale = text[8:-1].partition(",")
        column |= {"type_precision": int(precision), "type_scale": int(scale)}
    if field.get("doc") is not None:
        column["comment"] = str(field["doc"])
    return column


def _type(kind: Any) -> tuple[str, str]:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return "decimal(" + kind[8:-1].replace(" ", "") + ")", "DECIMAL"
        return _TYPES.get(kind) or ("binary", "BINARY")
    if kind["type"] == "list":
        return f"array<{_type(kind['element'])[0]}>", "ARRAY"
    if kind["type"] == "map":
        return f"map<{_type(kind['key'])[0]},{_type(kind['value'])[0]}>", "MAP"
    inner = ",".join(f"{field['name']}:{_type(field['type'])[0]}" for field in kind["fields"])
    return f"struct<{inner}>", "STRUCT"


def _delta(kind: Any) -> Any:
    """The type as a Delta schema writes it."""
    if isinstance(kind, str):
        text = _type(kind)[0]
        return _DELTA.get(text, text)
    if kind["type"] == "list":
        return {
            "type": "array",
            "elementType": _delta(kind["element"]),
            "containsNull": not kind.get("element-required", False),
        }
    if kind["type"] == "map":
        return {
            "type": "map",
            "keyType": _delta(kind["key"]),
            "valueType": _delta(kind["value"]),
            "valueContainsNull": not kind.get("value-required", False),
        }
    fields = [
        {
            "name": field["name"],
            "type": _delta(field["type"]),
            "nullable": not field.get("required", False),
            "metadata": {},
        }
        for field in kind["fields"]
    ]
    return {"type": "struct", "fields": fields}
