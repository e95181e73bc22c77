"""Version 0 of a Delta table, as the catalog writes it."""

from __future__ import annotations

import msgspec

from inver.domain.delta import Metadata, Protocol

_encode = msgspec.json.encode
_PROTOCOL = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(Protocol))


def write_first(metadata: Metadata, protocol: Protocol, at: int, engine: str) -> bytes:
    """The file's bytes; its in-commit timestamp is `at`."""
    info = {
        "inCommitTimestamp": at,
        "timestamp": at,
        "operation": "CREATE TABLE",
        "operationParameters": {
            "partitionBy": _encode(metadata.partition_columns).decode(),
            "description": metadata.description,
            "isManaged": "true",
            "properties": _encode(metadata.properties, order="sorted").decode(),
        },
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": engine,
        "txnId": metadata.id,
    }
    written = {
        "id": metadata.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": metadata.schema.decode(),
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.properties,
        "createdTime": at,
    }
    if metadata.description is not None:
        written["description"] = metadata.description
    # The struct leaves out what is the default; the log has all of it.
    actions = (
        {"commitInfo": info},
        {"protocol": {name: getattr(protocol, field) for field, name in _PROTOCOL}},
        {"metaData": written},
    )
    return b"".join(_encode(action) + b"\n" for action in actions)
