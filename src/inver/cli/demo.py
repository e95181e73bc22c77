"""`inver demo`: the main job end to end, on an empty folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inver.cli import demo_care, demo_delta, demo_iceberg, demo_sharing, demo_transaction
from inver.cli.options import Subparsers, verb
from inver.errors import Broken, Conflict

if TYPE_CHECKING:
    from inver.client import Client

START_LIMIT_S = 10.0
TABLES = {"orders": "DELTA", "customers": "ICEBERG", "embeddings": "LANCE"}


def add(commands: Subparsers) -> None:
    verb(
        commands,
        "demo",
        run,
        "show the catalog at work on an empty folder",
        "inver demo",
        about="A server starts, several tables move in one transaction, and it stops.",
        shows=False,
        remote=False,
    )


def run(arguments: Namespace) -> int:
    from inver.client import connect

    with tempfile.TemporaryDirectory(prefix="inver-demo-") as folder:
        home = Path(folder) / "home"
        with server(home):
            token = (home / "admin.token").read_text().strip()
            with connect(token=token, home=home) as client:
                show(client)
            url = json.loads((home / "server.json").read_text())["url"]
            demo_delta.show(url, token, say)
            demo_iceberg.show(url, token, say)
            demo_transaction.show(url, token, say)
            with connect(token=token, home=home) as client:
                demo_sharing.show(client, home, home.parent / "lake", say)
                demo_care.show(client, token, home, say)
        say("stopped", "everything that was acknowledged is on disk")
    return 0


@contextmanager
def server(home: Path) -> Iterator[None]:
    """A server of its own, as a script would start one; settings of this machine do not reach it."""
    ready = home.parent / "ready.json"
    started = time.monotonic()
    environment = {
        name: value for name, value in os.environ.items() if not (name.startswith("INVER_") and "__" in name)
    }
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "inver", "serve", "--home", "home", "--port", "0", "--ready-file", ready),
            *("--external-root", home.parent / "lake"),
        ],
        stdout=subprocess.DEVNULL,
        cwd=home.parent,
        env=environment,
    )
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_LIMIT_S:
                raise Broken("the server did not start")
            time.sleep(0.01)
        say(
            "server",
            f"ready after {time.monotonic() - started:.2f} s at {json.loads(ready.read_text())['url']}",
        )
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


def show(client: Client) -> None:
    client.create_catalog("main", comment="the demo's catalog")
    client.create_schema("main.sales")
    say("names", "made catalog main and schema main.sales")
    for name, kind in TABLES.items():
        client.create_table(f"main.sales.{name}", kind)
        say("table", f"main.sales.{name} ({kind.title()})")
    key = str(uuid.uuid4())
    move = [commit(name, 1) for name in TABLES]
    done = client.transact(move, key=key)
    say("commit", f"one transaction moved three tables of three formats: {done.transaction}")
    again = client.transact(move, key=key)
    say("replay", f"the same key again took effect once (replayed: {again.replayed})")
    try:
        client.transact([commit("orders", 2), commit("customers", 1)])
    except Conflict as lost:
        winner = lost.conflicts[0].winner
        assert winner is not None
        say("conflict", f"{lost.message}; won by transaction {winner.transaction}")
    say("all or none", f"orders stayed at version {client.table('main.sales.orders').version}")
    client.rename_table("main.sales.orders", "main.sales.sold")
    for event in client.events():
        name = event.data.get("name", event.data.get("operation", ""))
        say("event " + event.id, f"{event.type:32} {event.subject}  {name}")


def commit(table: str, version: int) -> dict[str, Any]:
    return {
        "op": "commit",
        "table": {"name": ["main", "sales", table]},
        "version": version,
        "token": f"demo-{os.getpid()}-{uuid.uuid4()}",
        "operation": "append",
        "counts": {"rows_added": 100, "files_added": 1},
    }


def say(what: str, text: str) -> None:
    # In one piece: two writers may speak at the same time.
    sys.stdout.write(f"  {what:12} {text}\n")
    sys.stdout.flush()
