"""The part of the demo that spans formats: one transaction moves three tables, another one moves none."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from inver.cli import demo_delta
from inver.errors import Conflict

if TYPE_CHECKING:
    from inver.client.blocks import Transaction

DELTA, ICEBERG, LANCE = "main.sales.refunds", "main.sales.journeys", "main.sales.pictures"

Say = Callable[[str, str], None]


def show(url: str, token: str, say: Say) -> None:
    from inver.client import Client

    delta = demo_delta.Unity(url, token).create("main", "sales", "refunds")
    folder = _declare(url, token)
    say("tables", f"{DELTA} (Delta), {ICEBERG} (Iceberg) and {LANCE} (Lance), each in its own protocol")
    with Client(url, token) as client:

        def versions() -> list[int]:
            return [client.table(name).version for name in (DELTA, ICEBERG, LANCE)]

        def move(tx: Transaction, delta_version: int, lance_version: int) -> None:
            tx.delta_commit(client.table(DELTA), _stage_delta(delta, delta_version))
            tx.iceberg_commit(
                ICEBERG, [{"action": "set-properties", "updates": {"audited": str(delta_version)}}]
            )
            tx.lance_version(LANCE, lance_version, _stage_lance(folder, lance_version))
            tx.move_cursor("demo/refunds", None if delta_version == 1 else "1", str(delta_version))

        before = versions()
        with client.begin() as tx:
            move(tx, 1, 1)
        assert tx.receipt is not None
        say("together", f"transaction {tx.receipt.transaction} moved them from {before} to {versions()}")
        try:
            with client.begin() as late:
                move(late, 2, 1)
        except Conflict as lost:
            say("none", lost.message)
        say(
            "unmoved",
            f"the three are still at {versions()}, the cursor at {client.cursor('demo/refunds').value}",
        )


def _stage_delta(table: demo_delta.Table, version: int) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    name = f"{version:020d}.{uuid.uuid4()}.json"
    commit = {"inCommitTimestamp": now, "timestamp": now, "operation": "WRITE"}
    size = table.put(f"_staged_commits/{name}", [{"commitInfo": commit}])
    return {
        "version": version,
        "timestamp": now,
        "file_name": name,
        "file_size": size,
        "file_modification_timestamp": now,
    }


# --- Lance, by hand ---


def _declare(url: str, token: str) -> Path:
    """The folder of a new table."""
    target = f"{url}/lance/v1/table/{'$'.join(LANCE.split('.'))}/declare"
    request = urllib.request.Request(target, b"{}", method="POST")
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return Path(unquote(urlsplit(json.load(answer)["location"]).path))


def _stage_lance(folder: Path, version: int) -> str:
    """A manifest of an empty table with one column, as a writer stages it; its path below the root."""
    column = _bytes(2, b"id") + _number(4, 2**64 - 1) + _bytes(5, b"int64") + _number(6, 1)
    writes = f"{version - 1}-{uuid.uuid4()}.txn".encode()
    message = _bytes(1, column) + _number(3, version) + _bytes(12, writes)
    data = len(message).to_bytes(4, "little") + message + bytes(8) + b"\x00\x00\x02\x00LANC"
    path = folder / "_versions" / f"{2**64 - 1 - version:020}.manifest-{uuid.uuid4()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path).removeprefix("/")


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
