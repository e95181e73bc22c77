"""The next version of a table that this server knows: what is remembered of it is never the last word.

A batch stands for another server here, since it leaves nothing to remember behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.fixtures.house import house
from tests.fixtures.lance import final_name, fragment, manifest, stage
from tests.protocol.test_lance_api import Lake, at, folder
from tests.protocol.test_lance_batch import BATCH, create, declare, prepared

RIGHTS = (
    ("USE_CATALOG", "catalog", "main"),
    ("USE_SCHEMA", "schema", "main", "s"),
    ("MODIFY", "table", "main", "s", "t"),
)


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    async with house(tmp_path / "home") as home:
        yield await prepared(home)


async def elsewhere(lake: Lake, table: str, location: str, version: int, **staging: Any) -> None:
    operations = [create(table, location, version, **staging), declare(f"u{uuid4().hex}")]
    await lake.ok(BATCH, {"operations": operations})


async def test_another_table_that_has_the_name_by_now(lake: Lake):
    before = await lake.declare()
    await lake.create("t", before, 1)
    await lake.ok(f"{at('t')}/deregister")
    after = await lake.declare()
    await elsewhere(lake, "t", after, 1)
    told = await lake.create("t", after, 2)
    assert told["version"]["manifest_path"].startswith(str(folder(after))[1:])
    assert await lake.versions() == [1, 2]
    assert not (folder(before) / "_versions" / final_name(2)).exists()


async def test_a_table_that_is_gone(lake: Lake):
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.ok(f"{at('t')}/drop")
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 2)) == (404, 4)


async def test_a_table_that_has_another_name_by_now(lake: Lake):
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.ok(f"{at('t')}/rename", {"new_table_name": "v"})
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 2)) == (404, 4)
    await lake.create("v", location, 2)
    assert await lake.versions("v") == [1, 2]


async def test_versions_that_others_made(lake: Lake):
    location = await lake.declare()
    await lake.create("t", location, 1)
    await elsewhere(lake, "t", location, 2)
    assert await lake.refused(f"{at('t')}/version/create", stage(location, 2)) == (409, 14)
    await elsewhere(lake, "t", location, 3)
    await lake.create("t", location, 4)
    await lake.create("t", location, 5)
    assert await lake.versions() == [1, 2, 3, 4, 5]


async def test_the_same_commit_written_anew_does_not_replace_what_was_decided(lake: Lake):
    """A client that heard no answer stages its manifest once more, with other bytes."""
    location = await lake.declare()
    await lake.create("t", location, 1)
    uuid = str(uuid4())
    decided = manifest(2, uuid)
    await elsewhere(lake, "t", location, 2, data=decided)
    again = stage(location, 2, data=manifest(2, uuid, fragments=(fragment(2, 11),)))
    told = await lake.ok(f"{at('t')}/version/create", again)
    assert told["version"]["version"] == 2
    assert told["version"]["manifest_size"] == len(decided)
    assert (folder(location) / "_versions" / final_name(2)).read_bytes() == decided
    assert not (folder(location) / "_quarantine").exists()
    assert await lake.versions() == [1, 2]


async def test_who_may_not_commit_any_more_is_refused(lake: Lake):
    location = await lake.declare()
    writer = await lake.home.user("writer")
    theirs = Lake(lake.home)
    theirs.token = writer.token
    await lake.create("t", location, 1)
    assert await theirs.refused(f"{at('t')}/version/create", stage(location, 2)) == (404, 4)
    for privilege, kind, *name in RIGHTS:
        await lake.home.grant("writer", [privilege], kind, *name)
    await theirs.create("t", location, 2)
    await theirs.create("t", location, 3)
    for privilege, kind, *name in RIGHTS:
        await lake.home.revoke("writer", [privilege], kind, *name)
    assert await theirs.refused(f"{at('t')}/version/create", stage(location, 4)) == (404, 4)
    assert await lake.versions() == [1, 2, 3]
