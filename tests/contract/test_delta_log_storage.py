"""Delta logs in an object store, read as those in a folder are."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from inver.domain.locations import Location
from inver.formats.delta_log.changes import changes, plan_changes
from inver.formats.delta_log.reader import LogReader
from inver.formats.delta_log.source import Log
from tests.contract.test_storage import s3_store
from tests.fixtures.delta_log import FEED, KINDS, PROTOCOL, LogFolder, add, files_of, remove

pytestmark = [pytest.mark.anyio, pytest.mark.s3]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_log_in_s3(s3_server, tmp_path: Path, kind: str):
    folder = LogFolder(tmp_path / "table")
    folder.checkpoint(2, [PROTOCOL, FEED, add("a%20b"), *(add(f"{n}", n) for n in range(50))], kind)
    folder.commit(3, remove("7"), add("new"))
    folder.commit(4, add("last"))
    store = s3_store(s3_server, Location.parse(f"s3://{s3_server.bucket}/{uuid4()}/table"))
    for path in folder.folder.rglob("*"):
        if path.is_file():
            await store.put(path.relative_to(folder.folder).as_posix(), path.read_bytes())
    reader, log = LogReader(tmp_path / "cache"), Log(store, "t")
    found = await reader.snapshot(log)
    assert files_of(found) == files_of(await reader.snapshot(folder.open("local")))
    assert await reader.snapshot(log) is found
    listed = await reader.listing(log)
    plan = await plan_changes(reader, log, listed, 3, 4)
    assert [len(commit.files) async for commit in changes(reader, plan)] == [2, 1]
    history = await reader.history(log, listed)
    assert await history.timestamp(3) < await history.timestamp(4)
