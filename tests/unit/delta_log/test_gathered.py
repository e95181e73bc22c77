"""Versions of tables without a log, gathered from what is told of their files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from inver.domain.delta_actions import Add, Metadata, Protocol, TableHead
from inver.errors import Unsupported
from inver.formats.delta_log.gathered import Gathered
from inver.formats.delta_log.snapshot import Snapshot

HEAD = TableHead(Protocol(1, 4), Metadata("t", partition_columns=("p",)))


class Source:
    """Files in pages; counts how often it was asked."""

    def __init__(self, pages: int, each: int = 3) -> None:
        self.pages, self.each = pages, each
        self.asked = 0
        self.failing = False

    async def __call__(self) -> AsyncGenerator[list[Add], None]:
        self.asked += 1
        for page in range(self.pages):
            await asyncio.sleep(0)
            if self.failing:
                raise Unsupported("no such thing")
            numbers = range(page * self.each, (page + 1) * self.each)
            yield [Add(f"f{n}", {"p": str(n % 2)}, n, stats='{"numRecords":1}') for n in numbers]


def paths(snapshot: Snapshot) -> list[str]:
    return [path for batch in snapshot.batches() for path in batch.rows.column("path").to_pylist()]


@pytest.mark.parametrize("max_held", [100, 4, 0])
async def test_files_come_in_the_order_of_their_source(tmp_path: Path, max_held: int):
    source = Source(4)
    gathered = Gathered(tmp_path, max_held=max_held)
    snapshot = await gathered.snapshot("n", 7, HEAD, source)
    assert (snapshot.version, snapshot.files, snapshot.bytes) == (7, 12, sum(range(12)))
    assert snapshot.metadata == HEAD.metadata
    assert paths(snapshot) == [f"f{n}" for n in range(12)]
    kept = [
        path
        for batch in snapshot.batches(lambda p: p == {"p": "1"})
        for path in batch.rows["path"].to_pylist()
    ]
    assert kept == [f"f{n}" for n in range(1, 12, 2)]
    # Kept in memory, and a large one on disk for everybody else.
    assert await gathered.snapshot("n", 7, HEAD, source) is snapshot
    assert source.asked == 1
    again = await Gathered(tmp_path, max_held=max_held).snapshot("n", 8, HEAD, source)
    assert (again.version, paths(again)) == (8, paths(snapshot))
    assert source.asked == (2 if max_held == 100 else 1)


async def test_an_empty_table(tmp_path: Path):
    assert paths(await Gathered(tmp_path).snapshot("n", 0, HEAD, Source(0))) == []


async def test_who_asks_at_the_same_time_waits_for_the_same(tmp_path: Path):
    source = Source(4)
    gathered = Gathered(tmp_path, max_held=4)
    asking = [asyncio.ensure_future(gathered.snapshot("n", 7, HEAD, source)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    found = await asyncio.gather(*asking[1:])
    assert source.asked == 1
    assert all(each is found[0] for each in found)


async def test_a_failure_is_told_and_not_kept(tmp_path: Path):
    source = Source(4)
    gathered = Gathered(tmp_path, max_held=4)
    source.failing = True
    with pytest.raises(Unsupported):
        await gathered.snapshot("n", 7, HEAD, source)
    source.failing = False
    assert len(paths(await gathered.snapshot("n", 7, HEAD, source))) == 12


async def test_a_source_that_fails_late_leaves_nothing_behind(tmp_path: Path):
    gathered = Gathered(tmp_path, max_held=4)

    async def failing() -> AsyncGenerator[list[Add], None]:
        async for page in Source(3)():
            yield page
        raise Unsupported("no such thing")

    with pytest.raises(Unsupported):
        await gathered.snapshot("n", 7, HEAD, failing)
    assert len(paths(await gathered.snapshot("n", 7, HEAD, Source(1)))) == 3


async def test_the_oldest_are_forgotten(tmp_path: Path):
    gathered = Gathered(tmp_path, max_snapshots=2)
    sources = [Source(1) for _ in range(3)]
    for number, source in enumerate(sources):
        await gathered.snapshot(f"n{number}", 1, HEAD, source)
    for number, source in enumerate(sources):
        await gathered.snapshot(f"n{number}", 1, HEAD, source)
    assert [source.asked for source in sources] == [2, 2, 2]
