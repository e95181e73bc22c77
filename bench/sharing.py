"""A share of a million files, and changes of ten thousand commits, through a real server.

`python -m bench.sharing` measures and prints; `run` gives the figures to whoever asks. The first answer
comes from a server that has never seen the table, the others from one that has. Memory is the server's
own, over what it had when it was ready, sampled while it answers; pages of a file that it has mapped,
which the system can take back at any time, are not counted. Beside it, in the same run: the same log
listed in the plainest way.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers import API, Server, running_inver
from bench.sharing_table import COMMITS, DAYS, FILES, day, write_commits, write_table

SHARED = "/delta-sharing/shares/bench/schemas/load/tables"
_CHUNK = 1 << 16


def run(files: int = FILES, commits: int = COMMITS) -> dict[str, Any]:
    """Seconds to the first byte and to the last, and megabytes."""
    figures: dict[str, Any] = {"files": files, "commits": commits}
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as name:
        lake = Path(name)
        write_table(lake / "files", files)
        write_commits(lake / "commits", commits)
        for part, table in (("snapshot", "files"), ("changes", "commits")):
            with running_inver(None, ["--external-root", name]) as server:
                token = _share(server, table, lake / table)
                figures[part] = _snapshot(server, token) if part == "snapshot" else _changes(server, token)
        command = [sys.executable, "-m", "bench.sharing_log", "--part", "plain", name]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        figures["plain"] = json.loads(ran.stdout)
    return figures


def _share(server: Server, table: str, folder: Path) -> str:
    """The token of a recipient that has the table."""
    server.create_schema()
    body = {"name": table, "format": "DELTA", "kind": "EXTERNAL", "location": str(folder)}
    server.call("POST", f"{API}/catalogs/bench/schemas/load/tables", body)
    server.call("POST", f"{API}/shares", {"name": "bench"})
    server.call("POST", f"{API}/shares/bench/items", {"name": ["bench", "load", table]})
    made = server.call("POST", f"{API}/recipients", {"name": "bench", "activate": False})
    server.call("PUT", f"{API}/shares/bench/recipients/bench", {})
    return str(made["profile"]["bearerToken"])


def _snapshot(server: Server, token: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    hint = json.dumps({"predicateHints": [f"day = '{day(60, DAYS)}'"]})
    with _memory(server.pid) as memory:
        for name, body in (("cold", "{}"), ("warm", "{}"), ("partition", hint)):
            first, whole, lines = _ask(server, token, "POST", "/files/query", body)
            figures |= {f"{name}_first_s": first, f"{name}_whole_s": whole, f"{name}_files": lines - 2}
    return {**figures, "partition_s": figures["partition_whole_s"], "growth_mb": round(memory[0], 1)}


def _changes(server: Server, token: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with _memory(server.pid) as memory:
        for name in ("cold", "warm"):
            first, whole, lines = _ask(server, token, "GET", "/commits/changes?startingVersion=0")
            figures |= {f"{name}_first_s": first, f"{name}_whole_s": whole, f"{name}_files": lines - 2}
    return {**figures, "growth_mb": round(memory[0], 1)}


def _ask(
    server: Server, token: str, method: str, path: str, body: str | None = None
) -> tuple[float, float, int]:
    """Seconds to the first byte of the body and to the last, and how many lines it had."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    try:
        begun = time.perf_counter()
        connection.request(method, SHARED + path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        lines = answer.read(1).count(b"\n")
        first = time.perf_counter() - begun
        while data := answer.read1(_CHUNK):
            lines += data.count(b"\n")
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status}")
        return round(first, 3), round(time.perf_counter() - begun, 3), lines
    finally:
        connection.close()


@contextmanager
def _memory(pid: int) -> Iterator[list[float]]:
    """The most that a process has more than at the start, in megabytes of its own."""
    start = _own_mb(pid)
    most = [0.0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], _own_mb(pid) - start)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def _own_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
