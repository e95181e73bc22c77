"""The part of the demo that speaks Unity Catalog: a managed Delta table and two writers at once."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inver.errors import Broken

READER_FEATURES = ["catalogManaged", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"]
FEATURES = [*READER_FEATURES, "inCommitTimestamp"]
COLUMN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}

Say = Callable[[str, str], None]


def show(url: str, token: str, say: Say) -> None:
    """Create a table as a Delta writer does, then let two writers ask for the same version."""
    unity = Unity(url, token)
    table = unity.create("main", "sales", "payments")
    say("delta", f"main.sales.payments is managed at {table.uri}")
    barrier = threading.Barrier(2)
    writers = [threading.Thread(target=write, args=(unity, table, name, barrier, say)) for name in ("A", "B")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    _, tail = unity.call("GET", "/delta/commits", {"table_id": table.id, "table_uri": table.uri})
    shown = sorted((commit["version"], commit["file_name"][21:29]) for commit in tail["commits"])
    say("ratified", f"version {tail['latest_table_version']}; not yet published: {shown}")
    deadline = time.monotonic() + 20
    while not table.published(2):
        if time.monotonic() > deadline:
            raise Broken("the server did not publish what it has ratified")
        time.sleep(0.1)
    say("published", "the server put versions 1 and 2 into the table's own log")


class Table:
    def __init__(self, table_id: str, uri: str) -> None:
        self.id = table_id
        self.uri = uri
        self._log = Path(uri.removeprefix("file://")) / "_delta_log"

    def put(self, name: str, actions: list[dict[str, Any]]) -> int:
        data = "".join(json.dumps(action) + "\n" for action in actions).encode()
        path = self._log / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return len(data)

    def published(self, version: int) -> bool:
        return (self._log / f"{version:020d}.json").exists()


class Unity:
    def __init__(self, url: str, token: str) -> None:
        self._base = url + "/api/2.1/unity-catalog"
        self._token = token

    def call(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        request = urllib.request.Request(self._base + path, json.dumps(body).encode(), method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def create(self, catalog: str, schema: str, name: str) -> Table:
        place = {"name": name, "catalog_name": catalog, "schema_name": schema}
        _, staged = self.call("POST", "/staging-tables", place)
        table = Table(staged["id"], staged["staging_location"])
        now = time.time_ns() // 1_000_000
        properties = {"io.unitycatalog.tableId": table.id, "delta.enableInCommitTimestamps": "true"}
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": READER_FEATURES,
            "writerFeatures": FEATURES,
        }
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [COLUMN]}),
            "partitionColumns": [],
            "configuration": properties,
            "createdTime": now,
        }
        first = {"inCommitTimestamp": now, "timestamp": now, "operation": "CREATE TABLE"}
        table.put(f"{0:020d}.json", [{"commitInfo": first}, {"protocol": protocol}, {"metaData": metadata}])
        column = {
            "name": "id",
            "type_text": "bigint",
            "type_name": "LONG",
            "type_json": json.dumps(COLUMN),
            "position": 0,
            "nullable": True,
        }
        self.call(
            "POST",
            "/tables",
            {
                **place,
                "table_type": "MANAGED",
                "data_source_format": "DELTA",
                "storage_location": table.uri,
                "columns": [column],
                "properties": properties,
            },
        )
        return table


def write(unity: Unity, table: Table, writer: str, barrier: threading.Barrier, say: Say) -> None:
    """One writer: stage a commit, propose it, and after a lost race propose it for the next version."""
    barrier.wait()
    for version in (1, 2):
        now = time.time_ns() // 1_000_000
        name = f"{version:020d}.{uuid.uuid4()}.json"
        commit = {"inCommitTimestamp": now, "timestamp": now, "operation": "WRITE"}
        size = table.put(f"_staged_commits/{name}", [{"commitInfo": commit}])
        info = {
            "version": version,
            "timestamp": now,
            "file_name": name,
            "file_size": size,
            "file_modification_timestamp": now,
        }
        body = {"table_id": table.id, "table_uri": table.uri, "commit_info": info}
        status, answer = unity.call("POST", "/delta/commit", body)
        if status == 200:
            say("winner", f"writer {writer} has version {version} ({name[21:29]})")
            return
        say("lost", f"writer {writer} asked for version {version} too: {status} {answer['error_code']}")
