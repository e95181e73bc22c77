"""Managed Delta tables through Unity's faces of a real server, on SQLite and on PostgreSQL.

The server does what it does by default: it reads the staged file of every commit before it decides,
and looks at what is published. Files are there before a measurement begins, because writing them is
the client's part. Writers publish their own commits and say so with the next one, as Spark does.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.ledger import OLD, STRETCH, YOUNG, Options, database, fastest
from bench.load import Outcome, Plan, Slot, run
from bench.machine import QUIET, await_quiet
from bench.results import Growth, Hot, Load
from bench.servers import Server, running_inver
from bench.unity_wire import CATALOG, READS, SCHEMA, TIMESTAMP, UNITY, file_of, staged_file
from tests.fixtures.postgres import PostgresServer

TABLES = 64
"""As many as the peers were measured with; with more connections than that, one for each."""

GROWING = 4
MOST_PER_S = 20_000
MOST_WINNERS_PER_S = 4_000
"""No server is faster than this, so no more files than this are needed."""

LINKS = 30_000
"""A file system allows a file so many names, and more."""

LOADS = ("unity", "unity-v1", "unity-commits", "unity-load")
PARTS = (*LOADS, "unity-hot", "unity-growth")

_PROPERTIES = {"delta.enableInCommitTimestamps": "true"}


class Files:
    """The log folders of tables, with files of the same bytes under many names."""

    def __init__(self) -> None:
        self._data = staged_file()
        self._links: dict[Path, int] = {}

    def first(self, location: str, text: bytes) -> None:
        (self._log(location) / "_staged_commits").mkdir(parents=True)
        (self._log(location) / f"{0:020d}.json").write_bytes(text)

    def write(self, slot: Slot, versions: range, clients: range) -> None:
        """Staged by each client, and published; readers of the log find the same bytes."""
        log = self._log(slot.location)
        staged = log / "_staged_commits"
        for version in versions:
            self._link(staged, [file_of(version, client) for client in clients])
            self._link(log, [f"{version:020d}.json"])

    def _link(self, folder: Path, names: list[str]) -> None:
        for name in names:
            number = self._links.get(folder, 0)
            source = folder / f".source-{number // LINKS}"
            if number % LINKS == 0:
                source.write_bytes(self._data)
            self._links[folder] = number + 1
            try:
                os.link(source, folder / name)
            except FileExistsError:
                continue  # from a measurement that did not use all of its files

    def _log(self, location: str) -> Path:
        return Path(location.removeprefix("file://")) / "_delta_log"


class Subject:
    """A server with managed tables, ready to be written to."""

    def __init__(self, name: str, server: Server, watched: Mapping[str, int], options: Options) -> None:
        self.name = name
        self.options = options
        self._server = server
        self._watched = {"server": server.pid, **watched}
        self._files = Files()
        self._slots: list[Slot] = []
        server.create_schema()

    def loads(self, part: str) -> Iterator[Load]:
        """Every table is the business of one connection."""
        for connections in self.options.connections:
            slots = self._tables(max(TABLES, connections))
            # The first request about a table is dearer: the server has yet to learn of it.
            self._send(part, connections, slots, each=len(slots) // connections)

            def measure(connections: int = connections, slots: list[Slot] = slots) -> Outcome:
                return self._send(part, connections, slots, seconds=self.options.seconds)

            yield Load.of(f"{self.name}-{part}", connections, fastest(measure, self.options))

    def hot(self) -> Hot:
        """One table, the business of everybody."""
        [slot] = self._create(1, "hot")
        connections = self.options.hot_connections

        def measure() -> Outcome:
            return self._send("unity", connections, [slot], seconds=self.options.seconds, shared=True)

        return Hot.of(f"{self.name}-unity", connections, fastest(measure, self.options))

    def growth(self) -> Growth:
        """Young and old tables in turn: whatever else changes meanwhile is felt by both. Of each the best."""
        old = self._create(GROWING, "old")
        self._advance(old, OLD)
        young_s: list[float] = []
        old_s: list[float] = []
        for number in range(self.options.rounds):
            await_quiet(QUIET, self.options.patience_s)
            young = self._create(GROWING, f"young{number}-")
            self._advance(young, YOUNG)
            young_s.append(self._advance(young, STRETCH))
            old_s.append(self._advance(old, STRETCH))
        commits = GROWING * STRETCH
        return Growth(
            subject=f"{self.name}-unity",
            young=f"{YOUNG:,}",
            old=f"{OLD:,}",
            young_us=1e6 * min(young_s) / commits,
            old_us=1e6 * min(old_s) / commits,
        )

    def _advance(self, slots: list[Slot], by: int) -> float:
        """CPU seconds of server and database for that many commits of each table."""
        outcome = self._send("unity", len(slots), slots, each=by)
        return sum(outcome.usage.groups.values())

    def _send(
        self,
        part: str,
        connections: int,
        slots: list[Slot],
        seconds: float | None = None,
        each: int = 0,
        shared: bool = False,
    ) -> Outcome:
        """Every acknowledged commit, and no other, must be in the ledger."""
        plan = Plan(
            port=self._server.port,
            path="",
            bearer=self._server.token,
            unity=part,
            connections=connections,
            slots=slots,
            shared=shared,
            seconds=seconds,
            each=each,
            watched=self._watched,
        )
        if part not in READS:
            self._prepare(plan)
        before = self._server.last_event()
        outcome = run(plan)
        recorded = self._server.last_event() - before
        expected = 0 if part in READS else outcome.won
        if recorded != expected:
            raise AssertionError(f"{expected} commits were acknowledged, {recorded} are recorded")
        for slot, reached in zip(slots, outcome.slots, strict=True):
            slot.version = reached.version
        return outcome

    def _prepare(self, plan: Plan) -> None:
        """Files for more commits than there will be."""
        tables = len(plan.slots)
        most = plan.each
        if plan.seconds is not None:
            rate = MOST_WINNERS_PER_S if plan.shared else MOST_PER_S
            most = int(rate * (plan.seconds + plan.warm_s)) // tables + 1
        for number, slot in enumerate(plan.slots):
            writer = number % plan.connections
            clients = range(plan.connections) if plan.shared else range(writer, writer + 1)
            self._files.write(slot, range(slot.version + 1, slot.version + 1 + most), clients)

    def _tables(self, count: int) -> list[Slot]:
        missing = count - len(self._slots)
        if missing > 0:
            self._slots += self._create(missing, f"many{len(self._slots)}-")
        slots = self._slots[:count]
        random.Random(1).shuffle(slots)
        return slots

    def _create(self, count: int, prefix: str) -> list[Slot]:
        return [self._create_one(f"{prefix}{number}") for number in range(count)]

    def _create_one(self, name: str) -> Slot:
        schema = f"{UNITY}/delta/v1/catalogs/{CATALOG}/schemas/{SCHEMA}"
        staged = self._server.call("POST", f"{schema}/staging-tables", {"name": name})
        table_id, location = staged["table-id"], staged["location"]
        self._files.first(location, _first(table_id, staged["required-protocol"]))
        body = {
            "name": name,
            "location": location,
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": _FIELDS},
            "protocol": staged["required-protocol"],
            "properties": {**_PROPERTIES, "io.unitycatalog.tableId": table_id},
            "last-commit-timestamp-ms": TIMESTAMP,
        }
        self._server.call("POST", f"{schema}/tables", body)
        return Slot(table_id, 0, name, location)


_FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "long"), ("name", "string"), ("at", "timestamp"), ("amount", "decimal(18,2)"))
]


def _first(table_id: str, protocol: dict[str, Any]) -> bytes:
    """Version 0 as an engine writes it."""
    encode = msgspec.json.encode
    actions = [
        {
            "commitInfo": {
                "timestamp": TIMESTAMP,
                "inCommitTimestamp": TIMESTAMP,
                "operation": "CREATE TABLE",
            }
        },
        {
            "protocol": {
                "minReaderVersion": protocol["min-reader-version"],
                "minWriterVersion": protocol["min-writer-version"],
                "readerFeatures": protocol["reader-features"],
                "writerFeatures": protocol["writer-features"],
            }
        },
        {
            "metaData": {
                "id": table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": encode({"type": "struct", "fields": _FIELDS}).decode(),
                "partitionColumns": [],
                "configuration": {**_PROPERTIES, "io.unitycatalog.tableId": table_id},
                "createdTime": TIMESTAMP,
            }
        },
    ]
    return b"".join(encode(action) + b"\n" for action in actions)


@contextmanager
def serving(store: str, postgres: PostgresServer | None, pid: int, options: Options) -> Iterator[Subject]:
    """A new server on `store`; `pid` is PostgreSQL's."""
    with database(store, postgres) as url, running_inver(url) as server:
        yield Subject(store, server, {} if url is None else {"postgres": pid}, options)
