"""The part of the demo that speaks Iceberg: PyIceberg writes a table, it is renamed, a commit comes twice."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

PYTHON = "INVER_DEMO_PYTHON"
"""Names a Python that has PyIceberg, where this one has not."""
WRITE = """
import json, sys
import pyarrow as pa
from pyiceberg.catalog import load_catalog

settings = json.load(sys.stdin)
catalog = load_catalog("demo", **settings)
rows = pa.table({"id": [1, 2, 3], "city": ["Oban", "Ayr", "Wick"]})
table = catalog.create_table("sales.visits", schema=rows.schema)
for _ in range(2):
    table.append(rows)
catalog.rename_table("sales.visits", "sales.journeys")
print(catalog.load_table("sales.journeys").scan().to_arrow().num_rows)
"""
SECONDS = 120

Say = Callable[[str, str], None]


def show(url: str, token: str, say: Say) -> None:
    rest = Rest(url, token)
    python = _python()
    if python is None:
        schema = {
            "type": "struct",
            "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
        }
        rest.call("POST", "/namespaces/sales/tables", {"name": "journeys", "schema": schema})
        say("iceberg", f"main.sales.journeys, empty: no PyIceberg here (name a Python with it in {PYTHON})")
    else:
        settings = {"uri": f"{url}/iceberg", "warehouse": "main", "token": token}
        done = subprocess.run(
            [python, "-c", WRITE],
            input=json.dumps(settings),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        rows = done.stdout.split()[-1]
        say("iceberg", f"PyIceberg wrote main.sales.visits and renamed it to journeys: {rows} rows there now")
    before = rest.call("GET", "/namespaces/sales/tables/journeys")
    say("location", before["metadata"]["location"])
    update = {"action": "set-properties", "updates": {"owner": "demo"}}
    commit = {"requirements": [], "updates": [update]}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    files = [
        rest.call("POST", "/namespaces/sales/tables/journeys", commit, key)["metadata-location"]
        for _ in range(2)
    ]
    same = "one version" if files[0] == files[1] != before["metadata-location"] else "NOT once"
    say("key", f"the same commit under the same key twice: {same}, {files[0].rpartition('/')[2]}")


class Rest:
    def __init__(self, url: str, token: str) -> None:
        self._base = f"{url}/iceberg/v1/main"
        self._token = token

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, headers or {}, method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            told: dict[str, Any] = json.load(answer)
        return told


def _python() -> str | None:
    named = os.environ.get(PYTHON)
    if named:
        return named
    return sys.executable if importlib.util.find_spec("pyiceberg") else None
