"""Writers append, delete, update and change the schema while care runs on the same table, again and again.

Nothing is lost, doubled or brought back, appends never fail, and how often the others fail because of care
is bounded. What fails without care is measured first, on a table of its own.

`INVER_RACE_S` is for how many seconds care runs:

    INVER_RACE_S=300 pytest tests/pipeline/test_care_race.py -s
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client
from inver.config.settings import StorageSettings
from inver.domain.care import Job, Outcome, Result
from inver.pipeline.runner import Runner
from tests.fixtures.clients import ClientMissing
from tests.fixtures.clients import client as client_named
from tests.fixtures.delta_writers import CARE, Beaten, Writer, expected, new_table
from tests.fixtures.duckdb import Duck
from tests.fixtures.server import InverServer, running_inver
from tests.fixtures.unity import Place

QUIET_S = 6.0
RACE_S = float(os.environ.get("INVER_RACE_S", "25"))
PAUSE_S = 0.1
COLUMN_EVERY_S = 5.0
JOBS = (Job.COMPACT, Job.PURGE, Job.CHECKPOINT, Job.COMPACT, Job.LOG, Job.VACUUM, Job.ORPHANS)
OPTIONS = {"min_small_files": 2, "deleted_ratio": 0.001, "target_file_size": 16 << 10}
BOUND = 0.05
"""Of deletes and updates: each is open for some hundredths of a second, and a run of care takes longer."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + RACE_S)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    with running_inver(tmp_path_factory.mktemp("race") / "home") as started:
        yield started


@dataclass
class Crowd:
    """Four writers of one table. `tried` and `beaten` count their operations, and by whom they failed."""

    place: Place
    name: str
    tried: Counter[str] = field(default_factory=Counter)
    beaten: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = new_table(self.place, self.name)
        self.writers = [Writer(self.table, seed) for seed in range(4)]
        self._ended = threading.Event()
        self._to_delete: deque[int] = deque()
        self._to_update: deque[int] = deque()
        self._next = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        steps = (self._append, self._delete, self._update, self._add_column)
        threads = [
            threading.Thread(target=self._loop, args=(step, writer))
            for step, writer in zip(steps, self.writers, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
        assert self.errors == []

    def failures(self, *operations: str, by: str | None = None) -> float:
        """Of these operations, the part that failed: at all, or because of one kind of commit."""
        failed = sum(
            count
            for (operation, winner), count in self.beaten.items()
            if operation in operations and by in (None, winner)
        )
        return failed / sum(self.tried[operation] for operation in operations)

    def _loop(self, step: Callable[[Writer], None], writer: Writer) -> None:
        try:
            while not self._ended.wait(PAUSE_S):
                writer.refresh()
                step(writer)
        except BaseException as error:
            self.errors.append(error)

    def _append(self, writer: Writer) -> None:
        ids = range(self._next, self._next + 10)
        self._next += 10
        self._try("append", lambda: writer.append(ids))
        self._to_delete.append(ids[0])
        self._to_update.append(ids[1])

    def _delete(self, writer: Writer) -> None:
        if self._to_delete:
            number = self._to_delete.popleft()
            if not self._try("delete", lambda: writer.delete(number)):
                self._to_delete.append(number)

    def _update(self, writer: Writer) -> None:
        if self._to_update:
            number = self._to_update.popleft()
            value = writer.random.randrange(1, 1_000_000)
            if not self._try("update", lambda: writer.update(number, value)):
                self._to_update.append(number)

    def _add_column(self, writer: Writer) -> None:
        if not self._ended.wait(COLUMN_EVERY_S):
            writer.refresh()
            self._try("add column", lambda: writer.add_column(f"c{self.tried['add column']}"))

    def _try(self, operation: str, act: Callable[[], None]) -> bool:
        self.tried[operation] += 1
        try:
            act()
        except Beaten as beaten:
            self.beaten[operation, beaten.by] += 1
            return False
        return True


def care(client: Client, runner: Runner, table: str, seconds: float) -> list[tuple[Job, Result]]:
    results: list[tuple[Job, Result]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        job = JOBS[len(results) % len(JOBS)]
        ticket = client.start_care(table, job, worker="race", options=OPTIONS)
        results.append((job, runner.run(ticket, lambda progress, message: None)))
    return results


@dataclass
class Race:
    alone: Crowd
    together: Crowd
    care: list[tuple[Job, Result]]


@pytest.fixture(scope="module")
def race(server: InverServer, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    place = Place(server)
    alone, together = Crowd(place, "alone"), Crowd(place, "together")
    with alone.at_work():
        time.sleep(QUIET_S)
    with Client(server.url, server.token) as client:
        runner = Runner(client, StorageSettings(), lambda: spark, logs=tmp_path_factory.mktemp("logs"))
        with together.at_work():
            results = care(client, runner, together.table.name, RACE_S)
    print(f"without care: tried {alone.tried}, failed {alone.beaten}")
    print(f"with care: tried {together.tried}, failed {together.beaten}")
    print(f"care: {Counter((str(job), str(result.outcome)) for job, result in results)}")
    yield Race(alone, together, results)
    place.close()


def test_no_row_is_lost_doubled_or_brought_back(race: Race) -> None:
    for crowd in (race.alone, race.together):
        assert Writer(crowd.table).rows() == expected(*crowd.writers)
        # There was something to lose.
        assert min(crowd.tried[what] for what in ("append", "delete", "update")) > 20


def test_another_client_reads_the_same(race: Race, server: InverServer, tmp_path: Path) -> None:
    try:
        duckdb = client_named("duckdb")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    rows = expected(*race.together.writers)
    duck = Duck(duckdb, server, race.together.place.schema, tmp_path)
    [read] = duck(f"SELECT count(*), sum(id), sum(value) FROM {race.together.table.name}")
    assert read == [[len(rows), sum(rows), sum(rows.values())]]


def test_care_came_through_and_broke_nothing(race: Race) -> None:
    wrong = [result for _, result in race.care if result.outcome in (Outcome.FAILED, Outcome.REFUSED)]
    assert wrong == []
    done = {job for job, result in race.care if result.outcome is Outcome.DONE}
    assert {Job.COMPACT, Job.CHECKPOINT} <= done
    race.together.writers[0].refresh()
    assert CARE in race.together.writers[0].operations.values()


def test_writers_fail_because_of_care_no_more_than_the_bound(race: Race) -> None:
    together = race.together
    assert together.failures("append") == 0
    assert together.failures("add column", by=CARE) == 0
    assert together.failures("delete", "update", by=CARE) <= BOUND
