"""The worker that a server keeps for care: started, started again, and ended with it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.server.care import PRINCIPAL, reachable
from tests.fixtures.server import InverServer, migrate, running_inver
from tests.fixtures.waiting import eventually

ON = {"INVER_CARE__SCHEDULER": "on"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InverServer]:
    with running_inver(tmp_path / "home", env=ON) as started:
        yield started


def state(server: InverServer) -> Any:
    return server.call("GET", "/care/scheduler").raise_for_status().json()


def workers(server: InverServer) -> list[int]:
    """The processes that the server has started."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    found = [int(word) for word in children.read_text().split()]
    return [pid for pid in found if b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def running(server: InverServer) -> int:
    eventually(lambda: state(server)["state"] == "running", lambda: state(server))
    [worker] = workers(server)
    return worker


def asked_for_work(server: InverServer) -> bool:
    return 'route="/api/management/v1/care/runs/next",status="200"' in metrics(server)


def metrics(server: InverServer) -> str:
    return httpx.get(server.management_url + "/metrics").text


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_it_is_off_by_default(tmp_path: Path) -> None:
    with running_inver(tmp_path / "home") as server:
        assert state(server) == {"state": "off", "since": 0, "restarts": 0, "message": ""}
        assert workers(server) == []


def test_a_worker_runs_beside_the_server_and_ends_with_it(server: InverServer) -> None:
    worker = running(server)
    eventually(lambda: asked_for_work(server), lambda: server.output)
    assert re.search(r"^inver_care_worker_running 1", metrics(server), re.MULTILINE)
    assert server.stop() == 0
    assert gone(worker)


def test_it_has_a_principal_and_a_token_of_its_own(server: InverServer) -> None:
    running(server)
    eventually(lambda: asked_for_work(server), lambda: server.output)
    principal = server.call("GET", f"/principals/{PRINCIPAL}").raise_for_status().json()
    assert (principal["kind"], principal["groups"]) == ("service", ["admins"])
    [token] = _tokens(server)
    assert token["revoked_at"] is None
    # Not for everybody who may look at the processes of this machine.
    [worker] = workers(server)
    for file in ("cmdline", "environ"):
        assert b"inver_pat_" not in Path(f"/proc/{worker}/{file}").read_bytes()


def test_it_is_started_again_with_another_token(server: InverServer) -> None:
    os.kill(running(server), signal.SIGKILL)
    eventually(lambda: state(server)["restarts"] == 1, lambda: state(server))
    running(server)
    assert re.search(r"^inver_care_worker_restarts_total 1", metrics(server), re.MULTILINE)
    assert sorted(token["revoked_at"] is None for token in _tokens(server)) == [False, True]


def test_an_administrator_has_the_last_word(server: InverServer) -> None:
    running(server)
    server.call("DELETE", f"/groups/admins/members/{PRINCIPAL}").raise_for_status()
    server.restart(ON)
    running(server)
    assert server.call("GET", f"/principals/{PRINCIPAL}").json()["groups"] == []


def test_a_worker_whose_server_is_killed_ends(server: InverServer) -> None:
    worker = running(server)
    eventually(lambda: asked_for_work(server), lambda: server.output)
    server.kill()
    eventually(lambda: gone(worker))


@pytest.mark.postgres
def test_of_several_server_processes_one_keeps_the_worker(postgres_url: str, tmp_path: Path) -> None:
    migrate(postgres_url)
    with running_inver(tmp_path / "home", postgres_url, ["--workers", "2"], ON) as server:
        # Whichever of them answers.
        for _ in range(10):
            eventually(lambda: state(server)["state"] == "running", lambda: server.output)
        eventually(
            lambda: re.search(r"^inver_care_worker_running 1\b", metrics(server), re.MULTILINE) is not None
        )


@pytest.mark.parametrize(
    ("url", "reached"),
    [
        ("http://127.0.0.1:8181", "http://127.0.0.1:8181"),
        ("http://0.0.0.0:8181", "http://127.0.0.1:8181"),
        ("http://[::]:8181", "http://[::1]:8181"),
        ("http://inver.example:80", "http://inver.example:80"),
    ],
)
def test_it_reaches_its_server_on_this_machine(url: str, reached: str) -> None:
    assert reachable(url) == reached


def _tokens(server: InverServer) -> list[Any]:
    answer = server.call("GET", "/tokens", params={"principal": PRINCIPAL}).raise_for_status()
    found: list[Any] = answer.json()["tokens"]
    return found
