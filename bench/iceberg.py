"""Iceberg REST on a real server, beside Iceberg's own reference server on SQLite.

Both servers run at the same time and take turns, so that whatever else happens to the machine is
felt by both. Histories are not made by commits, which would take the reference hours: tables are
registered from metadata files that have them already. A measurement ends early when its tables have
grown by as much as is still the same size.
"""

from __future__ import annotations

import http.client
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench import iceberg_wire as wire
from bench.iceberg_load import Outcome, Plan, Slot, run
from bench.iceberg_wire import FIRST_ID, NAMESPACE, Table
from bench.ledger import Options, that_counts
from bench.machine import QUIET, await_quiet, spread
from bench.results import Load
from bench.servers import API, running_inver
from tests.fixtures.iceberg_java import running_reference
from tests.fixtures.jvm import JvmMissing

OURS, REFERENCE = "sqlite", "reference"
CONNECTIONS = (1, 8, 32)
SOME = 8
"""Connections where more of them would show nothing else."""

OLD = 1_000
"""Snapshots of the tables that are loaded."""

LISTED = 10_000
GROUP = 10
GROUPS = 64
WARM_S = 5.0
"""A Java machine is not itself before it has worked for a while."""

TURNS = 3
"""Runs of each measurement: their tables are new every time, which takes a while."""

PARTS = ("append", "load", "list", "rename", "transaction")


class Size(msgspec.Struct, frozen=True):
    """Tables with so many snapshots: how many of them, and how many commits each may take."""

    snapshots: int
    tables: int
    most: int


SIZES = (Size(10, 512, 20), Size(100, 256, 50), Size(1_000, 64, 250), Size(5_000, 32, 500))


class Subject:
    """A server that speaks the protocol at `path`, which ends with `/namespaces`."""

    def __init__(self, name: str, port: int, path: str, bearer: str, pid: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.path = path
        self.bearer = bearer
        self.watched = {"server": pid}
        self._folder = folder
        self._numbers = count(1)
        self._random = random.Random(1)
        self.call("POST", path, {"namespace": [NAMESPACE], "properties": {}})

    def call(self, method: str, path: str, body: Any = None) -> tuple[Any, dict[str, str]]:
        """One request: its answer and the headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            headers = {"Authorization": f"Bearer {self.bearer}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:2000].decode(errors='replace')}")
        return msgspec.json.decode(text) if text else None, dict(answer.getheaders())

    def register(self, number: int, snapshots: int) -> list[Table]:
        """New tables with a history."""
        at = int(time.time() * 1000)
        tables = []
        for _ in range(number):
            table = wire.new_table(f"t{next(self._numbers)}", self._folder, snapshots)
            wire.write_metadata(table, at)
            tables.append(table)
        bodies = [{"name": table.name, "metadata-location": str(table.metadata_file)} for table in tables]
        path = f"{self.path}/{NAMESPACE}/register"
        slots = [Slot([wire.request("POST", path, self.bearer, body)]) for body in bodies]
        self.send(slots, 200, min(SOME, number), each=1)
        return tables

    def send(
        self,
        slots: Sequence[Slot],
        status: int,
        connections: int,
        seconds: float | None = None,
        each: int = 0,
    ) -> Outcome:
        plan = Plan(
            port=self.port,
            connections=connections,
            slots=list(slots),
            status=status,
            seconds=seconds,
            each=each,
            watched=self.watched,
        )
        outcome = run(plan)
        for slot, version in zip(slots, outcome.versions, strict=True):
            slot.version = version
        return outcome

    # --- what is measured ---

    def append(self, size: Size, connections: int, seconds: float) -> Outcome:
        tables = self.register(max(size.tables, connections), size.snapshots)
        at = int(time.time() * 1000)
        slots = [
            Slot([wire.append(table, self.path, self.bearer, at)], table.snapshots, size.most)
            for table in tables
        ]
        outcome = self.send(slots, 200, connections, seconds)
        self._require(tables, slots)
        return outcome

    def transaction(self, connections: int, seconds: float) -> Outcome:
        size = SIZES[0]
        tables = self.register(GROUP * GROUPS, size.snapshots)
        groups = [tables[first : first + GROUP] for first in range(0, len(tables), GROUP)]
        at = int(time.time() * 1000)
        slots = [
            Slot([wire.transaction(group, self.path, self.bearer, at)], size.snapshots, size.most)
            for group in groups
        ]
        outcome = self.send(slots, 204, connections, seconds)
        self._require([group[-1] for group in groups], slots)
        return outcome

    def load(self, tables: list[Table], how: str, connections: int, seconds: float) -> Outcome:
        """`full`, with the snapshots that `refs` name, or `unchanged` since the last time."""
        query = "?snapshots=refs" if how == "refs" else ""
        slots = []
        for table in tables:
            etag = None
            if how == "unchanged":
                _, headers = self.call("GET", f"{self.path}/{NAMESPACE}/tables/{table.name}")
                etag = headers["ETag"]
            slots.append(Slot([wire.load(table, self.path, self.bearer, query, etag)]))
        return self.send(slots, 304 if how == "unchanged" else 200, connections, seconds)

    def rename(self, connections: int, seconds: float) -> Outcome:
        tables = self.register(connections, SIZES[0].snapshots)
        slots = [Slot(wire.rename(table, self.path, self.bearer)) for table in tables]
        outcome = self.send(slots, 204, connections, seconds)
        for table, slot in zip(tables, slots, strict=True):
            name = table.name + ("-renamed" if slot.version % 2 else "")
            self.call("HEAD", f"{self.path}/{NAMESPACE}/tables/{name}")
        return outcome

    def fill(self, number: int) -> None:
        """A namespace with so many tables."""
        self.call("POST", self.path, {"namespace": ["many"], "properties": {}})
        bodies = [{"name": f"t{each:06}", "schema": wire.SCHEMA} for each in range(number)]
        path = f"{self.path}/many/tables"
        slots = [Slot([wire.request("POST", path, self.bearer, body)]) for body in bodies]
        for first in range(0, number, 1_000):
            self.send(slots[first : first + 1_000], 200, SOME, each=1)

    def list(self, query: str, number: int, connections: int, seconds: float) -> Outcome:
        found, _ = self.call("GET", f"{self.path}/many/tables{query}")
        if len(found["identifiers"]) != number:
            raise AssertionError(f"{len(found['identifiers'])} tables are listed, not {number}")
        slots = [Slot([wire.listing(self.path, self.bearer, "many", query)]) for _ in range(connections)]
        return self.send(slots, 200, connections, seconds)

    def _require(self, tables: Sequence[Table], slots: Sequence[Slot]) -> None:
        """What was acknowledged is there; looked at where it is cheap enough to look."""
        for table, slot in self._random.sample(list(zip(tables, slots, strict=True)), min(SOME, len(slots))):
            path = f"{self.path}/{NAMESPACE}/tables/{table.name}?snapshots=refs"
            metadata = self.call("GET", path)[0]["metadata"]
            if metadata["current-snapshot-id"] != FIRST_ID + slot.version:
                raise AssertionError(
                    f"{table.name} is at {metadata['current-snapshot-id']}, not {slot.version}"
                )


class Pair:
    """Servers side by side; each measurement is made on all of them before the next one."""

    def __init__(self, subjects: Sequence[Subject], options: Options) -> None:
        self.subjects = subjects
        self.options = options

    def loads(self, part: str) -> Iterator[Load]:
        return {
            "append": self.appends,
            "load": self.tables,
            "list": self.lists,
            "rename": self.renames,
            "transaction": self.transactions,
        }[part]()

    def appends(self) -> Iterator[Load]:
        self._warm()
        for size in SIZES:
            for connections in (each for each in CONNECTIONS if each in self.options.connections):

                def append(subject: Subject, size: Size = size, connections: int = connections) -> Outcome:
                    return subject.append(size, connections, self.options.seconds)

                yield from self._measure(f"append-{size.snapshots}", connections, append)

    def tables(self) -> Iterator[Load]:
        tables = {subject.name: subject.register(SOME, OLD) for subject in self.subjects}
        for how in ("full", "refs", "unchanged"):

            def load(subject: Subject, how: str = how) -> Outcome:
                return subject.load(tables[subject.name], how, SOME, self.options.seconds)

            yield from self._measure(f"load-{how}", SOME, load)

    def lists(self) -> Iterator[Load]:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda subject: subject.fill(LISTED), self.subjects))
        page = 100
        for what, query, number in (
            ("all", "", LISTED),
            ("page", f"?pageToken=&pageSize={page}", page),
        ):

            def ask(subject: Subject, query: str = query, number: int = number) -> Outcome:
                return subject.list(query, number, SOME, self.options.seconds)

            yield from self._measure(f"list-{what}", SOME, ask)

    def renames(self) -> Iterator[Load]:
        yield from self._measure("rename", SOME, lambda subject: subject.rename(SOME, self.options.seconds))

    def transactions(self) -> Iterator[Load]:
        yield from self._measure(
            f"transaction-{GROUP}", SOME, lambda subject: subject.transaction(SOME, self.options.seconds)
        )

    def _warm(self) -> None:
        for subject in self.subjects:
            if subject.name == REFERENCE:
                for _ in range(2):
                    subject.append(SIZES[0], SOME, WARM_S)

    def _measure(self, what: str, connections: int, measure: Callable[[Subject], Outcome]) -> Iterator[Load]:
        """In turns, so that whatever else changes meanwhile is felt by all; of each the run that counts."""
        outcomes: list[list[Outcome]] = [[] for _ in self.subjects]
        for _ in range(min(TURNS, self.options.attempts)):
            for subject, made in zip(self.subjects, outcomes, strict=True):
                await_quiet(QUIET, self.options.patience_s)
                made.append(measure(subject))
        for subject, made in zip(self.subjects, outcomes, strict=True):
            best = that_counts(made, lambda outcome: outcome.answers.count)
            yield Load.measured(f"{subject.name}-iceberg-{what}", connections, best.answers, best.usage)


@contextmanager
def serving(options: Options) -> Iterator[Pair]:
    """Ours on SQLite, and the reference where it can be started."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inver-bench-")))
        spread(root)
        folders = [root / OURS, root / REFERENCE]
        for folder in folders:
            folder.mkdir()
        server = stack.enter_context(running_inver(None, ["--external-root", str(folders[0])]))
        server.call("POST", f"{API}/catalogs", {"name": "bench"})
        config = server.call("GET", "/iceberg/v1/config?warehouse=bench")
        prefix = {**config["defaults"], **config["overrides"]}["prefix"]
        path = f"/iceberg/v1/{prefix}/namespaces"
        subjects = [Subject(OURS, server.port, path, server.token, server.pid, folders[0])]
        with suppress(JvmMissing):
            running = stack.enter_context(running_reference(root / "home"))
            port = int(running.url.rpartition(":")[2])
            subjects.append(Subject(REFERENCE, port, "/v1/namespaces", "nobody", running.pid, folders[1]))
        yield Pair(subjects, options)
