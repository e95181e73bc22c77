"""Care of Lance tables: rows stay what they are, versions go with their records, and writers win."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome, Result
from inver.errors import InverError
from tests.fixtures.care_lance import Table, namespace_of
from tests.fixtures.clients import ClientMissing, client
from tests.fixtures.lance import Namespace
from tests.fixtures.lossy import Line, Loss, lossy
from tests.fixtures.s3 import S3Server
from tests.fixtures.server import InverServer, running_inver

RACE_S = float(os.environ.get("INVER_RACE_S", "0"))
"""For how many seconds writers and care meet; one round at least."""
TURNS = 30

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300 + RACE_S),
    # Where a later test forks; nothing of pylance is used on the other side.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
]

AT_ONCE: dict[str, Any] = {"snapshot_hours": 0.0, "allow_short_retention": True}
IDENTITY = ("_rowid", "_row_created_at_version", "_row_last_updated_at_version")

_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InverServer]:
    with running_inver(tmp_path_factory.mktemp("lance") / "home") as server:
        yield server


@pytest.fixture(scope="module")
def space(server: InverServer) -> Iterator[Namespace]:
    space = Namespace(server)
    yield space
    space.close()


@pytest.fixture(scope="module")
def management(server: InverServer) -> Iterator[Client]:
    with Client(server.url, server.token) as management:
        yield management


@pytest.fixture
def table(space: Namespace, management: Client, spark: Any) -> Table:
    return Table(space, management, spark, f"t{next(_numbers)}")


@pytest.fixture
def line(server: InverServer) -> Iterator[Line]:
    with lossy(server.url) as line:
        yield line


@pytest.fixture
def slow(line: Line, server: InverServer) -> Iterator[Client]:
    """The way of care that can be held up."""
    with Client(line.url, server.token) as slow:
        yield slow


# --- compaction ---


@pytest.mark.parametrize("stable", [True, False])
def test_rows_are_the_same_after_compaction(table: Table, stable: bool):
    table.fill(12, enable_stable_row_ids=stable)
    table.open().create_scalar_index("id", "BTREE")
    table.open().delete("id % 7 = 3")
    table.open().update({"word": "'changed'"}, where="id = 5")
    before = table.rows(*(IDENTITY if stable else ()))
    was, shown = table.versions[-1], table.care(Job.COMPACT, dry_run=True)
    assert (shown.outcome, shown.measured["tasks"] > 0) == (Outcome.DONE, True)
    assert table.versions[-1] == was
    done = table.care(Job.COMPACT)
    assert done.outcome is Outcome.DONE
    assert done.before["files"] >= 12
    assert done.after["files"] == table.fragments < 4
    assert done.after["deleted_rows"] == 0
    assert table.rows(*(IDENTITY if stable else ())) == before
    assert table.ids(version=was) == [row["id"] for row in before]
    assert table.open().to_table(filter="id = 50").num_rows == 1
    assert table.care(Job.COMPACT).outcome is Outcome.NOTHING
    indexed = table.care(Job.INDEX)
    assert indexed.after["unindexed_rows"] == 0
    assert table.care(Job.INDEX).outcome is Outcome.NOTHING
    assert table.rows(*(IDENTITY if stable else ())) == before


def test_an_older_client_reads_what_was_compacted(table: Table, space: Namespace):
    try:
        older = client("lance7")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    table.fill(9, data_storage_version="2.0")
    assert table.care(Job.COMPACT).outcome is Outcome.DONE
    asked = {"url": space.server.url, "token": space.server.token, "id": space.id(table.name)}
    rows, ids = older.run("pylance_client.py", {**asked, "steps": [["rows"], ["ids"]]})
    assert rows["rows"] == 90
    assert ids == list(range(90))


def test_one_commit_replaces_no_more_than_the_policy_says(table: Table):
    """But at least one task, however much that is."""
    table.fill(12, each=400)
    tiny: dict[str, Any] = {"target_file_size": 1, "min_small_files": 2}
    tasks = table.care(Job.COMPACT, dry_run=True, **tiny).measured["tasks"]
    assert tasks > 1
    done = table.care(Job.COMPACT, commit_bytes=1, **tiny)
    assert (done.outcome, done.measured["commits"]) == (Outcome.DONE, tasks)
    assert done.measured["bytes_read"] == done.before["bytes"]
    assert table.ids() == list(range(4800))
    assert table.care(Job.COMPACT, **tiny).outcome is Outcome.NOTHING


def test_indices_take_in_new_rows(table: Table):
    table.fill(3)
    table.open().create_scalar_index("id", "BTREE")
    assert table.care(Job.INDEX).outcome is Outcome.NOTHING
    table.fill(2, first=30)
    done = table.care(Job.INDEX)
    assert (done.outcome, done.before["unindexed_rows"], done.after["unindexed_rows"]) == (
        Outcome.DONE,
        20,
        0,
    )
    assert table.open().to_table(filter="id = 41").num_rows == 1


def test_a_missing_file_leaves_the_table_as_it_is(table: Table):
    table.fill(8)
    next((table.folder / "data").iterdir()).unlink()
    with pytest.raises(Exception, match=r"[Nn]ot found"):
        table.care(Job.COMPACT)
    assert table.versions == list(range(1, 9))


# --- old versions ---


def test_versions_that_somebody_needs_stay(table: Table):
    table.fill(10)
    table.open().tags.create("kept", 2)
    table.open().create_branch("dev", 4)
    assert table.care(Job.EXPIRE).outcome is Outcome.NOTHING
    pinned = table.care(Job.EXPIRE, pins=(8,), **AT_ONCE)
    assert (pinned.outcome, pinned.measured["records"]) == (Outcome.DONE, 5)
    assert table.versions == [2, 4, 8, 9, 10]
    assert table.care(Job.EXPIRE, min_snapshots=3, **AT_ONCE).outcome is Outcome.NOTHING
    assert table.care(Job.EXPIRE, min_snapshots=2, **AT_ONCE).measured["versions"] == 1
    assert table.versions == [2, 4, 9, 10]
    assert table.care(Job.EXPIRE, min_snapshots=2, **AT_ONCE).outcome is Outcome.NOTHING
    assert table.ids(version=2) == list(range(20))
    assert table.open().checkout_version("kept").count_rows() == 20
    assert table.open().checkout_version(("dev", None)).count_rows() == 40
    assert table.ids() == list(range(100))
    assert table.fill(1, first=100).ids() == list(range(110))


def test_what_only_old_versions_needed_is_deleted(table: Table):
    table.fill(8)
    assert table.care(Job.COMPACT).outcome is Outcome.DONE
    expired = table.care(Job.EXPIRE, **AT_ONCE)
    assert (expired.outcome, expired.measured["files"]) == (Outcome.DONE, 8)
    assert len(list((table.folder / "data").iterdir())) == 1
    assert table.ids() == list(range(80))


def test_what_was_never_committed_is_deleted_after_a_week(table: Table):
    table.fill(2)
    table.open().create_branch("dev", 1).delete("id = 3")
    orphan, young = (table.folder / "data" / f"{name}.lance" for name in ("orphan", "young"))
    for path in (orphan, young):
        path.write_bytes(b"left")
    for path in table.folder.rglob("*.*"):
        os.utime(path, (time.time() - 8 * 86_400,) * 2)
    os.utime(young, (time.time() - 86_400,) * 2)
    done = table.care(Job.EXPIRE)
    assert (done.outcome, done.measured["files"], done.measured["versions"]) == (Outcome.DONE, 1, 0)
    assert not orphan.exists()
    assert young.exists()
    assert table.care(Job.EXPIRE).outcome is Outcome.NOTHING
    assert table.ids() == list(range(20))
    assert table.open().checkout_version(("dev", None)).count_rows() == 9


def test_retention_has_a_floor(table: Table):
    refused = table.fill(2).care(Job.EXPIRE, snapshot_hours=1)
    assert (refused.outcome, "below the floor" in refused.message) == (Outcome.REFUSED, True)


def test_records_of_versions_that_are_gone_go_later(table: Table, line: Line, slow: Client):
    """Ended after the files and before the records."""
    table.fill(4)
    line.lose("/version/delete", Loss.REQUEST)
    with pytest.raises(InverError):
        table.through(slow)(Job.EXPIRE, **AT_ONCE)
    assert table.versions == [4]
    assert table.care(Job.EXPIRE, **AT_ONCE).outcome is Outcome.NOTHING
    assert table.ids() == list(range(40))


# --- races ---


def test_an_append_costs_a_compaction_nothing(table: Table, line: Line, slow: Client):
    table.fill(8)
    line.meanwhile("/version/create", lambda: _void(table.fill(1, first=80)))
    done = table.through(slow)(Job.COMPACT)
    assert (done.outcome, done.measured["lost"]) == (Outcome.DONE, 0)
    assert table.ids() == list(range(90))
    assert table.fragments == 2


def test_rows_that_are_deleted_meanwhile_stay_deleted(table: Table, line: Line, slow: Client):
    table.fill(8)
    line.meanwhile("/version/create", lambda: _void(table.open().delete("id = 15")))
    done = table.through(slow)(Job.COMPACT)
    assert done.outcome is Outcome.DONE
    assert table.ids() == [id for id in range(80) if id != 15]
    assert table.fragments == 1


def test_a_writer_on_its_way_wins(table: Table, line: Line, server: InverServer):
    """Each operation meets one compaction, and pylance makes it anew by itself."""
    late = namespace_of(line.url, server.token)
    table.fill(8)
    results: list[Result] = []
    line.meanwhile("/version/create", lambda: results.append(table.care(Job.COMPACT)))
    table.open(namespace=late).delete("id = 15")
    line.meanwhile("/version/create", lambda: results.append(table.care(Job.COMPACT, deleted_ratio=0.001)))
    table.open(namespace=late).update({"word": "'changed'"}, where="id = 16")
    assert [result.outcome for result in results] == [Outcome.DONE, Outcome.DONE]
    rows = {row["id"]: row["word"] for row in table.rows()}
    assert sorted(rows) == [id for id in range(80) if id != 15]
    assert rows[16] == "changed"


def test_writers_and_care_at_once(table: Table, space: Namespace):
    """A process of writers appends, updates and deletes, while this one compacts again and again."""
    table.fill(8)
    try:
        writers = client("lance")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    asked = {"url": space.server.url, "token": space.server.token, "id": space.id(table.name)}
    expected = {id: f"word {id}" for id in range(80)}
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + RACE_S
    while not outcomes or time.monotonic() < end:
        first = 1_000 + 2 * TURNS * len(expected)
        running = writers.start("pylance_client.py", {**asked, "steps": [["churn", first, TURNS], ["ids"]]})
        outcomes.update(table.care(Job.COMPACT, min_small_files=2).outcome for _ in range(6))
        failed, ids = running.result()
        assert failed == []
        # Each turn appends its row, changes it, and deletes that of the turn before.
        expected[first + TURNS - 1] = "y"
        assert ids == sorted(expected)
    print(f"{len(expected) - 80} rounds of {3 * TURNS} commits, none failed; care: {outcomes}")
    assert outcomes[Outcome.DONE] > 0
    assert set(outcomes) <= {Outcome.DONE, Outcome.LOST, Outcome.NOTHING}
    assert {row["id"]: row["word"] for row in table.rows()} == expected


@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.ERROR, Loss.REQUEST])
def test_a_commit_whose_answer_is_lost(table: Table, line: Line, slow: Client, loss: Loss):
    table.fill(8)
    line.lose("/version/create", loss)
    with suppress(OSError):
        table.through(slow)(Job.COMPACT)
    assert table.ids() == list(range(80))
    table.care(Job.COMPACT)
    assert table.care(Job.COMPACT).outcome is Outcome.NOTHING
    assert table.ids() == list(range(80))
    assert table.fragments == 1


# --- elsewhere ---


@pytest.mark.s3
def test_tables_on_an_object_store(
    spark: Any, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Clients have their keys from the environment; tasks of Spark have those that the worker hands on."""
    env = {**s3_server.settings, "INVER_STORAGE__WAREHOUSE": f"s3://{s3_server.create_bucket()}/wh"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    keys = s3_server.options
    with running_inver(tmp_path / "home", env=env) as server, Client(server.url, server.token) as management:
        space = Namespace(server)
        table = Table(space, management, spark, "t", keys).fill(8)
        table.open().delete("id = 3")
        compacted = table.care(Job.COMPACT)
        assert (compacted.outcome, compacted.after["files"]) == (Outcome.DONE, 1)
        expired = table.care(Job.EXPIRE, **AT_ONCE)
        assert (expired.outcome, expired.measured["files"]) == (Outcome.DONE, 8)
        assert table.ids() == [id for id in range(80) if id != 3]
        assert len(table.versions) == 1
        space.close()


def _void(_: Any) -> None:
    return
