"""What commits changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inver.domain.delta_actions import Add, Cdc, Remove
from inver.domain.sharing import check_recorded
from inver.errors import Invalid, Unsupported
from inver.formats.delta_log.changes import ChangePlan, changes, plan_changes, vector_pairs
from inver.formats.delta_log.reader import LogReader
from tests.fixtures.delta_log import (
    FEED,
    METADATA,
    PROTOCOL,
    LogFolder,
    add,
    metadata,
    protocol,
    remove,
    vector,
)

pytestmark = pytest.mark.anyio

T = 1_700_000_000_000
CDC: dict[str, Any] = {
    "cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 9, "dataChange": False}
}


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "table")


@pytest.fixture
def reader(tmp_path: Path) -> LogReader:
    return LogReader(tmp_path / "cache")


async def plan(reader: LogReader, log: LogFolder, start: int, end: int) -> ChangePlan:
    opened = log.open()
    return await plan_changes(reader, opened, await reader.listing(opened), start, end)


async def told(reader: LogReader, log: LogFolder, start: int, end: int, **options: Any) -> list[list[str]]:
    """For each commit its files, with a sign for what happened to them."""
    signs = {Add: "+", Remove: "-", Cdc: "~"}
    planned = await plan(reader, log, start, end)
    return [
        [signs[type(file)] + file.path for file in commit.files]
        async for commit in changes(reader, planned, **options)
    ]


def merge(inserted: str = "0", updated: str = "0", deleted: str | None = "0") -> dict[str, Any]:
    metrics = {"numTargetRowsInserted": inserted, "numTargetRowsUpdated": updated, "numOutputRows": "9"}
    if deleted is not None:
        metrics["numTargetRowsDeleted"] = deleted
    return {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}


async def test_change_data_files_tell_all_of_a_commit(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a"))
    log.commit(1, remove("a"), add("b"), CDC)
    assert await told(reader, log, 0, 1) == [["+a"], ["~_change_data/c.parquet"]]
    assert await told(reader, log, 0, 1, change_data=False) == [["+a"], ["-a", "+b"]]
    assert await told(reader, log, 0, 1, skip=1) == [["~_change_data/c.parquet"]]


async def test_rewrites_without_data_change_tell_nothing(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a"), add("b"))
    log.commit(1, remove("a", dataChange=False), remove("b", dataChange=False), add("c", dataChange=False))
    assert await told(reader, log, 1, 1) == [[]]


async def test_a_merge_that_changed_nothing_tells_nothing(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a"))
    log.commit(1, merge(), remove("a"), add("b"))
    log.commit(2, merge(inserted="1"), remove("b"), add("c"))
    log.commit(3, merge(deleted=None), remove("c"), add("d"))
    assert await told(reader, log, 1, 3) == [[], ["-b", "+c"], ["-c", "+d"]]


async def test_a_file_that_is_removed_and_added_as_it_was_tells_nothing(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a"))
    log.commit(1, remove("a"), add("a"), add("b"))
    assert await told(reader, log, 1, 1) == [["+b"]]


async def test_a_file_with_another_deletion_vector_is_told_twice(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a%20b"))
    log.commit(1, remove("a%20b"), add("a%20b", **vector("one")))
    planned = await plan(reader, log, 1, 1)
    assert planned.vectors()
    (commit,) = [each async for each in changes(reader, planned)]
    (pair,) = vector_pairs(commit.files).values()
    assert pair[0].deletion_vector is None
    assert pair[1].deletion_vector is not None
    assert pair[1].deletion_vector.path_or_inline_dv == "one"
    assert not (await plan(reader, log, 0, 0)).vectors()


async def test_vectors_that_are_not_told_do_not_count(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a", **vector("one"), dataChange=False))
    log.commit(1, remove("a", **vector("one")), CDC)
    planned = await plan(reader, log, 0, 1)
    assert not planned.vectors()
    assert planned.vectors(change_data=False)


async def test_what_changed_besides_files(log, reader):
    log.commit(0, PROTOCOL, METADATA)
    log.commit(1, FEED, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}})
    log.commit(2, metadata(delta__enableChangeDataFeed="true", x="1"), add("a"))
    log.commit(3, metadata(x="2"))
    planned = await plan(reader, log, 1, 3)
    assert planned.at_start.protocol.min_reader_version == 2
    assert planned.at_start.metadata.configuration == {"delta.enableChangeDataFeed": "true"}
    assert planned.at_end.metadata.configuration == {"x": "2"}
    assert [version for version, _ in planned.later_metadata] == [2, 3]
    commits = [each async for each in changes(reader, planned)]
    assert [each.metadata is not None for each in commits] == [True, True, True]
    assert [each.protocol is not None for each in commits] == [True, False, False]
    with pytest.raises(Invalid, match=r"range \[1, 3\] as change data was not recorded for version \[3\]"):
        check_recorded(1, 3, planned.at_start.metadata, planned.later_metadata)
    zero = await plan(reader, log, 0, 1)
    with pytest.raises(Invalid, match=r"range \[0, 1\] as change data was not recorded for version \[0\]"):
        check_recorded(0, 1, zero.at_start.metadata, zero.later_metadata)
    two = await plan(reader, log, 1, 2)
    check_recorded(1, 2, two.at_start.metadata, two.later_metadata)


async def test_a_start_behind_a_checkpoint_has_the_checkpoints_metadata(log, reader):
    log.checkpoint(4, [PROTOCOL, FEED, add("a")], "v2-json")
    log.commit(5, remove("a"))
    planned = await plan(reader, log, 5, 5)
    assert planned.at_start.metadata.configuration == {"delta.enableChangeDataFeed": "true"}


async def test_timestamps_are_those_of_the_commits(log, reader):
    for version in range(3):
        log.commit(version, *([PROTOCOL, FEED] if version == 0 else [add(str(version))]), at=T)
    commits = [each async for each in changes(reader, await plan(reader, log, 0, 2))]
    assert [commit.timestamp - T for commit in commits] == [0, 1, 2]


async def test_what_old_writers_leave_out_is_found_where_the_file_was_added(log, reader, tmp_path):
    log.checkpoint(0, [PROTOCOL, metadata(["day"]), add("old", 40, {"day": "2024-01-01"})])
    log.commit(1, add("new", 41, {"day": "2024-01-02"}))
    log.commit(2, remove("old"), remove("new"), remove("on-disk"), remove("nowhere"))
    (tmp_path / "table" / "on-disk").write_bytes(b"12345")
    for skip in (0, 1):
        commits = [each async for each in changes(reader, await plan(reader, log, 1, 2), skip=skip)]
        found = [(file.path, file.size, file.partition_values) for file in commits[-1].files]
        assert found == [
            ("old", 40, {"day": "2024-01-01"}),
            ("new", 41, {"day": "2024-01-02"}),
            ("on-disk", 5, {}),
            ("nowhere", 0, {}),
        ]


async def test_many_commits_are_told_in_their_order(log, reader):
    for version in range(200):
        log.commit(version, *([PROTOCOL, FEED] if version == 0 else []), add(f"{version}"))
    found = await told(reader, log, 3, 190)
    assert found == [[f"+{version}"] for version in range(3, 191)]


async def test_unpublished_commits_are_told_too(log, reader):
    log.commit(0, PROTOCOL, FEED)
    staged = log.stage(1, add("a"))
    opened = log.open("t", 1, staged)
    planned = await plan_changes(reader, opened, await reader.listing(opened), 0, 1)
    assert [len(each.files) async for each in changes(reader, planned)] == [0, 1]


async def test_a_missing_commit_is_named(log, reader):
    log.checkpoint(3, [PROTOCOL, FEED])
    log.commit(4, add("a"))
    with pytest.raises(Invalid, match="version 2 is missing"):
        await plan(reader, log, 2, 4)


async def test_metadata_is_found_in_any_spelling(log, reader):
    path = log.commit(0, PROTOCOL, FEED)
    path.write_text(path.read_text().replace('{"metaData"', ' { "metaData"'))
    log.commit(1, add("a", deletionVector=None))
    planned = await plan(reader, log, 0, 1)
    assert planned.at_end.metadata.enabled("delta.enableChangeDataFeed")
    assert not planned.vectors()


async def test_a_protocol_in_the_range_that_is_not_known_is_refused(log, reader):
    log.commit(0, PROTOCOL, FEED)
    log.commit(1, protocol(["timeTravelToMars"]))
    log.commit(2, PROTOCOL, add("a"))
    with pytest.raises(Unsupported, match="timeTravelToMars"):
        await plan(reader, log, 0, 2)


async def test_a_range_is_looked_through_again_when_the_log_is_another(log, reader):
    log.commit(0, PROTOCOL, FEED, add("a"), at=T)
    log.commit(1, add("b"), at=T + 1)
    assert await told(reader, log, 0, 1) == await told(reader, log, 0, 1) == [["+a"], ["+b"]]
    assert await told(reader, log, 1, 1) == [["+b"]]
    log.commit(2, FEED, remove("b", size=1), at=T + 2)
    assert await told(reader, log, 0, 1) == [["+a"], ["+b"]]
    assert await told(reader, log, 0, 2) == [["+a"], ["+b"], ["-b"]]
    assert [version for version, _ in (await plan(reader, log, 0, 2)).later_metadata] == [2]
    # Of the same size and with the same time, but not the same file.
    log.commit(1, add("c"), at=T + 1)
    assert await told(reader, log, 0, 2) == [["+a"], ["+c"], ["-b"]]


async def test_metadata_stands_until_it_is_changed(log, reader):
    heads = [metadata((), x=str(number)) for number in range(3)]
    log.commit(0, PROTOCOL, heads[0])
    log.commit(1, add("a"))
    log.commit(2, heads[1], add("b"))
    log.commit(3, add("c"))
    log.commit(4, heads[2])
    log.commit(5, remove("a"))
    for start in range(6):
        planned = await plan(reader, log, start, 5)
        for skip in range(6 - start):
            found = [
                commit.standing.configuration["x"] async for commit in changes(reader, planned, skip=skip)
            ]
            assert found == list("001122")[start + skip :]
