"""Care of Iceberg tables while writers work: no row is lost, doubled or back again, and writers win."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome, Result
from inver.domain.iceberg.yielding import MARK
from inver.pipeline.iceberg.procedures import ProcedureFailed
from tests.fixtures.care_iceberg import House, Table, configure, running_house
from tests.fixtures.care_jobs import Care
from tests.fixtures.clients import client
from tests.fixtures.iceberg_clients import PyIceberg, running_pyiceberg
from tests.fixtures.lossy import Line, Loss, lossy

RACE_S = float(os.environ.get("INVER_RACE_S", "0"))
"""For how many seconds writers and care meet; one round at least."""

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + RACE_S)]

TURNS = 20
MOST_JOBS = 80
RACING_JOBS = (Job.COMPACT, Job.PURGE, Job.COMPACT, Job.MANIFESTS)
RACING: dict[str, Any] = {"min_small_files": 2, "deleted_ratio": 0.001, "min_manifests": 4}
LATE = "late"
SMALL: dict[str, Any] = {"min_small_files": 4}
AT_ONCE: dict[str, Any] = {"snapshot_hours": 0.0, "allow_short_retention": True}


@dataclass
class Road:
    """The way to the server on which requests can be held up, and who goes there: care, and late writers."""

    house: House
    line: Line
    client: Client
    writer: PyIceberg

    def care(self, table: Table) -> Care:
        return table.through(self.client)

    def meanwhile(self, table: Table, do: Callable[[], Any], times: int = 1) -> None:
        """While the next commits to the table are on this way."""
        self.line.meanwhile(f"/tables/{table.name}", lambda: void(do()), times)


def void(_: Any) -> None:
    return


@pytest.fixture(scope="module")
def road(spark: Any, connectors: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    if not connectors:
        pytest.skip("Iceberg's runtime cannot be had here")
    home = tmp_path_factory.mktemp("races")
    with running_house(spark, home) as house, lossy(house.server.url) as line:
        late = {**house.catalog, "uri": f"{line.url}/iceberg"}
        configure(spark, LATE, late)
        with (
            Client(line.url, house.server.token) as slow,
            running_pyiceberg(client("pyiceberg"), home, late) as writer,
        ):
            yield Road(house, line, slow, writer)


def marks(table: Table) -> list[str]:
    """The runs of care whose rewrites the table has."""
    return [run for each in table.load()["snapshots"] if (run := each["summary"].get(MARK))]


# --- a rewrite meets writers ---


def test_an_append_costs_a_rewrite_nothing(road: Road):
    table = road.house.new().fill(6)
    road.meanwhile(table, lambda: table.fill(1, first=24))
    done = road.care(table)(Job.COMPACT, **SMALL)
    assert (done.outcome, done.measured["lost"], done.measured["rewritten"]) == (Outcome.DONE, 0, 6)
    assert table.ids() == table.scan() == list(range(28))


@pytest.mark.parametrize("merge_on_read", [True, False])
def test_rows_that_are_deleted_meanwhile_stay_deleted(road: Road, merge_on_read: bool):
    table = road.house.new().fill(6)
    delete = {
        True: lambda: table.sql("DELETE FROM {t} WHERE id = 9"),
        False: lambda: road.house.pyiceberg("delete", table.path, where="id = 9"),
    }[merge_on_read]
    road.meanwhile(table, delete)
    done = road.care(table)(Job.COMPACT, **SMALL)
    assert (done.outcome, done.measured["lost"]) == (Outcome.DONE, 1)
    assert table.ids() == table.scan() == [id for id in range(24) if id != 9]
    assert done.after["files"] == 1


@pytest.mark.parametrize("job", [Job.COMPACT, Job.PURGE])
def test_equal_rows_that_are_deleted_meanwhile_stay_deleted(road: Road, job: Job):
    """What is written anew must not look newer than a delete that came while it was written."""
    table = road.house.new().fill(6)
    table.delete_equal(3)
    road.meanwhile(table, lambda: table.delete_equal(9))
    done = road.care(table)(job, **SMALL)
    assert done.outcome is Outcome.DONE
    expected = [id for id in range(24) if id not in (3, 9)]
    assert table.ids() == expected
    table.care(Job.PURGE, **SMALL)
    assert table.ids() == table.scan() == expected


def test_writers_who_are_always_first_have_won(road: Road):
    table = road.house.new().fill(6)
    ids = count(0, 5)
    road.meanwhile(
        table, lambda: road.house.pyiceberg("delete", table.path, where=f"id = {next(ids)}"), times=3
    )
    lost = road.care(table)(Job.COMPACT, **SMALL)
    assert (lost.outcome, lost.measured["lost"]) == (Outcome.LOST, 3)
    assert marks(table) == []
    left = [id for id in range(24) if id not in (0, 5, 10)]
    assert table.ids() == table.scan() == left
    assert table.care(Job.COMPACT, **SMALL).outcome is Outcome.DONE
    assert table.ids() == left


def test_manifests_that_a_writer_has_replaced_meanwhile_stay(road: Road):
    table = road.house.new().fill(6)
    road.meanwhile(table, lambda: road.house.pyiceberg("delete", table.path, where="id = 9"))
    done = road.care(table)(Job.MANIFESTS, min_manifests=3)
    assert (done.outcome, done.measured["lost"]) == (Outcome.DONE, 1)
    assert table.ids() == table.scan() == [id for id in range(24) if id != 9]


# --- a writer meets a rewrite ---


def late_append(road: Road, table: Table) -> None:
    road.writer("append", table.path, rows=[[100, "a"]])


def late_delete(road: Road, table: Table) -> None:
    road.writer("delete", table.path, where="id = 9")


def late_vectors(road: Road, table: Table) -> None:
    road.house.spark.sql(f"DELETE FROM {LATE}.s.{table.name} WHERE id = 9")


def late_equality(road: Road, table: Table) -> None:
    table.delete_equal(9, catalog=LATE)


def late_update(road: Road, table: Table) -> None:
    road.house.spark.sql(f"UPDATE {LATE}.s.{table.name} SET id = 100 WHERE id = 9")


@pytest.mark.parametrize(
    ("write", "format"),
    [
        (late_append, 2),
        (late_delete, 2),
        (late_vectors, 2),
        (late_vectors, 3),
        (late_equality, 2),
        (late_update, 3),
    ],
)
def test_a_writer_on_its_way_wins(road: Road, write: Callable[[Road, Table], None], format: int):
    table = road.house.new(format).fill(6)
    results: list[Result] = []
    road.meanwhile(table, lambda: results.append(table.care(Job.COMPACT, **SMALL)))
    sent = len(road.line.seen)
    write(road, table)
    posts = [each for each in road.line.seen[sent:] if each == f"POST {_path(table)}"]
    assert len(posts) == 1, "the writer had to try once"
    assert [result.outcome for result in results] == [Outcome.DONE]
    assert marks(table) == []
    expected = {*range(24), *([100] if write in (late_append, late_update) else [])}
    expected -= {9} if write is not late_append else set()
    assert table.ids() == sorted(expected)
    again = table.care(Job.COMPACT, **SMALL)
    assert again.outcome is Outcome.DONE
    assert len(marks(table)) == 1
    assert table.ids() == sorted(expected)


def _path(table: Table) -> str:
    return table.url.removeprefix(table.house.server.url)


def test_a_writer_never_fails_because_of_care(road: Road):
    """PyIceberg does not try again, so a commit that care gets in the way of would be a failure.

    Writers may win against every job of a round: there are more until care has done something, too.
    """
    table = road.house.new().fill(8)
    expected = {id: f"{'abc'[id // 4 % 3]}{id}" for id in range(32)}
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + RACE_S
    while not outcomes[Outcome.DONE] or time.monotonic() < end:
        assert outcomes[Outcome.DONE] or outcomes.total() < MOST_JOBS, outcomes
        first = 1_000 + 2 * TURNS * len(expected)
        road.writer.start("churn", table.path, first=first, count=TURNS)
        outcomes.update(table.care(job, **RACING).outcome for job in RACING_JOBS)
        assert road.writer.end() == []
        # Each turn appends its row, changes it, and deletes that of the turn before.
        expected[first + TURNS - 1] = "y"
    print(f"{len(expected) - 32} rounds of {3 * TURNS} commits and more, none failed; care: {outcomes}")
    assert set(outcomes) <= {Outcome.DONE, Outcome.LOST, Outcome.NOTHING}
    for _ in range(2):
        assert dict(table.sql("SELECT id, name FROM {t}")) == expected
        assert table.scan() == sorted(expected)
        table.care(Job.COMPACT, min_small_files=2)


# --- nobody hears the answer ---


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR, Loss.REQUEST])
def test_a_rewrite_whose_answer_is_lost(road: Road, loss: Loss):
    table = road.house.new().fill(6)
    road.line.lose(f"POST {_path(table)}", loss)
    with suppress(ProcedureFailed):
        assert road.care(table)(Job.COMPACT, **SMALL).outcome in (Outcome.DONE, Outcome.LOST)
    assert table.ids() == table.scan() == list(range(24))
    assert table.care(Job.COMPACT, **SMALL).outcome in (Outcome.DONE, Outcome.NOTHING)
    assert table.care(Job.COMPACT, **SMALL).outcome is Outcome.NOTHING
    assert table.ids() == table.scan() == list(range(24))
    # What the lost attempts have written is found by the next clean-up.
    _age(table)
    table.care(Job.ORPHANS)
    assert table.ids() == table.scan() == list(range(24))
    assert len(list((table.folder / "data").rglob("*.parquet"))) == 7


def test_an_expiry_whose_answer_is_lost(road: Road):
    table = road.house.new().fill(6)
    assert table.care(Job.COMPACT, **SMALL).outcome is Outcome.DONE
    road.line.lose(f"POST {_path(table)}", Loss.ERROR)
    with pytest.raises(ProcedureFailed):
        road.care(table)(Job.EXPIRE, **AT_ONCE)
    assert len(table.snapshots()) == 1
    assert table.care(Job.EXPIRE, **AT_ONCE).outcome is Outcome.NOTHING
    _age(table)
    assert table.care(Job.ORPHANS).outcome is Outcome.DONE
    assert len(list((table.folder / "data").rglob("*.parquet"))) == 1
    assert table.ids() == table.scan() == list(range(24))


def _age(table: Table) -> None:
    then = time.time() - 30 * 3600
    for path in table.folder.rglob("*.*"):
        os.utime(path, (then, then))
