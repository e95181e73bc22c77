"""The part of the demo that cares for a table: many small commits, the finding, and a job on Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.cli import demo_delta

if TYPE_CHECKING:
    from inver.client import Client

Say = Callable[[str, str], None]

TABLE = "main.sales.clicks"
COMMITS, ROWS = 200, 50

# A process of its own, as every writer is one.
_WRITE = """
import json, pathlib, sys, uuid
import pyarrow as pa, pyarrow.parquet as pq

folder, files, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(files):
    first = number * rows
    path = folder / f"part-{uuid.uuid4()}.parquet"
    pq.write_table(pa.table({"id": pa.array(range(first, first + rows), pa.int64())}), path)
    bounds = {"minValues": {"id": first}, "maxValues": {"id": first + rows - 1}, "nullCount": {"id": 0}}
    stats = json.dumps({"numRecords": rows, **bounds})
    print(json.dumps({"path": path.name, "size": path.stat().st_size, "stats": stats}))
"""


def show(client: Client, token: str, home: Path, say: Say) -> None:
    """A table that its writers have left in small files, before and after."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        say("care", "skipped: pip install inver[spark]")
        return
    unity = demo_delta.Unity(client.url, token)
    table = unity.create(*TABLE.split("."))
    started, at = time.monotonic(), 0
    for version, add in enumerate(_files(table), start=1):
        at = max(at + 1, time.time_ns() // 1_000_000)
        _append(unity, table, version, add, at)
    say("commits", f"{COMMITS} small ones to {TABLE} in {time.monotonic() - started:.1f} s")
    before = client.care(TABLE)
    for finding in before.findings:
        say("finding", f"{finding.job}: {finding.reason}")
    say("care", "runs on local Spark, which takes a few seconds to start")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("INVER_")}
    ran = subprocess.run(
        [sys.executable, "-m", "inver", "care", "run", TABLE, "--home", str(home), "-o", "json"],
        cwd=home.parent,
        env={**kept, "XDG_STATE_HOME": str(home.parent)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    for done in json.loads(ran.stdout):
        result = done["result"]
        numbers = (
            f"{name} {value:g} -> {result['after'][name]:g}"
            for name, value in result.get("before", {}).items()
            if name in result.get("after", {})
        )
        say(
            done["job"], f"{result['outcome']} in {result['measured']['seconds']:.1f} s: {', '.join(numbers)}"
        )
    after = client.care(TABLE)
    rows = f"{before.health.rows} rows before and {after.health.rows} after"
    say("cared for", f"{TABLE} has {rows}; findings left: {[each.job for each in after.findings] or 'none'}")


def _files(table: demo_delta.Table) -> list[dict[str, Any]]:
    """The files that a writer has made; what an `add` says of each."""
    folder = table.uri.removeprefix("file://")
    ran = subprocess.run(
        [sys.executable, "-c", _WRITE, folder, str(COMMITS), str(ROWS)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _append(
    unity: demo_delta.Unity, table: demo_delta.Table, version: int, add: dict[str, Any], at: int
) -> None:
    name = f"{version:020d}.{uuid.uuid4()}.json"
    commit = {"inCommitTimestamp": at, "timestamp": at, "operation": "WRITE"}
    body = {**add, "partitionValues": {}, "modificationTime": at, "dataChange": True}
    size = table.put(f"_staged_commits/{name}", [{"commitInfo": commit}, {"add": body}])
    info = {
        "version": version,
        "timestamp": at,
        "file_name": name,
        "file_size": size,
        "file_modification_timestamp": at,
    }
    asked = {"table_id": table.id, "table_uri": table.uri, "commit_info": info}
    status, answer = unity.call("POST", "/delta/commit", asked)
    assert status == 200, answer
