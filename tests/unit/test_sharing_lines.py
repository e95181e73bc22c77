"""The lines that recipients get."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from inver.domain.delta_actions import Metadata, Protocol
from inver.domain.sharing import Capabilities, ResponseFormat, capabilities
from inver.formats.deletion_vectors import file_of, inline
from inver.formats.delta_log.changes import changes, plan_changes
from inver.formats.delta_log.reader import LogReader
from inver.formats.roaring import RowSet
from inver.formats.sharing_lines import FileLines, HeadLines, end_line, limited
from tests.fixtures.delta_log import FEED, METADATA, PROTOCOL, LogFolder, add, metadata, protocol, remove

pytestmark = pytest.mark.anyio

PARQUET, DELTA = ResponseFormat.PARQUET, ResponseFormat.DELTA
SEPARATORS = "\u2028\u2029\u0085\x0b\x1c"


def sign(paths: Sequence[str]) -> list[str]:
    return [f"https://files/{path}?sig={len(path)}" for path in paths]


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def parsed(data: bytes) -> list[Any]:
    """As the official client reads them: text, split wherever a line may end."""
    assert data.isascii()
    return [json.loads(line) for line in data.decode().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "table")


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(tmp_path / "cache")


async def files(reader: LogReader, log: LogFolder, form: ResponseFormat, **options: Any) -> list[Any]:
    lines = FileLines(form, sign, **options)
    snapshot = await reader.snapshot(log.open())
    return parsed(b"".join(lines.snapshot(batch) for batch in snapshot.batches()))


async def told(reader: LogReader, log: LogFolder, form: ResponseFormat, start: int, end: int) -> list[Any]:
    lines = FileLines(form, sign, expires=99)
    plan = await plan_changes(reader, log.open(), await reader.listing(log.open()), start, end)
    return parsed(b"".join([lines.changes(commit) async for commit in changes(reader, plan)]))


STATS = json.dumps({"numRecords": 3, "minValues": {"name": f'a"\\{SEPARATORS}'}}, ensure_ascii=False)


async def test_a_file_in_parquet_format(log, reader):
    path = f"day=x%20y/{SEPARATORS}.parquet"
    log.checkpoint(0, [PROTOCOL, metadata(["day"]), add(path, 7, {"day": f"x y{SEPARATORS}"}, stats=STATS)])
    log.commit(1, add("b.parquet", 8, {"day": None}))
    first, second = await files(reader, log, PARQUET, expires=1234)
    clear = path.replace("%20", " ")
    assert first == {
        "file": {
            "url": sign([clear])[0],
            "id": md5(clear.encode()),
            "partitionValues": {"day": f"x y{SEPARATORS}"},
            "size": 7,
            "stats": STATS,
            "expirationTimestamp": 1234,
        }
    }
    assert second["file"]["partitionValues"] == {"day": None}
    assert "stats" not in second["file"]


async def test_a_file_in_delta_format(log, reader):
    more: dict[str, Any] = {"tags": {"k": "v"}, "baseRowId": 5, "stats": STATS}
    log.checkpoint(0, [PROTOCOL, METADATA, add("a.parquet", 7, **more), add("b.parquet")])
    log.commit(1, add("c.parquet", defaultRowCommitVersion=1, clusteringProvider="liquid"))
    first, second, third = await files(reader, log, DELTA)
    assert first == {
        "file": {
            "id": hashlib.sha256(b"a.parquet").hexdigest(),
            "deltaSingleAction": {
                "add": {
                    "path": "https://files/a.parquet?sig=9",
                    "partitionValues": {},
                    "size": 7,
                    "modificationTime": 5,
                    "dataChange": True,
                    "stats": STATS,
                    "tags": {"k": "v"},
                    "baseRowId": 5,
                }
            },
        }
    }
    assert "tags" not in second["file"]["deltaSingleAction"]["add"]
    assert third["file"]["deltaSingleAction"]["add"]["clusteringProvider"] == "liquid"


async def test_ids_can_be_asked_for_by_another_hash(log, reader):
    log.commit(0, PROTOCOL, METADATA, add("a"))
    (line,) = await files(reader, log, DELTA, id_hash=PARQUET)
    assert line["file"]["id"] == md5(b"a")


def described(vector: Any) -> dict[str, Any]:
    import msgspec

    return {"deletionVector": msgspec.to_builtins(vector)}


async def test_deletion_vectors_become_urls_unless_they_are_inline(log, reader):
    path, _, (stored,) = file_of([RowSet([1, 2])], uuid.UUID(int=3), "ab")
    absolute: dict[str, Any] = {
        "deletionVector": {
            "storageType": "p",
            "pathOrInlineDv": "s3://b/a%20b.bin",
            "offset": 1,
            "sizeInBytes": 40,
            "cardinality": 2,
        }
    }
    within = described(inline([4]))
    actions = [protocol(["deletionVectors"]), METADATA]
    log.checkpoint(0, [*actions, add("u", **described(stored)), add("i", **within), add("p", **absolute)])
    found = {line["file"]["id"]: line["file"] for line in await files(reader, log, DELTA)}
    by_path = {name: found[hashlib.sha256(name.encode()).hexdigest()] for name in "uip"}
    vectors = {name: file["deltaSingleAction"]["add"]["deletionVector"] for name, file in by_path.items()}
    assert vectors["u"] == {
        **described(stored)["deletionVector"],
        "storageType": "p",
        "pathOrInlineDv": sign([path])[0],
    }
    assert by_path["u"]["deletionVectorFileId"] == hashlib.sha256(path.encode()).hexdigest()
    assert vectors["i"] == within["deletionVector"]
    assert "deletionVectorFileId" not in by_path["i"]
    assert vectors["p"]["pathOrInlineDv"] == sign(["s3://b/a b.bin"])[0]


async def test_changes_in_parquet_format(log, reader):
    cdc = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 9, "dataChange": False}}
    log.commit(0, PROTOCOL, FEED, add("a", 7, stats=STATS), at=1_700_000_000_000)
    log.commit(1, remove("a", size=7, partitionValues={}), at=1_700_000_000_001)
    log.commit(2, cdc, at=1_700_000_000_002)
    found = await told(reader, log, PARQUET, 0, 2)
    assert [list(line) for line in found] == [["add"], ["remove"], ["cdf"]]
    when = {"timestamp": 1_700_000_000_000, "version": 0, "expirationTimestamp": 99}
    file = {"id": md5(b"a"), "url": sign(["a"])[0], "partitionValues": {}, "size": 7}
    assert found[0]["add"] == {**file, **when, "stats": STATS}
    assert found[1]["remove"] == {**file, **when, "timestamp": 1_700_000_000_001, "version": 1}
    assert found[2]["cdf"]["url"] == sign(["_change_data/c"])[0]


async def test_changes_in_delta_format(log, reader):
    cdc = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 9, "dataChange": False}}
    vector = described(inline([1]))
    log.commit(0, PROTOCOL, FEED, add("a", 7, stats=STATS, tags={"t": SEPARATORS}), at=1_700_000_000_000)
    log.commit(1, remove("a", size=7, partitionValues={}), add("a", 7, **vector), at=1_700_000_000_001)
    log.commit(2, cdc, at=1_700_000_000_002)
    found = await told(reader, log, DELTA, 0, 2)
    actions = [line["file"]["deltaSingleAction"] for line in found]
    assert [list(action) for action in actions] == [["add"], ["remove"], ["add"], ["cdc"]]
    assert actions[0]["add"] == {
        "path": sign(["a"])[0],
        "partitionValues": {},
        "size": 7,
        "modificationTime": 5,
        "dataChange": True,
        "stats": STATS,
        "tags": {"t": SEPARATORS},
    }
    assert actions[1]["remove"]["size"] == 7
    assert actions[1]["remove"]["deletionTimestamp"] == 7
    assert actions[2]["add"]["deletionVector"] == vector["deletionVector"]
    assert actions[3]["cdc"]["dataChange"] is False
    assert [(line["file"]["version"], line["file"]["timestamp"] % 10) for line in found] == [
        (0, 0),
        (1, 1),
        (1, 1),
        (2, 2),
    ]


CONFIGURATION: dict[str, str | None] = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "mine": SEPARATORS,
}
TABLE = Metadata(
    "m",
    json.dumps(
        {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {"a": 1}}]}
    ),
    ("x",),
    CONFIGURATION,
    name="orders",
)
MANAGED = Protocol(3, 7, ("catalogManaged",), ("catalogManaged", "inCommitTimestamp"))


def test_the_head_in_delta_format():
    head = HeadLines(DELTA, capabilities("responseformat=delta"), vectors=False)
    (line,) = parsed(head.protocol(MANAGED, TABLE))
    wanted = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}
    assert line == {"protocol": {"deltaProtocol": wanted}}
    (line,) = parsed(head.metadata(TABLE, version=4, size=10, files=2))
    told = line["metaData"]
    assert (told["version"], told["size"], told["numFiles"]) == (4, 10, 2)
    assert told["deltaMetadata"]["configuration"] == {
        "delta.enableChangeDataFeed": "true",
        "mine": SEPARATORS,
    }
    assert told["deltaMetadata"]["schemaString"] == TABLE.schema_string
    assert told["deltaMetadata"]["format"] == {"provider": "parquet", "options": {}}
    assert head.metadata(TABLE, version=4, size=10) == head.metadata(TABLE, version=4, size=10)


def test_the_head_in_parquet_format():
    head = HeadLines(PARQUET, Capabilities(), vectors=False)
    assert parsed(head.protocol(MANAGED, TABLE)) == [{"protocol": {"minReaderVersion": 1}}]
    (line,) = parsed(head.metadata(TABLE, files=2))
    assert line["metaData"]["configuration"] == {"enableChangeDataFeed": "true"}
    assert json.loads(line["metaData"]["schemaString"])["fields"][0]["metadata"] == {}
    assert (line["metaData"]["numFiles"], "version" in line["metaData"]) == (2, False)


@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_without_shared_history_the_head_promises_no_changes(form):
    head = HeadLines(form, Capabilities(frozenset({form})), vectors=False, history=False)
    assert b"enableChangeDataFeed" not in head.metadata(TABLE)


def test_the_last_line():
    assert parsed(end_line(refreshToken="t", nextPageToken=None, minUrlExpirationTimestamp=5)) == [
        {"endStreamAction": {"refreshToken": "t", "minUrlExpirationTimestamp": 5}}
    ]


async def test_a_limit_ends_with_the_file_that_reaches_it(log, reader):
    stats = '{"numRecords":10}'
    vector = described(inline(range(9)))
    actions = [add("a"), add("b", stats=stats, **vector), add("c", stats=stats), add("d", stats=stats)]
    log.commit(0, protocol(["deletionVectors"]), METADATA, *actions)
    snapshot = await reader.snapshot(log.open())

    def paths(limit: int) -> list[str]:
        return [row["path"] for batch in limited(snapshot.batches(), limit) for row in batch.rows.to_pylist()]

    assert paths(1) == ["a", "b"]
    assert paths(2) == paths(11) == ["a", "b", "c"]
    assert paths(12) == paths(1000) == ["a", "b", "c", "d"]
