"""The bytes of Iceberg REST requests, and metadata files of tables with a history.

Both servers get the same requests, down to the numbers of the snapshots; only the names of the
folders and the token differ.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

NAMESPACE = "load"
FIRST_ID = 10**18
"""Snapshots are numbered from here, so that every id has the same width."""

_COLUMNS = (
    ("id", "long"),
    ("at", "timestamptz"),
    ("day", "date"),
    ("kind", "string"),
    ("amount", "decimal(18, 2)"),
    ("price", "double"),
    ("place", "string"),
    ("count", "int"),
    ("done", "boolean"),
    ("note", "string"),
)
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(_COLUMNS, 1)
    ],
}


class Table(msgspec.Struct, frozen=True):
    """A table on one server; `location` has no slash at its end."""

    name: str
    uuid: str
    location: str
    snapshots: int

    @property
    def metadata_file(self) -> Path:
        return Path(self.location) / "metadata" / f"00000-{self.uuid}.metadata.json"


def new_table(name: str, folder: Path, snapshots: int) -> Table:
    return Table(name, str(uuid.uuid4()), str(folder / name), snapshots)


# --- requests: bytes with places for the numbers of a snapshot and of its parent ---


def append(table: Table, path: str, bearer: str, at: int) -> bytes:
    """What an engine sends for an append of one file, as the snapshot after the one that stands."""
    return request("POST", f"{path}/{NAMESPACE}/tables/{table.name}", bearer, _change(table, at))


def transaction(tables: list[Table], path: str, bearer: str, at: int) -> bytes:
    """An append to each of these tables, at once."""
    changes = [
        {"identifier": {"namespace": [NAMESPACE], "name": table.name}, **_change(table, at)}
        for table in tables
    ]
    prefix = path.removesuffix("/namespaces")
    return request("POST", f"{prefix}/transactions/commit", bearer, {"table-changes": changes})


def load(table: Table, path: str, bearer: str, query: str = "", etag: str | None = None) -> bytes:
    condition = {} if etag is None else {"If-None-Match": etag}
    return request("GET", f"{path}/{NAMESPACE}/tables/{table.name}{query}", bearer, None, condition)


def rename(table: Table, path: str, bearer: str) -> list[bytes]:
    """There, and back."""
    prefix = path.removesuffix("/namespaces")
    names = [{"namespace": [NAMESPACE], "name": name} for name in (table.name, f"{table.name}-renamed")]
    bodies = [{"source": a, "destination": b} for a, b in (names, names[::-1])]
    return [request("POST", f"{prefix}/tables/rename", bearer, body) for body in bodies]


def listing(path: str, bearer: str, namespace: str, query: str = "") -> bytes:
    return request("GET", f"{path}/{quote(namespace, safe='')}/tables{query}", bearer, None)


def request(method: str, path: str, bearer: str, body: Any, headers: dict[str, str] | None = None) -> bytes:
    """A whole request; numbers in its body are written `%(id)d` and the like."""
    text = b"" if body is None else _places(msgspec.json.encode(body).replace(b"%", b"%%"))
    length = len(text % numbers(0))
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: inver-bench/1",
        "Accept: application/json",
        f"Authorization: Bearer {bearer}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
        *(["Content-Type: application/json"] if text else []),
        f"Content-Length: {length}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").replace("%", "%%").encode() + text


def numbers(version: int) -> dict[bytes, int]:
    """What goes into the places, for the append that follows snapshot number `version`."""
    return {b"parent": FIRST_ID + version, b"id": FIRST_ID + version + 1, b"sequence": version + 1}


# Strings in the document, numbers on the wire. Their widths never change, so neither does the length.
_PARENT, _ID, _SEQUENCE = "{parent}", "{id}", "{sequence}"


def _places(text: bytes) -> bytes:
    for name, place in ((_PARENT, b"%(parent)d"), (_ID, b"%(id)d"), (_SEQUENCE, b"%(sequence)10d")):
        text = text.replace(f'"{name}"'.encode(), place).replace(name.encode(), place)
    return text


def _change(table: Table, at: int) -> dict[str, Any]:
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": table.uuid},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": _PARENT},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": _snapshot(table, _ID, _PARENT, _SEQUENCE, at)},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": _ID},
        ],
    }


def _snapshot(table: Table, id: Any, parent: Any, sequence: Any, at: int) -> dict[str, Any]:
    return {
        "snapshot-id": id,
        "parent-snapshot-id": parent,
        "sequence-number": sequence,
        "timestamp-ms": at,
        "manifest-list": f"{table.location}/metadata/snap-{id}-1-{table.uuid}.avro",
        "summary": {
            "operation": "append",
            "spark.app.id": "local-1794787200000",
            "added-data-files": "1",
            "added-records": "1000",
            "added-files-size": "65536",
            "changed-partition-count": "1",
            "total-records": "1000000",
            "total-files-size": "65536000",
            "total-data-files": "1000",
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
            "engine-version": "4.1.4",
            "app-id": "local-1794787200000",
            "engine-name": "spark",
            "iceberg-version": "Apache Iceberg 1.11.0",
        },
        "schema-id": 0,
    }


# --- metadata files ---


def write_metadata(table: Table, at: int) -> None:
    """The file of a table that has so many snapshots, one a second until `at`."""
    table.metadata_file.parent.mkdir(parents=True)
    table.metadata_file.write_bytes(msgspec.json.encode(_metadata(table, at)))


def _metadata(table: Table, at: int) -> dict[str, Any]:
    count = table.snapshots
    times = [at - 1000 * (count - number) for number in range(1, count + 1)]
    snapshots = [
        _snapshot(table, FIRST_ID + number, FIRST_ID + number - 1, number, time)
        for number, time in enumerate(times, 1)
    ]
    if snapshots:
        del snapshots[0]["parent-snapshot-id"]
    current = FIRST_ID + count if count else -1
    return {
        "format-version": 2,
        "table-uuid": table.uuid,
        "location": table.location,
        "last-sequence-number": count,
        "last-updated-ms": at,
        "last-column-id": len(_COLUMNS),
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.parquet.compression-codec": "zstd", "owner": "bench"},
        "current-snapshot-id": current,
        "refs": {"main": {"snapshot-id": current, "type": "branch"}} if count else {},
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [
            {"timestamp-ms": time, "snapshot-id": FIRST_ID + number} for number, time in enumerate(times, 1)
        ],
        "metadata-log": [
            {
                "timestamp-ms": time,
                "metadata-file": f"{table.location}/metadata/{number:05d}-{table.uuid}.metadata.json",
            }
            for number, time in list(enumerate(times, 1))[-100:]
        ],
    }
