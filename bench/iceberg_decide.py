"""What a commit to an Iceberg table costs without the bytes of its document, by how many snapshots there are.

`python -m bench.iceberg_decide` measures and prints; `run` gives the figures to whoever asks. Requests
go through the whole application in this process, as transactions of one table: those answer without
metadata, and the metadata file is not written. What is left is the decision: reading the request,
finding the table and who may write to it, requirements, updates, and the database's transaction.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench import iceberg_wire as wire
from bench.iceberg_wire import Table
from bench.results import Growth
from bench.servers import API
from inver.config import Settings
from inver.domain.iceberg import State
from inver.protocols.http import Request, Response
from inver.server.app import App, build, first_token

YOUNG = 10
OLD = 5_000
TABLES = 16
STRETCH = 10
ROUNDS = 6
ICEBERG = "/iceberg/v1/bench"


def run(rounds: int = ROUNDS) -> Growth:
    return asyncio.run(_measure(rounds))


async def _measure(rounds: int) -> Growth:
    """Young and old tables in turn, so that whatever else changes meanwhile is felt by both."""
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as folder:
        app = await build(Settings(home=Path(folder) / "home", external_roots=(folder,)))
        try:
            return await Tables(app, await first_token(app), Path(folder)).measure(rounds)
        finally:
            await app.store.close()


async def _nothing(state: State) -> list[bytes]:
    """Instead of writing the metadata file, which has these bytes."""
    return []


class Grown(msgspec.Struct):
    """A table, and the body of the request for its next snapshot."""

    table: Table
    body: bytes
    snapshots: int


class Tables:
    def __init__(self, app: App, token: str | None, folder: Path) -> None:
        self._app = app
        self._headers = [(b"authorization", f"Bearer {token}".encode())]
        self._folder = folder

    async def measure(self, rounds: int) -> Growth:
        await self._ask(f"{API}/catalogs", {"name": "bench"})
        await self._ask(f"{ICEBERG}/namespaces", {"namespace": [wire.NAMESPACE], "properties": {}})
        old = await self._register("old", OLD)
        self._app.services.iceberg.files.write = _nothing  # type: ignore[method-assign]
        await self._commit(old, STRETCH)
        young_s = old_s = 0.0
        for number in range(rounds):
            young = await self._register(f"young{number}-", YOUNG)
            await self._commit(young, 1)
            young_s += await self._commit(young, STRETCH)
            old_s += await self._commit(old, STRETCH)
        commits = TABLES * STRETCH * rounds
        return Growth(
            subject="sqlite-iceberg-decision",
            young=f"{YOUNG:,}",
            old=f"{OLD:,}",
            young_us=1e6 * young_s / commits,
            old_us=1e6 * old_s / commits,
        )

    async def _register(self, prefix: str, snapshots: int) -> list[Grown]:
        made = []
        at = int(time.time() * 1000)
        for number in range(TABLES):
            table = wire.new_table(f"{prefix}{number}", self._folder, snapshots)
            wire.write_metadata(table, at)
            body = {"name": table.name, "metadata-location": str(table.metadata_file)}
            await self._ask(f"{ICEBERG}/namespaces/{wire.NAMESPACE}/register", body)
            request = wire.transaction([table], "/namespaces", "", at)
            made.append(Grown(table, request.partition(b"\r\n\r\n")[2], snapshots))
        return made

    async def _commit(self, tables: list[Grown], times: int) -> float:
        """CPU seconds of so many commits to each table."""
        begun = time.process_time()
        for _ in range(times):
            for each in tables:
                await self._ask(f"{ICEBERG}/transactions/commit", each.body % wire.numbers(each.snapshots))
                each.snapshots += 1
        return time.process_time() - begun

    async def _ask(self, target: str, body: Any) -> None:
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request("POST", target.encode(), b"", self._headers, sent, "127.0.0.1", "bench")
        result = self._app.public.dispatch(request)
        answer = result if isinstance(result, Response) else await result
        if answer.status >= 300:
            raise RuntimeError(f"{target}: {answer.status} {answer.body!r}")


if __name__ == "__main__":
    print(json.dumps(msgspec.to_builtins(run(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)), indent=2))
