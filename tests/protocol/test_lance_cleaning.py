"""What commits leave behind when they are refused, and how it goes without taking anything that is needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from inver.domain.ledger import Transaction
from inver.domain.principals import ADMIN
from inver.services.context import Caller
from inver.services.followup import LEASE_MS
from inver.services.lance.cleaning import CLEAN, UNPLACE
from inver.services.lance.types import Declare
from tests.fixtures.house import house
from tests.fixtures.lance import final_name, fragment, manifest, stage
from tests.protocol.test_lance_api import Lake, at, code, folder
from tests.protocol.test_lance_batch import BATCH, create, prepared

DAY = 86_400_000


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    async with house(tmp_path / "home") as home:
        yield await prepared(home)


def staged(lake: Lake, body: dict[str, Any]) -> Path:
    """Where a manifest waits; it was written just now, by the clock of the house."""
    path = Path("/" + body["manifest_path"])
    now_s = lake.home.clock.now_ms() / 1000
    os.utime(path, (now_s, now_s))
    return path


async def losing(
    lake: Lake, location: str, version: int = 1, branch: str = "", wrong: dict[str, Any] | None = None
) -> Path:
    """A commit that is refused, for its version or for what is wrong with it."""
    body = stage(location, version, branch=branch)
    path = staged(lake, body)
    answer = await lake.ask(f"{at('t')}/version/create", {**body, **(wrong or {})})
    assert 400 <= answer.status < 500, answer
    assert path.exists()
    return path


async def work(lake: Lake, kind: str = CLEAN) -> list[tuple[str, int]]:
    """What is to be done, and in how many milliseconds."""
    found = await lake.home.app.store.work(100)
    now = lake.home.clock.now_ms()
    return [(item.subject, item.not_before - now) for item in found if item.kind == kind]


async def later(lake: Lake, milliseconds: int = DAY) -> int:
    """Time goes by, and what is due then is done."""
    lake.home.clock.advance(milliseconds)
    return await lake.home.app.services.followup.step()


@pytest.fixture
async def table(lake: Lake) -> str:
    """One with a version, whose manifest has its final name."""
    location = await lake.declare()
    await lake.create("t", location, 1)
    await lake.home.app.services.lance.finalizing.let_go()
    return location


async def test_what_a_lost_commit_staged_goes_after_its_time(lake: Lake, table: str):
    orphan = await losing(lake, table)
    [(_, due)] = await work(lake)
    assert due == DAY
    assert await later(lake, DAY - 1) == 0
    assert orphan.exists()
    assert await later(lake, 1) == 1
    assert not orphan.exists()
    assert await work(lake) == []
    assert await lake.versions() == [1]
    assert sorted(os.listdir(orphan.parent)) == [final_name(1)]
    await lake.create("t", table, 2)


@pytest.mark.parametrize(
    "wrong", [{"manifest_size": 1}, {"version": 3}, {"manifest_path": "elsewhere"}], ids=str
)
async def test_so_does_what_was_refused_for_being_wrong(lake: Lake, table: str, wrong: dict[str, Any]):
    orphan = await losing(lake, table, 2, wrong=wrong)
    await later(lake)
    assert not orphan.exists()
    assert await lake.versions() == [1]


async def test_a_refused_batch_leaves_nothing(lake: Lake, table: str):
    other = await lake.declare("u")
    batch = [create("u", other, 1), create("t", table, 1)]
    paths = [staged(lake, each["create_table_version"]) for each in batch]
    assert code(await lake.ask(BATCH, {"operations": batch})) == (409, 14)
    assert sorted(due for _, due in await work(lake)) == [DAY, DAY]
    await later(lake)
    assert not any(path.exists() for path in paths)
    assert await lake.versions("u") == []
    assert await lake.versions() == [1]


async def test_a_refused_transaction_across_formats_leaves_nothing(lake: Lake, table: str):
    body = stage(table, 3)
    orphan = staged(lake, body)
    created = {"create_table_version": {"id": ["main", "s", "t"], **body}}
    asked = {"operations": [{"op": "lance", "operation": created}]}
    answer = await lake.home.admin.post("/transactions", asked)
    assert answer.status == 409, answer
    await later(lake)
    assert not orphan.exists()


async def test_branches_are_cleaned_too(lake: Lake, table: str):
    await lake.create("t", table, 2, branch="b")
    await lake.home.app.services.lance.finalizing.let_go()
    orphan = await losing(lake, table, 2, branch="b")
    assert orphan.parent == folder(table) / "tree" / "b" / "_versions"
    await later(lake)
    assert os.listdir(orphan.parent) == [final_name(2)]


async def test_however_many_lose_one_look_is_enough(lake: Lake, table: str):
    orphans = [await losing(lake, table) for _ in range(5)]
    assert len(await work(lake)) == 1
    lake.home.clock.advance(DAY // 2)
    young = await losing(lake, table)
    assert len(await work(lake)) == 1
    await later(lake, DAY // 2)
    assert not any(orphan.exists() for orphan in orphans)
    # What came later has its own time, and gets its own look.
    assert young.exists()
    assert [due for _, due in await work(lake)] == [DAY]
    await later(lake)
    assert not young.exists()
    assert await work(lake) == []


async def test_a_decided_version_never_loses_its_manifest(lake: Lake, table: str):
    """Also while it still lies where its writer staged it."""
    body = stage(table, 2)
    path = staged(lake, body)
    await lake.ok(f"{at('t')}/version/create", body)
    final = folder(table) / "_versions" / final_name(2)
    data = final.read_bytes()
    final.unlink()
    if not path.exists():
        path.write_bytes(data)
        staged(lake, body)
    orphan = await losing(lake, table)
    # As after a crash between the decision and the final name, which nobody has looked at since.
    finalizing = lake.home.app.services.lance.finalizing
    finalizing._done.clear()
    finalizing._placed.clear()
    await later(lake)
    assert not orphan.exists()
    assert path.read_bytes() == data
    assert await lake.versions(limit=1, descending="true") == [2]
    assert final.read_bytes() == data
    # When it has its final name, what was staged is one more leftover.
    await finalizing.let_go()
    path.write_bytes(data)
    staged(lake, body)
    await losing(lake, table)
    await later(lake)
    assert not path.exists()
    assert await lake.versions() == [1, 2]


async def test_a_commit_on_its_way_does_not_need_what_it_staged(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch
):
    """The cleaning comes between reading the manifest and the decision, a day after it was staged."""
    await losing(lake, table)
    body = stage(table, 2)
    path = staged(lake, body)
    lake.home.clock.advance(DAY)
    services = lake.home.app.services
    item = (await lake.home.app.store.claim_work([CLEAN], "w", lake.home.clock.now_ms(), 1, 1))[0]
    read = services.lance.commits._manifests.staged

    async def cleaned_at_once(*given: Any) -> Any:
        found = await read(*given)
        await services.lance.cleaning.clean(item)
        assert not path.exists()
        return found

    monkeypatch.setattr(services.lance.commits._manifests, "staged", cleaned_at_once)
    await lake.ok(f"{at('t')}/version/create", body)
    assert await lake.versions() == [1, 2]
    assert (folder(table) / "_versions" / final_name(2)).read_bytes().endswith(b"LANC")


async def test_cleaning_goes_on_after_a_crash(lake: Lake, tmp_path: Path, table: str):
    """A server that has claimed the work dies, with half of it or all of it done."""
    store, clock = lake.home.app.store, lake.home.clock
    for done in (1, 2):
        orphans = [await losing(lake, table), await losing(lake, table)]
        clock.advance(DAY)
        claimed = await store.claim_work([CLEAN], "dies", clock.now_ms(), LEASE_MS, 16)
        assert len(claimed) == 1
        for orphan in orphans[:done]:
            orphan.unlink()
        assert await later(lake, LEASE_MS - 1) == 0
        assert await later(lake, 1) == 1
        assert not any(orphan.exists() for orphan in orphans)
        assert await work(lake) == []
    assert await lake.versions() == [1]


async def test_what_left_the_catalog_is_left_alone(lake: Lake, table: str):
    orphan = await losing(lake, table)
    await lake.ok(f"{at('t')}/deregister")
    await later(lake)
    assert orphan.exists()
    assert await work(lake) == []


async def test_copies_of_large_manifests_go_unless_a_version_waits_for_them(lake: Lake, table: str):
    many = tuple(fragment(number, 10) for number in range(12_000))
    finalizing = lake.home.app.services.lance.finalizing
    body = stage(table, 2, data=manifest(2, str(uuid4()), many))
    await lake.ok(f"{at('t')}/version/create", body)
    finalizing._placed.clear()
    [needed] = (folder(table) / "_inver").iterdir()
    left = needed.with_name(str(uuid4()))
    left.write_bytes(b"of a commit that a crash ended before it was decided")
    now_s = lake.home.clock.now_ms() / 1000
    for path in (needed, left):
        os.utime(path, (now_s, now_s))
    await losing(lake, table)
    await later(lake)
    assert list((folder(table) / "_inver").iterdir()) == [needed]


async def test_who_may_not_commit_causes_no_work(lake: Lake, table: str):
    ada = await lake.home.user("ada")
    lake.token = ada.token
    body = stage(table, 2)
    assert (await lake.ask(f"{at('t')}/version/create", body)).status in (403, 404)
    assert await work(lake) == []


async def test_the_folder_of_a_table_that_was_not_made_goes(lake: Lake):
    """A server dies while it writes the data of a new table, or right after it has made it."""
    store, services = lake.home.app.store, lake.home.app.services
    caller = Caller(msgspec.structs.replace(ADMIN, epoch=await store.epoch()))
    for made in (False, True):
        plan = await services.lance.commits.plan(caller, [(0, Declare(("main", "s", "new")))])
        table = plan.declared[0].table
        await services.lance.cleaning.reserve(table)
        data = folder(table.location) / "data" / "1.lance"
        data.parent.mkdir(parents=True)
        data.write_bytes(b"rows")
        assert await work(lake, UNPLACE) == [(table.id, DAY)]
        if made:
            await store.decide(Transaction(ADMIN.id, lake.home.clock.now_ms(), tuple(plan.operations)))
            await services.lance.cleaning.abandon(table)
        assert data.exists()
        await later(lake)
        assert data.exists() is made
        assert await work(lake, UNPLACE) == []


async def test_eight_that_race_leave_only_the_winner(lake: Lake, table: str):
    bodies = [stage(table, 2) for _ in range(8)]
    paths = [staged(lake, body) for body in bodies]
    answers = await asyncio.gather(*(lake.ask(f"{at('t')}/version/create", body) for body in bodies))
    assert sorted(answer.status for answer in answers) == [200, *[409] * 7]
    await lake.home.app.services.lance.finalizing.let_go()
    await later(lake)
    assert not any(path.exists() for path in paths)
    assert await lake.versions() == [1, 2]


@pytest.mark.postgres
async def test_on_a_server_database(tmp_path: Path, postgres_url: str):
    async with house(tmp_path / "home", database=postgres_url) as home:
        lake = await prepared(home)
        location = await lake.declare()
        await lake.create("t", location, 1)
        orphan = await losing(lake, location)
        assert [due for _, due in await work(lake)] == [DAY]
        await later(lake)
        assert not orphan.exists()
        assert await lake.versions() == [1]
