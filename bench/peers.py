"""What the same machine does without us: pgbench on the same PostgreSQL, and HTTP without a ledger."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.generator import summary
from bench.ledger import Options, database, fastest
from bench.load import Outcome, Plan, Slot, run
from bench.machine import sample, usage
from bench.results import Load
from bench.servers import running_inver, started
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import free_port, running

ROOT = Path(__file__).resolve().parent.parent
SETTLE_S = 1.0

# Tables as the server made them, under ids that a pgbench script can compute.
_RENUMBER = """
CREATE SEQUENCE bench_seq;
UPDATE tables SET id = lpad(n::text, 36, '0')
    FROM (SELECT id AS old, row_number() OVER (ORDER BY id) - 1 AS n FROM tables) AS numbered WHERE id = old;
DELETE FROM events;
VACUUM ANALYZE;
"""

# Each client keeps its versions itself and never reads them, so a commit is the compare-and-set, its two
# rows, and nothing else.
_NEXT = r"""
\set i :i + 1
\set n :client_id * :per + :i % :per
\set v :i / :per + 1
BEGIN;
UPDATE tables SET version = :v, updated_at = GREATEST(updated_at, 1794787200000), updated_by = 'bench'
    WHERE id = lpad(:n::text, 36, '0') AND version = :v - 1 AND state = 'live';
"""
_ROWS = r"""
INSERT INTO events (seq, txn, at, by_id, kind, subject, version, data)
    VALUES ({seq}, {txn}, 1794787200000, '00000000-0000-0000-0000-000000000001',
    'table.committed', lpad(:n::text, 36, '0'), :v,
    '{{"operation":"WRITE","counts":{{"rows_added":1000,"files_added":1,"bytes_added":65536}}}}');
INSERT INTO commits (table_id, branch, version, at, by_id, operation, token, txn, payload, counts)
    VALUES (lpad(:n::text, 36, '0'), '', :v, 1794787200000,
    '00000000-0000-0000-0000-000000000001', 'WRITE',
    lpad(:v::text, 20, '0') || '.00000000-0000-4000-8000-000000000001.json', {txn},
    '{{"file_size":4213,"file_modified_at":1794787200000,"timestamp":1794787200000,"engine":"bench","partitions":["date=2026-11-16"]}}',
    '{{"rows_added":1000,"files_added":1,"bytes_added":65536}}');
COMMIT;
"""
SCRIPTS = {
    # Events are numbered by a sequence: cheaper, but not in the order of their commits.
    "pgbench": _NEXT + _ROWS.format(seq="nextval('bench_seq')", txn="currval('bench_seq')"),
    # Events are numbered as the ledger numbers them, by a row that is locked until the commit.
    "pgbench-ordered": _NEXT
    + "UPDATE event_head SET seq = seq + 1 WHERE id = 1 RETURNING seq \\gset\n"
    + _ROWS.format(seq=":seq", txn=":seq"),
}


def pgbench(name: str, postgres: PostgresServer, pid: int, options: Options) -> Iterator[Load]:
    """One transaction per commit, by PostgreSQL's own client, on the same schema."""
    with database("postgres", postgres) as prepared:
        assert prepared is not None
        with running_inver(prepared) as server:
            server.create_schema()
            server.create_tables(options.tables, "many")
        _psql(postgres, prepared, _RENUMBER)
        for connections in options.connections:

            def measure(connections: int = connections) -> Outcome:
                return _pgbench(SCRIPTS[name], prepared, postgres, pid, connections, options)

            yield Load.of(name, connections, fastest(measure, options))


def _pgbench(
    script: str, prepared: str, postgres: PostgresServer, pid: int, connections: int, options: Options
) -> Outcome:
    """On a copy of the prepared database, so that every run starts from the same tables."""
    copy = "bench_copy"
    postgres.execute(f"CREATE DATABASE {copy} TEMPLATE {prepared.rpartition('/')[2]}")
    url = postgres.url_of(copy)
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as folder:
        file = Path(folder) / "commit.sql"
        file.write_text(script)
        command = [
            str(postgres.programs / "pgbench"),
            "--no-vacuum",
            "--protocol=prepared",
            f"--client={connections}",
            f"--jobs={min(2, connections)}",
            f"--time={int(options.seconds + 2 * SETTLE_S + 0.5)}",
            f"--file={file}",
            "--define=i=-1",
            f"--define=per={options.tables // connections}",
            "--log",
            f"--log-prefix={folder}/log",
            url,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(SETTLE_S)
        groups = {"postgres": pid, "client": process.pid}
        before = sample(groups)
        time.sleep(options.seconds)
        after = sample(groups)
        _, complaints = process.communicate(timeout=60)
        if process.returncode != 0:
            raise RuntimeError(f"pgbench ended with {process.returncode}: {complaints}")
        latencies = list(_latencies(Path(folder), before.at, after.at))
    # A lost update would leave a commit without its version.
    versions = _psql(postgres, url, "SELECT sum(version) FROM tables")
    commits = _psql(postgres, url, "SELECT count(*) FROM commits")
    if versions != commits:
        raise AssertionError(f"pgbench made {commits} commits of {versions} versions")
    postgres.drop_database(url)
    return Outcome({200: summary(latencies)}, usage(before, after), int(commits), [])


def _latencies(folder: Path, first: float, last: float) -> Iterator[float]:
    """Seconds of each transaction that ended in the window."""
    for log in folder.glob("log.*"):
        for line in log.read_text().splitlines():
            fields = line.split()
            if first <= int(fields[4]) + int(fields[5]) / 1e6 <= last:
                yield int(fields[2]) / 1e6


def _psql(postgres: PostgresServer, url: str, sql: str) -> str:
    program = str(postgres.programs / "psql")
    command = [program, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", url]
    done = subprocess.run([*command, "--set=ON_ERROR_STOP=1"], input=sql, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def echo(options: Options) -> Iterator[Load]:
    """Our HTTP layer with a handler that gives back what it got."""
    with tempfile.TemporaryDirectory(prefix="inver-bench-") as folder:
        command = [sys.executable, "-m", "bench.echo"]
        with started(command, Path(folder)) as (process, port, _):
            yield from _echoes("echo", port, process.pid, options)


def uvicorn(python: str, options: Options) -> Iterator[Load]:
    """The same with uvicorn and a bare ASGI application; `python` is an interpreter that has uvicorn."""
    port = free_port()
    command = [python, "-m", "uvicorn", "--app-dir", str(ROOT / "bench"), "--port", str(port)]
    command += ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    with (
        tempfile.TemporaryDirectory(prefix="inver-bench-") as folder,
        running(
            [*command, "asgi_echo:app"], log=Path(folder) / "log", answers=lambda: _answers(port)
        ) as process,
    ):
        yield from _echoes("uvicorn", port, process.pid, options)


def _answers(port: int) -> bool:
    try:
        _echo(port, 1, Options(seconds=0.1), {})
    except RuntimeError:
        return False
    return True


def _echoes(name: str, port: int, pid: int, options: Options) -> Iterator[Load]:
    for connections in options.connections:

        def measure(connections: int = connections) -> Outcome:
            return _echo(port, connections, options, {"server": pid})

        yield Load.of(name, connections, fastest(measure, options))


def _echo(port: int, connections: int, options: Options, watched: dict[str, int]) -> Outcome:
    slots = [Slot(f"{number:036}") for number in range(connections)]
    plan = Plan(
        port=port,
        path="/echo",
        bearer="x" * 86,
        connections=connections,
        slots=slots,
        seconds=options.seconds,
        watched=watched,
    )
    return run(plan)
