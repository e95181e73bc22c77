"""Servers under test: started as a user starts them, on loopback, with nothing of anybody else's."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.load import Slot
from bench.machine import spread

START_SECONDS = 30
API = "/api/management/v1"


class Server(msgspec.Struct, frozen=True):
    """A running server. `ready_s` is the time from its start until it answered that it is ready."""

    pid: int
    port: int
    token: str
    ready_s: float

    def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            sent = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return msgspec.json.decode(text) if text else None

    def last_event(self) -> int:
        return int(self.call("GET", f"{API}/info")["last_event"])

    def create_schema(self) -> None:
        self.call("POST", f"{API}/catalogs", {"name": "bench"})
        self.call("POST", f"{API}/catalogs/bench/schemas", {"path": ["load"]})

    def create_tables(self, count: int, prefix: str) -> list[Slot]:
        slots = []
        for start in range(0, count, 250):
            operations = [
                {"op": "create-table", "name": ["bench", "load", f"{prefix}{number}"], "format": "DELTA"}
                for number in range(start, min(start + 250, count))
            ]
            made = self.call("POST", f"{API}/transactions", {"operations": operations})
            slots += [Slot(result["id"]) for result in made["results"]]
        return slots


@contextmanager
def running_inver(database: str | None, arguments: Sequence[str] = ()) -> Iterator[Server]:
    """`inver serve` with a home of its own: SQLite, or the migrated PostgreSQL `database`."""
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as folder:
        home = Path(folder)
        spread(home)
        command = [sys.executable, "-m", "inver", "serve", "--home", str(home / "home"), "--port", "0"]
        command += arguments
        if database is not None:
            command += ["--database", database]
        with started(command, home) as (process, port, ready_s):
            token = (home / "home" / "admin.token").read_text().strip()
            yield Server(process.pid, port, token, ready_s)


@contextmanager
def started(command: Sequence[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """A server that writes its address to `--ready-file` and answers `/readyz`."""
    ready, log = folder / "ready.json", folder / "log"
    with log.open("wb") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - begun > START_SECONDS:
                raise RuntimeError(f"{' '.join(command)} did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.002)
        port = int(msgspec.json.decode(ready.read_bytes())["url"].rpartition(":")[2])
        _require_ready(port)
        yield process, port, time.perf_counter() - begun
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.wait()


def migrate(database: str) -> None:
    command = [sys.executable, "-m", "inver", "migrate", "--database", database]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"inver migrate failed: {done.stderr}")


def _require_ready(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"/readyz answered {answer.status}: {answer.read()!r}")
    finally:
        connection.close()
