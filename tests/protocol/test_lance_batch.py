"""Batches of mixed operations: all or none, in order, under races, and readable afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.fixtures.house import House, house
from tests.fixtures.lance import final_name, fragment, manifest, stage
from tests.protocol.test_lance_api import NS, TABLE, Lake, at, code, folder

BATCH = f"{TABLE}/batch-commit"


def name(table: str) -> list[str]:
    return ["main", "s", table]


def declare(table: str, **more: Any) -> dict[str, Any]:
    return {"declare_table": {"id": name(table), **more}}


def create(table: str, location: str, version: int, **more: Any) -> dict[str, Any]:
    return {"create_table_version": {"id": name(table), **stage(location, version, **more)}}


def delete(table: str, start: int, end: int) -> dict[str, Any]:
    ranges = [{"start_version": start, "end_version": end}]
    return {"delete_table_versions": {"id": name(table), "ranges": ranges}}


def deregister(table: str) -> dict[str, Any]:
    return {"deregister_table": {"id": name(table)}}


async def prepared(home: House) -> Lake:
    lake = Lake(home)
    await lake.ok(f"{NS}/main/create")
    await lake.ok(f"{NS}/main$s/create")
    return lake


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    async with house(tmp_path / "home") as home:
        yield await prepared(home)


async def test_four_kinds_in_one_batch(lake: Lake):
    a, b = await lake.declare("a"), await lake.declare("b")
    for version in (1, 2, 3):
        await lake.create("a", a, version)
    await lake.create("b", b, 1)
    before = await lake.home.last_event()
    told = await lake.ok(
        BATCH,
        {
            "operations": [
                create("b", b, 2),
                delete("a", 1, 3),
                create("a", a, 4),
                declare("c", properties={"x": "y"}),
                create("b", b, 3),
                deregister("a"),
                declare("a"),
            ]
        },
    )
    results = told["results"]
    assert [list(each) for each in results] == [
        ["create_table_version"],
        ["delete_table_versions"],
        ["create_table_version"],
        ["declare_table"],
        ["create_table_version"],
        ["deregister_table"],
        ["declare_table"],
    ]
    assert results[0]["create_table_version"]["version"]["version"] == 2
    assert results[1]["delete_table_versions"]["deleted_count"] == 2
    assert results[3]["declare_table"]["properties"] == {"x": "y"}
    assert results[5]["deregister_table"] == {"id": name("a"), "location": a, "properties": {}}
    assert results[6]["declare_table"]["location"] != a
    assert await lake.versions("b") == [1, 2, 3]
    assert await lake.versions("a") == []
    assert (folder(a) / "_versions" / final_name(4)).exists()
    assert (folder(b) / "_versions" / final_name(3)).exists()
    assert await lake.home.last_event() == before + 7
    shown = await lake.ok(f"/v1/transaction/{told['transaction_id']}/describe")
    assert shown["status"] == "SUCCEEDED"
    assert (shown["properties"]["operations"], shown["properties"]["tables"]) == ("7", "4")


async def test_later_operations_see_earlier_ones(lake: Lake):
    """A table that is declared in the batch has a place only afterwards, so its versions come by another."""
    a = await lake.declare("a")
    chain = [create("a", a, version) for version in range(1, 6)]
    await lake.ok(BATCH, {"operations": chain})
    assert await lake.versions("a") == [1, 2, 3, 4, 5]
    commits = (await lake.home.admin.ok("GET", "/catalogs/main/schemas/s/tables/a/commits"))["commits"]
    assert len({each["transaction"] for each in commits}) == 1
    twice = {"operations": [create("a", a, 6), create("a", a, 6)]}
    assert await lake.refused(BATCH, twice) == (409, 14)
    gone = {"operations": [deregister("a"), create("a", a, 6)]}
    answer = await lake.ask(BATCH, gone)
    assert code(answer) == (404, 4)
    assert answer.json["instance"].endswith("#operations[1]")
    assert await lake.versions("a") == [1, 2, 3, 4, 5]
    leaving = {"operations": [delete("a", 3, -1), deregister("a")]}
    assert (await lake.ok(BATCH, leaving))["results"][0]["delete_table_versions"]["deleted_count"] == 3


async def failing(lake: Lake, a: str, b: str) -> list[tuple[Any, tuple[int, int]]]:
    """An operation that is refused, and how."""
    nowhere = {"create_table_version": {**create("a", a, 2)["create_table_version"], "manifest_path": "x"}}
    missing = create("a", a, 2)
    Path("/" + missing["create_table_version"]["manifest_path"]).unlink()
    return [
        (create("a", a, 3), (409, 14)),
        (create("a", a, 1), (409, 14)),
        (nowhere, (400, 13)),
        (missing, (400, 13)),
        (create("a", a, 2, data=manifest(5, str(uuid4()))), (400, 13)),
        (create("none", a, 2), (404, 4)),
        (create("a", b, 2), (400, 13)),
        (declare("a"), (409, 5)),
        ({"declare_table": {"id": ["main", "none", "x"]}}, (404, 1)),
        ({"declare_table": {"id": ["main", "x"]}}, (400, 13)),
        ({"declare_table": {}}, (400, 13)),
        (declare("x", location="file:///etc"), (400, 13)),
        (delete("a", 1, 2), (409, 19)),
        (delete("a", -1, 2), (400, 13)),
        (delete("none", 0, -1), (404, 4)),
        (deregister("none"), (404, 4)),
        ({}, (400, 13)),
        ({**declare("x"), **deregister("a")}, (400, 13)),
    ]


async def test_every_kind_of_failure_leaves_nothing_behind(lake: Lake):
    a, b = await lake.declare("a"), await lake.declare("b")
    await lake.create("a", a, 1)
    await lake.create("b", b, 1)
    before = await lake.home.last_event()
    for operation, expected in await failing(lake, a, b):
        good = [create("b", b, 2), declare("fresh"), delete("b", 0, 1)]
        answer = await lake.ask(BATCH, {"operations": [*good, operation, declare("late")]})
        assert code(answer) == expected, operation
        assert answer.json["instance"] == "/lance/v1/table/batch-commit#operations[3]", operation
        assert await lake.home.last_event() == before, operation
    assert await lake.versions("a") == await lake.versions("b") == [1]
    assert (await lake.ok(f"{NS}/main$s/table/list", method="GET"))["tables"] == ["a", "b"]
    assert not (folder(b) / "_versions" / final_name(2)).exists()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"operations": []},
        {"operations": [{"drop_table": {"id": ["main", "s", "a"]}}]},
        {"operations": {}},
        {"operations": [deregister("a")] * 1_001},
    ],
)
async def test_what_is_no_batch(lake: Lake, body: Any):
    await lake.declare("a")
    before = await lake.home.last_event()
    assert await lake.refused(BATCH, body) == (400, 13)
    assert await lake.home.last_event() == before


async def test_a_batch_sent_twice_is_one(lake: Lake):
    a, b = await lake.declare("a"), await lake.declare("b")
    batch = {"operations": [create("a", a, 1), create("b", b, 1)]}
    first = await lake.ok(BATCH, batch)
    assert await lake.ok(BATCH, batch) == first
    assert await lake.versions("a") == await lake.versions("b") == [1]


async def test_batch_create(lake: Lake):
    a, b = await lake.declare("a"), await lake.declare("b")
    entries = [create(*each)["create_table_version"] for each in (("a", a, 1), ("b", b, 1), ("a", a, 2))]
    told = await lake.ok(f"{TABLE}/version/batch-create", {"entries": entries})
    assert [each["version"] for each in told["versions"]] == [1, 1, 2]
    wrong = [create("a", a, 3)["create_table_version"], create("b", b, 3)["create_table_version"]]
    answer = await lake.ask(f"{TABLE}/version/batch-create", {"entries": wrong})
    assert code(answer) == (409, 14)
    assert answer.json["instance"].endswith("#entries[1]")
    assert await lake.versions("a") == [1, 2]


async def test_transactions_are_described_and_carry_properties(lake: Lake):
    a = await lake.declare("a")
    uuid = str(uuid4())
    done = await lake.ok(f"{at('a')}/version/create", stage(a, 1, uuid=uuid))
    number = done["transaction_id"]
    for which in (f"main$s$a${uuid}", "main$s$a$1"):
        told = await lake.ok(f"/v1/transaction/{which}/describe")
        assert told["properties"]["uuid"] == uuid
        assert told["properties"]["transaction_id"] == number
    alter = f"/v1/transaction/{number}/alter"

    def set_(key: str, value: str, **more: str) -> dict[str, Any]:
        return {"setPropertyAction": {"key": key, "value": value, **more}}

    told = await lake.ok(alter, {"actions": [set_("job", "1"), set_("who", "me")]})
    assert (told["properties"]["job"], told["properties"]["who"]) == ("1", "me")
    failing = {"actions": [set_("who", "you"), set_("job", "2", mode="Fail")]}
    assert await lake.refused(alter, failing) == (409, 14)
    told = await lake.ok(alter, {"actions": [set_("job", "2", mode="skip")]})
    assert (told["properties"]["job"], told["properties"]["who"]) == ("1", "me")
    told = await lake.ok(alter, {"actions": [{"unsetPropertyAction": {"key": "job"}}]})
    assert "job" not in told["properties"]
    cancel = {"actions": [{"setStatusAction": {"status": "canceled"}}]}
    assert await lake.refused(alter, cancel) == (409, 14)
    assert await lake.refused(alter, {"actions": []}) == (400, 13)
    stranger = Lake(lake.home)
    stranger.token = (await lake.home.user("stranger")).token
    assert await stranger.refused(f"/v1/transaction/{number}/describe") == (404, 10)
    assert await stranger.refused(alter, {"actions": [set_("a", "b")]}) == (404, 10)


# --- many at once ---

TABLES = 500


async def history(lake: Lake, rounds: int) -> None:
    """Batches over all tables against single commits of some: each is wholly there, or not at all."""
    rng = random.Random(7)
    tables = [f"t{number:03}" for number in range(TABLES)]
    declared = (await lake.ok(BATCH, {"operations": [declare(each) for each in tables]}))["results"]
    places = {
        table: result["declare_table"]["location"] for table, result in zip(tables, declared, strict=True)
    }
    stands = dict.fromkeys(tables, 0)
    batches: dict[str, bool] = {}
    singles: dict[str, tuple[str, bool]] = {}

    async def batch(number: int) -> None:
        operations = [
            create(table, places[table], stands[table] + step, uuid=f"batch-{number}-{step}")
            for step in (1, 2)
            for table in tables
        ]
        answer = await lake.ask(BATCH, {"operations": operations})
        assert answer.status == 200 or code(answer) == (409, 14), answer
        batches[f"batch-{number}-1"] = batches[f"batch-{number}-2"] = answer.status == 200

    async def single(table: str) -> None:
        uuid = str(uuid4())
        body = stage(places[table], stands[table] + 1, uuid=uuid)
        answer = await lake.ask(f"{at(table)}/version/create", body)
        assert answer.status == 200 or code(answer) == (409, 14), answer
        singles[uuid] = table, answer.status == 200

    for number in range(rounds):
        chosen = [] if number == 0 else rng.sample(tables, 20)
        work = [batch(number), *(single(table) for table in chosen)]
        rng.shuffle(work)
        await asyncio.gather(*work)
        for table in tables:
            found = await lake.versions(table, limit=1, descending="true")
            stands[table] = found[0] if found else 0
    assert batches["batch-0-1"]
    assert False in batches.values() or not all(ok for _, ok in singles.values()), "nobody met anybody"
    won = {token for token, ok in batches.items() if ok}
    ids = {table: (await lake.home.app.store.table_by_name("main", ["s"], table)) for table in tables}
    for table, known in ids.items():
        assert known is not None
        commits = await lake.home.app.store.commits(known.id, "", 0, 2**62, 1_000)
        versions = [commit.version for commit in commits]
        assert versions == list(range(len(versions), 0, -1))
        tokens = [commit.token for commit in commits]
        assert {token for token in tokens if token.startswith("batch-")} == won, table
        assert {token for token in tokens if not token.startswith("batch-")} == {
            uuid for uuid, (where, ok) in singles.items() if ok and where == table
        }
        for version in versions:
            assert (folder(places[table]) / "_versions" / final_name(version)).exists()


@pytest.mark.slow
async def test_a_thousand_operations_over_five_hundred_tables(lake: Lake):
    await history(lake, 4)


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_thousand_operations_on_a_server_database(tmp_path: Path, postgres_url: str):
    async with house(tmp_path / "home", postgres_url) as home:
        await history(await prepared(home), 3)


async def test_large_manifests_wait_on_storage(lake: Lake):
    """What is too large for the database is copied to where no client deletes it."""
    a, b = await lake.declare("a"), await lake.declare("b")
    many = tuple(fragment(number, 10) for number in range(12_000))
    finalizing = lake.home.app.services.lance.finalizing

    def copies(place: str) -> list[Path]:
        return list((folder(place) / "_inver").glob("*"))

    data = manifest(1, str(uuid4()), many)
    assert len(data) > 256 * 1024
    body = stage(a, 1, data=data)
    await lake.ok(f"{at('a')}/version/create", body)
    final = folder(a) / "_versions" / final_name(1)
    assert final.read_bytes() == data
    final.unlink()
    Path("/" + body["manifest_path"]).unlink()
    finalizing._done.clear()
    finalizing._placed.clear()
    assert await lake.versions("a", limit=1, descending="true") == [1]
    assert final.read_bytes() == data
    await finalizing.let_go()
    assert copies(a) == []
    rivals = [stage(b, 1, data=manifest(1, str(uuid4()), many)) for _ in range(2)]
    answers = await asyncio.gather(*(lake.ask(f"{at('b')}/version/create", each) for each in rivals))
    assert sorted(answer.status for answer in answers) == [200, 409]
    assert len(copies(b)) == 1, "who lost leaves nothing"


async def test_the_newest_manifest_comes_back_as_long_as_the_database_has_it(lake: Lake):
    a = await lake.declare("a")
    for version in (1, 2):
        await lake.create("a", a, version)
    finals = [folder(a) / "_versions" / final_name(version) for version in (1, 2)]
    kept = finals[1].read_bytes()
    for final in finals:
        final.unlink()
    await lake.home.app.services.lance.finalizing.let_go()
    assert finals[1].read_bytes() == kept
    assert not finals[0].exists(), "an old version may have been cleaned up"
    assert await lake.home.app.store.waiting_records(10) == []


async def test_a_branch_that_its_client_deleted_does_not_come_back(lake: Lake):
    a = await lake.declare("a")
    await lake.create("a", a, 1)
    ref = folder(a) / "_refs" / "branches" / "dev.json"
    ref.parent.mkdir(parents=True)
    manifests = folder(a) / "tree" / "dev" / "_versions"
    for there in (True, False):
        ref.write_text("{}")
        await lake.create("a", a, 2 if there else 3, branch="dev")
        for manifest_file in manifests.iterdir():
            manifest_file.unlink()
        if not there:
            ref.unlink()
        await lake.home.app.services.lance.finalizing.let_go()
        assert bool(list(manifests.iterdir())) is there


async def test_what_leaves_in_a_batch_is_told_with_its_properties(lake: Lake):
    a = (await lake.ok(f"{at('a')}/declare", {"properties": {"x": "y"}}))["location"]
    told = await lake.ok(BATCH, {"operations": [create("a", a, 1), deregister("a")]})
    assert told["results"][1]["deregister_table"]["properties"] == {"x": "y"}
