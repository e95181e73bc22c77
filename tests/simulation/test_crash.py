"""The server dies, again and again, in the middle of its work, and forgets nothing that it acknowledged.

Each run starts a server that is armed to die at one of the named crash points, or is killed at a
random moment. First it must account for everything that happened before; then clients replay what
was left without an answer, and commit, create and drop until it dies.

`INVER_CRASH_RUNS` is the number of deaths over all backends; the full run is 2000:

    INVER_CRASH_RUNS=2000 pytest tests/simulation/test_crash.py -s

`INVER_CRASH_SEED` picks other moments.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from inver import failpoints
from tests.fixtures.server import InverServer, NotStarted, running_inver
from tests.fixtures.waiting import PATIENCE_S
from tests.simulation.clients import (
    COMMITTED,
    Answer,
    Client,
    Lost,
    NotSent,
    commits,
    make_tables,
    new_key,
    read_feed,
    read_history,
)
from tests.simulation.history import Committed, Write, require_feed

RUNS = int(os.environ.get("INVER_CRASH_RUNS", "32"))
SEED = int(os.environ.get("INVER_CRASH_SEED", "1"))
KILL = "kill"
CRASHED = 137
# Dropped tables are purged at once.
ENV = {"INVER_TABLES__HOLD": "0s"}
WRITERS = 5
TABLES = 4

# How often a point is passed before the server dies at it; the rarer ones must not be waited for.
PASSES = {"decided_before_commit": 12, "followup_claimed": 1, "followup_done_before_record": 2}
# For the tests of publishing, and of Lance.
ELSEWHERE = ("published_before_mark", "lance_written_before_decide", "lance_decided_before_finalize")
DROPPED, PURGED = "io.inver.table.dropped.v1", "io.inver.table.purged.v1"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 5 * RUNS)]


@dataclass(eq=False)
class Request:
    """A transaction as it was sent, and what its sender was told: nothing, a number, or a refusal."""

    body: dict[str, Any]
    key: str | None
    writes: tuple[Write, ...] = ()
    transaction: int | None = None
    refused: bool = False


@dataclass
class Ledger:
    """What has been seen of the tables and of the feed so far, checked as it grows."""

    requests: dict[str, Request] = field(default_factory=dict)
    tokens: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    events: list[tuple[int, int, str, str, int | None]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)

    async def grow(self, client: Client) -> None:
        """Read what is new, at a moment at which nothing changes."""
        while True:
            events = await read_feed(client, len(self.events))
            versions = {table: (await client.get(f"/tables/{table}"))["version"] for table in self.tokens}
            rows = {t: await read_history(client, t, len(known)) for t, known in self.tokens.items()}
            last = int((await client.get("/info"))["last_event"])
            if last == len(self.events) + len(events):
                break
        touched = self._add_rows(rows)
        self._add_events(events)
        for table, tokens in self.tokens.items():
            assert versions[table] == len(tokens), (
                f"{table} is at {versions[table]}, has {len(tokens)} commits"
            )
        for request in touched:
            found = [self.numbers.get((write.table, write.version)) for write in request.writes]
            assert len(set(found)) == 1, f"half of {request} is there: {found}"

    def _add_rows(self, rows: dict[str, list[dict[str, Any]]]) -> set[Request]:
        touched = set()
        for table, added in rows.items():
            for row in added:
                write = Write(table, row["version"], row["token"])
                request = self.requests[write.token]
                assert write in request.writes, f"{write} is not what was asked for: {request}"
                assert not request.refused, f"{request} was refused and is there"
                assert row["payload"] == {"token": write.token}
                self.tokens[table].append(write.token)
                self.numbers[table, write.version] = int(row["transaction"])
                touched.add(request)
        return touched

    def _add_events(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            subject, kind, number = event["subject"], event["type"], int(event["invertransaction"])
            version = event["data"].get("version")
            if kind == COMMITTED:
                assert self.numbers[subject, version] == number
            elif kind == DROPPED:
                assert subject not in self.dropped
                self.dropped.add(subject)
            elif kind == PURGED:
                assert subject in self.dropped - self.purged
                self.purged.add(subject)
            self.events.append((int(event["id"]), number, kind, subject, version))

    def has(self, request: Request) -> bool:
        return all(self._token(write) == write.token for write in request.writes)

    def _token(self, write: Write) -> str | None:
        tokens = self.tokens[write.table]
        return tokens[write.version - 1] if write.version <= len(tokens) else None

    def require(self, request: Request) -> None:
        """An acknowledged request is there, as its answer said."""
        assert self.has(request), f"{request} was acknowledged and is lost"
        for write in request.writes:
            assert self.numbers[write.table, write.version] == request.transaction

    def feed(self) -> list[Committed]:
        return [
            Committed(seq, number, subject, version)
            for seq, number, kind, subject, version in self.events
            if kind == COMMITTED and version is not None
        ]


class Crashes:
    def __init__(self, server: InverServer, seed: str) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.open: list[Request] = []  # without an answer
        self.fresh: list[Request] = []  # acknowledged since the last look
        self.files: dict[str, Path] = {}  # of each table that is made to be dropped: its folder
        self.seen: Counter[str] = Counter()
        self._believed: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._broken = False  # a connection of this life of the server

    async def prepare(self) -> None:
        tables = await make_tables(self.server, [f"t{number}" for number in range(TABLES)])
        self.ledger.tokens = {table: [] for table in tables}
        self._believed = dict.fromkeys(tables, 0)
        async with Client(self.server) as client:
            await self.ledger.grow(client)
        self.server.kill()

    async def run(self, point: str) -> None:
        """One life of the server."""
        env = dict(ENV)
        if point != KILL:
            passes = self.random.randint(1, PASSES.get(point, 40))
            env["INVER_CRASH_AT"] = f"{point}:{passes}"
        try:
            self.server.start(env)
        except NotStarted as ended:
            if ended.code != CRASHED:
                raise
            self.seen[point] += 1
            return
        self._broken = False
        if point == KILL:
            moment = self.random.uniform(0, 0.4)
            asyncio.get_running_loop().call_later(moment, self.server.process.kill)
        try:
            await self.recover()
            await self._work(time.monotonic() + PATIENCE_S)
        except (Lost, NotSent):
            self._broken = True
        assert self._broken, f"the server passed no {point}"
        code = await asyncio.to_thread(self.server.await_end)
        assert code == (-signal.SIGKILL if point == KILL else CRASHED), code
        self.seen[point] += 1
        if point.startswith("followup"):
            await self._end_leases()

    async def recover(self) -> None:
        """What was acknowledged is there; what was not is replayed, and then it is there once or refused."""
        async with Client(self.server) as client:
            await self.ledger.grow(client)
            for request in self.fresh:
                self.ledger.require(request)
            self.fresh.clear()
            for request in tuple(self.open):
                there = bool(request.writes) and self.ledger.has(request)
                answer = await client.call("POST", "/transactions", request.body, request.key)
                if there:
                    assert answer.status == 200, (request, answer)
                    assert answer.body["replayed"], (request, answer)
                self.open.remove(request)
                self._learn(request, answer)
            if self.open or self.fresh:
                await self.ledger.grow(client)

    async def finish(self) -> None:
        """A last life without a death, in which everything that was begun comes to its end."""
        await self._end_leases()
        self.server.start(ENV)
        await self.recover()
        assert not self.open
        deadline = time.monotonic() + PATIENCE_S
        async with Client(self.server) as client:
            while self.ledger.dropped - self.ledger.purged or self._files_of_dropped():
                assert time.monotonic() < deadline, "dropped tables or their files are still there"
                await asyncio.sleep(0.1)
                await self.ledger.grow(client)
        await self.recover()
        await self._look_again()

    def _files_of_dropped(self) -> list[Path]:
        folders = [self.files[table] for table in self.ledger.dropped if table in self.files]
        return [path for folder in folders for path in folder.rglob("*") if path.is_file()]

    async def _look_again(self) -> None:
        """Everything from the beginning, as a stranger would read it."""
        old, new = self.ledger, Ledger(requests=self.ledger.requests)
        new.tokens = {table: [] for table in old.tokens}
        async with Client(self.server) as client:
            await new.grow(client)
        assert new == old, "history has changed"
        for request in new.requests.values():
            assert request.refused or request.transaction is not None
            if request.transaction is not None:
                new.require(request)
        require_feed({table: tuple(tokens) for table, tokens in new.tokens.items()}, new.feed())

    # --- clients ---

    async def _work(self, deadline: float) -> None:
        seeds = [self.random.random() for _ in range(WRITERS + 1)]
        working = [self._write(random.Random(seed), deadline) for seed in seeds[1:]]
        await asyncio.gather(self._make_and_drop(random.Random(seeds[0]), deadline), *working)

    async def _write(self, rng: random.Random, deadline: float) -> None:
        believed = dict(self._believed)
        async with Client(self.server) as client:
            while time.monotonic() < deadline:
                tables = rng.sample(list(believed), rng.choice((1, 1, 1, 2, 3)))
                token = f"c{next(self._numbers)}"
                writes = tuple(Write(table, believed[table] + 1, token) for table in tables)
                key = new_key(rng.getrandbits(128)) if rng.random() < 0.25 else None
                request = self.ledger.requests[token] = Request(commits(writes), key, writes)
                answer = await self._send(client, request)
                if answer is None:
                    return
                for conflict in answer.body.get("conflicts", ()):
                    believed[conflict["subject"]] = conflict["current"]
                if answer.status == 200:
                    believed.update((write.table, write.version) for write in writes)
                for table, version in believed.items():
                    self._believed[table] = max(self._believed[table], version)

    async def _make_and_drop(self, rng: random.Random, deadline: float) -> None:
        """Tables with files in them that live for a moment, so that there is something to clean up."""
        async with Client(self.server) as client:
            while time.monotonic() < deadline:
                name = f"d{next(self._numbers)}"
                create = {"op": "create-table", "name": ["sim", "s", name], "format": "LANCE"}
                answer = await self._send_once(client, rng, create)
                if answer is None:
                    return
                table = answer.body["results"][0]["id"]
                try:
                    folder = Path(urlsplit((await client.get(f"/tables/{table}"))["location"]).path)
                except (Lost, NotSent):
                    self._broken = True
                    return
                (folder / "data").mkdir(parents=True)
                for number in range(3):
                    (folder / "data" / f"{number}.lance").write_bytes(b"rows")
                self.files[table] = folder
                if await self._send_once(client, rng, {"op": "drop-table", "table": {"id": table}}) is None:
                    return
                await asyncio.sleep(0.03)

    async def _send_once(self, client: Client, rng: random.Random, op: dict[str, Any]) -> Answer | None:
        request = Request({"operations": [op]}, new_key(rng.getrandbits(128)))
        answer = await self._send(client, request)
        assert answer is None or answer.status == 200, answer
        return answer

    async def _send(self, client: Client, request: Request) -> Answer | None:
        """The answer, or None when there was none and will be none on this connection."""
        self.open.append(request)
        try:
            answer = await client.call("POST", "/transactions", request.body, request.key)
        except (Lost, NotSent):
            self._broken = True
            return None
        self.open.remove(request)
        self._learn(request, answer)
        return answer

    def _learn(self, request: Request, answer: Answer) -> None:
        if answer.status == 200:
            request.transaction = int(answer.body["transaction"])
            if request.writes:
                self.fresh.append(request)
        else:
            # The only reason to refuse any of these requests is that somebody else was first.
            assert answer.status == 409, answer
            assert answer.body["conflicts"], answer
            request.refused = True

    # --- the world around the server ---

    async def _end_leases(self) -> None:
        """Let the time pass for which a dead worker's items are left to it."""
        statement = "UPDATE work SET lease_until = 0"
        if self.server.database is None:
            with closing(sqlite3.connect(self.server.home / "inver.db")) as connection, connection:
                connection.execute(statement)
        else:
            connected = await asyncpg.connect(self.server.database)
            await connected.execute(statement)
            await connected.close()


async def test_what_was_acknowledged_survives_every_crash(database: str | None, tmp_path: Path):
    backend = "sqlite" if database is None else "postgres"
    with running_inver(tmp_path / "home", database, env=ENV) as server:
        crashes = Crashes(server, f"{SEED}/{backend}")
        await crashes.prepare()
        points = [*(name for name in failpoints.NAMES if name not in ELSEWHERE), KILL]
        began = time.monotonic()
        for number in range(RUNS // 2):
            if number % len(points) == 0:
                crashes.random.shuffle(points)
            await crashes.run(points[number % len(points)])
        took = time.monotonic() - began
        await crashes.finish()
        server.stop()
    if database is None:
        with closing(sqlite3.connect(server.home / "inver.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    ledger = crashes.ledger
    print(
        f"{backend}: {RUNS // 2} deaths in {took:.0f} s, {len(ledger.events)} events, "
        f"{len(ledger.requests)} commits asked for, {len(ledger.purged)} tables purged; {dict(crashes.seen)}"
    )
    if 2 * len(points) <= RUNS // 2:
        assert set(points) <= set(crashes.seen), crashes.seen
        assert ledger.purged
