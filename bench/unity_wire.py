"""The bytes of requests to Unity's faces, as their clients send them."""

from __future__ import annotations

import uuid
from collections.abc import Callable

UNITY = "/api/2.1/unity-catalog"
TIMESTAMP = 1_794_787_200_000
CATALOG, SCHEMA = "bench", "load"


def file_of(version: int, client: int) -> str:
    """The name under which a client stages a version."""
    return f"{version:020d}.{uuid.UUID(int=client, version=4)}.json"


def staged_file() -> bytes:
    """What an INSERT of one file writes: the same bytes for every version, so that they can be linked."""
    return (
        b'{"commitInfo":{"timestamp":%d,"inCommitTimestamp":%d,"operation":"WRITE","operationParameters":'
        b'{"mode":"Append","partitionBy":"[]"},"isolationLevel":"Serializable","isBlindAppend":true,'
        b'"operationMetrics":{"numFiles":"1","numOutputRows":"1000","numOutputBytes":"65536"},'
        b'"engineInfo":"bench","txnId":"7f0a2ef8-6e21-4ff2-9b9b-07a4b58a9e3b"}}\n'
        b'{"add":{"path":"part-00000-3a4d4e5f-9e0e-4b5e-8c3f-2f1f8a0f1a2b-c000.snappy.parquet",'
        b'"partitionValues":{},"size":65536,"modificationTime":%d,"dataChange":true,'
        b'"stats":"{\\"numRecords\\":1000,\\"minValues\\":{\\"id\\":0},\\"maxValues\\":{\\"id\\":999},'
        b'\\"nullCount\\":{\\"id\\":0}}"}}\n'
    ) % (TIMESTAMP, TIMESTAMP, TIMESTAMP)


# Numbers have a fixed width, so that the length of a body never changes. Writers publish their own
# commits and say so with the next one, as Spark does.
_COMMIT = (
    '{"table_id":"%(id)s","table_uri":"%(location)s","commit_info":{"version":%%20d,"timestamp":%(at)d,'
    '"file_name":"%%020d.%(client)s.json","file_size":%(size)d,"file_modification_timestamp":%(at)d},'
    '"latest_published_version":%%20d}'
)
_ADD_COMMIT = (
    '{"requirements":[{"type":"assert-table-uuid","uuid":"%(id)s"}],"updates":[{"action":"add-commit",'
    '"commit":{"version":%%20d,"timestamp":%(at)d,"file-name":"%%020d.%(client)s.json",'
    '"file-size":%(size)d,"file-modification-timestamp":%(at)d}},'
    '{"action":"set-latest-backfilled-version","latest-published-version":%%20d}]}'
)
_COMMITS = '{"table_id":"%(id)s","table_uri":"%(location)s","start_version":0}'


def commit(bearer: str, table_id: str, location: str, name: str, client: int) -> bytes:
    return _request("POST", f"{UNITY}/delta/commit", bearer, _filled(_COMMIT, table_id, location, client))


def add_commit(bearer: str, table_id: str, location: str, name: str, client: int) -> bytes:
    return _request("POST", _table(name), bearer, _filled(_ADD_COMMIT, table_id, location, client))


def commits(bearer: str, table_id: str, location: str, name: str, client: int) -> bytes:
    return _request("GET", f"{UNITY}/delta/commits", bearer, _filled(_COMMITS, table_id, location, client))


def load(bearer: str, table_id: str, location: str, name: str, client: int) -> bytes:
    return _request("GET", _table(name), bearer, "")


REQUESTS: dict[str, Callable[[str, str, str, str, int], bytes]] = {
    "unity": commit,
    "unity-v1": add_commit,
    "unity-commits": commits,
    "unity-load": load,
}
READS = frozenset({"unity-commits", "unity-load"})


def _table(name: str) -> str:
    return f"{UNITY}/delta/v1/catalogs/{CATALOG}/schemas/{SCHEMA}/tables/{name}"


def _filled(body: str, table_id: str, location: str, client: int) -> str:
    return body % {
        "id": table_id,
        "location": location.replace("%", "%%"),
        "at": TIMESTAMP,
        "client": uuid.UUID(int=client, version=4),
        "size": len(staged_file()),
    }


def _request(method: str, path: str, bearer: str, body: str) -> bytes:
    places = body.count("%20d") + body.count("%020d")
    length = len(body % ((0,) * places))
    head = (
        f"{method} {path} HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\n"
        "User-Agent: inver-bench/1\r\n"
        "Accept: application/json\r\n"
        f"Authorization: Bearer {bearer}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    )
    return head.replace("%", "%%").encode() + body.encode()
