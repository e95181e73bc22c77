"""`inver care run` on a real server: what it does to a table, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from inver.cli.main import main
from inver.client import Client, dotted
from inver.config.settings import StorageSettings
from inver.domain.care import Job, Outcome, Result
from inver.errors import Conflict
from inver.pipeline.runner import Runner
from tests.fixtures.delta_writers import CARE, Writer, expected, new_table
from tests.fixtures.lossy import Loss, lossy
from tests.fixtures.server import COMMAND, InverServer, running_inver, spawn
from tests.fixtures.unity import Place
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

LEASE_S = 2
SECONDS = 120
SMALL = {"min_small_files": 2}
ENOUGH = 24
"""Commits that make a finding also of a table that is being written to."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    home = tmp_path_factory.mktemp("care") / "home"
    with running_inver(home, env={"INVER_CARE__LEASE": str(LEASE_S)}) as started:
        yield started


@pytest.fixture
def place(server: InverServer, client: Client) -> Iterator[Place]:
    """A catalog whose tables are cared for as soon as they need it."""
    place = Place(server)
    client.set_care_policy(place.catalog, options={**SMALL, "quiet_minutes": 0})
    yield place
    place.close()


@pytest.fixture
def writer(place: Place) -> Writer:
    return small_files(place, ENOUGH)


@pytest.fixture
def client(server: InverServer) -> Iterator[Client]:
    with Client(server.url, server.token) as client:
        yield client


@pytest.fixture
def runner(client: Client, spark: Any, tmp_path: Path) -> Runner:
    return Runner(client, StorageSettings(), lambda: spark, logs=tmp_path / "logs")


def small_files(place: Place, commits: int, name: str = "t") -> Writer:
    writer = Writer(new_table(place, name))
    writer.refresh()
    for number in range(commits):
        writer.append(range(5 * number, 5 * number + 5))
    return writer


def care_run(server: InverServer, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command in this process, on the Spark that it has; its status, and what it printed."""
    capfd.readouterr()
    status = main(["care", "run", *_where(server, None), "-o", "json", *arguments])
    return status, *capfd.readouterr()


def start(
    server: InverServer, folder: Path, *arguments: str, url: str | None = None
) -> subprocess.Popen[bytes]:
    words = ["care", "run", *arguments, *_where(server, url), "--spark", "local[2]", "-o", "json"]
    return spawn(words, folder / "stdout", folder / "stderr", env=_env(server))


def _env(server: InverServer) -> dict[str, str]:
    """Logs go beside the server's folder and not into somebody's home."""
    return {**os.environ, "XDG_STATE_HOME": str(server.home.parent / "state")}


def _where(server: InverServer, url: str | None) -> list[str]:
    return ["--url", url or server.url, "--token-file", str(server.home / "admin.token")]


def once(client: Client, runner: Runner, table: str, job: Job, **options: Any) -> Result:
    ticket = client.start_care(table, job, worker="test", options=options)
    return runner.run(ticket, lambda progress, message: None)


def rewrites(writer: Writer) -> int:
    writer.refresh()
    return sum(operation == CARE for operation in writer.operations.values())


def data_files(writer: Writer) -> set[str]:
    return {path.name for path in writer.table.folder.glob("*.parquet")}


# --- by hand ---


def test_two_hundred_small_commits(
    server: InverServer, place: Place, client: Client, spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = small_files(place, 200)
    name = writer.table.name
    writer.delete(6, 7)
    assert "compact" in {finding.job for finding in client.care(name).findings}
    status, out, err = care_run(server, capfd, name, "-o", "table")
    assert status == 0, err
    assert f"{name} compact done" in " ".join(out.split())
    # Not a terminal: lines in place of bars, and not among the results.
    assert f"{name} compact:   0% " in err
    assert writer.rows() == expected(writer)
    assert len(writer.files) == 1
    [compacted] = [run for run in client.care_runs(table=name) if run.job == "compact"]
    assert compacted.result is not None
    assert compacted.result.outcome is Outcome.DONE
    status, out, _ = care_run(server, capfd, name, "--job", "compact")
    assert (status, [done["result"]["outcome"] for done in json.loads(out)]) == (0, ["nothing"])


def test_one_table_that_is_refused_stops_no_other(
    server: InverServer, place: Place, client: Client, spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    bad, good = small_files(place, ENOUGH, "bad"), small_files(place, ENOUGH, "good")
    victim = next(iter(bad.files.values()))
    (bad.table.folder / victim["path"]).unlink()
    both = {bad.table.name, good.table.name}
    eventually(lambda: both <= {dotted(step.full_name) for step in client.care_plan().steps})
    status, out, err = care_run(server, capfd, "--all")
    assert status == 1, err
    outcomes = {done["table"]: done["result"] for done in json.loads(out) if done["job"] == "compact"}
    assert outcomes[bad.table.name]["outcome"] == "refused"
    assert victim["path"] in outcomes[bad.table.name]["message"]
    assert outcomes[good.table.name]["outcome"] == "done"
    assert rewrites(bad) == 0
    assert good.rows() == expected(good)
    bad.table.http.delete(f"/tables/{bad.table.name}").raise_for_status()


def test_without_spark_it_says_what_to_install(server: InverServer) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from inver.cli.main import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "care", "run", "main.a.b", *_where(server, None)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 1
    assert "pip install inver[spark]" in ran.stderr


def test_a_terminal_gets_progress_bars(server: InverServer, writer: Writer) -> None:
    near, far = pty.openpty()
    try:
        ran = subprocess.run(
            [*COMMAND, "care", "run", writer.table.name, "--job", "log", *_where(server, None)],
            stdout=subprocess.PIPE,
            stderr=far,
            timeout=SECONDS,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
        )
        shown = os.read(near, 1 << 16).decode()
    finally:
        os.close(near)
        os.close(far)
    assert ran.returncode == 0
    assert f"[1/1] {writer.table.name} log" in shown
    assert "━" in shown


# --- killed ---


def test_killed_while_files_are_written(
    server: InverServer, writer: Writer, client: Client, runner: Runner, tmp_path: Path
) -> None:
    before = data_files(writer)
    process = start(server, tmp_path, writer.table.name, "--job", "compact", "--option", "min_small_files=2")
    try:
        eventually(lambda: data_files(writer) != before or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert writer.rows() == expected(writer)
    cleaned_by_the_next_run(writer, client, runner)


def test_killed_between_ratification_and_its_answer(
    server: InverServer, writer: Writer, client: Client, runner: Runner, tmp_path: Path
) -> None:
    with lossy(server.url) as line:
        line.silence("/delta/commit")
        words = [writer.table.name, "--job", "compact", "--option", "min_small_files=2"]
        process = start(server, tmp_path, *words, url=line.url)
        try:
            assert line.waiting.wait(SECONDS), (tmp_path / "stderr").read_text()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert rewrites(writer) == 1
    assert writer.rows() == expected(writer)
    cleaned_by_the_next_run(writer, client, runner)
    assert rewrites(writer) == 1


def test_an_executor_that_is_killed(
    server: InverServer, writer: Writer, client: Client, runner: Runner, tmp_path: Path
) -> None:
    """Spark tries the task again; what the dead one has written is nobody's."""
    process = start(server, tmp_path, writer.table.name, "--job", "compact", "--option", "min_small_files=2")
    try:
        eventually(lambda: _kill_executor(process.pid) or process.poll() is not None)
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
    assert writer.rows() == expected(writer)
    cleaned_by_the_next_run(writer, client, runner)


def _kill_executor(driver: int) -> bool:
    """The first process that Spark has started for Python's part of a task."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"pyspark.daemon" in status.read_bytes() and driver in _ancestors(int(status.parent.name)):
                os.kill(int(status.parent.name), signal.SIGKILL)
                return True
    return False


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


def cleaned_by_the_next_run(writer: Writer, client: Client, runner: Runner) -> None:
    """The dead worker's table is free when its lease is over; then everything is as if it had not died."""
    name = writer.table.name

    def taken_over() -> bool:
        try:
            once(client, runner, name, Job.COMPACT, **SMALL)
        except Conflict:
            return False
        return True

    eventually(taken_over)
    assert once(client, runner, name, Job.COMPACT, **SMALL).outcome is Outcome.NOTHING
    # A rewrite has an hour to hear that its table is no more its own.
    then = time.time() - 2 * 3600
    for path in writer.table.folder.rglob("*.*"):
        os.utime(path, (then, then))
    # The staged file of the rewrite is needed until the server, in its own time, has published it.
    eventually(lambda: once(client, runner, name, Job.ORPHANS, staged_hours=1).outcome is Outcome.NOTHING)
    assert writer.rows() == expected(writer)
    assert len(writer.files) == 1
    written = {path.split("/")[-1] for path, _ in writer.files} | {path for path, _ in writer.removed_by}
    assert data_files(writer) <= written


# --- answers that are lost, leases that end ---


@pytest.mark.parametrize("loss", Loss)
def test_a_lost_answer_makes_no_second_commit(
    server: InverServer, writer: Writer, spark: Any, tmp_path: Path, loss: Loss
) -> None:
    with lossy(server.url) as line, Client(line.url, server.token) as client:
        line.lose("/delta/commit", loss)
        runner = Runner(client, StorageSettings(), lambda: spark, logs=tmp_path)
        result = once(client, runner, writer.table.name, Job.COMPACT, **SMALL)
    assert result.outcome is Outcome.DONE, result.message
    assert rewrites(writer) == 1
    assert writer.rows() == expected(writer)


def test_a_lease_that_ended_is_taken_over(writer: Writer, client: Client, runner: Runner) -> None:
    name = writer.table.name
    silent = client.start_care(name, Job.COMPACT, worker="silent", options=SMALL)
    with pytest.raises(Conflict):
        client.start_care(name, Job.COMPACT, worker="early", options=SMALL)
    time.sleep(LEASE_S + 0.5)
    ticket = client.start_care(name, Job.COMPACT, worker="late", options=SMALL)
    assert runner.run(silent, lambda progress, message: None).outcome is Outcome.LOST
    assert rewrites(writer) == 0
    assert runner.run(ticket, lambda progress, message: None).outcome is Outcome.DONE
    assert writer.rows() == expected(writer)


def test_a_job_that_takes_longer_than_its_lease_keeps_it(
    writer: Writer, client: Client, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = writer.table.name
    ticket = client.start_care(name, Job.COMPACT, worker="slow", options=SMALL)
    paused: list[float] = []

    def pause(progress: float, message: str) -> None:
        if not paused:
            paused.append(progress)
            time.sleep(2 * LEASE_S)
            with pytest.raises(Conflict):
                client.start_care(name, Job.COMPACT, worker="other", options=SMALL)

    assert runner.run(ticket, pause).outcome is Outcome.DONE
    assert paused


def test_a_worker_that_is_told_to_end_gives_the_table_back(
    writer: Writer, client: Client, spark: Any, tmp_path: Path
) -> None:
    name = writer.table.name
    stopping = Runner(client, StorageSettings(), lambda: spark, logs=tmp_path, stopping=lambda: True)
    assert once(client, stopping, name, Job.COMPACT, **SMALL).outcome is Outcome.STOPPED
    assert rewrites(writer) == 0
    # At once, and not when the lease is over.
    client.start_care(name, Job.COMPACT, worker="next", options=SMALL)


def test_what_is_not_foreseen_fails_and_leaves_a_log(writer: Writer, client: Client, tmp_path: Path) -> None:
    def no_spark() -> Any:
        raise OSError("no such machine")

    runner = Runner(client, StorageSettings(), no_spark, logs=tmp_path / "logs")
    result = once(client, runner, writer.table.name, Job.COMPACT, **SMALL)
    assert result.outcome is Outcome.FAILED
    assert "no such machine" in result.message
    [log] = (tmp_path / "logs").iterdir()
    assert str(log) in result.message
    assert "Traceback" in log.read_text()
    [run] = client.care_runs(table=writer.table.name)
    assert run.result == result


# --- the worker ---


def test_a_worker_takes_what_is_due_and_ends(server: InverServer, writer: Writer, tmp_path: Path) -> None:
    words = ["care", "worker", "--poll", "1", "--spark", "local[2]", *_where(server, None)]
    process = spawn(words, tmp_path / "stdout", tmp_path / "stderr")
    try:
        eventually(lambda: rewrites(writer) == 1, lambda: (tmp_path / "stderr").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert writer.rows() == expected(writer)
    assert f"{writer.table.name} compact: done" in (tmp_path / "stdout").read_text()
