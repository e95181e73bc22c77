"""Tables after checkpoint, cleanup and VACUUM, read by the clients that people use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inver.client import Client as Inver
from inver.domain.care import Job, Outcome
from inver.domain.locations import Location
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.source import Log
from inver.storage.local import LocalStore
from tests.fixtures.aged import Aged, care, freed_copy, remove
from tests.fixtures.clients import Client, ClientMissing, client
from tests.fixtures.delta import unity
from tests.fixtures.duckdb import Duck
from tests.fixtures.server import InverServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CUT = 4
"""The version whose checkpoint stands for everything before it."""
RETAINED = 6
"""The first version within the retention of files."""


@dataclass
class Story:
    """A table that was cared for, and the ids in each of its versions."""

    table: Aged
    deleted: set[str]
    ids: dict[int, set[int]] = field(default_factory=dict)


def _client(name: str) -> Client:
    try:
        return client(name)
    except ClientMissing as missing:
        pytest.skip(str(missing))


def gone(added: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As a writer removes a file of which changes are to be told."""
    known = {"size": added["add"]["size"], "partitionValues": {}, "extendedFileMetadata": True}
    return remove(added["add"]["path"], **known, **more)


@pytest.fixture(scope="module", params=["v2", "classic"])
def story(lake: InverServer, request: pytest.FixtureRequest) -> Iterator[Story]:
    """With checkpoints of either kind."""
    without = ["v2Checkpoint"] if request.param == "classic" else []
    with unity(lake) as http, Inver(lake.url, lake.token) as inver:
        table = Aged(http, "lake.care", without=without, config={"delta.enableChangeDataFeed": "true"})
        story = Story(table, set())

        def commit(age: float, ids: set[int], *actions: dict[str, Any]) -> None:
            table.commit(age, *actions)
            story.ids[table.version] = ids

        a, b, c = table.add("a.parquet", 10), table.add("b%20b.parquet", 10), table.add("c.parquet", 10)
        commit(900, set(range(10)), a)
        commit(800, set(range(20)), b)
        commit(700, set(range(10, 20)), gone(a))
        one, two = table.vector(0), table.vector(0, 1, 2)
        commit(600, {*range(11, 20)}, gone(b), {"add": {**b["add"], **one}})
        table.publish()
        assert care(inver, table, Job.CHECKPOINT).outcome is Outcome.DONE
        commit(500, {*range(11, 30)}, c, {"txn": {"appId": "app", "version": 3}})
        commit(160, {*range(13, 30)}, gone(b, **one), {"add": {**b["add"], **two}})
        commit(150, {*range(13, 20)}, gone(c))
        for number in range(12):
            start = table._ids
            added = table.add(f"late-{number}.parquet", 1)
            commit(100 - number, story.ids[table.version] | {start}, added)
        table.publish()
        table.age(950)
        before = table.files
        assert care(inver, table, Job.LOG, log_retention_hours=170).outcome is Outcome.DONE
        assert care(inver, table, Job.CHECKPOINT).outcome is Outcome.DONE
        assert care(inver, table, Job.VACUUM, full=True).outcome is Outcome.DONE
        story.deleted = before - table.files
        yield story


def test_what_is_left(story, tmp_path):
    log = story.table.log
    assert min(int(name[:20]) for name in log if name[:1] == "0") == CUT
    assert {int(name[:20]) for name in log if ".checkpoint." in name} == {CUT, story.table.version}
    # Behind the checkpoint one compaction is worth a dozen commits.
    assert [name for name in log if name.endswith(".compacted.json")] == [
        f"{5:020d}.{18:020d}.compacted.json"
    ]
    # The vector of version 4 was replaced within the retention, so that it stays.
    assert story.deleted == {"a.parquet"}
    reader = LogReader(tmp_path / "cache")
    found = asyncio.run(reader.snapshot(Log(LocalStore(Location.parse(str(story.table.folder))), "t")))
    assert (found.base_version, found.transactions["app"].version) == (story.table.version, 3)


@pytest.fixture(scope="module")
def freed(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return freed_copy(story.table.folder, tmp_path_factory.mktemp("freed") / "t")


@pytest.mark.spark
def test_spark(story, freed, delta, tmp_path):
    """The latest version, every retained one, their changes; and the log takes what Spark writes next."""
    folder = freed_copy(freed, tmp_path / "t")
    name = f"delta.`{folder}`"

    def ids(what: str) -> set[int]:
        rows = [row.id for row in delta.sql(f"SELECT id FROM {what}").collect()]
        assert len(rows) == len(set(rows))
        return set(rows)

    last = story.table.version
    assert ids(name) == story.ids[last]
    for version in (RETAINED, RETAINED + 1, last - 1):
        assert ids(f"{name} VERSION AS OF {version}") == story.ids[version]
    changes = delta.read.format("delta").option("readChangeFeed", "true")
    rows = (
        changes.option("startingVersion", RETAINED)
        .option("endingVersion", RETAINED + 1)
        .load(str(folder))
        .collect()
    )
    assert {(row.id, row._change_type) for row in rows} == {
        *((number, "delete") for number in (11, 12)),
        *((number, "delete") for number in range(20, 30)),
    }
    delta.sql(f"INSERT INTO {name} VALUES (1000)")
    delta.sql(f"DELETE FROM {name} WHERE id = 13")
    delta.sql(
        f"MERGE INTO {name} t USING (SELECT 14L AS id UNION SELECT 2000L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    )
    assert ids(name) == story.ids[last] - {13, 14} | {1000, 2000}


def test_delta_rs(story, freed):
    told = _client("deltalake").run(
        "delta_log_client.py", {"folder": str(freed), "rows": True, "versions": [RETAINED]}
    )
    assert told["latest"] == story.table.version
    assert set(told["rows"]) == story.ids[story.table.version]


def test_duckdb_through_the_catalog(story, lake, tmp_path):
    duck = Duck(_client("duckdb"), lake, "lake.care", tmp_path)
    [rows] = duck(f"SELECT id FROM lake.care.{story.table.delta.name.rpartition('.')[2]}")
    assert sorted(row[0] for row in rows) == sorted(story.ids[story.table.version])


def test_delta_sharing(story, lake, tmp_path):
    official = _client("delta_sharing")
    short = story.table.delta.name.rpartition(".")[2]
    share = f"s{short}"
    for method, path, body in (
        ("POST", "/shares", {"name": share}),
        ("POST", f"/shares/{share}/items", {"name": ["lake", "care", short], "history": True}),
        ("POST", "/recipients", {"name": share, "activate": False}),
        ("PUT", f"/shares/{share}/recipients/{share}", {}),
    ):
        answer = lake.call(method, path, json=body)
        assert answer.is_success, answer.text
        if path == "/recipients":
            (tmp_path / "profile.share").write_text(json.dumps(answer.json()["profile"]))
    table, how = f"{share}.care.{short}", {"use_delta_format": True}
    steps = [{"do": "load", "table": table, "version": at, **how} for at in (RETAINED, RETAINED + 1)]
    asked = {
        "profile": str(tmp_path / "profile.share"),
        "steps": [{"do": "load", "table": table, **how}, *steps],
    }
    answers = official.run("delta_sharing_client.py", asked)
    assert not any("error" in answer for answer in answers), answers
    found = [{row["id"] for row in answer["value"]} for answer in answers]
    assert found == [story.ids[at] for at in (story.table.version, RETAINED, RETAINED + 1)]
