"""When versions were committed, and which version was there at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inver.errors import Invalid
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.timestamps import History
from tests.fixtures.delta_log import METADATA, PROTOCOL, LogFolder, add, metadata, protocol

pytestmark = pytest.mark.anyio

T = 1_700_000_000_000
ICT: dict[str, Any] = {"delta__enableInCommitTimestamps": "true"}


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "table")


def info(at: int, **more: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": 1, "inCommitTimestamp": at, "operation": "WRITE", **more}}


async def history(log: LogFolder) -> History:
    reader = LogReader(log.folder / "cache")
    return await reader.history(log.open(), await reader.listing(log.open()))


async def times(found: History) -> list[int]:
    return [await found.timestamp(version) - T for version in range(found.earliest, found.latest + 1)]


async def test_files_times_are_made_to_grow(log):
    for version, at in enumerate([0, 10, 5, 5, 30]):
        log.commit(version, *([PROTOCOL, METADATA] if version == 0 else [add(str(version))]), at=T + at)
    found = await history(log)
    assert await times(found) == [0, 10, 11, 12, 30]
    assert [await found.first_at_or_after(T + at) for at in (-5, 0, 1, 11, 12, 13, 30, 31)] == [
        0,
        0,
        1,
        2,
        3,
        4,
        4,
        None,
    ]
    assert [await found.last_at_or_before(T + at) for at in (-1, 0, 9, 12, 29, 30, 99)] == [
        None,
        0,
        0,
        3,
        3,
        4,
        4,
    ]


async def test_in_commit_timestamps_from_the_beginning(log):
    head = [protocol([], ["inCommitTimestamp"]), metadata(**ICT)]
    for version, at in enumerate([0, 100, 200, 201]):
        # The files are written the other way round, as publishing may do it.
        log.commit(version, info(T + at), *(head if version == 0 else []), at=T - version * 1000)
    found = await history(log)
    assert await times(found) == [0, 100, 200, 201]
    assert [await found.first_at_or_after(T + at) for at in (-1, 0, 1, 201, 202)] == [0, 0, 1, 3, None]
    assert [await found.last_at_or_before(T + at) for at in (-1, 0, 99, 200, 500)] == [None, 0, 0, 2, 3]


async def test_in_commit_timestamps_that_were_turned_on_later(log):
    log.commit(0, PROTOCOL, METADATA, at=T)
    log.commit(1, add("a"), at=T + 10)
    enabled = metadata(
        **ICT,
        delta__inCommitTimestampEnablementVersion="2",
        delta__inCommitTimestampEnablementTimestamp=str(T + 50),
    )
    log.commit(2, info(T + 50), protocol([], ["inCommitTimestamp"]), enabled, at=T + 900)
    log.commit(3, info(T + 60), add("b"), at=T + 5)
    found = await history(log)
    assert await times(found) == [0, 10, 50, 60]
    assert [await found.first_at_or_after(T + at) for at in (0, 10, 11, 50, 51, 61)] == [0, 1, 2, 2, 3, None]
    assert [await found.last_at_or_before(T + at) for at in (9, 10, 49, 50, 59, 60)] == [0, 1, 1, 2, 2, 3]


async def test_only_the_first_action_tells_the_time(log):
    log.commit(0, protocol([], ["inCommitTimestamp"]), metadata(**ICT), info(T))
    with pytest.raises(Invalid, match="version 0 has no in-commit timestamp"):
        await times(await history(log))


async def test_a_first_action_that_is_longer_than_what_is_read_of_it(log):
    head = [protocol([], ["inCommitTimestamp"]), metadata(**ICT)]
    log.commit(0, info(T + 7, operationParameters={"predicate": "x" * 50_000}), *head)
    assert await times(await history(log)) == [7]


async def test_a_cleaned_log_begins_with_its_first_commit(log):
    log.checkpoint(5, [PROTOCOL, METADATA])
    log.commit(5, add("a"), at=T)
    log.commit(6, add("b"), at=T + 10)
    found = await history(log)
    assert (found.earliest, found.latest) == (5, 6)
    assert await found.first_at_or_after(0) == 5
    assert await found.last_at_or_before(T - 1) is None


async def test_a_checkpoint_alone_has_the_time_of_its_file(log):
    (path,) = log.checkpoint(5, [PROTOCOL, METADATA])
    found = await history(log)
    written = path.stat().st_mtime_ns // 1_000_000
    assert await found.timestamp(5) == written
    assert await found.first_at_or_after(written) == 5
    assert await found.first_at_or_after(written + 1) is None


async def test_the_catalogs_commits_have_their_times_before_they_are_published(log):
    log.commit(0, info(T), protocol(["catalogManaged"], ["inCommitTimestamp"]), metadata(**ICT))
    staged = log.stage(1, info(T + 5), add("a"))
    reader = LogReader(log.folder / "cache")
    opened = log.open("t", 1, staged)
    found = await reader.history(opened, await reader.listing(opened))
    assert await times(found) == [0, 5]
