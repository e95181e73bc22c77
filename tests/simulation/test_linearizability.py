"""Concurrent clients over real HTTP: every answer is explained by one order of transactions.

`INVER_SIMULATION_SEED` picks other histories; `INVER_SIMULATION_OPS` makes them longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.fixtures.server import InverServer, new_database, running_inver
from tests.fixtures.waiting import PATIENCE_S
from tests.simulation.clients import (
    Answer,
    Client,
    Lost,
    commits,
    committed,
    make_tables,
    new_key,
    read_feed,
    read_tokens,
)
from tests.simulation.history import Op, Outcome, Read, Tokens, Write, check

SEED = int(os.environ.get("INVER_SIMULATION_SEED", "20261"))
OPS = int(os.environ.get("INVER_SIMULATION_OPS", "500"))
CLIENTS = 10
TABLES = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + OPS)]

_postgres = pytest.mark.postgres


SETUPS = [
    pytest.param(("sqlite", 1), id="sqlite"),
    pytest.param(("postgres", 1), id="postgres", marks=_postgres),
    pytest.param(("postgres", 2), id="postgres-2-workers", marks=_postgres),
]


@pytest.fixture(params=SETUPS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InverServer]:
    backend, workers = request.param
    with (
        new_database(request, backend) as database,
        running_inver(tmp_path / "home", database, ["--workers", str(workers)]) as server,
    ):
        yield server


@dataclass
class Sent:
    """A commit request as it was sent, to be sent again word for word."""

    writes: tuple[Write, ...]
    key: str | None


@dataclass
class Run:
    server: InverServer
    tables: list[str]
    ops: list[Op] = field(default_factory=list)

    def record(self, *values: Any) -> None:
        self.ops.append(Op(*values))


class Writer:
    """A client with its own idea of where each table stands, and requests whose answers it lost."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._number = number
        self._random = random.Random(f"{SEED}/{number}")
        self._believed = dict.fromkeys(run.tables, 0)
        self._unanswered: list[Sent] = []
        self._serial = 0
        self._client = Client(run.server)

    async def work(self, ops: int) -> None:
        async with self._client:
            for _ in range(ops):
                await self._one()
            while self._unanswered:
                await self._send(self._unanswered.pop())

    async def _one(self) -> None:
        choice = self._random.random()
        if self._unanswered and choice < 0.4:
            await self._send(self._unanswered.pop(self._random.randrange(len(self._unanswered))))
        elif choice < 0.25:
            await self._look(self._random.choice(self._run.tables))
        else:
            await self._send(self._new(1 if choice < 0.7 else self._random.choice((2, 3))), may_leave=True)

    def _new(self, size: int) -> Sent:
        self._serial += 1
        token = f"{self._number}-{self._serial}"
        tables = self._random.sample(self._run.tables, size)
        writes = tuple(Write(table, self._believed[table] + 1, token) for table in tables)
        key = new_key(self._random.getrandbits(128)) if self._random.random() < 0.2 else None
        return Sent(writes, key)

    async def _send(self, sent: Sent, may_leave: bool = False) -> None:
        body = commits(sent.writes)
        invoked = time.monotonic_ns()
        try:
            if may_leave and self._random.random() < 0.15:
                pause = self._random.choice((0, 0, self._random.uniform(0, 0.004)))
                await self._client.send_and_leave(
                    "POST", "/transactions", body, sent.key, pause, self._random.random() < 0.5
                )
                raise Lost("the client left")
            answer = await self._client.call("POST", "/transactions", body, sent.key)
        except Lost:
            self._run.record(self._number, invoked, None, sent.writes, Outcome.UNKNOWN)
            self._unanswered.append(sent)
            return
        completed = time.monotonic_ns()
        if answer.status >= 500:
            # 503 says that nothing has happened, so there is nothing to record; 500 leaves it open.
            if answer.status != 503:
                assert answer.body["type"].endswith(":outcome-unknown"), answer
                self._run.record(self._number, invoked, None, sent.writes, Outcome.UNKNOWN)
            self._unanswered.append(sent)
            await asyncio.sleep(self._random.uniform(0, 0.05))
            return
        self._learn(sent, invoked, completed, answer)

    def _learn(self, sent: Sent, invoked: int, completed: int, answer: Answer) -> None:
        body = answer.body
        if answer.status == 200:
            outcome = Outcome.REPLAYED if body["replayed"] else Outcome.OK
            number = int(body["transaction"])
            self._run.record(self._number, invoked, completed, sent.writes, outcome, number)
            for write in sent.writes:
                self._believed[write.table] = max(self._believed[write.table], write.version)
        else:
            assert answer.status == 409, answer
            lost = frozenset(conflict["subject"] for conflict in body["conflicts"])
            assert lost
            assert lost <= {write.table for write in sent.writes}
            self._run.record(self._number, invoked, completed, sent.writes, Outcome.CONFLICT, None, lost)
            for conflict in body["conflicts"]:
                # Nobody has asked for a version past the next one, so each of them was taken.
                assert conflict["reason"] == "version-taken", conflict
                table = conflict["subject"]
                self._believed[table] = max(self._believed[table], conflict["current"])

    async def _look(self, table: str) -> None:
        invoked = time.monotonic_ns()
        shallow = self._random.random() < 0.5
        path = f"/tables/{table}" if shallow else f"/tables/{table}/commits?max_results=1"
        answer = await self._client.call("GET", path)
        if answer.status == 503:
            return
        assert answer.status == 200, answer
        if shallow:
            seen = Read(table, answer.body["version"])
        else:
            newest = answer.body["commits"]
            seen = Read(table, newest[0]["version"], newest[0]["token"]) if newest else Read(table, 0)
        self._run.record(self._number, invoked, time.monotonic_ns(), seen)
        self._believed[table] = max(self._believed[table], seen.version)


async def follow(server: InverServer, events: list[dict[str, Any]]) -> None:
    """A reader at the end of the feed, who must see each event once and in order while others write."""
    async with Client(server) as client:
        while True:
            after = int(events[-1]["id"]) if events else 0
            answer = await client.call("GET", f"/events?after={after}&limit=50&wait=5")
            if answer.status == 503:
                continue
            assert answer.status == 200, answer
            page = answer.body["events"]
            assert [int(event["id"]) for event in page] == list(range(after + 1, after + 1 + len(page)))
            events += page


async def cut_connections(database: str, rng: random.Random) -> None:
    """End one connection of the server to its database after the other, whatever it is doing."""
    connection = await asyncpg.connect(database)
    try:
        while True:
            await asyncio.sleep(rng.uniform(0, 0.08))
            await connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"""
            )
    finally:
        await connection.close()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Something that runs as long as the block does; if it fails, so does the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def simulate(server: InverServer, ops: int, chaos: Coroutine[Any, Any, None] | None = None) -> None:
    """Let clients loose on a server, and check what they saw."""
    run = Run(server, await make_tables(server, [f"t{number}" for number in range(TABLES)]))
    followed: list[dict[str, Any]] = []
    async with beside(follow(server, followed)):
        async with beside(chaos) if chaos is not None else nullcontext():
            await asyncio.gather(*(Writer(run, number).work(ops) for number in range(CLIENTS)))
        events, tables, versions = await settled(server, run.tables)
        deadline = time.monotonic() + PATIENCE_S
        while len(followed) < len(events):
            assert time.monotonic() < deadline, "the follower has missed something"
            await asyncio.sleep(0.01)
    assert followed == events
    assert versions == {table: len(tokens) for table, tokens in tables.items()}
    outcomes = Counter(op.outcome for op in run.ops)
    print(f"{len(run.ops)} operations, {len(events)} events: {dict(outcomes)}")
    check(run.ops, tables, committed(events), time.monotonic_ns())
    # A history in which nothing was at stake shows nothing.
    assert min(outcomes[outcome] for outcome in Outcome) > ops * CLIENTS // 200, outcomes
    assert max(len(op.action) for op in run.ops if isinstance(op.action, tuple)) == 3


async def settled(
    server: InverServer, ids: list[str]
) -> tuple[list[dict[str, Any]], dict[str, Tokens], dict[str, int]]:
    """The feed, the tables and their versions, once what clients left behind has come to its end."""
    async with Client(server) as client:
        while True:
            events = await read_feed(client)
            tables = {table: await read_tokens(client, table) for table in ids}
            versions = {table: (await client.get(f"/tables/{table}"))["version"] for table in ids}
            if int((await client.get("/info"))["last_event"]) == len(events):
                return events, tables, versions


async def test_every_answer_is_explained_by_one_order(server: InverServer):
    await simulate(server, OPS)


@pytest.mark.parametrize("server", SETUPS[1:], indirect=True)
async def test_also_while_connections_to_the_database_break(server: InverServer):
    assert server.database is not None
    await simulate(server, OPS // 3, cut_connections(server.database, random.Random(SEED)))
