"""The server dies between its decision and its answer, again and again, while Spark appends.

Spark is told nothing, and must neither lose a row, nor double one, nor take back a file that a
snapshot needs.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fixtures.iceberg_clients import make_catalog, spark_catalog
from tests.fixtures.lines import Failed
from tests.fixtures.processes import free_port
from tests.fixtures.server import InverServer, NotStarted, running_inver
from tests.fixtures.spark import Spark
from tests.fixtures.waiting import eventually
from tests.simulation.clients import COMMITTED

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ARMED = "INVER_CRASH_AT"
CRASHED = 137
UNHEARD = 3
"""Rows that must have been decided without an answer before the test has seen enough."""
MOST_ROWS = 120
DECIDED = "committed_before_answer"
# The others are before the decision, and show that no row is made up.
PASSES = (1, 2)
POINTS = (DECIDED, DECIDED, "decided_before_commit", "before_decide")


class Undertaker:
    """Starts the server again whenever it has died, armed for another death."""

    def __init__(self, server: InverServer, seed: str) -> None:
        self.server = server
        self.deaths: list[str] = []
        self._alive = threading.Event()
        self._point = ""
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def watch(self) -> None:
        while not self._stopping.wait(0.01):
            if not self.server.running:
                self._alive.clear()
                assert self.server.await_end() == CRASHED
                self.deaths.append(self._point)
                self.revive()

    def revive(self) -> None:
        while True:
            self._point = POINTS[len(self.deaths) % len(POINTS)]
            try:
                self.server.start({ARMED: f"{self._point}:{self._random.randint(*PASSES)}"})
                self._alive.set()
                return
            except NotStarted as ended:
                # It writes when it starts, too; nobody was waiting for an answer then.
                if ended.code != CRASHED:
                    raise

    def await_life(self, deaths: int) -> str:
        """The point of the death after so many, once the server lives again."""
        eventually(
            lambda: len(self.deaths) > deaths and self._alive.is_set(),
            lambda: "Spark failed on a server that lives",
        )
        return self.deaths[deaths]

    @contextmanager
    def working(self) -> Iterator[None]:
        """As long as the block lasts; after it the server runs unarmed."""
        thread = threading.Thread(target=self.watch)
        self.server.stop()
        self.revive()
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()
            self.server.end()
            self.server.start()


def test_appends_survive_the_server(iceberg_spark: Spark, database: str | None, tmp_path: Path):
    # A client keeps the address that it was given.
    arguments = ["--port", str(free_port()), "--management-port", "0"]
    with running_inver(tmp_path / "home", database, arguments) as server:
        catalog = make_catalog(server)
        with iceberg_spark.session(spark_catalog(catalog)) as session:
            session.sql("CREATE NAMESPACE lake.s")
            session.sql("CREATE TABLE lake.s.t (id BIGINT)")
            undertaker = Undertaker(server, "sqlite" if database is None else "postgres")
            with undertaker.working():
                told, untold = append(session, undertaker)
            print(f"{len(told)} rows acknowledged, {len(untold)} not; deaths: {Counter(undertaker.deaths)}")
            check(session, server, told, untold)


def append(session: Spark, undertaker: Undertaker) -> tuple[list[int], dict[int, str]]:
    """Rows that Spark was told are there, and those of which it was told nothing, with where that was."""
    told: list[int] = []
    untold: dict[int, str] = {}
    for id in range(MOST_ROWS):
        deaths = len(undertaker.deaths)
        try:
            session.sql(f"INSERT INTO lake.s.t VALUES ({id})")
            told.append(id)
        except Failed:
            untold[id] = undertaker.await_life(deaths)
            if told and len(versions(undertaker.server)) - 1 - len(told) >= UNHEARD:
                return told, untold
    raise AssertionError(f"too few rows were decided without an answer: {untold}")


def check(session: Spark, server: InverServer, told: list[int], untold: dict[int, str]) -> None:
    found = [row[0] for row in session.values("SELECT id FROM lake.s.t ORDER BY id")]
    assert len(set(found)) == len(found), "a row is there twice"
    assert set(told) <= set(found), "an acknowledged row is lost"
    unheard = set(found) - set(told)
    assert len(unheard) >= UNHEARD
    assert {untold[id] for id in unheard} == {DECIDED}
    # The first version is the empty table.
    assert versions(server) == list(range(len(found) + 1)), "a decided row is lost"
    snapshots = session.values("SELECT manifest_list, summary['added-records'] FROM lake.s.t.snapshots")
    assert [int(added) for _, added in snapshots] == [1] * len(found)
    files = {
        *(manifests for manifests, _ in snapshots),
        *(row[0] for row in session.values("SELECT path FROM lake.s.t.all_manifests")),
        *(row[0] for row in session.values("SELECT file_path FROM lake.s.t.all_data_files")),
        *(row[0] for row in session.values("SELECT file FROM lake.s.t.metadata_log_entries")),
    }
    assert len(files) > 3 * len(found)
    assert [file for file in files if not Path(urlsplit(file).path).exists()] == []


def versions(server: InverServer) -> list[int]:
    """Of the table, by the ledger's own account of what it has decided; asked until the server lives."""
    while True:
        try:
            events = server.call("GET", "/events?limit=1000").json()["events"]
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return [event["data"]["version"] for event in events if event["type"] == COMMITTED]
