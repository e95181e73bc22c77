"""How the server starts, what it says, what it refuses to start on, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import httpx
import pytest

from tests.fixtures.proxy import through_proxy
from tests.fixtures.server import API, COMMAND, InverServer, NotStarted, run_inver, running_inver
from tests.fixtures.waiting import PATIENCE_S, eventually
from tests.simulation.clients import (
    Client,
    Lost,
    NotSent,
    commits,
    committed,
    make_tables,
    read_feed,
    read_history,
)
from tests.simulation.history import Write, require_feed

WAIT_S = PATIENCE_S

# What takes long to load, or belongs to another backend, is not loaded to serve.
HEAVY = (
    "asyncpg",
    "boto3",
    "deltalake",
    "lance",
    "lance_namespace",
    "obstore",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "sqlalchemy",
)


@pytest.fixture
def sqlite_inver(tmp_path: Path) -> Iterator[InverServer]:
    with running_inver(tmp_path / "home") as server:
        yield server


# --- what a start leaves behind ---


def test_the_ready_file_says_where_it_is(inver: InverServer):
    ready = json.loads(inver.home.with_name("home.ready.json").read_bytes())
    assert set(ready) == {"url", "management_url", "pid"}
    assert ready["pid"] == inver.process.pid
    assert ready["url"].startswith("http://127.0.0.1:")
    assert ready["management_url"] != ready["url"]
    assert httpx.get(ready["url"] + "/readyz").status_code == 200
    assert httpx.get(ready["management_url"] + "/readyz").status_code == 200
    assert ready["url"] in inver.stdout
    assert ready["management_url"] in inver.stdout
    # Nothing is left of the way it was written.
    assert [path.name for path in inver.home.parent.glob(".home.ready*")] == []


def test_the_admin_token_is_made_and_shown_once(inver: InverServer):
    file = inver.home / "admin.token"
    token = inver.token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token.startswith("inver_pat_")
    assert inver.stdout.count(token) == 1
    assert token not in inver.stderr
    assert inver.call("GET", "/info").status_code == 200

    inver.restart()
    assert inver.token == token
    assert inver.stdout.count(token) == 1, "the token was shown a second time"
    assert inver.call("GET", "/info").status_code == 200


def test_the_home_folder_is_the_owners_alone(sqlite_inver: InverServer):
    assert stat.S_IMODE(sqlite_inver.home.stat().st_mode) == 0o700


def test_a_lost_token_file_is_made_anew(inver: InverServer):
    old = inver.headers
    (inver.home / "admin.token").unlink()
    inver.restart()
    assert inver.headers != old
    assert inver.call("GET", "/info").status_code == 200


def test_the_default_home_is_below_the_current_folder(tmp_path: Path):
    ready = tmp_path / "ready.json"
    command = [*COMMAND, "serve", "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            await_file(ready, process)
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert (tmp_path / ".inver" / "inver.db").is_file()
    assert (tmp_path / ".inver" / "admin.token").is_file()


def await_file(path: Path, process: subprocess.Popen[bytes]) -> None:
    eventually(lambda: path.exists() or process.poll() is not None)
    assert process.poll() is None


def test_what_was_kept_is_there_after_a_restart(inver: InverServer):
    with inver.client() as client:
        assert client.post("/catalogs", json={"name": "kept"}).status_code == 201
        before = client.get("/events").json()
    inver.restart()
    with inver.client() as client:
        assert client.get("/catalogs/kept").status_code == 200
        assert client.get("/events").json() == before


# --- what serving loads ---

DUMP = """
import atexit, json, os, sys
atexit.register(lambda: open(os.environ["MODULES"], "w").write(json.dumps(sorted(sys.modules))))
from inver.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_serving_loads_nothing_heavy(tmp_path: Path):
    """A whole life on SQLite: commits, reads, events, metrics; then what the process had loaded."""
    ready, modules = tmp_path / "ready.json", tmp_path / "modules.json"
    command = [sys.executable, "-c", DUMP, "serve", "--home", str(tmp_path / "home"), "--port", "0"]
    with subprocess.Popen(
        [*command, "--ready-file", str(ready)],
        env={**os.environ, "MODULES": str(modules)},
        stdout=subprocess.PIPE,
    ) as process:
        try:
            await_file(ready, process)
            place = json.loads(ready.read_bytes())
            token = (tmp_path / "home" / "admin.token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=place["url"] + API, headers=headers) as client:
                client.post("/catalogs", json={"name": "c"}).raise_for_status()
                client.post("/catalogs/c/schemas", json={"path": ["s"]}).raise_for_status()
                made = client.post("/catalogs/c/schemas/s/tables", json={"name": "t", "format": "DELTA"})
                write = Write(made.raise_for_status().json()["id"], 1, "x")
                client.post("/transactions", json=commits([write])).raise_for_status()
                client.get("/events").raise_for_status()
            httpx.get(place["management_url"] + "/metrics").raise_for_status()
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    loaded = set(json.loads(modules.read_text()))
    assert "inver.stores.sqlite" in loaded
    assert sorted(loaded & set(HEAVY)) == []


@pytest.mark.parametrize("command", [["--help"], ["serve", "--help"], ["migrate", "--help"]])
def test_help_loads_nothing_heavy(command: list[str]):
    code = (
        "import sys\nfrom inver.cli.main import main\n"
        f"try: main({command!r})\nexcept SystemExit: pass\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert result.stderr.strip() == "[]"
    assert "usage: inver" in result.stdout


# --- what it refuses to start on ---


def refused(server: InverServer, code: int = 1) -> str:
    """What it says when it does not start."""
    with pytest.raises(NotStarted) as refusal:
        server.start()
    assert refusal.value.code == code
    assert "Traceback" not in server.stderr
    return server.stderr


def test_a_second_server_on_the_same_home_is_refused(sqlite_inver: InverServer):
    home = sqlite_inver.home
    second = InverServer(home.with_name("link"))
    second.home = home
    said = refused(second)
    assert "is in use by a running server" in said
    assert str(sqlite_inver.pid) in said
    assert "to fix:" in said
    assert sqlite_inver.call("GET", "/info").status_code == 200


def test_a_home_is_free_again_when_its_server_was_killed(sqlite_inver: InverServer):
    sqlite_inver.kill()
    sqlite_inver.start()
    assert sqlite_inver.call("GET", "/info").status_code == 200


@pytest.mark.parametrize("flag", ["--port", "--management-port"])
def test_a_taken_port_is_refused(tmp_path: Path, flag: str):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = "--management-port" if flag == "--port" else "--port"
        result = run_inver("serve", "--home", str(tmp_path / "home"), flag, str(port), other, "0")
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "home").exists(), "something was made before the port was known to be free"


def test_several_workers_need_postgresql(tmp_path: Path):
    said = refused(InverServer(tmp_path / "home", arguments=["--workers", "2"]))
    assert "SQLite" in said
    assert "--database postgresql://" in said


def test_a_newer_schema_is_refused(tmp_path: Path):
    with running_inver(tmp_path / "home") as server:
        server.stop()
        with closing(sqlite3.connect(server.home / "inver.db")) as connection, connection:
            changed = connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
            assert changed.rowcount == 1
        assert "schema version 999" in refused(server)
        with closing(sqlite3.connect(server.home / "inver.db")) as connection:
            found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchall()
        assert found == [("999",)]


@pytest.mark.postgres
def test_an_empty_postgresql_database_is_refused_with_the_fix(postgres_url: str, tmp_path: Path):
    said = refused(InverServer(tmp_path / "home", postgres_url))
    assert "inver migrate --database" in said


@pytest.mark.postgres
async def test_a_newer_schema_in_postgresql_is_refused(postgres_url: str, tmp_path: Path):
    assert run_inver("migrate", "--database", postgres_url).returncode == 0
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    await connection.close()
    assert "schema version 999" in refused(InverServer(tmp_path / "home", postgres_url))
    result = run_inver("migrate", "--database", postgres_url)
    assert result.returncode == 1
    assert "schema version 999" in result.stderr


def test_an_unreachable_database_is_refused(tmp_path: Path):
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        url = f"postgresql://inver:hunter2-secret@127.0.0.1:{port}/inver"
        said = refused(InverServer(tmp_path / "home", url), code=5)
    assert "database cannot be reached" in said
    assert "hunter2-secret" not in said


# --- migrations ---


@pytest.mark.postgres
def test_migrate_and_its_check(postgres_url: str):
    check = run_inver("migrate", "--database", postgres_url, "--check")
    assert (check.returncode, check.stderr) == (3, "")
    assert "schema version 0" in check.stdout
    assert run_inver("migrate", "--database", postgres_url, "--check").returncode == 3, (
        "the check changed something"
    )
    done = run_inver("migrate", "--database", postgres_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert run_inver("migrate", "--database", postgres_url, "--check").returncode == 0
    again = run_inver("migrate", "--database", postgres_url)
    assert again.returncode == 0
    assert "->" in done.stdout
    assert "->" not in again.stdout


@pytest.mark.postgres
def test_two_migrations_at_once_do_it_once(postgres_url: str):
    command = [*COMMAND, "migrate", "--database", postgres_url]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    printed = [process.communicate(timeout=WAIT_S)[0].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], printed
    assert sum("->" in text for text in printed) == 1, printed


def test_migrate_without_a_database_says_what_to_give():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INVER_")}
    result = subprocess.run(
        [*COMMAND, "migrate"], capture_output=True, text=True, env=environment, timeout=WAIT_S
    )
    assert result.returncode == 1
    assert "--database postgresql://" in result.stderr


# --- probes and metrics ---

METRICS = {
    "inver_http_requests_total": "counter",
    "inver_http_request_duration_seconds": "histogram",
    "inver_http_in_flight": "gauge",
    "inver_commit_queue": "gauge",
    "inver_followup_done_total": "counter",
    "inver_followup_failed_total": "counter",
}


def test_probes_answer_everybody_on_both_listeners(inver: InverServer):
    for base in (inver.url, inver.management_url):
        assert httpx.get(base + "/livez").json() == {"status": "alive"}
        ready = httpx.get(base + "/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "checks": {"database": "ok"}})
        assert httpx.head(base + "/livez").status_code == 200
        assert httpx.post(base + "/livez").status_code == 405


def test_metrics_are_on_the_management_listener_only(inver: InverServer):
    assert inver.call("GET", "/info").status_code == 200
    answer = httpx.get(inver.management_url + "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds = dict(line.split(" ")[2:] for line in answer.text.splitlines() if line.startswith("# TYPE "))
    assert METRICS.items() <= kinds.items()
    counted = f'inver_http_requests_total{{method="GET",route="{API}/info",status="200"}} 1'
    assert counted in answer.text.splitlines()
    for headers in ({}, inver.headers):
        assert httpx.get(inver.url + "/metrics", headers=headers).status_code == 404
    # And what needs a token is not there at all.
    assert httpx.get(inver.management_url + API + "/info", headers=inver.headers).status_code == 404


@pytest.mark.postgres
def test_without_its_database_it_is_not_ready_and_refuses_nothing_for_good(postgres_url: str, tmp_path: Path):
    assert run_inver("migrate", "--database", postgres_url).returncode == 0
    with (
        through_proxy(postgres_url) as (proxy, database),
        running_inver(tmp_path / "home", database) as server,
        server.client() as client,
    ):
        table = asyncio.run(make_tables(server, ["t"]))[0]
        write = commits([Write(table, 1, "first")])
        proxy.cut()
        for base in (server.url, server.management_url):
            answer = httpx.get(base + "/readyz", timeout=WAIT_S)
            assert answer.status_code == 503
            assert answer.json()["status"] == "not ready"
            assert answer.json()["checks"]["database"] != "ok"
            assert httpx.get(base + "/livez").status_code == 200
        # Neither answer says that the commit will never happen.
        for _ in range(2):
            answer = client.post("/transactions", json=write)
            assert answer.status_code in (500, 503), answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            kind = answer.json()["type"].rpartition(":")[2]
            assert (answer.status_code, kind) in ((500, "outcome-unknown"), (503, "unavailable"))
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) >= 1
        answer = client.get(f"/tables/{table}")
        assert answer.status_code == 503

        proxy.join()
        eventually(lambda: httpx.get(server.url + "/readyz", timeout=WAIT_S).status_code == 200)
        answer = client.post("/transactions", json=write)
        assert answer.status_code == 200, answer.text
        assert client.get(f"/tables/{table}").json()["version"] == 1


# --- how it ends ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(inver: InverServer, number: signal.Signals):
    inver.process.send_signal(number)
    assert inver.await_end() == 0
    assert "Traceback" not in inver.stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(inver.url + "/livez")


class Told:
    """What clients were told of their commits on one table each."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.lost: list[Write] = []


async def commit_until_the_end(server: InverServer, table: str, told: Told, started: asyncio.Event) -> None:
    told.acknowledged[table] = 0
    async with Client(server) as client:
        while True:
            write = Write(table, told.acknowledged[table] + 1, f"{table}-{told.acknowledged[table]}")
            try:
                answer = await client.call("POST", "/transactions", commits([write]))
            except NotSent:
                return
            except Lost:
                told.lost.append(write)
                return
            if answer.status == 503:
                continue
            assert answer.status == 200, answer
            told.acknowledged[table] += 1
            if told.acknowledged[table] == 20:
                started.set()


async def stop_under_load(server: InverServer, clients: int) -> tuple[Told, int]:
    """SIGTERM while every client commits; returns what they were told, and the exit code."""
    tables = await make_tables(server, [f"t{number}" for number in range(clients)])
    told, started = Told(), asyncio.Event()
    working = [asyncio.ensure_future(commit_until_the_end(server, t, told, started)) for t in tables]
    await asyncio.wait_for(started.wait(), WAIT_S)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*working), WAIT_S)
    return told, await asyncio.to_thread(server.await_end)


async def require_told(server: InverServer, told: Told) -> None:
    """Each commit that took effect was answered, and each that was answered took effect."""
    async with Client(server) as client:
        events = await read_feed(client)
        tokens = {}
        for table, version in told.acknowledged.items():
            rows = await read_history(client, table)
            assert [row["version"] for row in rows] == list(range(1, version + 1)), (
                f"{len(rows)} commits took effect, {version} were answered"
            )
            tokens[table] = tuple(row["token"] for row in rows)
    require_feed(tokens, committed(events))


async def test_sigterm_under_load_answers_what_was_accepted(inver: InverServer):
    told, code = await stop_under_load(inver, clients=12)
    assert code == 0
    assert sum(told.acknowledged.values()) >= 20
    inver.start()
    await require_told(inver, told)


async def test_a_long_poll_does_not_hold_up_the_end(inver: InverServer):
    async with Client(inver) as client:
        last = (await client.get("/info"))["last_event"]
        polling = asyncio.ensure_future(client.call("GET", f"/events?after={last}&wait=60"))
        await polls_wait(inver, 1)
        inver.process.send_signal(signal.SIGTERM)
        answer = await asyncio.wait_for(polling, WAIT_S)
    assert (answer.status, answer.body) == (200, {"events": [], "next": last})
    assert await asyncio.to_thread(inver.await_end) == 0


async def polls_wait(server: InverServer, number: int) -> None:
    """Until so many requests are waiting in the server."""
    deadline = time.monotonic() + WAIT_S
    while in_flight(await metrics(server)) < number:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def metrics(server: InverServer) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(server.management_url + "/metrics")).text


def in_flight(text: str) -> float:
    return next(
        float(line.split()[1]) for line in text.splitlines() if line.startswith("inver_http_in_flight ")
    )


# --- several workers ---


@pytest.fixture
def workers(postgres_url: str, tmp_path: Path) -> Iterator[InverServer]:
    assert run_inver("migrate", "--database", postgres_url).returncode == 0
    with running_inver(tmp_path / "home", postgres_url, ["--workers", "2"]) as server:
        yield server


def children(pid: int) -> set[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return {int(line) for line in listed.stdout.split()}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.postgres
async def test_two_workers_serve_one_catalog(workers: InverServer):
    processes = children(workers.pid)
    assert len(processes) == 2
    tables = await make_tables(workers, [f"t{number}" for number in range(8)])

    # A request id that the server makes begins with what its process chose.
    answering: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    while len(answering) < 2:
        assert time.monotonic() < deadline, "only one process answers"
        async with httpx.AsyncClient() as many:
            answers = await asyncio.gather(*(many.get(workers.url + "/livez") for _ in range(16)))
        answering |= {answer.headers["x-request-id"].partition("-")[0] for answer in answers}
    assert len(answering) == 2

    async def work(number: int) -> None:
        table = tables[number % len(tables)]
        async with Client(workers) as client:
            done = 0
            while done < 15:
                version = (await client.get(f"/tables/{table}"))["version"]
                write = Write(table, version + 1, f"{number}-{done}")
                answer = await client.call("POST", "/transactions", commits([write]))
                assert answer.status in (200, 409), answer
                done += answer.status == 200

    await asyncio.gather(*(work(number) for number in range(16)))
    async with Client(workers) as client:
        events = await read_feed(client)
        tokens = {t: tuple(row["token"] for row in await read_history(client, t)) for t in tables}
    assert sum(map(len, tokens.values())) == 16 * 15
    require_feed(tokens, committed(events))

    assert workers.stop() == 0
    assert all(gone(process) for process in processes)


@pytest.mark.postgres
async def test_sigterm_under_load_ends_all_workers(workers: InverServer):
    processes = children(workers.pid)
    told, code = await stop_under_load(workers, clients=12)
    assert code == 0
    assert all(gone(process) for process in processes)
    workers.start()
    await require_told(workers, told)


@pytest.mark.postgres
def test_a_worker_that_dies_ends_all(workers: InverServer):
    first, second = children(workers.pid)
    os.kill(first, signal.SIGKILL)
    assert workers.await_end() == 1
    assert gone(second)
    assert "a worker ended unexpectedly" in workers.stderr
    workers.start()
    assert workers.call("GET", "/info").status_code == 200


@pytest.mark.postgres
def test_workers_that_cannot_start_end_all(postgres_url: str, tmp_path: Path):
    said = refused(InverServer(tmp_path / "home", postgres_url, ["--workers", "2"]))
    assert "inver migrate" in said
