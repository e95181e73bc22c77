"""Versions of Lance tables on a real server, beside pylance's own REST adapter.

Both servers run at the same time and take turns, so that whatever else happens to the machine is
felt by both. Staged manifests are there before a measurement begins, because writing them is the
client's part, and on disk, so that nobody pays for writing them back. Older versions are not made by
commits: the adapter finds them on storage, and Inver gets them in batches. A measurement begins when
its server has nothing left to do. The adapter has no batch-commit, so that is measured alone.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from bench import lance_load
from bench.ledger import Options
from bench.machine import QUIET, await_quiet, sample, spread, usage
from bench.results import Load
from bench.servers import running_inver
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.lance import final_name, manifest

OURS, ADAPTER = "sqlite", "adapter"
OLD = (100, 1_000, 5_000)
CONNECTIONS = (1, 8)
BATCHES = (1, 10, 100)
READ_AT = 1_000
MOST = {OURS: 3_000, ADAPTER: 400}
"""No server makes more versions of one table in a measurement; of many tables, a third of that."""
WARM_S = 0.25
IDLE_S, IDLE_CPU, IDLE_PATIENCE_S = 2.5, 0.02, 60.0
"""A server is idle when it uses less than this share of a core for so long."""

PARTS = ("create", "read", "batch")
_encode = msgspec.json.encode


class Table:
    """A table at some version, with manifests staged for the next ones."""

    def __init__(self, name: str, folder: Path, version: int) -> None:
        self.name = name
        self.folder = folder
        self.version = version
        self.key = str(folder).removeprefix("/")

    def stage(self, count: int) -> Iterator[bytes]:
        """Bodies of requests for the next versions, each of whose manifests is there."""
        bodies = []
        for version in range(self.version + 1, self.version + count + 1):
            uuid = str(uuid4())
            data = manifest(version, uuid)
            path = f"_versions/{final_name(version)}-{uuid}"
            (self.folder / path).write_bytes(data)
            bodies.append(
                _encode(
                    {
                        "version": version,
                        "manifest_path": f"{self.key}/{path}",
                        "manifest_size": len(data),
                        "naming_scheme": "V2",
                    }
                )
            )
        return iter(bodies)


class Subject:
    def __init__(
        self, name: str, port: int, path: str, token: str, pid: int, prefix: tuple[str, ...]
    ) -> None:
        self.name = name
        self.port = port
        self.path = path
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.watched = {"server": pid}
        self.prefix = prefix

    def once(self, path: str, body: Any) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", self.path + path, _encode(body), self.headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{self.name} {path}: {answer.status} {text.decode(errors='replace')}")
        return msgspec.json.decode(text) if text else None

    def request(self, path: str, body: bytes) -> bytes:
        headers = {"Host": "127.0.0.1", **self.headers, "Content-Length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path}{path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def await_idle(self) -> None:
        """Until it is done with what was asked of it before."""
        deadline = time.monotonic() + IDLE_PATIENCE_S
        while time.monotonic() < deadline:
            before = sample(self.watched)
            time.sleep(IDLE_S)
            spent = usage(before, sample(self.watched))
            if spent.groups["server"] <= IDLE_CPU * spent.seconds:
                return

    def id(self, table: Table | str) -> str:
        name = table if isinstance(table, str) else table.name
        return "%24".join((*self.prefix, name))

    def table(self, versions: int) -> Table:
        """A new table with so many versions."""
        name = f"t{uuid4().hex[:12]}"
        told = self.once(f"/v1/table/{self.id(name)}/declare", {})
        folder = Path(urlsplit(told["location"]).path)
        (folder / "_versions").mkdir(parents=True, exist_ok=True)
        table = Table(name, folder, 0)
        if self.name == ADAPTER:
            for version in range(1, versions + 1):
                path = folder / "_versions" / final_name(version)
                path.write_bytes(manifest(version, str(uuid4())))
        else:
            waiting = table.stage(versions)
            while some := tuple(islice(waiting, 500)):
                operations = [
                    {"create_table_version": {"id": [*self.prefix, name], **msgspec.json.decode(body)}}
                    for body in some
                ]
                self.once("/v1/table/batch-commit", {"operations": operations})
        table.version = versions
        return table


class Pair:
    def __init__(self, subjects: Sequence[Subject], options: Options) -> None:
        self._subjects = subjects
        self._options = options

    def loads(self, part: str) -> Iterator[Load]:
        if part == "create":
            for versions in OLD:
                for connections in CONNECTIONS:
                    for subject in self._subjects:
                        yield self._creates(subject, versions, connections)
        elif part == "read":
            for subject in self._subjects:
                table = subject.table(READ_AT)
                place = f"/v1/table/{subject.id(table)}"
                yield self._repeat(subject, "describe", f"{place}/describe", b"{}")
                listing = f"{place}/version/list?limit=1&descending=true"
                yield self._repeat(subject, "list", listing, b"null")
        else:
            ours = next(subject for subject in self._subjects if subject.name == OURS)
            for size in BATCHES:
                yield self._batches(ours, size)

    def _creates(self, subject: Subject, versions: int, connections: int) -> Load:
        tables = [subject.table(versions) for _ in range(connections)]
        most = MOST[subject.name] // (1 if connections == 1 else 3)
        requests = []
        for table in tables:
            path = f"/v1/table/{subject.id(table)}/version/create"
            requests.append([subject.request(path, body) for body in table.stage(most)])
        return self._measure(subject, f"create-{versions}", requests)

    def _repeat(self, subject: Subject, what: str, path: str, body: bytes) -> Load:
        requests = [[subject.request(path, body)] for _ in range(8)]
        return self._measure(subject, what, requests, repeated=True)

    def _batches(self, subject: Subject, size: int) -> Load:
        tables = [subject.table(1) for _ in range(size)]
        count = max(50, 3_000 // size)
        waiting = [table.stage(count) for table in tables]
        requests = []
        for _ in range(count):
            operations = [
                {
                    "create_table_version": {
                        "id": [*subject.prefix, table.name],
                        **msgspec.json.decode(next(bodies)),
                    }
                }
                for table, bodies in zip(tables, waiting, strict=True)
            ]
            requests.append(subject.request("/v1/table/batch-commit", _encode({"operations": operations})))
        return self._measure(subject, f"batch-{size}", [requests])

    def _measure(
        self, subject: Subject, what: str, requests: list[list[bytes]], repeated: bool = False
    ) -> Load:
        os.sync()
        subject.await_idle()
        await_quiet(QUIET, self._options.patience_s)
        plan = lance_load.Plan(
            port=subject.port,
            connections=len(requests),
            seconds=self._options.seconds,
            warm_s=WARM_S,
            watched=subject.watched,
            requests=requests,
            repeated=repeated,
        )
        done = lance_load.run(plan)
        return Load.measured(f"{subject.name}-lance-{what}", len(requests), done.answers, done.usage)


@contextmanager
def serving(options: Options) -> Iterator[Pair]:
    """Inver, and the adapter where its environment can be made."""
    with ExitStack() as stack:
        server = stack.enter_context(running_inver(None))
        ours = Subject(OURS, server.port, "/lance", server.token, server.pid, ("bench", "load"))
        server.create_schema()
        subjects = [ours]
        try:
            home = client("lance")
        except ClientMissing:
            yield Pair(subjects, options)
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inver-bench-"))
        spread(Path(folder))
        adapter = stack.enter_context(_adapter(str(home.python), folder))
        subjects.append(adapter)
        yield Pair(subjects, options)


@contextmanager
def _adapter(python: str, folder: str) -> Iterator[Subject]:
    script = Path(__file__).with_name("lance_adapter.py")
    process = subprocess.Popen(
        [python, "-I", str(script), folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Subject(ADAPTER, port, "", "", process.pid, ())
    finally:
        process.terminate()
        process.wait(15)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
