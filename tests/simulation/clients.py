"""Clients that know what they asked and what they were told, over sockets of their own.

A library's client would retry, pool and hide; here a request is sent once, and its answer comes or
is lost.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from tests.fixtures.server import API, InverServer
from tests.simulation.history import Committed, Tokens, Write

ANSWER_SECONDS = 60
PAGE = 1_000
COMMITTED = "io.inver.table.committed.v1"


class Lost(Exception):
    """The request may have arrived; its answer did not."""


class NotSent(Exception):
    """There was nobody to send it to."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any


class Client:
    """One connection at a time to the management API."""

    def __init__(self, server: InverServer) -> None:
        address = urlsplit(server.url)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port
        self._fixed = f"Host: {address.netloc}\r\nAuthorization: Bearer {server.token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get(self, path: str) -> Any:
        answer = await self.call("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.body

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
        writer = await self._send(method, path, body, key)
        try:
            return await asyncio.wait_for(self._receive(), ANSWER_SECONDS)
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            writer.close()
            self._writer = None
            raise Lost(f"{method} {path}: {type(error).__name__}") from None

    async def send_and_leave(
        self, method: str, path: str, body: Any, key: str | None, after_s: float, reset: bool
    ) -> None:
        """Send a request and end the connection without waiting for the answer."""
        writer = await self._send(method, path, body, key)
        if after_s:
            await asyncio.sleep(after_s)
        if reset:
            plain: socket.socket = writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, method: str, path: str, body: Any, key: str | None) -> asyncio.StreamWriter:
        if self._writer is None:
            try:
                self._reader, self._writer = await asyncio.open_connection(
                    self._host, self._port, limit=64 * 2**20
                )
            except OSError as error:
                raise NotSent(str(error)) from None
        data = b"" if body is None else json.dumps(body).encode()
        keyed = "" if key is None else f"Idempotency-Key: {key}\r\n"
        head = f"{method} {API}{path} HTTP/1.1\r\n{self._fixed}{keyed}Content-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        return self._writer

    async def _receive(self) -> Answer:
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        data = await self._reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection") == "close":
            await self.close()
        return Answer(status, json.loads(data) if data else None)


def commits(writes: Sequence[Write]) -> dict[str, Any]:
    """A transaction request."""
    operations = [
        {
            "op": "commit",
            "table": {"id": write.table},
            "version": write.version,
            "token": write.token,
            "payload": {"token": write.token},
        }
        for write in writes
    ]
    return {"operations": operations}


def new_key(bits: int) -> str:
    """An idempotency key from 128 random bits."""
    return str(UUID(int=bits))


async def make_tables(server: InverServer, names: Sequence[str], catalog: str = "sim") -> list[str]:
    """Tables of all formats in a new catalog; returns their ids."""
    formats = ("DELTA", "ICEBERG", "LANCE")
    ids = []
    async with Client(server) as client:
        assert (await client.call("POST", "/catalogs", {"name": catalog})).status == 201
        made = await client.call("POST", f"/catalogs/{catalog}/schemas", {"path": ["s"]})
        assert made.status == 201
        for number, name in enumerate(names):
            body = {"name": name, "format": formats[number % 3]}
            made = await client.call("POST", f"/catalogs/{catalog}/schemas/s/tables", body)
            assert made.status == 201, made
            ids.append(made.body["id"])
    return ids


async def read_feed(client: Client, after: int = 0) -> list[dict[str, Any]]:
    """All events past `after`, which have no gap."""
    events: list[dict[str, Any]] = []
    while True:
        page = (await client.get(f"/events?after={after}&limit={PAGE}"))["events"]
        assert [int(event["id"]) for event in page] == list(range(after + 1, after + 1 + len(page)))
        events += page
        if not page:
            return events
        after += len(page)


def committed(events: Sequence[dict[str, Any]]) -> list[Committed]:
    return [
        Committed(int(e["id"]), int(e["invertransaction"]), e["subject"], e["data"]["version"])
        for e in events
        if e["type"] == COMMITTED
    ]


async def read_history(client: Client, table: str, after: int = 0) -> list[dict[str, Any]]:
    """The commits of a table past a version, oldest first, which have no gap."""
    rows: list[dict[str, Any]] = []
    first = after + 1
    while True:
        path = f"/tables/{table}/commits?first={first}&last={first + PAGE - 1}&max_results={PAGE}"
        page = (await client.get(path))["commits"][::-1]
        assert [row["version"] for row in page] == list(range(first, first + len(page)))
        rows += page
        if len(page) < PAGE:
            return rows
        first += PAGE


async def read_tokens(client: Client, table: str) -> Tokens:
    return tuple(row["token"] for row in await read_history(client, table))
