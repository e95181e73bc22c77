"""Checkpoints, compactions and cleanup of the logs of managed Delta tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from inver.client import Client
from inver.domain.care import Job, Outcome, Pin
from inver.domain.locations import Location
from inver.errors import Refused
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.source import Log
from inver.storage.local import LocalStore
from tests.fixtures.aged import Aged, care, remove
from tests.fixtures.delta_log import files_of
from tests.fixtures.server import InverServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

Files = dict[tuple[str, str | None], int]


@pytest.fixture
def client(lake: InverServer) -> Iterator[Client]:
    with Client(lake.url, lake.token) as client:
        yield client


@pytest.fixture
def checkpoint(client: Client) -> Any:
    return partial(care, client, job=Job.CHECKPOINT)


@pytest.fixture
def log(client: Client) -> Any:
    return partial(care, client, job=Job.LOG)


def history(http: httpx.Client, commits: int = 14, **options: Any) -> Aged:
    """A commit every 60 hours, beginning 960 hours ago: some add, some remove, all of them published."""
    table = Aged(http, "lake.care", **options)
    for number in range(1, commits + 1):
        actions = [table.add(f"{number}.parquet", number)]
        if number % 3 == 0:
            actions.append(remove(f"{number - 2}.parquet"))
        if number == 4:
            actions.append({"txn": {"appId": "app", "version": 7, "lastUpdated": 5}})
            actions.append({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}})
        table.commit(960 - 60 * (number - 1), *actions)
    table.publish()
    return table


def read(table: Aged, cache: Path, version: int | None = None) -> tuple[int, Files]:
    """What our reader sees, and the checkpoint from which it starts."""
    log = Log(LocalStore(Location.parse(str(table.folder))), str(cache))
    found = asyncio.run(LogReader(cache).snapshot(log, version))
    return found.base_version, files_of(found)


def versions(table: Aged, cache: Path, first: int = 0) -> dict[int, Files]:
    return {
        version: read(table, cache / str(version), version)[1] for version in range(first, table.version + 1)
    }


def names(table: Aged, ending: str) -> list[str]:
    return sorted(name for name in table.log if name.endswith(ending))


# --- checkpoints ---


def test_a_checkpoint_with_sidecars(http, checkpoint, tmp_path):
    table = history(http)
    before, log = versions(table, tmp_path / "before"), table.log
    assert checkpoint(table, dry_run=True).outcome is Outcome.DONE
    assert table.log == log
    result = checkpoint(table)
    assert (result.outcome, result.before["commits"], result.after["commits"]) == (Outcome.DONE, 15, 0)
    assert (result.after["files"], result.after["tombstones"]) == (10, 0)
    assert (result.after["version"], result.after["checkpoint_version"]) == (14, 14)
    [top] = [name for name in table.log - log if ".checkpoint." in name]
    assert top.startswith(f"{14:020d}.checkpoint.")
    lines = [json.loads(line) for line in (table.folder / "_delta_log" / top).open()]
    assert [next(iter(line)) for line in lines] == [
        *("checkpointMetadata", "protocol", "metaData", "txn", "domainMetadata", "sidecar")
    ]
    last = json.loads((table.folder / "_delta_log" / "_last_checkpoint").read_text())
    assert (last["version"], last["numOfAddFiles"], last["v2Checkpoint"]["path"]) == (14, 10, top)
    assert read(table, tmp_path / "after") == (14, before[14])
    assert versions(table, tmp_path / "versions") == before
    again = checkpoint(table)
    assert again.outcome is Outcome.NOTHING
    assert len(names(table, ".parquet")) == 1


def test_tombstones_are_part_of_it(http, checkpoint, tmp_path):
    table = history(http)
    assert checkpoint(table, retention_hours=2000).after["tombstones"] == 4


def test_a_classic_one_where_the_table_knows_no_other(http, checkpoint, tmp_path):
    table = history(http, without=["v2Checkpoint"])
    before = versions(table, tmp_path / "before")
    assert checkpoint(table).outcome is Outcome.DONE
    assert names(table, ".checkpoint.parquet") == [f"{14:020d}.checkpoint.parquet"]
    assert not [name for name in table.log if name.startswith("_sidecars/")]
    assert read(table, tmp_path / "after") == (14, before[14])
    assert checkpoint(table).outcome is Outcome.NOTHING


def test_each_builds_on_the_one_before(http, checkpoint, tmp_path):
    table = history(http, commits=5)
    checkpoint(table)
    table.commit(1, remove("5.parquet"), table.add("6.parquet", 6))
    table.publish()
    for path in (table.folder / "_delta_log").glob("0000000000000000000[0-4].json"):
        path.unlink()
    expected = read(table, tmp_path / "before")
    assert expected[0] == 5
    assert checkpoint(table).before["commits"] == 1
    assert read(table, tmp_path / "after") == (6, expected[1])


def test_a_broken_checkpoint_is_not_built_upon(http, checkpoint, tmp_path):
    table = history(http, commits=5)
    checkpoint(table)
    [sidecar] = (table.folder / "_delta_log" / "_sidecars").iterdir()
    sidecar.write_bytes(b"PAR1 no more PAR1")
    table.commit(1, table.add("6.parquet", 6))
    table.publish()
    assert checkpoint(table).outcome is Outcome.DONE
    base, files = read(table, tmp_path / "after")
    assert (base, len(files)) == (6, 5)


# --- compactions ---


def test_many_commits_become_one_file(http, log, tmp_path):
    table = history(http)
    before = versions(table, tmp_path / "before")
    planned = log(table, dry_run=True)
    assert (planned.outcome, names(table, ".compacted.json")) == (Outcome.DONE, [])
    result = log(table)
    assert (result.outcome, result.message) == (Outcome.DONE, "compacted versions 0 to 13")
    assert names(table, ".compacted.json") == [f"{0:020d}.{13:020d}.compacted.json"]
    assert versions(table, tmp_path / "after") == before
    listed = asyncio.run(
        LogReader(tmp_path / "x").listing(Log(LocalStore(Location.parse(str(table.folder))), "t"))
    )
    assert [(file.first, file.last) for file in next(listed.segments()).files] == [(0, 13), (14, 14)]
    assert log(table).outcome is Outcome.NOTHING


def test_few_commits_stay_as_they_are(http, log, checkpoint):
    table = history(http, commits=8)
    assert log(table).outcome is Outcome.NOTHING
    table = history(http)
    checkpoint(table)
    assert log(table).outcome is Outcome.NOTHING


# --- cleanup ---


@pytest.fixture
def cleaned(http, checkpoint) -> Aged:
    """Checkpoints of the versions 4 and 9, which are 780 and 480 hours old."""
    table = Aged(http, "lake.care")
    for number in range(1, 15):
        table.commit(960 - 60 * (number - 1), table.add(f"{number}.parquet", number))
        if number in (4, 9):
            table.publish()
            checkpoint(table)
    table.publish()
    return table


def commits_of(table: Aged) -> list[int]:
    return sorted(int(name[:20]) for name in table.log if name.endswith(".json") and len(name) == 25)


@pytest.mark.parametrize(
    ("hours", "pin", "first"),
    [(720, None, 4), (470, None, 9), (781, None, 0), (470, 8, 4), (470, 3, 0), (100, None, 9)],
)
def test_the_log_ends_at_a_checkpoint(cleaned, log, tmp_path, hours, pin, first):
    before = versions(cleaned, tmp_path / "before")
    (cleaned.folder / "_delta_log" / f"{1:020d}.crc").write_text("{}")
    pins = () if pin is None else (Pin(reason="share", version=pin),)
    options: dict[str, Any] = {"log_retention_hours": hours, "retention_hours": 168, "pins": pins}
    planned = log(cleaned, dry_run=True, **options)
    there = cleaned.log
    result = log(cleaned, **options)
    gone = {name for name in there if not name.endswith(".compacted.json")} - cleaned.log
    assert {path.removeprefix("_delta_log/") for path in planned.files} == gone
    assert commits_of(cleaned) == list(range(first, 15))
    assert result.outcome is (Outcome.DONE if first else Outcome.NOTHING)
    assert versions(cleaned, tmp_path / "after", first) == {at: before[at] for at in range(first, 15)}
    assert {int(name[:20]) for name in cleaned.log if ".checkpoint." in name} == {
        at for at in (4, 9) if at >= first
    }
    assert log(cleaned, **options).outcome is Outcome.NOTHING


def test_files_and_log_are_kept_equally_long(cleaned, log):
    assert log(cleaned, log_retention_hours=24, retention_hours=800).outcome is Outcome.NOTHING
    assert commits_of(cleaned) == list(range(15))


def test_a_table_may_keep_all_of_its_log(http, checkpoint, log):
    table = history(http, config={"delta.enableExpiredLogCleanup": "false"})
    checkpoint(table)
    assert log(table, log_retention_hours=24).outcome is Outcome.NOTHING
    other = history(http, config={"delta.logRetentionDuration": "interval 100 days"})
    checkpoint(other)
    assert log(other, log_retention_hours=24).outcome is Outcome.NOTHING


def test_sidecars_go_with_their_checkpoints(cleaned, log):
    sidecars = {name for name in cleaned.log if name.startswith("_sidecars/")}
    assert len(sidecars) == 2
    stray, young = (
        cleaned.folder / "_delta_log" / "_sidecars" / f"{name}.parquet" for name in ("stray", "young")
    )
    for path in (stray, young):
        path.write_bytes(b"x")
    cleaned.age(25)
    cleaned.age(1, "_delta_log/_sidecars/young.parquet")
    assert log(cleaned, log_retention_hours=470).outcome is Outcome.DONE
    left = {name for name in cleaned.log if name.startswith("_sidecars/")}
    assert len(left & sidecars) == 1
    assert left - sidecars == {"_sidecars/young.parquet"}


def test_nothing_is_deleted_that_a_broken_checkpoint_stands_for(cleaned, log):
    [top] = [name for name in cleaned.log if name.startswith(f"{9:020d}.checkpoint.")]
    sidecar = json.loads((cleaned.folder / "_delta_log" / top).read_text().splitlines()[-1])["sidecar"][
        "path"
    ]
    (cleaned.folder / "_delta_log" / "_sidecars" / sidecar).unlink()
    before = cleaned.log
    with pytest.raises(Refused, match="has lost its sidecar"):
        log(cleaned, log_retention_hours=470)
    assert cleaned.log == before


# --- stopped on the way ---


class Stopped(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("job", [Job.CHECKPOINT, Job.LOG, Job.VACUUM])
def test_wherever_it_is_stopped_the_table_is_right(http, client, monkeypatch, tmp_path, job):
    """Stopped before each change of the storage, and then run to its end."""
    table = history(http)
    if job is not Job.CHECKPOINT:
        care(client, table, Job.CHECKPOINT)
        table.commit(1, table.add("15.parquet", 15))
        table.publish()
        table.age(100)
    if job is Job.LOG:
        # A cut that lies behind everything but the last commit.
        options: dict[str, Any] = {
            "log_retention_hours": 30,
            "retention_hours": 30,
            "allow_short_retention": True,
        }
    else:
        options = {"full": True}
        table.age(950)
    expected = read(table, tmp_path / "before")[1]
    changes = stop = 0
    for name in ("put", "put_if_absent", "delete"):
        monkeypatch.setattr(LocalStore, name, counted(getattr(LocalStore, name)))
    while True:
        State.left = stop
        try:
            care(client, table, job, **options)
            break
        except Stopped:
            changes += 1
        assert read(table, tmp_path / f"read{stop}")[1] == expected
        stop += 1
        assert stop < 60
    assert changes >= 2
    State.left = 10_000
    assert read(table, tmp_path / "after")[1] == expected
    assert care(client, table, job, **options).outcome is Outcome.NOTHING


class State:
    left = 0


def counted(method: Any) -> Any:
    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if State.left == 0:
            raise Stopped
        State.left -= 1
        return await method(self, *args, **kwargs)

    return run
